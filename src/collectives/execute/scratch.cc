// Which scratch an execution uses, and what lies in arrival lines instead.
#include <algorithm>

#include "base/checked.h"
#include "collectives/execute/executor.h"

namespace hocket::internal {

/// Finds out which scratch the operation needs, and how much of it this rank prefetches.
void Execution::size_scratch(const Program* staged) {
  const bool has_small_blocks = header_->small_bytes > 0;
  scratch_size_ = ScratchSize::none;
  prefetched_lines_ = 0;
  ready_sizes_.clear();
  has_scratch_ = (header_->scratch_blocks > 0 && !has_small_blocks) || staged != nullptr;
  if (has_small_blocks) {
    scratch_bytes_ = most_in_scratch();
    if (scratch_bytes_ == 0) return;
    scratch_size_ = size_of_small_block(scratch_bytes_);
  } else {
    if (!has_scratch_) return;
    stride_ = stride_of(*header_, binding_->sizes);
    scratch_bytes_ = stride_ * header_->scratch_blocks * header_->slots;
    if (staged != nullptr) {
      const ProgramHeader& other = staged->header();
      const std::size_t stride = stride_of(other, binding_->staged_sizes);
      scratch_bytes_ = std::max(scratch_bytes_, stride * other.scratch_blocks * other.slots);
    }
    if (!header_->uses_node) return;
    // Ranks that do not know all blocks could disagree about what fits.
    const bool agreed =
        row_of(binding_->signature.collective).rooted && has_count(binding_->signature);
    scratch_size_ =
        agreed ? Board::size_for(scratch_bytes_, binding_->many_scratches) : ScratchSize::large;
  }
  if (!binding_->prefetches_scratch || !header_->writes_scratch) return;
  // To prefetch longer scratch gains nothing. The selector knows the lengths in other plans.
  if (has_small_blocks && scratch_bytes_ > Board::medium_scratch_bytes) return;
  // Of larger scratches there are so few that peers still read the one of that operation.
  if (Board::scratches(scratch_size_) <= prefetched_ahead) return;
  const std::size_t bytes = binding_->sizes.input.end() * element_bytes_;
  prefetched_lines_ = (std::min(scratch_bytes_, bytes) + line_bytes - 1) / line_bytes;
}

/// The smallest size of scratch that can hold a block of `bytes` bytes. The sender and the
/// receiver of a block compute the same size, because both know the count of the block. In an
/// all-to-all no rank can be far ahead, and few scratches stay in the caches.
ScratchSize Execution::size_of_small_block(std::size_t bytes) const {
  const bool many = binding_->many_scratches && row_of(header_->collective).rooted;
  return Board::size_for(round_up(bytes, line_bytes) * header_->scratch_blocks, many);
}

/// The bytes of the longest block that this rank may put into scratch: of those in its buffers.
std::size_t Execution::most_in_scratch() const {
  if (!header_->writes_scratch) return 0;
  const CollectiveRow& row = row_of(header_->collective);
  const bool is_root = header_->root == rank_of(own_);
  std::size_t most = 0;
  const auto look_at = [&](bool exists, Blocks blocks, const Extents& extents) {
    if (!exists) return;
    const std::size_t number = blocks == Blocks::per_rank ? header_->ranks : 1;
    for (std::size_t b = 0; b < number; ++b) {
      const std::size_t bytes = extents.block(b).count * element_bytes_;
      const bool is_small = bytes <= header_->small_bytes && !line_blocks_.has_room_for(bytes);
      if (is_small) most = std::max(most, bytes);
    }
  };
  look_at(has_input(row, is_root), row.input, sizes_->input);
  look_at(has_output(row, is_root), row.output, sizes_->output);
  return most;
}

/// How much of the payload of arrival lines holds blocks, or counts of blocks.
std::size_t Execution::line_bytes_used() const {
  if (header_->small_bytes == 0) return header_->line_blocks * line_blocks_.step;
  const std::size_t blocks = all_are_in_line() ? header_->scratch_blocks : 0;
  return line_blocks_.first + blocks * line_blocks_.step;
}

/// True if all blocks that this rank sends and receives are in arrival lines instead of scratch.
bool Execution::all_are_in_line() const {
  return line_blocks_.has_room_for(line_stride(*sizes_) * element_bytes_);
}

/// From a block of scratch to the next.
std::size_t Execution::stride_of(const ProgramHeader& header, const Sizes& sizes) const {
  return scratch_stride_bytes(sizes, binding_->dtype, header.wide_scratch);
}

}  // namespace hocket::internal
