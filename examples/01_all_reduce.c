/* Every rank receives the sum of all ranks' vectors. Run: hocket-run -n 4 example_01_all_reduce */
#include <hocket/hocket.h>
#include <stdio.h>

#define CHECK(call)                                               \
  if ((call) != hocketSuccess) {                                  \
    fprintf(stderr, "%s: %s\n", #call, hocketGetLastError(NULL)); \
    return 1;                                                     \
  }

int main(void) {
  hocketComm_t comm;
  CHECK(hocketCommInitFromEnv(&comm, NULL)); /* hocket-run gives rank and number of ranks */
  int rank, ranks;
  CHECK(hocketCommUserRank(comm, &rank));
  CHECK(hocketCommCount(comm, &ranks));

  float* x; /* ranks of this host access this memory directly; memory from malloc is copied */
  CHECK(hocketMemAlloc((void**)&x, 1000 * sizeof *x));
  for (int i = 0; i < 1000; ++i) x[i] = (float)(rank + i);
  CHECK(hocketAllReduce(x, x, 1000, hocketFloat32, hocketSum, comm, NULL));

  printf("rank %d of %d: the sum ends in %g\n", rank, ranks, x[999]);
  const float expected = (float)(ranks * 999 + ranks * (ranks - 1) / 2);
  if (x[999] != expected) return 1;
  CHECK(hocketMemFree(x));
  CHECK(hocketCommDestroy(comm));
  return 0;
}
