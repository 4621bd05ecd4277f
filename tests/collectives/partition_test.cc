#include "collectives/plan/partition.h"

#include <gtest/gtest.h>

namespace hocket::internal {
namespace {

/// Blocks follow one another, and so do the chunks of a block; together they cover the message.
void expect_covered(const Partition& part, std::size_t blocks) {
  std::size_t next = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t chunk = 0; chunk < part.chunks; ++chunk) {
      const Elements piece = part.range(block, chunk);
      EXPECT_LE(piece.count, part.chunk_elements);
      if (piece.count == 0) continue;
      EXPECT_EQ(piece.first, next) << "block " << block << ", chunk " << chunk;
      next += piece.count;
    }
  }
  EXPECT_EQ(next, part.total);
}

TEST(Partition, covers_every_element_once_also_beyond_32_bits) {
  const std::size_t counts[] = {0, 1, 63, 64, 65, 1000, 4099, (1ULL << 32) + 7, (1ULL << 40) + 1};
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    for (const std::size_t count : counts) {
      for (const std::size_t blocks : {1, 2, 3, 8, 13}) {
        for (const Dtype dtype : {Dtype::uint8, Dtype::float32, Dtype::float64}) {
          for (const std::size_t chunk : {std::size_t{0}, std::size_t{100}, count / 7}) {
            if (chunk > 0 && count / chunk > 1000) continue;  // would take too long
            SCOPED_TRACE(std::to_string(count) + " elements, " + std::to_string(blocks) +
                         " blocks, chunks of " + std::to_string(chunk));
            const Partition part = partition(collective, blocks, count, dtype, chunk);
            EXPECT_EQ(part.total, collective == Collective::all_reduce ? count : count * blocks);
            expect_covered(part, blocks);
          }
        }
      }
    }
  }
}

TEST(Partition, of_an_all_reduce_cuts_at_whole_lines) {
  const Partition part = partition(Collective::all_reduce, 3, 1000, Dtype::float32, 10);
  EXPECT_EQ(part.block_elements, 336U);  // 334 rounded up to 16 elements of 4 bytes
  EXPECT_EQ(part.chunk_elements, 16U);
  EXPECT_EQ(part.chunks, 21U);
  EXPECT_EQ(part.range(2, 20).count, 8U);  // the last chunk of the last block: 1000 - 672 - 320
}

}  // namespace
}  // namespace hocket::internal
