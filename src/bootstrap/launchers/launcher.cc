#include "bootstrap/launchers/launcher.h"

#include <fmt/format.h>

#include "base/log.h"
#include "bootstrap/launchers/meeting.h"
#include "bootstrap/launchers/mpi_library.h"
#include "bootstrap/launchers/pmi1.h"

namespace hocket::internal {
namespace {

/// Under `srun --mpi=pmi2` MPI_Init hangs or fails after a conversation of hocket, which then meets
/// as under plain srun. PMI_JOBID is Slurm's.
bool leave_pmi_to_mpi(const Environment& environment, const LaunchedRank& launched) {
  return launched.exchange == Exchange::pmi1 && launched.in_slurm && environment.has("PMI_JOBID") &&
         environment.number("SLURM_PROCID") == launched.rank && mpi_state() != MpiState::none;
}

Status find(const Environment& environment, LaunchedRank* launched, bool* found) {
  HOCKET_RETURN_IF_ERROR(find_launched_rank(environment, is_open_socket, launched, found));
  if (!*found || !leave_pmi_to_mpi(environment, *launched)) return {};
  return srun_rank(environment, launched);
}

/// False for a rank of a launcher that runs inside hocket-run.
bool by_hocket_run(const Settings& settings) {
  return settings.launch_fd.has_value() && !has_mark(Environment());
}

Status meet_as(const Meeting& meeting) {
  switch (meeting.launched.exchange) {
    case Exchange::pmix:
      return meet_by_pmix(meeting);
    case Exchange::pmi1:
      return meet_by_pmi1(meeting);
    case Exchange::derived:
      return meet_by_port(meeting);
  }
  return {};
}

}  // namespace

Status detect_launch(const Settings& settings, LaunchInfo* info) {
  *info = LaunchInfo();
  if (by_hocket_run(settings)) {
    info->source = "hocket-run";
    return read_launch_record(settings, info);
  }
  LaunchedRank launched;
  bool found = false;
  const Status status = find(Environment(), &launched, &found);
  if (found) info->source = launched.launcher;
  HOCKET_RETURN_IF_ERROR(status);
  if (!found) {
    return invalid_usage(
        "no launcher started this process; start the program with `hocket-run -n RANKS PROGRAM`, "
        "or use hocketCommInitRank with an id from hocketGetUniqueId");
  }
  info->variables = launched.variables;
  if (!launched.others.empty()) info->variables += "; of another launcher: " + launched.others;
  info->rank = launched.rank;
  info->ranks = launched.ranks;
  return {};
}

Status meet(const Settings& settings, const std::string& interface, std::int64_t join_deadline_ms,
            const StopRequest* stop, LaunchInfo* info) {
  if (by_hocket_run(settings) || info->ranks == 1) return {};
  Meeting meeting{settings, interface, {}, JoinWait(join_deadline_ms, stop), info};
  bool found = false;
  HOCKET_RETURN_IF_ERROR(find(Environment(), &meeting.launched, &found));
  log_line(LogLevel::info, fmt::format("rank {} of {}, started by {} ({})", info->rank, info->ranks,
                                       info->source, info->variables));
  info->has_key = true;
  HOCKET_RETURN_IF_ERROR(meet_as(meeting));
  info->met = true;
  info->join_ms = meeting.wait.left_ms();
  return {};
}

Status under_launcher(const LaunchInfo& info, const Status& status) {
  if (status.ok() || info.variables.empty()) return status;
  const std::string rank =
      info.rank < 0 ? std::string("a rank") : fmt::format("rank {} of {}", info.rank, info.ranks);
  return {status.code(),
          fmt::format("{} (this process is {}, started by {}: {})", status.message(), rank,
                      info.source, info.variables),
          status.culprit()};
}

}  // namespace hocket::internal
