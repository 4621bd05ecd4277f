/* Communication at the same time as computation: while a stream's worker sums layer i over all
 * ranks, this thread computes layer i + 1, as training does with gradients. */
#include <hocket/hocket.h>
#include <stdio.h>

#define CHECK(call)                                               \
  if ((call) != hocketSuccess) {                                  \
    fprintf(stderr, "%s: %s\n", #call, hocketGetLastError(NULL)); \
    return 1;                                                     \
  }

enum { layers = 8, elements = 1 << 18 };

/* Stands for a backward pass: fills a layer's gradient. */
static void compute(float* gradient, int layer, int rank) {
  for (int i = 0; i < elements; ++i) gradient[i] = (float)((layer + 1) * (rank + 1) + i % 7);
}

int main(void) {
  hocketComm_t comm;
  hocketStream_t stream;
  hocketEvent_t first_layer;
  int rank, ranks, ready = 0;
  float* gradients;
  CHECK(hocketCommInitFromEnv(&comm, NULL));
  CHECK(hocketCommUserRank(comm, &rank));
  CHECK(hocketCommCount(comm, &ranks));
  CHECK(hocketMemAlloc((void**)&gradients, sizeof(float) * layers * elements));
  CHECK(hocketStreamCreate(&stream));
  CHECK(hocketEventCreate(&first_layer));

  for (int layer = 0; layer < layers; ++layer) {
    float* gradient = gradients + (size_t)layer * elements;
    compute(gradient, layer, rank);
    /* Returns at once. From here on the gradient belongs to the stream. */
    CHECK(hocketAllReduce(gradient, gradient, elements, hocketFloat32, hocketSum, comm, stream));
    if (layer == 0) CHECK(hocketEventRecord(first_layer, stream));
    ready += hocketEventQuery(first_layer) == hocketSuccess;
  }
  printf("rank %d: layer 0 was summed before %d of %d layers were computed\n", rank, ready, layers);

  CHECK(hocketEventSynchronize(first_layer)); /* layer 0 may be used, other layers not yet */
  CHECK(hocketStreamSynchronize(stream));     /* all layers may be used; no operation failed */
  for (int layer = 0; layer < layers; ++layer) {
    for (int i = 0; i < elements; ++i) {
      const int sum = (layer + 1) * ranks * (ranks + 1) / 2 + ranks * (i % 7);
      if (gradients[(size_t)layer * elements + i] != (float)sum) {
        fprintf(stderr, "rank %d: layer %d element %d is wrong\n", rank, layer, i);
        return 1;
      }
    }
  }
  CHECK(hocketEventDestroy(first_layer));
  CHECK(hocketStreamDestroy(stream));
  CHECK(hocketMemFree(gradients));
  CHECK(hocketCommDestroy(comm));
  return 0;
}
