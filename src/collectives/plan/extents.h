// Where the blocks of a call's input and output are, and how blocks are cut into chunks. The
// executor, the plain interpreter and the checks of the engine all use this code.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/checked.h"
#include "base/types.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

struct Elements {
  std::size_t first = 0;  // in its buffer
  std::size_t count = 0;
  bool operator==(const Elements&) const = default;
};

/// The blocks of one buffer: equal ones, or those of a table.
struct Extents {
  std::size_t block_elements = 0;        // of a full block; the last blocks may be short or empty
  std::size_t total = 0;                 // elements in all blocks
  const std::size_t* counts = nullptr;   // of each block; null: equal blocks
  const std::size_t* offsets = nullptr;  // with counts: where each block begins
  std::uint32_t blocks = 1;              // with counts
  std::size_t longest = 0;               // elements of the longest block

  constexpr Elements block(std::size_t index) const {
    if (counts == nullptr) [[likely]] {
      const std::size_t begin = std::min(index * block_elements, total);
      return {begin, std::min(block_elements, total - begin)};
    }
    return {offsets[index], counts[index]};
  }
  /// One past the last element of any block.
  std::size_t end() const;
};

/// `blocks` equal blocks of `count` elements each.
Extents equal_blocks(std::size_t count, std::size_t blocks);
/// A message of `count` elements that is cut into `blocks` blocks of whole 64-byte lines; the last
/// blocks may be short or empty. unit: a number of elements that a block or a chunk never splits.
Extents cut_blocks(std::size_t count, std::size_t blocks, Dtype dtype, std::size_t unit = 1);
/// The grain, in elements: the length of blocks and chunks is a multiple of it. It is a multiple of
/// `unit`, and also of a 64-byte line, unless that would be more than 4 KiB.
std::size_t grain_of(Dtype dtype, std::size_t unit);
/// Block b has counts[b] elements and begins at offsets[b]. The spans must outlive the extents.
Extents table_of_blocks(std::span<const std::size_t> counts, std::span<const std::size_t> offsets);

/// The sizes of one operation on one rank.
struct Sizes {
  Extents input, output;
  std::size_t chunk_elements = 0;  // of a full chunk: a multiple of grain_of(); 0: one chunk
  /// Of a plan with small_bytes: the most elements of a small block.
  std::size_t small_elements = 0;

  constexpr const Extents& of(Buffer buffer) const {
    return buffer == Buffer::output ? output : input;
  }
  constexpr std::size_t chunks_in(std::size_t elements) const {
    if (chunk_elements == 0 || elements <= chunk_elements) return 1;
    return divide_up(elements, chunk_elements);
  }
  /// The number of elements before chunk `chunk` in its buffer. The blocks of peers begin at the
  /// same places as those of this rank, but may be longer or shorter. The chunk is not empty.
  constexpr std::size_t first_of(Buffer buffer, std::size_t block, std::size_t chunk) const {
    return of(buffer).block(block).first + chunk * chunk_elements;
  }
  /// Chunk `chunk` of a block of this rank; empty after the end of the block.
  constexpr Elements range(Buffer buffer, std::size_t block, std::size_t chunk) const {
    const Elements all = of(buffer).block(block);
    if (chunk_elements == 0) return chunk == 0 ? all : Elements{all.first + all.count, 0};
    const std::size_t skipped = std::min(chunk * chunk_elements, all.count);
    return {all.first + skipped, std::min(chunk_elements, all.count - skipped)};
  }
  /// True if a step of that block, `when`, is not for it.
  constexpr bool leaves_out(When when, Buffer extents, std::size_t block) const {
    if (when == When::always) [[likely]]
      return false;
    return (of(extents).block(block).count <= small_elements) != (when == When::small);
  }
  /// The number of chunks of a lane's instance. block: that of a lane of one block.
  constexpr std::size_t chunks_of(Counts counts, Buffer extents, std::size_t block) const {
    if (counts == Counts::once || chunk_elements == 0) return 1;
    const Extents& blocks = of(extents);
    return chunks_in(counts == Counts::all_blocks ? blocks.longest : blocks.block(block).count);
  }
};

/// The sizes of a call with equal blocks. count: the caller's count; the collective's row says
/// whether it is that of the whole message or of one block. chunk_elements is rounded up to a
/// multiple of grain_of(); 0: one chunk.
Sizes sizes_of(Collective collective, std::uint32_t input_blocks, std::uint32_t output_blocks,
               std::size_t count, Dtype dtype, std::size_t chunk_elements, std::size_t unit = 1);
/// The same for a plan; one chunk if the plan has single_chunk.
Sizes sizes_of(const Plan& plan, std::size_t count, Dtype dtype, std::size_t chunk_elements);

/// Bytes between the blocks of scratch. All ranks that read one another's scratch must get the same
/// number. In a plan with small_bytes it is that number. wide: some scratch range of the plan is
/// wide.
std::size_t scratch_stride_bytes(const Sizes& sizes, Dtype dtype, bool wide);

/// The counts of blocks in the arrival line of a rank, in a plan with small_bytes: of the blocks
/// that it sends. A rank with a block for each rank has a count for each of them, in the order of
/// ranks.
constexpr std::size_t counts_in_line(const CollectiveRow& row, std::size_t ranks) {
  return row.input == Blocks::per_rank ? ranks : 1;
}
constexpr std::size_t most_counts_in_line = line_payload_bytes / sizeof(std::uint64_t);

/// Elements between the blocks of a line.
constexpr std::size_t line_stride(const Sizes& sizes) {
  return std::max(sizes.input.longest, sizes.output.longest);
}

/// Where blocks lie in the payload of an arrival line, in bytes.
struct LineBlocks {
  std::size_t first = 0;  // where block 0 begins
  std::size_t step = 0;   // to the next block
  /// Of a plan with small_bytes: the most bytes of a block of scratch that lies in the line
  /// instead.
  std::size_t most = 0;
  constexpr bool has_room_for(std::size_t bytes) const { return most > 0 && bytes <= most; }
};
/// In a plan with small_bytes the blocks follow the counts, and share the rest of the payload.
constexpr LineBlocks line_blocks(const CollectiveRow& row, std::size_t ranks,
                                 std::size_t scratch_blocks) {
  const std::size_t first = counts_in_line(row, ranks) * sizeof(std::uint64_t);
  if (scratch_blocks == 0 || first >= line_payload_bytes) return {.first = first};
  const std::size_t most = (line_payload_bytes - first) / scratch_blocks / 4 * 4;
  return {.first = first, .step = most, .most = most};
}

}  // namespace hocket::internal
