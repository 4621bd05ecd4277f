// How a process becomes a rank of a job, and gets the communicator of all ranks.
#pragma once

#include <memory>

#include "base/settings.h"
#include "base/stop.h"
#include "bootstrap/join/unique_id.h"
#include "engine/comm_config.h"
#include "engine/communicator.h"

namespace hocket::internal {

/// A new job, whose ranks meet at a coordinator in this process.
Status open_job(const CommConfig& config, UniqueId* id);

/// Blocks until all ranks have joined the job and made its communicator. stop ends that early; may
/// be null.
Status join_job(const UniqueId& id, int rank, int ranks, const CommConfig& config,
                StopRequest* stop, std::unique_ptr<Communicator>* out);

/// The same for the job in which this process was launched; without a launcher it is its own job.
/// All communicators that a process makes from its launcher share one session.
Status join_launched_job(const CommConfig& config, const Settings& settings, StopRequest* stop,
                         std::unique_ptr<Communicator>* out);

}  // namespace hocket::internal
