// A page that a node's ranks share: each beats in its own line while its monitor thread runs, and
// marks there that it has left. Beats are counted, not timed: clocks of containers differ.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hocket {

struct alignas(64) PulseLine {
  std::atomic<std::uint64_t> beats;
  std::atomic<std::uint32_t> left;  // 0: here; 1: left; 2: its process ended without leaving
};

/// How long the leader has not heard from its neighbours in the tree: [0] the one above, then those
/// below.
struct alignas(64) PulseHead {
  std::atomic<std::uint64_t> link_silence_ns[16];
};

class PulsePage {
 public:
  PulsePage() = default;
  PulsePage(const PulsePage&) = delete;
  PulsePage& operator=(const PulsePage&) = delete;
  ~PulsePage();
  Status make(int local_ranks, UniqueFd* fd);
  Status map(int local_ranks, const UniqueFd& fd);
  bool mapped() const { return base_ != nullptr; }
  PulseHead& head() const { return *static_cast<PulseHead*>(base_); }
  PulseLine& line(int local_rank) const {
    return reinterpret_cast<PulseLine*>(static_cast<char*>(base_) + sizeof(PulseHead))[local_rank];
  }

 private:
  void* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hocket
