// Which buffers of peers a program maps, and their addresses in this process.
#include <cstring>

#include "collectives/execute/executor.h"

namespace hocket::internal {

/// Whether a buffer of a local rank is not mapped that the program needs. mapped: in its line.
bool Execution::lacks_mapping(int rank, std::uint64_t mapped) const {
  const std::uint64_t needed = (reads_input_of(rank) ? 1 : 0) | (writes_output_of(rank) ? 2 : 0);
  return (mapped & needed) != needed;
}

/// In some rooted collectives only the root has an input; the other ranks may have no buffer for
/// it.
bool Execution::reads_input_of(int peer) const {
  return header_->maps_input &&
         (!row_of(header_->collective).input_at_root || header_->root == rank_of(peer));
}
bool Execution::writes_output_of(int peer) const {
  return header_->maps_output &&
         (!row_of(header_->collective).output_at_root || header_->root == rank_of(peer));
}

/// The elements in the buffer of a peer. Where each rank has only its own block there, and blocks
/// have different counts, the blocks of the other buffer say how long it is.
std::size_t Execution::end_of(Buffer buffer, int peer) const {
  const CollectiveRow& row = row_of(header_->collective);
  const Sizes& sizes = *sizes_;
  const bool is_input = buffer == Buffer::input;
  const Extents& other = is_input ? sizes.output : sizes.input;
  if ((is_input ? row.input : row.output) == Blocks::own && other.counts != nullptr) {
    return other.block(static_cast<std::size_t>(rank_of(peer))).count;
  }
  return sizes.of(buffer).end();
}

/// Maps the buffers of all peers. If a buffer is not mapped yet, the next call begins again with
/// the first peer; it finds the buffers that are mapped by then at once.
Execution::Outcome Execution::resolve_peers() {
  const Board& board = *links_->board;
  mapping_of_ = -1;
  peers_.resize(static_cast<std::size_t>(board.local_ranks()));
  for (int peer = 0; peer < board.local_ranks(); ++peer) {
    if (peer == own_) continue;
    const bool reads = header_->accesses_inputs && reads_input_of(peer);
    const bool writes = header_->accesses_outputs && writes_output_of(peer);
    // A peer whose buffers this rank does not use may not have arrived: it may write its places
    // now.
    if (!reads && !writes) continue;
    BufferPlaces places;
    std::memcpy(&places, board.arrival(peer, operation_).payload, sizeof places);
    const auto map = [&](Buffer buffer, RegionOffset offset, std::byte** out) {
      return links_->host->map_remote(rank_of(peer), offset, end_of(buffer, peer) * element_bytes_,
                                      binding_->message_sequence, out);
    };
    Status status;
    if (reads) {
      status = map(Buffer::input, {places.input_region, places.input_offset}, &peers_[peer].input);
    }
    if (status.ok() && writes) {
      status =
          map(Buffer::output, {places.output_region, places.output_offset}, &peers_[peer].output);
    }
    if (status.code() == Code::in_progress) {
      mapping_of_ = peer;
      return Outcome::blocked;
    }
    if (!status.ok()) return fail(status);
  }
  return Outcome::next;
}

}  // namespace hocket::internal
