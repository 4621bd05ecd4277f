// The heartbeat page: memory that the ranks of a node share. Each rank increments a counter in its
// own line while its monitor thread runs, and marks there that it has left. The page has counters
// and no times because the clocks of containers differ.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/unique_fd.h"
#include "memory/shared_memory.h"

namespace hocket::internal {

struct alignas(64) HeartbeatLine {
  std::atomic<std::uint64_t> count;  // of the heartbeats so far
  // 0: the rank has not left; 1: it has left; 2: its process ended in order without leaving.
  std::atomic<std::uint32_t> left;
};

class HeartbeatPage {
 public:
  HeartbeatPage() = default;
  HeartbeatPage(const HeartbeatPage&) = delete;
  HeartbeatPage& operator=(const HeartbeatPage&) = delete;
  Status make(int local_ranks, UniqueFd* fd);
  Status map(int local_ranks, const UniqueFd& fd);
  bool mapped() const { return mapping_ != nullptr; }
  HeartbeatLine& line(int local_rank) const {
    return reinterpret_cast<HeartbeatLine*>(mapping_->data())[local_rank];
  }

 private:
  std::shared_ptr<Mapping> mapping_;
};

}  // namespace hocket::internal
