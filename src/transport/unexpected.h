// What came before its transfer was posted, and the pool that such things live in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace hocket::internal {

struct UnexpectedMessage {
  MessageKey key;
  UnexpectedMessage* next = nullptr;
  Signature signature;
  std::uint64_t total = 0;
  std::byte* data = nullptr;  // eager payload; null: an offer or a ready
  int size_class = -1;
  bool eager = false;
  std::uint64_t announced = 0;  // bytes of frames whose header came
  std::uint64_t arrived = 0;
  Transfer* recv = nullptr;  // posted while frames were still coming
};

/// Memory of early messages, kept for the next ones: after a while, nothing is allocated any more.
class UnexpectedPool {
 public:
  UnexpectedPool() = default;
  UnexpectedPool(const UnexpectedPool&) = delete;
  UnexpectedPool& operator=(const UnexpectedPool&) = delete;
  ~UnexpectedPool();

  /// With room for `bytes` of payload (0: none). Null: no memory.
  UnexpectedMessage* take(std::size_t bytes);
  void give(UnexpectedMessage* unexpected);

 private:
  static constexpr int smallest = 6;  // 64 bytes
  static constexpr int classes = 15;  // up to 1 MiB
  static constexpr std::size_t max_idle_bytes = 4 << 20;
  struct Idle {
    Idle* next;
  };

  std::array<Idle*, classes> idle_{};
  UnexpectedMessage* idle_entries_ = nullptr;
  std::size_t idle_bytes_ = 0;
};

}  // namespace hocket::internal
