// Plans that tell small blocks from large ones: the two ends of a block compare its count.
//
// The payload of a rank's arrival line has the counts of the blocks that the rank sends
// (counts_in_line). Whoever receives one of them looks at its count when it has awaited the
// arrival, before it copies or receives a byte: so a difference is an error of that rank at once,
// also if the block is small for one end and large for the other one, of which one would wait for
// ever. The sender hears of the error as of every other one.
#include "collectives/execute/executor.h"

namespace hocket::internal {

void Execution::set_sent_counts() {
  sent_counts_.clear();
  if (header_->small_bytes == 0) return;
  const CollectiveRow& row = row_of(header_->collective);
  const bool is_root = header_->root == rank_of(own_);
  if (!has_input(row, is_root) || (is_root && row.output_at_root)) return;  // it sends nothing
  for (std::size_t b = 0; b < counts_in_line(row, header_->ranks); ++b) {
    sent_counts_.push_back(sizes_->input.block(b).count);
  }
}

/// The error for a peer that sends a block of another count than this rank expects.
Status Execution::other_block(int peer, const ArrivalLine& line) const {
  const auto size_text = [&](std::uint64_t count) {
    return std::to_string(count) + " elements (" + std::to_string(count * element_bytes_) +
           " bytes)";
  };
  const std::string rank = std::to_string(rank_of(own_));
  return Status(Code::mismatch,
                "rank " + std::to_string(rank_of(peer)) + " called " +
                    describe(links_->board->call(peer, binding_->message_sequence).signature) +
                    " where rank " + rank + " called " + describe(binding_->signature) +
                    ": its block for rank " + rank + " has " + size_text(count_in(line)) +
                    " there, " + size_text(count_from(peer)) +
                    " here. All ranks must make the same calls in the same order",
                rank_of(peer))
      .in_operation(binding_->message_sequence);
}

}  // namespace hocket::internal
