// Frames as a peer may send them, with fields from the input.
#pragma once

#include "fuzz/fuzz.h"
#include "transport/message_matcher.h"

namespace hocket::internal {

inline constexpr std::uint64_t fuzzed_comm = 0x5eed;
inline constexpr MatcherOptions small_matcher{.eager_bytes = 300,
                                              .frame_bytes = 500,
                                              .window_bytes = 3000,
                                              .max_unexpected_entries = 6,
                                              .checksum = false,
                                              .maps = true};

inline Signature signature_for(std::uint64_t bytes) {
  Signature signature;
  signature.sequence = 1;
  signature.count = bytes;
  return signature;
}

/// A transfer, its signature, and memory of exactly its size.
struct Posted {
  Posted(std::size_t bytes, const MessageKey& key)
      : memory(bytes), signature(signature_for(bytes)) {
    transfer.key = key;
    transfer.peer = 0;
    transfer.data = memory.data();
    transfer.bytes = bytes;
    transfer.signature = &signature;
    transfer.mappable = key.index % 2 == 1;
    transfer.prefers_location = key.index % 4 == 3;
  }
  void check() const {
    FUZZ_CHECK(transfer.done);
    FUZZ_CHECK(!transfer.status.ok() || transfer.moved == transfer.bytes);
  }
  std::vector<std::byte> memory;
  Signature signature;
  Transfer transfer;
};

/// Of rank 0 to rank 1. Most of them are well formed: else none would come far.
inline FrameHeader peer_frame(fuzz::Input& input) {
  static constexpr std::uint64_t totals[] = {0, 1, 100, 300, 300, 900, 900, ~0ull};
  static constexpr std::uint32_t lengths[] = {0, 1, 100, 200, 300, 500, 900, 56};
  static constexpr std::uint64_t offsets[] = {0, 0, 0, 1, 100, 500, ~0ull - 10, ~0ull};
  FrameHeader made;
  made.comm_id = fuzzed_comm;
  made.kind = static_cast<FrameKind>(input.byte() % 13);
  const std::uint8_t flags = input.byte();
  made.flags = flags % 32;
  made.sequence = 1 + input.byte() % 3;
  made.index = input.byte() % 8;
  made.total = input.pick(totals);
  made.length = made.kind == FrameKind::nack       ? sizeof(Nack)
                : made.kind == FrameKind::location ? sizeof(RegionOffset)
                                                   : input.pick(lengths);
  const bool has_payload = made.kind == FrameKind::nack || made.kind == FrameKind::location;
  if (made.kind > FrameKind::data && !has_payload && flags < 128) made.length = 0;
  made.offset = input.pick(offsets);
  made.signature = signature_for(flags % 64 < 60 ? made.total : flags);
  const std::uint8_t damage = input.byte();
  if (damage > 250) reinterpret_cast<std::uint8_t*>(&made)[input.byte() % 112] ^= input.byte();
  if (damage != 255) seal(made);
  return made;
}

}  // namespace hocket::internal
