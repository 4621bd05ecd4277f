#include "engine/job.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "bootstrap/launchers/launcher.h"
#include "engine/comm_id.h"
#include "topology/machine.h"

namespace hocket::internal {
namespace {

/// session: null where options are those of a session to join first. number: of the communicators
/// that were made in the session.
Status make_communicator(const JoinOptions& options, const CommConfig& config, std::uint64_t number,
                         std::shared_ptr<Session> session, const CommContext& context,
                         std::unique_ptr<Communicator>* out) {
  if (session == nullptr) HOCKET_RETURN_IF_ERROR(Session::join(options, &session));
  std::vector<int> members(static_cast<std::size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) members[static_cast<std::size_t>(rank)] = rank;
  const std::uint64_t comm_id = comm_id_of_job(options.job_id, number);
  return Communicator::create(std::move(session), std::move(members), comm_id, 0, config, context,
                              out);
}

JoinOptions join_options(const CommConfig& config, int rank, int ranks, StopRequest* stop) {
  JoinOptions options;
  options.rank = rank;
  options.ranks = ranks;
  options.interface = config.interface;
  options.share_memory = config.use_shm;
  options.tls = config.tls;
  options.join_deadline_ms = config.join_deadline_ms;
  options.silence_ms = config.silence_ms;
  options.machine = machine().id;
  options.cores = machine().cores;
  options.stop = stop;
  return options;
}

/// HOCKET_NODES: the node of the rank among those of its host.
Status place_in_node(const CommConfig& config, JoinOptions* options) {
  if (config.nodes.empty()) return {};
  std::int64_t end = 0;
  for (std::size_t node = 0; node < config.nodes.size(); ++node) {
    if (options->rank >= end) options->node_of_host = static_cast<int>(node);
    end += config.nodes[node];
  }
  if (end == options->ranks) return {};
  return invalid_usage(
      fmt::format("HOCKET_NODES has nodes for {} ranks, but the job has {}", end, options->ranks));
}

/// Each session of a job has a name of its own: an earlier one may still be saying goodbye.
JobId next_session(JobId job, std::uint64_t made) {
  for (int i = 0; i < 8; ++i) {
    job[static_cast<std::size_t>(i)] ^= static_cast<std::uint8_t>(made >> (8 * i));
  }
  return job;
}

/// A copy for one session. It has a listener of its own; until_joined and until_all_know belong to
/// the first session.
LaunchInfo share(const LaunchInfo& met) {
  LaunchInfo copy;
  copy.key = met.key;
  copy.has_key = met.has_key;
  copy.job_id = met.job_id;
  copy.coordinator = met.coordinator;
  copy.rank = met.rank;
  copy.ranks = met.ranks;
  if (met.coordinator_listener) {
    copy.coordinator_listener =
        UniqueFd(::fcntl(met.coordinator_listener.get(), F_DUPFD_CLOEXEC, 3));
  }
  copy.source = met.source;
  copy.variables = met.variables;
  copy.met = true;
  return copy;
}

}  // namespace

Status open_job(const CommConfig& config, UniqueId* id) {
  HOCKET_RETURN_IF_ERROR(make_unique_id(id));
  return start_coordinator(id->key, id->job_id, config.interface, UniqueFd(), &id->coordinator,
                           config.join_deadline_ms);
}

Status join_job(const UniqueId& id, int rank, int ranks, const CommConfig& config,
                const CommContext& context, std::unique_ptr<Communicator>* out) {
  JoinOptions options = join_options(config, rank, ranks, context.stop);
  HOCKET_RETURN_IF_ERROR(place_in_node(config, &options));
  options.key = id.key;
  options.job_id = id.job_id;
  options.coordinator = id.coordinator;
  return make_communicator(options, config, 0, nullptr, context, out);
}

/// Fills in all that a join needs. A process without a launcher, or with one rank alone, gets
/// info->ranks = 1 and no key.
Status LaunchedJob::find_launch(const CommConfig& config, const Settings& settings,
                                StopRequest* stop, LaunchInfo* info) {
  const Status detected = detect_launch(settings, info);
  if (!detected.ok()) return info->source.empty() ? Status() : detected;
  if (parent_joined_) {
    return invalid_usage("this process was forked from rank " + std::to_string(info->rank) +
                         " after that one had joined the job: a rank is one process. Fork before "
                         "the first hocketCommInitFromEnv, or use hocketCommInitRank with an id "
                         "from hocketGetUniqueId");
  }
  if (!met_) {
    HOCKET_RETURN_IF_ERROR(under_launcher(
        *info, meet(settings, config.interface, config.join_deadline_ms, stop, info)));
    if (info->met) met_ = share(*info);
    return {};
  }
  *info = share(*met_);
  info->join_ms = config.join_deadline_ms;
  return {};
}

Status LaunchedJob::join_session(const CommConfig& config, LaunchInfo& info, JoinOptions options,
                                 std::shared_ptr<Session>* out) {
  options.job_id = next_session(options.job_id, made_);
  if (info.met) options.join_deadline_ms = info.join_ms;
  if (info.coordinator_listener && info.has_key) {
    HOCKET_RETURN_IF_ERROR(start_coordinator(
        options.key, options.job_id, config.interface, std::move(info.coordinator_listener),
        &options.coordinator, options.join_deadline_ms, std::move(info.until_all_know)));
  }
  return under_launcher(info, Session::join(options, out));
}

Status LaunchedJob::join(const CommConfig& config, const Settings& settings,
                         const CommContext& context, std::unique_ptr<Communicator>* out) {
  const std::lock_guard lock(mutex_);
  LaunchInfo info;
  HOCKET_RETURN_IF_ERROR(find_launch(config, settings, context.stop, &info));
  const bool alone = info.source != "hocket-run" && !info.met;
  if (alone) {
    UniqueId id;
    HOCKET_RETURN_IF_ERROR(open_job(config, &id));
    return join_job(id, 0, 1, config, context, out);
  }
  JoinOptions options = join_options(config, info.rank, info.ranks, context.stop);
  HOCKET_RETURN_IF_ERROR(place_in_node(config, &options));
  options.key = info.key;
  options.has_key = info.has_key;
  options.job_id = info.job_id;
  options.coordinator = info.coordinator;
  std::shared_ptr<Session> session = session_.lock();
  if (session == nullptr) {
    HOCKET_RETURN_IF_ERROR(join_session(config, info, options, &session));
    session_ = session;
    joined_ = true;
  }
  return make_communicator(options, config, made_++, std::move(session), context, out);
}

}  // namespace hocket::internal
