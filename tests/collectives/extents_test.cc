#include "collectives/plan/extents.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hocket::internal {
namespace {

constexpr std::size_t huge = (std::size_t{1} << 63) - 1;

std::string text_of(std::size_t count, std::size_t blocks, std::size_t chunk) {
  return std::to_string(count) + " elements, " + std::to_string(blocks) + " blocks, chunks of " +
         std::to_string(chunk);
}

/// The chunks of a block follow one another, none is longer than a full chunk, and together they
/// cover the block.
void expect_covered(const Sizes& sizes, std::size_t block, const Elements& whole) {
  std::size_t next = whole.first;
  const std::size_t chunks = sizes.chunks_in(whole.count);
  ASSERT_GE(chunks, 1U);
  for (std::size_t k = 0; k < chunks; ++k) {
    const Elements piece = sizes.range(Buffer::input, block, k);
    EXPECT_EQ(piece.first, next) << "chunk " << k;
    EXPECT_LE(piece.count, sizes.chunk_elements == 0 ? whole.count : sizes.chunk_elements);
    EXPECT_TRUE(piece.count > 0 || chunks == 1) << "chunk " << k;
    next += piece.count;
  }
  EXPECT_EQ(next, whole.first + whole.count);
  EXPECT_EQ(sizes.range(Buffer::input, block, chunks).count, 0U);
  EXPECT_EQ(sizes.range(Buffer::input, block, chunks + 1).count, 0U);
}

TEST(Extents, of_a_cut_message_cover_every_element_once_also_near_the_end_of_the_address_space) {
  const std::size_t counts[] = {0, 1, 63, 64, 65, 1000, 4099, (1ULL << 32) + 7, huge / 8, huge};
  for (const std::size_t count : counts) {
    for (const std::size_t blocks : {1, 2, 3, 8, 13, 64}) {
      for (const Dtype dtype : {Dtype::uint8, Dtype::float32, Dtype::float64}) {
        for (const std::size_t chunk : {std::size_t{0}, std::size_t{100}, count / 7}) {
          if (chunk > 0 && count / chunk > 1000) continue;  // would take too long
          SCOPED_TRACE(text_of(count, blocks, chunk));
          Sizes sizes;
          sizes.input = cut_blocks(count, blocks, dtype);
          sizes.chunk_elements = round_up(chunk, 64 / size_of(dtype));
          std::size_t next = 0;
          for (std::size_t b = 0; b < blocks; ++b) {
            const Elements block = sizes.input.block(b);
            EXPECT_EQ(block.first, next);
            EXPECT_LE(block.count, sizes.input.longest);
            next += block.count;
            expect_covered(sizes, b, block);
          }
          EXPECT_EQ(next, count);
          EXPECT_EQ(sizes.input.total, count);
          EXPECT_EQ(sizes.input.end(), count);
          EXPECT_EQ(sizes.input.blocks, blocks);
        }
      }
    }
  }
}

TEST(Extents, of_a_cut_message_begin_at_whole_lines) {
  const Extents extents = cut_blocks(1000, 3, Dtype::float32);
  EXPECT_EQ(extents.block_elements, 336U);  // 334 rounded up to 16 elements of 4 bytes
  EXPECT_EQ(extents.longest, 336U);
  EXPECT_EQ(extents.block(2), (Elements{672, 328}));
  // Fewer elements than a line for each block: the first block has all of them.
  const Extents few = cut_blocks(5, 3, Dtype::float32);
  EXPECT_EQ(few.longest, 5U);
  EXPECT_EQ(few.block(0), (Elements{0, 5}));
  EXPECT_EQ(few.block(1), (Elements{5, 0}));
  EXPECT_EQ(few.block(2), (Elements{5, 0}));
}

TEST(Extents, of_equal_blocks_follow_one_another_without_padding) {
  const Extents extents = equal_blocks(7, 3);
  EXPECT_EQ(extents.block(0), (Elements{0, 7}));
  EXPECT_EQ(extents.block(2), (Elements{14, 7}));
  EXPECT_EQ(extents.total, 21U);
  EXPECT_EQ(extents.longest, 7U);
  EXPECT_EQ(extents.end(), 21U);
  EXPECT_EQ(equal_blocks(0, 3).block(2), (Elements{0, 0}));
  EXPECT_EQ(equal_blocks(7, 0).longest, 0U);
  EXPECT_EQ(equal_blocks(7, 0).blocks, 0U);
  EXPECT_EQ(equal_blocks(huge / 64, 64).block(63), (Elements{63 * (huge / 64), huge / 64}));
}

TEST(Extents, of_a_table_may_have_gaps_any_order_and_empty_blocks) {
  const std::size_t counts[] = {5, 0, 130, 3}, offsets[] = {200, 999, 10, 0};
  Sizes sizes;
  sizes.input = table_of_blocks(counts, offsets);
  sizes.chunk_elements = 64;
  EXPECT_EQ(sizes.input.total, 138U);
  EXPECT_EQ(sizes.input.longest, 130U);
  EXPECT_EQ(sizes.input.blocks, 4U);
  EXPECT_EQ(sizes.input.end(), 205U) << "an empty block has no end";
  for (std::size_t b = 0; b < 4; ++b) {
    SCOPED_TRACE("block " + std::to_string(b));
    EXPECT_EQ(sizes.input.block(b), (Elements{offsets[b], counts[b]}));
    expect_covered(sizes, b, {offsets[b], counts[b]});
  }
  EXPECT_EQ(sizes.range(Buffer::input, 2, 1), (Elements{74, 64}));
  EXPECT_EQ(sizes.range(Buffer::input, 2, 2), (Elements{138, 2}));
  const std::size_t large[] = {huge / 2, huge / 2}, at[] = {0, huge / 2};
  EXPECT_EQ(table_of_blocks(large, at).total, huge - 1);
  EXPECT_EQ(table_of_blocks(large, at).end(), huge - 1);
  EXPECT_EQ(table_of_blocks({}, {}).end(), 0U);
}

TEST(Sizes, give_every_block_at_least_one_chunk) {
  Sizes sizes;
  sizes.chunk_elements = 64;
  EXPECT_EQ(sizes.chunks_in(0), 1U);
  EXPECT_EQ(sizes.chunks_in(1), 1U);
  EXPECT_EQ(sizes.chunks_in(64), 1U);
  EXPECT_EQ(sizes.chunks_in(65), 2U);
  EXPECT_EQ(sizes.chunks_in(huge), huge / 64 + 1);
  EXPECT_EQ(Sizes{}.chunks_in(huge), 1U);
}

Sizes sizes_for(Collective collective, std::size_t count, std::size_t chunk, std::uint32_t cut = 1,
                bool single_chunk = false) {
  Plan plan;
  plan.shape = {.collective = collective, .ranks = 4, .root = 0};
  plan.cut = cut;
  plan.single_chunk = single_chunk;
  return sizes_of(plan, count, Dtype::float32, chunk);
}

// What the caller's count means: the whole message, or the block of a rank.
TEST(Sizes, of_a_call_are_those_of_the_row_of_its_collective) {
  const auto totals = [](Collective collective) {
    const Sizes sizes = sizes_for(collective, 100, 0);
    return std::pair(sizes.input.total, sizes.output.total);
  };
  using Totals = std::pair<std::size_t, std::size_t>;
  EXPECT_EQ(totals(Collective::all_reduce), Totals(100, 100));
  EXPECT_EQ(totals(Collective::reduce), Totals(100, 100));
  EXPECT_EQ(totals(Collective::broadcast), Totals(100, 100));
  EXPECT_EQ(totals(Collective::all_gather), Totals(100, 400));
  EXPECT_EQ(totals(Collective::gather), Totals(100, 400));
  EXPECT_EQ(totals(Collective::reduce_scatter), Totals(400, 100));
  EXPECT_EQ(totals(Collective::scatter), Totals(400, 100));
  EXPECT_EQ(totals(Collective::all_to_all), Totals(400, 400));
  EXPECT_EQ(totals(Collective::send), Totals(100, 0));
  EXPECT_EQ(totals(Collective::recv), Totals(0, 100));
  EXPECT_EQ(totals(Collective::barrier), Totals(0, 0));
}

TEST(Sizes, have_chunks_of_whole_lines_shorter_than_the_longest_block) {
  const Sizes cut = sizes_for(Collective::all_reduce, 1000, 10, 3);
  EXPECT_EQ(cut.chunk_elements, 16U);
  EXPECT_EQ(cut.chunks_in(cut.input.longest), 21U);
  EXPECT_EQ(cut.range(Buffer::input, 2, 20).count, 8U);  // 1000 - 672 - 320
  EXPECT_EQ(sizes_for(Collective::all_reduce, 336, 400).chunk_elements, 0U);
  EXPECT_EQ(sizes_for(Collective::all_reduce, 336, 336).chunk_elements, 0U);
  EXPECT_EQ(sizes_for(Collective::all_reduce, 336, 320).chunk_elements, 320U);
  EXPECT_EQ(sizes_for(Collective::all_reduce, 336, 10, 1, true).chunk_elements, 0U);
  EXPECT_EQ(sizes_for(Collective::all_reduce, 0, 10).chunk_elements, 0U);
}

TEST(Sizes, never_split_an_element_of_the_user) {
  for (const std::size_t unit :
       {std::size_t{2}, std::size_t{3}, std::size_t{37}, std::size_t{5000}}) {
    for (const Dtype dtype : {Dtype::uint8, Dtype::bfloat16, Dtype::float64}) {
      const std::size_t count = unit * 100'003;
      const Sizes sizes = sizes_of(Collective::all_reduce, 7, 7, count, dtype, 1000, unit);
      EXPECT_GT(sizes.chunk_elements, 0U);
      EXPECT_EQ(sizes.chunk_elements % unit, 0U);
      std::size_t covered = 0;
      for (std::size_t b = 0; b < 7; ++b) {
        const Elements block = sizes.input.block(b);
        EXPECT_EQ(block.first, covered);
        EXPECT_EQ(block.first % unit, 0U);
        EXPECT_EQ(block.count % unit, 0U);
        covered += block.count;
      }
      EXPECT_EQ(covered, count);
    }
  }
}

TEST(Sizes, have_whole_lines_too_where_that_is_little) {
  EXPECT_EQ(grain_of(Dtype::float32, 1), 16U);
  EXPECT_EQ(grain_of(Dtype::float32, 3), 48U);
  EXPECT_EQ(grain_of(Dtype::uint8, 63), 4032U);
  EXPECT_EQ(grain_of(Dtype::uint8, 65), 65U) << "65 lines are more than 4 KiB";
  EXPECT_EQ(grain_of(Dtype::float64, 1000), 1000U);
}

TEST(Sizes, leave_room_for_a_chunk_between_the_blocks_of_scratch) {
  Sizes sizes = sizes_for(Collective::all_gather, 1000, 100);
  EXPECT_EQ(scratch_stride_bytes(sizes, Dtype::float32, true), 112U * 4);
  EXPECT_EQ(scratch_stride_bytes(sizes, Dtype::bfloat16, false), 256U) << "224 and whole lines";
  EXPECT_EQ(scratch_stride_bytes(sizes, Dtype::bfloat16, true), 448U);
  sizes.chunk_elements = 0;
  EXPECT_EQ(scratch_stride_bytes(sizes, Dtype::uint8, false), 1024U);
  sizes.chunk_elements = 4096;  // more than a block has
  EXPECT_EQ(scratch_stride_bytes(sizes, Dtype::uint8, false), 1024U);
  EXPECT_EQ(scratch_stride_bytes({}, Dtype::uint8, false), 0U);
}

}  // namespace
}  // namespace hocket::internal
