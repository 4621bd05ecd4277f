/* Sorts numbers that are distributed over all ranks, a different count on each. A rank sends to
 * each rank the numbers of that rank's range. Run: hocket-run -n 4 example_07_distributed_sort */
#include <hocket/hocket.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                               \
  if ((call) != hocketSuccess) {                                  \
    fprintf(stderr, "%s: %s\n", #call, hocketGetLastError(NULL)); \
    return 1;                                                     \
  }

enum { most_ranks = 64 };

static uint32_t next_random(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 1;
}

/* The rank whose range contains the number. The ranges are equal parts of 0 .. 2^31 - 1. */
static int owner_of(uint32_t number, int ranks) {
  return (int)(((uint64_t)number * (uint64_t)ranks) >> 31);
}

static int compare(const void* a, const void* b) {
  const uint32_t x = *(const uint32_t*)a, y = *(const uint32_t*)b;
  return (x > y) - (x < y);
}

/* Whether the numbers are sorted and in this rank's range. Subtracts their count and their sum from
 * totals, so that main can check that no number was lost. */
static int is_right(const uint32_t* sorted, size_t count, uint64_t totals[2], int rank, int ranks) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && sorted[i - 1] > sorted[i]) return 0;
    if (owner_of(sorted[i], ranks) != rank) return 0;
    sum += sorted[i];
  }
  totals[0] -= count; /* wraps: the totals of all ranks together become 0 */
  totals[1] -= sum;
  return 1;
}

int main(void) {
  hocketComm_t comm;
  CHECK(hocketCommInitFromEnv(&comm, NULL));
  int rank, ranks;
  CHECK(hocketCommUserRank(comm, &rank));
  CHECK(hocketCommCount(comm, &ranks));
  if (ranks > most_ranks) return 1;

  const size_t count = 10000 + 1000 * (size_t)rank;
  uint32_t* mine = malloc(count * sizeof *mine);
  uint32_t state = (uint32_t)rank;
  uint64_t totals[2] = {count, 0}; /* numbers, and their sum */
  if (mine == NULL) return 1;
  for (size_t i = 0; i < count; ++i) totals[1] += mine[i] = next_random(&state);

  /* In order, the numbers for rank 0 come first, then those for rank 1, and so on. */
  qsort(mine, count, sizeof *mine, compare);
  size_t sent[most_ranks] = {0}, received[most_ranks], total = 0;
  for (size_t i = 0; i < count; ++i) ++sent[owner_of(mine[i], ranks)];
  CHECK(hocketAlltoAll(sent, received, 1, hocketUint64, comm, NULL));
  for (int r = 0; r < ranks; ++r) total += received[r];

  /* Without displacements (NULL) the blocks follow one another. */
  uint32_t* sorted = malloc((total + 1) * sizeof *sorted);
  if (sorted == NULL) return 1;
  CHECK(hocketAlltoAllV(mine, sent, NULL, sorted, received, NULL, hocketUint32, comm, NULL));
  qsort(sorted, total, sizeof *sorted, compare);

  int right = is_right(sorted, total, totals, rank, ranks);
  CHECK(hocketAllReduce(totals, totals, 2, hocketUint64, hocketSum, comm, NULL));
  right = right && totals[0] == 0 && totals[1] == 0;
  printf("rank %d of %d: had %zu numbers, has %zu%s\n", rank, ranks, count, total,
         right ? "" : ", which are wrong");
  free(mine);
  free(sorted);
  CHECK(hocketCommDestroy(comm));
  return right ? 0 : 1;
}
