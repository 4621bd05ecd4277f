#include "engine/job.h"

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "bootstrap/join/launch.h"
#include "engine/comm_id.h"
#include "topology/machine.h"

namespace hocket::internal {
namespace {

Status join(const JoinOptions& options, const CommConfig& config, std::uint64_t number,
            std::shared_ptr<Session> session, std::unique_ptr<Communicator>* out) {
  if (session == nullptr) HOCKET_RETURN_IF_ERROR(Session::join(options, &session));
  std::vector<int> members(static_cast<std::size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) members[static_cast<std::size_t>(rank)] = rank;
  const std::uint64_t comm_id = comm_id_of_job(options.job_id, number);
  return Communicator::create(std::move(session), std::move(members), comm_id, 0, config,
                              options.stop, out);
}

JoinOptions join_options(const CommConfig& config, int rank, int ranks, StopRequest* stop) {
  JoinOptions options;
  options.rank = rank;
  options.ranks = ranks;
  options.interface = config.interface;
  options.share_memory = config.use_shm;
  options.join_deadline_ms = config.join_deadline_ms;
  options.silence_ms = config.silence_ms;
  options.machine = machine().id;
  options.cores = machine().cores;
  options.stop = stop;
  return options;
}

/// All communicators that this process makes from its launcher share one session.
struct LaunchedJob {
  std::mutex mutex;
  std::weak_ptr<Session> session;
  std::uint64_t made = 0;
  std::optional<std::uint64_t> joined_in;  // fork_generation() of the process that did
  static LaunchedJob& instance() {
    static auto* job = new LaunchedJob;
    return *job;
  }
};

/// Each session of a job has a name of its own: an earlier one may still be saying goodbye.
JobId next_session(JobId job, std::uint64_t made) {
  for (int i = 0; i < 8; ++i) {
    job[static_cast<std::size_t>(i)] ^= static_cast<std::uint8_t>(made >> (8 * i));
  }
  return job;
}

}  // namespace

Status open_job(const CommConfig& config, UniqueId* id) {
  HOCKET_RETURN_IF_ERROR(make_unique_id(id));
  return start_coordinator(id->key, id->job_id, config.interface, UniqueFd(), &id->coordinator,
                           config.join_deadline_ms);
}

Status join_job(const UniqueId& id, int rank, int ranks, const CommConfig& config,
                StopRequest* stop, std::unique_ptr<Communicator>* out) {
  JoinOptions options = join_options(config, rank, ranks, stop);
  options.key = id.key;
  options.job_id = id.job_id;
  options.coordinator = id.coordinator;
  return join(options, config, 0, nullptr, out);
}

Status join_launched_job(const CommConfig& config, const Settings& settings, StopRequest* stop,
                         std::unique_ptr<Communicator>* out) {
  LaunchedJob& job = LaunchedJob::instance();
  std::lock_guard lock(job.mutex);
  LaunchInfo info;
  const Status detected = detect_launch(settings, &info);
  if (!detected.ok() && info.source.empty()) {
    UniqueId id;
    HOCKET_RETURN_IF_ERROR(open_job(config, &id));
    return join_job(id, 0, 1, config, stop, out);
  }
  HOCKET_RETURN_IF_ERROR(detected);
  JoinOptions options = join_options(config, info.rank, info.ranks, stop);
  options.key = info.key;
  options.has_key = info.has_key;
  options.job_id = info.job_id;
  options.coordinator = info.coordinator;
  if (job.joined_in.value_or(fork_generation()) != fork_generation()) {
    return invalid_usage("this process was forked from rank " + std::to_string(info.rank) +
                         " after that one had joined the job: a rank is one process. Fork before "
                         "the first hocketCommInitFromEnv, or use hocketCommInitRank with an id "
                         "from hocketGetUniqueId");
  }
  std::shared_ptr<Session> session = job.session.lock();
  if (session == nullptr) {
    options.job_id = next_session(options.job_id, job.made);
    if (info.coordinator_listener) {
      HOCKET_RETURN_IF_ERROR(start_coordinator(options.key, options.job_id, config.interface,
                                               std::move(info.coordinator_listener),
                                               &options.coordinator, config.join_deadline_ms));
    }
    HOCKET_RETURN_IF_ERROR(Session::join(options, &session));
    job.session = session;
    job.joined_in = fork_generation();
  }
  return join(options, config, job.made++, std::move(session), out);
}

}  // namespace hocket::internal
