// What the selector knows about this machine.
#pragma once

#include <cstdint>

namespace hocket::internal {

/// Costs on this machine, measured when a communicator is made; rank 0's are broadcast then and do
/// not change in its life.
struct Figures {
  double sync_ns = 300;             // all local ranks see one another's flags
  double call_ns = 0;               // of an operation beside its plan; in message_ns between nodes
  double touch_ns_per_byte = 0.05;  // one byte read or written by the processor, in its caches
  // The same, if it is more: a byte that a peer has just written, and a byte in memory.
  double peer_ns_per_byte = 0;
  double memory_ns_per_byte = 0;
  // One byte folded into a rank's own and a peer's memory that both have in their caches, and read
  // again there: by copying the result to the peer's, and by stores past the caches.
  double push_ns_per_byte = 0.1;
  double push_past_ns_per_byte = 0.2;
  double message_ns = 15'000;     // until a small message arrives, beside the work for it
  double link_ns_per_byte = 0.8;  // one byte of a large message
  // Of a rank's processor, for one byte of a large message, at each of its two ends.
  double port_ns_per_byte = 0;
  double message_work_ns = 3'000;  // processor time for a message, beside its bytes
  std::uint64_t core_cache_bytes = 1 << 20;
  std::uint64_t node_cache_bytes = 32 << 20;
  // Of a processor that ranks share, before it runs another rank or one that waited for a message.
  double turn_ns = 0;
  double crowd = 1;  // ranks per core
};

}  // namespace hocket::internal
