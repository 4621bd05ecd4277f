/* A program outside of the repository: an all-reduce with a check, in memory of malloc and of
 * hocketMemAlloc. */
#include <hocket/hocket.h>
#include <stdio.h>
#include <stdlib.h>

#if HOCKET_VERSION_CODE < HOCKET_VERSION(0, 1, 0)
#error "HOCKET_VERSION_CODE is less than the code of the first version"
#endif

static int failed(const char* what, hocketResult_t result) {
  if (result == hocketSuccess) return 0;
  fprintf(stderr, "%s: %s: %s\n", what, hocketGetErrorString(result), hocketGetLastError(NULL));
  return 1;
}

/* The input of a rank is rank + 1. */
static int all_reduce(hocketComm_t comm, int32_t* data, size_t count, int32_t expected) {
  int rank = -1;
  size_t i, wrong = 0;
  if (failed("rank", hocketCommUserRank(comm, &rank))) return 1;
  for (i = 0; i < count; ++i) data[i] = rank + 1;
  if (failed("all-reduce",
             hocketAllReduce(data, data, count, hocketInt32, hocketSum, comm, NULL))) {
    return 1;
  }
  for (i = 0; i < count; ++i) wrong += data[i] != expected;
  if (wrong != 0) fprintf(stderr, "rank %d: %lu elements wrong\n", rank, (unsigned long)wrong);
  return wrong != 0;
}

int main(int argc, char** argv) {
  const size_t count = 100003;
  hocketComm_t comm = HOCKET_COMM_NULL;
  int version = 0, ranks = 0, bad = 0;
  void* shared = NULL;
  int32_t* plain = malloc(count * sizeof *plain);
  int32_t expected;
  (void)argv;
  if (plain == NULL || failed("version", hocketGetVersion(&version))) return 1;
  if (version != HOCKET_VERSION_CODE) {
    fprintf(stderr, "library %d, header %d\n", version, HOCKET_VERSION_CODE);
    return 1;
  }
  if (failed("destroy nothing", hocketCommDestroy(comm))) return 1;
  if (failed("init", hocketCommInitFromEnv(&comm, NULL))) return 1;
  if (failed("count", hocketCommCount(comm, &ranks))) return 1;
  if (ranks != 2) {
    fprintf(stderr, "2 ranks were started, %d are here\n", ranks);
    return 1;
  }
  expected = argc > 1 ? -1 : ranks * (ranks + 1) / 2; /* an argument asks for what cannot be */
  bad |= all_reduce(comm, plain, count, expected);
  bad |= failed("alloc", hocketMemAlloc(&shared, count * sizeof *plain));
  if (shared != NULL) bad |= all_reduce(comm, shared, count, expected);
  bad |= failed("free", hocketMemFree(shared));
  bad |= failed("destroy", hocketCommDestroy(comm));
  free(plain);
  return bad;
}
