/* A grid of ranks: hocketCommSplit makes a communicator for each row and for each column, and one
 * group runs a collective on both. (Tensor parallelism in rows, data parallelism in columns.) */
#include <hocket/hocket.h>
#include <stdio.h>

#define CHECK(call)                                               \
  if ((call) != hocketSuccess) {                                  \
    fprintf(stderr, "%s: %s\n", #call, hocketGetLastError(NULL)); \
    return 1;                                                     \
  }

int main(void) {
  hocketComm_t world, row, column;
  int rank, ranks;
  CHECK(hocketCommInitFromEnv(&world, NULL));
  CHECK(hocketCommUserRank(world, &rank));
  CHECK(hocketCommCount(world, &ranks));
  const int width = 2;
  if (ranks % width != 0) {
    fprintf(stderr, "the grid is %d wide: %d ranks do not fill it\n", width, ranks);
    return 1;
  }
  const int x = rank % width, y = rank / width;

  /* Ranks of one color form a communicator; the key orders them in it. */
  CHECK(hocketCommSplit(world, y, x, &row, NULL));
  CHECK(hocketCommSplit(world, x, y, &column, NULL));

  int32_t row_sum = rank, ranks_in_column[64];
  const int height = ranks / width;
  if (height > 64) return 1;
  CHECK(hocketGroupStart());
  CHECK(hocketAllReduce(&row_sum, &row_sum, 1, hocketInt32, hocketSum, row, NULL));
  CHECK(hocketAllGather(&rank, ranks_in_column, 1, hocketInt32, column, NULL));
  CHECK(hocketGroupEnd());

  /* Ranks of row y are width * y and what follows. */
  int wrong = row_sum != width * (width * y) + width * (width - 1) / 2;
  for (int i = 0; i < height; ++i) wrong |= ranks_in_column[i] != width * i + x;
  printf("rank %d is at (%d, %d): its row sums to %d%s\n", rank, x, y, (int)row_sum,
         wrong ? ", which is WRONG" : "");

  CHECK(hocketCommDestroy(row));
  CHECK(hocketCommDestroy(column));
  CHECK(hocketCommDestroy(world));
  return wrong;
}
