// Plans that tell small blocks from large ones: the two ends of a block compare its count.
//
// The payload of a rank's arrival line has the counts of the blocks that the rank sends
// (counts_in_line). Whoever receives one of them looks at its count when it has awaited the
// arrival, before it copies or receives a byte: so a difference is an error of that rank at once,
// also if the block is small for one end and large for the other one, of which one would wait for
// ever. The sender hears of the error as of every other one.
#include "collectives/execute/executor.h"

namespace hocket::internal {

void Execution::set_counts() {
  sent_counts_.clear();
  awaited_blocks_.clear();
  if (header_->small_bytes == 0) return;
  const CollectiveRow& row = row_of(header_->collective);
  const bool is_root = header_->root == rank_of(own_);
  const bool receives = has_output(row, is_root), sends_blocks = row.input == Blocks::per_rank;
  const bool has_all = row.output == Blocks::per_rank;
  for (const int rank : links_->ranks_of_node) {
    AwaitedBlock block;
    block.comes = rank != rank_of(own_) && receives && has_input(row, header_->root == rank);
    if (block.comes) {
      block.place = sends_blocks ? static_cast<std::size_t>(rank_of(own_)) : 0;
      block.count = sizes_->output.block(has_all ? static_cast<std::size_t>(rank) : 0).count;
    }
    awaited_blocks_.push_back(block);
  }
  if (!has_input(row, is_root) || (is_root && row.output_at_root)) return;  // it sends nothing
  for (std::size_t b = 0; b < counts_in_line(row, header_->ranks); ++b) {
    sent_counts_.push_back(sizes_->input.block(b).count);
  }
}

/// The error for a peer that sends a block of another count than this rank expects.
Status Execution::other_block(int peer, const ArrivalLine& line) const {
  const AwaitedBlock& awaited = awaited_blocks_[static_cast<std::size_t>(peer)];
  const auto size_text = [&](std::uint64_t count) {
    return std::to_string(count) + " elements (" + std::to_string(count * element_bytes_) +
           " bytes)";
  };
  const std::string rank = std::to_string(rank_of(own_));
  return Status(Code::mismatch,
                "rank " + std::to_string(rank_of(peer)) + " called " +
                    describe(links_->board->call(peer, binding_->message_sequence).signature) +
                    " where rank " + rank + " called " + describe(binding_->signature) +
                    ": its block for rank " + rank + " has " +
                    size_text(count_in(line, awaited.place)) + " there, " +
                    size_text(awaited.count) +
                    " here. All ranks must make the same calls in the same order",
                rank_of(peer))
      .in_operation(binding_->message_sequence);
}

}  // namespace hocket::internal
