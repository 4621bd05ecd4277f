#include "collectives/plan/extents.h"

#include <numeric>

namespace hocket::internal {
namespace {

/// Rounded up to a multiple of the grain, which need not be a power of two.
std::size_t whole(std::size_t elements, std::size_t grain) {
  return divide_up(elements, grain) * grain;
}

}  // namespace

std::size_t Extents::end() const {
  if (counts == nullptr) return total;
  std::size_t end = 0;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    if (counts[b] > 0) end = std::max(end, offsets[b] + counts[b]);
  }
  return end;
}

Extents equal_blocks(std::size_t count, std::size_t blocks) {
  Extents extents;
  extents.block_elements = extents.longest = blocks == 0 ? 0 : count;
  extents.total = count * blocks;
  extents.blocks = static_cast<std::uint32_t>(blocks);
  return extents;
}

std::size_t grain_of(Dtype dtype, std::size_t unit) {
  constexpr std::size_t most_bytes = 4 << 10;
  const std::size_t lines = std::lcm(unit, 64 / size_of(dtype));
  return unit == 1 || lines * size_of(dtype) <= most_bytes ? lines : unit;
}

Extents cut_blocks(std::size_t count, std::size_t blocks, Dtype dtype, std::size_t unit) {
  if (blocks <= 1) return equal_blocks(count, blocks);
  Extents extents;
  extents.block_elements = whole(divide_up(count, blocks), grain_of(dtype, unit));
  extents.total = count;
  extents.longest = std::min(extents.block_elements, count);
  extents.blocks = static_cast<std::uint32_t>(blocks);
  return extents;
}

Extents table_of_blocks(std::span<const std::size_t> counts, std::span<const std::size_t> offsets) {
  Extents extents;
  extents.counts = counts.data();
  extents.offsets = offsets.data();
  extents.blocks = static_cast<std::uint32_t>(counts.size());
  for (const std::size_t count : counts) {
    extents.total += count;
    extents.longest = std::max(extents.longest, count);
  }
  return extents;
}

namespace {

Extents extents_of(Blocks blocks, std::uint32_t number, std::size_t count, Dtype dtype,
                   std::size_t unit) {
  return blocks == Blocks::whole ? cut_blocks(count, number, dtype, unit)
                                 : equal_blocks(count, number);
}

}  // namespace

Sizes sizes_of(Collective collective, std::uint32_t input_blocks, std::uint32_t output_blocks,
               std::size_t count, Dtype dtype, std::size_t chunk_elements, std::size_t unit) {
  const CollectiveRow& row = row_of(collective);
  Sizes sizes;
  sizes.input = extents_of(row.input, input_blocks, count, dtype, unit);
  sizes.output = extents_of(row.output, output_blocks, count, dtype, unit);
  if (chunk_elements != 0) {
    sizes.chunk_elements = whole(chunk_elements, grain_of(dtype, unit));
    const std::size_t longest = std::max(sizes.input.longest, sizes.output.longest);
    if (sizes.chunk_elements >= longest) sizes.chunk_elements = 0;
  }
  return sizes;
}

Sizes sizes_of(const Plan& plan, std::size_t count, Dtype dtype, std::size_t chunk_elements) {
  Sizes sizes = sizes_of(plan.shape.collective, input_blocks(plan), output_blocks(plan), count,
                         dtype, plan.single_chunk ? 0 : chunk_elements);
  sizes.small_elements = plan.small_bytes / size_of(dtype);
  return sizes;
}

std::size_t scratch_stride_bytes(const Sizes& sizes, Dtype dtype, bool wide) {
  const std::size_t longest = sizes.small_elements > 0
                                  ? sizes.small_elements
                                  : std::max(sizes.input.longest, sizes.output.longest);
  const std::size_t elements =
      sizes.chunk_elements == 0 ? longest : std::min(sizes.chunk_elements, longest);
  return round_up(elements * (wide ? wide_size_of(dtype) : size_of(dtype)), 64);
}

}  // namespace hocket::internal
