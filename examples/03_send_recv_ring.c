/* A parcel (an array) travels round a ring of ranks. Every rank sends to its right neighbour and
 * receives from its left neighbour at the same time: in a group both calls progress together.
 * Without the group all ranks would wait in hocketSend. */
#include <hocket/hocket.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                               \
  if ((call) != hocketSuccess) {                                  \
    fprintf(stderr, "%s: %s\n", #call, hocketGetLastError(NULL)); \
    return 1;                                                     \
  }

enum { elements = 1 << 20 }; /* 8 MiB: a send this large waits for its receive */

int main(void) {
  hocketComm_t comm;
  int rank, ranks;
  CHECK(hocketCommInitFromEnv(&comm, NULL));
  CHECK(hocketCommUserRank(comm, &rank));
  CHECK(hocketCommCount(comm, &ranks));
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;

  int64_t* parcel = malloc(sizeof *parcel * elements);
  int64_t* next = malloc(sizeof *next * elements);
  if (parcel == NULL || next == NULL) return 1;
  for (int i = 0; i < elements; ++i) parcel[i] = (int64_t)rank * elements + i;

  for (int hop = 0; ranks > 1 && hop < ranks; ++hop) {
    CHECK(hocketGroupStart());
    CHECK(hocketSend(parcel, elements, hocketInt64, right, comm, NULL));
    CHECK(hocketRecv(next, elements, hocketInt64, left, comm, NULL));
    CHECK(hocketGroupEnd()); /* both have ended */
    int64_t* swap = parcel;
    parcel = next;
    next = swap;
  }

  for (int i = 0; i < elements; ++i) {
    if (parcel[i] != (int64_t)rank * elements + i) {
      fprintf(stderr, "rank %d: element %d came home changed\n", rank, i);
      return 1;
    }
  }
  printf("rank %d: the parcel is home after %d hops\n", rank, ranks);
  free(parcel);
  free(next);
  CHECK(hocketCommDestroy(comm));
  return 0;
}
