/* The lowest and the highest value of all ranks, and the rank that has it: a user-defined operator
 * on a user-defined datatype. Run: hocket-run -n 4 example_06_minimum_location */
#include <hocket/hocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                               \
  if ((call) != hocketSuccess) {                                  \
    fprintf(stderr, "%s: %s\n", #call, hocketGetLastError(NULL)); \
    return 1;                                                     \
  }

enum { places = 1000 };

struct Found {
  double value;
  long rank;
};

/* Of two equal values that of the lower rank is better, so that the operators are commutative. */
static int is_better(const struct Found* a, const struct Found* b, double sign) {
  return sign * a->value < sign * b->value || (a->value == b->value && a->rank < b->rank);
}

/* inout[i] = in[i] op inout[i]; context: 1 for the minimum, -1 for the maximum. */
static void keep_better(void* context, const void* in, void* inout, size_t count,
                        hocketDataType_t datatype) {
  const struct Found* a = in;
  struct Found* b = inout;
  (void)datatype;
  for (size_t i = 0; i < count; ++i) {
    if (is_better(&a[i], &b[i], *(double*)context)) b[i] = a[i];
  }
}

/* A value that every rank can compute for every rank. */
static double value_of(int rank, int place) { return (rank * 7919 + place * 104729) % 1009; }

static int is_right(const struct Found* found, double sign, int ranks) {
  for (int i = 0; i < places; ++i) {
    struct Found best = {value_of(0, i), 0};
    for (int r = 1; r < ranks; ++r) {
      const struct Found other = {value_of(r, i), r};
      if (is_better(&other, &best, sign)) best = other;
    }
    if (found[i].value != best.value || found[i].rank != best.rank) return 0;
  }
  return 1;
}

int main(void) {
  hocketComm_t comm;
  CHECK(hocketCommInitFromEnv(&comm, NULL));
  int rank, ranks;
  CHECK(hocketCommUserRank(comm, &rank));
  CHECK(hocketCommCount(comm, &ranks));

  /* hocket moves the elements as bytes, and splits none. */
  hocketDataType_t found;
  CHECK(hocketTypeCreateContiguous(&found, sizeof(struct Found), hocketUint8));
  double up = 1, down = -1;
  hocketRedOp_t minimum, maximum;
  CHECK(hocketRedOpCreateUser(&minimum, keep_better, &up, 1, "minimum + rank", comm));
  CHECK(hocketRedOpCreateUser(&maximum, keep_better, &down, 1, "maximum + rank", comm));

  struct Found* lowest = malloc(places * sizeof *lowest);
  struct Found* highest = malloc(places * sizeof *highest);
  if (lowest == NULL || highest == NULL) return 1;
  for (int i = 0; i < places; ++i) {
    lowest[i].value = value_of(rank, i);
    lowest[i].rank = rank;
  }
  memcpy(highest, lowest, places * sizeof *lowest);
  CHECK(hocketAllReduce(lowest, lowest, places, found, minimum, comm, NULL));
  CHECK(hocketAllReduce(highest, highest, places, found, maximum, comm, NULL));
  printf("rank %d of %d: the first place has %g on rank %ld and %g on rank %ld\n", rank, ranks,
         lowest[0].value, lowest[0].rank, highest[0].value, highest[0].rank);
  const int right = is_right(lowest, up, ranks) && is_right(highest, down, ranks);

  free(lowest);
  free(highest);
  CHECK(hocketRedOpDestroy(minimum, comm));
  CHECK(hocketRedOpDestroy(maximum, comm));
  CHECK(hocketTypeDestroy(found));
  CHECK(hocketCommDestroy(comm));
  return right ? 0 : 1;
}
