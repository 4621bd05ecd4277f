// How a message of `count` elements is cut in blocks and chunks: the one place that both the
// executor and the plain interpreter ask.
//
// All-reduce and broadcast cut the message in equal blocks of whole 64-byte lines, the last ones
// short or empty. All-gather and reduce-scatter have a block of exactly `count` elements per rank.
// Chunk k is the k-th piece of chunk_elements of every block.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/checked.h"
#include "base/types.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

struct Elements {
  std::size_t first = 0;  // in its buffer
  std::size_t count = 0;
};

struct Partition {
  std::size_t total = 0;           // elements in all blocks
  std::size_t block_elements = 0;  // of a full block
  std::size_t chunk_elements = 0;  // of a full chunk of one block
  std::size_t chunks = 1;          // at least 1: a message of nothing is one empty chunk

  Elements range(std::size_t block, std::size_t chunk) const {
    if (block == 0 && chunks == 1) return {0, std::min(block_elements, total)};  // the common case
    const std::size_t begin = std::min(block * block_elements, total);
    const std::size_t end = std::min(begin + block_elements, total);
    const std::size_t first = std::min(begin + chunk * chunk_elements, end);
    return {first, std::min(chunk_elements, end - first)};
  }
};

inline std::size_t message_blocks(const Plan& plan) {
  return std::max(plan.input_blocks, plan.output_blocks);
}

/// blocks: the larger of a plan's input and output blocks. count: as the caller gave it.
/// chunk_elements: 0 for one chunk; else rounded up to whole 64-byte lines.
inline Partition partition(Collective collective, std::size_t blocks, std::size_t count,
                           Dtype dtype, std::size_t chunk_elements) {
  const std::size_t line = 64 / size_of(dtype);
  Partition part;
  const bool per_rank =
      collective == Collective::all_gather || collective == Collective::reduce_scatter;
  if (per_rank || blocks <= 1) {
    part.block_elements = count;
    part.total = count * blocks;
  } else {
    part.block_elements = round_up(divide_up(count, blocks), line);
    part.total = count;
  }
  part.chunk_elements = chunk_elements == 0 ? part.block_elements : round_up(chunk_elements, line);
  part.chunk_elements = std::min(part.chunk_elements, part.block_elements);
  part.chunks = part.chunk_elements == 0 ? 1 : divide_up(part.block_elements, part.chunk_elements);
  return part;
}

/// Bytes between the blocks of scratch. wide: some scratch range of the plan is wide.
inline std::size_t scratch_stride_bytes(const Partition& part, Dtype dtype, bool wide) {
  return round_up(part.chunk_elements * (wide ? wide_size_of(dtype) : size_of(dtype)), 64);
}

}  // namespace hocket::internal
