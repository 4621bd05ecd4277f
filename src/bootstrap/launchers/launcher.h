// Joins under any launcher: finds the launcher that started this process, and learns from it, or
// through it, where rank 0's coordinator is and which key the job has.
#pragma once

#include <cstdint>

#include "base/settings.h"
#include "base/status.h"
#include "base/stop.h"
#include "bootstrap/join/launch.h"

namespace hocket::internal {

/// Finds the launcher and fills in what its variables say; of hocket-run all data. Opens no
/// connection. If there is no launcher, the error says what to do, and info->source is empty.
Status detect_launch(const Settings& settings, LaunchInfo* info);

/// Completes what detect_launch() found, except for hocket-run and a job of one rank. Waits for the
/// launcher and for rank 0, at most until the join deadline; stop may be null.
Status meet(const Settings& settings, const std::string& interface, std::int64_t join_deadline_ms,
            const StopRequest* stop, LaunchInfo* info);

/// The error of a join, with this rank, its launcher and the variables that say so.
Status under_launcher(const LaunchInfo& info, const Status& status);

}  // namespace hocket::internal
