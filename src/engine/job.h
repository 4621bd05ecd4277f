// Joins a job: the process becomes a rank and gets the communicator of all ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/settings.h"
#include "base/stop.h"
#include "bootstrap/join/launch.h"
#include "bootstrap/join/unique_id.h"
#include "engine/comm_config.h"
#include "engine/communicator.h"

namespace hocket::internal {

/// Makes the id of a new job, and starts the job's coordinator in this process.
Status open_job(const CommConfig& config, UniqueId* id);

/// Blocks until all ranks have joined the job and made its communicator, or until context.stop is
/// requested.
Status join_job(const UniqueId& id, int rank, int ranks, const CommConfig& config,
                const CommContext& context, std::unique_ptr<Communicator>* out);

/// The job in which a process was launched. It is a part of Process (api/process.h). All
/// communicators that the process makes from its launcher share one session.
class LaunchedJob {
 public:
  /// parent_joined: this process was forked from a rank. It must not join, because a rank is one
  /// process.
  explicit LaunchedJob(bool parent_joined) : parent_joined_(parent_joined) {}
  LaunchedJob(const LaunchedJob&) = delete;
  LaunchedJob& operator=(const LaunchedJob&) = delete;

  /// True if this process, or a process from which it was forked, has joined.
  bool joined() const { return parent_joined_ || joined_.load(); }

  /// Joins as join_job(). A process without a launcher is a job of its own.
  Status join(const CommConfig& config, const Settings& settings, const CommContext& context,
              std::unique_ptr<Communicator>* out);

 private:
  Status find_launch(const CommConfig& config, const Settings& settings, StopRequest* stop,
                     LaunchInfo* info);
  Status join_session(const CommConfig& config, LaunchInfo& info, JoinOptions options,
                      std::shared_ptr<Session>* out);

  std::mutex mutex_;
  std::weak_ptr<Session> session_;  // under mutex_
  /// What this process learned when it met the other ranks, which it can do once; under mutex_.
  std::optional<LaunchInfo> met_;
  std::uint64_t made_ = 0;  // communicators; under mutex_
  std::atomic<bool> joined_{false};
  const bool parent_joined_;
};

}  // namespace hocket::internal
