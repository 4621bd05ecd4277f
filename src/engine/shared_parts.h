// The objects that the communicators of one process share. In the library they are a part of
// Process (api/process.h); a test makes its own.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "engine/handover.h"
#include "memory/regions.h"
#include "memory/shared_memory.h"

namespace hocket::internal {

/// Texts that the user was given, and that outlive every communicator. Their number is limited by
/// that of algorithms and sets of transports.
class Texts {
 public:
  const char* keep(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return texts_.insert(text).first->c_str();
  }

 private:
  std::mutex mutex_;
  std::set<std::string> texts_;
};

struct SharedParts {
  Mappings mappings;
  Regions regions;
  Texts texts;
  /// Held while a group is pushed to its streams, so that all streams get the groups that they
  /// share in the same order; otherwise two streams could wait for one another.
  std::mutex group_order;
  Handovers handovers;
};

}  // namespace hocket::internal
