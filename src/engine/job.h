// Joins a job: the process becomes a rank and gets the communicator of all ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/settings.h"
#include "base/stop.h"
#include "bootstrap/join/unique_id.h"
#include "engine/comm_config.h"
#include "engine/communicator.h"

namespace hocket::internal {

/// Makes the id of a new job, and starts the job's coordinator in this process.
Status open_job(const CommConfig& config, UniqueId* id);

/// Blocks until all ranks have joined the job and made its communicator. context.stop ends that
/// early.
Status join_job(const UniqueId& id, int rank, int ranks, const CommConfig& config,
                const CommContext& context, std::unique_ptr<Communicator>* out);

/// The job in which a process was launched. Process (api/process.h) has it. All communicators that
/// the process makes from its launcher share one session.
class LaunchedJob {
 public:
  /// parent_joined: this process was forked from a rank. A rank is one process: the child does not
  /// join.
  explicit LaunchedJob(bool parent_joined) : parent_joined_(parent_joined) {}
  LaunchedJob(const LaunchedJob&) = delete;
  LaunchedJob& operator=(const LaunchedJob&) = delete;

  /// This process, or one that it was forked from, has joined.
  bool joined() const { return parent_joined_ || joined_.load(); }

  /// As join_job(). A process without a launcher is a job of its own.
  Status join(const CommConfig& config, const Settings& settings, const CommContext& context,
              std::unique_ptr<Communicator>* out);

 private:
  std::mutex mutex_;
  std::weak_ptr<Session> session_;  // under mutex_
  std::uint64_t made_ = 0;          // communicators; under mutex_
  std::atomic<bool> joined_{false};
  const bool parent_joined_;
};

}  // namespace hocket::internal
