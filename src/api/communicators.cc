#include <cstring>
#include <optional>

#include "api/config.h"
#include "api/handle.h"
#include "base/log.h"
#include "bootstrap/join/launch.h"
#include "bootstrap/join/unique_id.h"
#include "engine/group.h"
#include "topology/machine.h"

namespace hocket::internal::api {
namespace {

static_assert(static_cast<int>(Code::system_error) == hocketSystemError);
static_assert(static_cast<int>(Code::internal_error) == hocketInternalError);
static_assert(static_cast<int>(Code::invalid_argument) == hocketInvalidArgument);
static_assert(static_cast<int>(Code::invalid_usage) == hocketInvalidUsage);
static_assert(static_cast<int>(Code::remote_error) == hocketRemoteError);
static_assert(static_cast<int>(Code::in_progress) == hocketInProgress);
static_assert(static_cast<int>(Code::timeout) == hocketTimeout);
static_assert(static_cast<int>(Code::mismatch) == hocketMismatch);
static_assert(static_cast<int>(Code::aborted) == hocketAborted);
static_assert(static_cast<int>(Dtype::float8_e5m2) == hocketFloat8e5m2);
static_assert(static_cast<int>(Op::avg) == hocketAvg);

Status not_in_group() {
  if (!in_group()) return {};
  return invalid_usage("communicators are made and ended outside of groups");
}

std::uint64_t channel_of(const JobId& job, std::uint64_t number) {
  std::uint64_t comm_id;
  std::memcpy(&comm_id, job.data(), sizeof comm_id);
  return (comm_id ^ (number * 0x9e3779b97f4a7c15ULL)) | 1 << 16;
}

Status join(const JoinOptions& options, const CommConfig& config, std::uint64_t number,
            std::shared_ptr<Session> session, std::unique_ptr<Communicator>* out) {
  if (session == nullptr) HOCKET_RETURN_IF_ERROR(Session::join(options, &session));
  std::vector<int> members(static_cast<std::size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) members[static_cast<std::size_t>(rank)] = rank;
  const std::uint64_t comm_id = channel_of(options.job_id, number);
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

/// Makes a handle and fills it now or, where config is not blocking, on its own stream.
using Make = std::function<Status(StopRequest*, std::unique_ptr<Communicator>*)>;
Status fill(const char* function, const CommConfig& config, hocketComm_t* out, Make make) {
  *out = nullptr;
  auto handle = make_handle();
  if (config.blocking) {
    HOCKET_RETURN_IF_ERROR(make(nullptr, &handle->communicator));
    handle->ready.store(true, std::memory_order_release);
    *out = handle.release();
    return {};
  }
  handle->blocking = false;
  handle->own = std::make_unique<HostStream>();
  hocketComm* raw = handle.get();
  HOCKET_RETURN_IF_ERROR(handle->own->push([function, raw, make = std::move(make)] {
    const Status status = status_of_call([&] { return make(&raw->stop, &raw->communicator); });
    if (!status.ok()) {
      std::lock_guard lock(raw->mutex);
      raw->init_error = status.returned_by(function);
      return Status();
    }
    raw->ready.store(true);
    if (raw->stop.stopped()) raw->communicator->abort();  // it was too late for make()
    return Status();
  }));
  *out = handle.release();
  return {Code::in_progress,
          "the communicator joins: ask hocketCommGetAsyncError until it is done"};
}

/// A split's turn among the calls on the communicator, which passes whether it is used or not.
class Split {
 public:
  Split(Communicator& parent, int color, int key, CommConfig config)
      : parent_(parent),
        ticket_(parent.take_ticket()),
        color_(color),
        key_(key),
        config_(std::move(config)) {}
  ~Split() {
    if (done_) return;
    parent_.await_ticket(ticket_);
    parent_.serve_next();
  }
  Split(const Split&) = delete;
  Split& operator=(const Split&) = delete;

  Status run(StopRequest* stop, std::unique_ptr<Communicator>* out) {
    done_ = true;
    return parent_.split(ticket_, color_, key_, config_, stop, out);
  }

 private:
  Communicator& parent_;
  Communicator::Ticket ticket_;
  int color_, key_;
  CommConfig config_;
  bool done_ = false;
};

/// The part in a split of a rank that gets no communicator, and so has none to ask how far it is:
/// it waits here, or comm's own stream does.
Status split_without_color(hocketComm* comm, const std::shared_ptr<Split>& split) {
  const auto run = [split] {
    std::unique_ptr<Communicator> none;
    return split->run(nullptr, &none);
  };
  if (comm->own == nullptr) return run();
  HOCKET_RETURN_IF_ERROR(comm->own->push(run));
  return {Code::in_progress, "the split runs: ask hocketCommGetAsyncError until it is done"};
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

/// Without a launcher: this process is its own job.
Status make_alone(const CommConfig& config, StopRequest* stop, std::unique_ptr<Communicator>* out) {
  UniqueId id;
  HOCKET_RETURN_IF_ERROR(make_unique_id(&id));
  HOCKET_RETURN_IF_ERROR(start_coordinator(id.key, id.job_id, config.interface, UniqueFd(),
                                           &id.root, config.join_deadline_ms));
  JoinOptions options = join_options(config, 0, 1, stop);
  options.key = id.key;
  options.job_id = id.job_id;
  options.root = id.root;
  return join(options, config, 0, nullptr, out);
}

Status make_from_launcher(const CommConfig& config, const Settings& settings, StopRequest* stop,
                          std::unique_ptr<Communicator>* out) {
  LaunchedJob& job = LaunchedJob::instance();
  std::lock_guard lock(job.mutex);
  LaunchInfo info;
  const Status detected = detect_launch(settings, &info);
  if (!detected.ok() && info.source.empty()) return make_alone(config, stop, out);
  HOCKET_RETURN_IF_ERROR(detected);
  JoinOptions options = join_options(config, info.rank, info.ranks, stop);
  options.key = info.key;
  options.has_key = info.has_key;
  options.job_id = info.job_id;
  options.root = info.root;
  if (job.joined_in.value_or(fork_generation()) != fork_generation()) {
    return invalid_usage("this process was forked from rank " + std::to_string(info.rank) +
                         " after that one had joined the job: a rank is one process. Fork before "
                         "the first hocketCommInitFromEnv, or use hocketCommInitRank with an id "
                         "from hocketGetUniqueId");
  }
  std::shared_ptr<Session> session = job.session.lock();
  if (session == nullptr) {
    // Each session of a job has a name of its own: an earlier one may still be saying goodbye.
    for (int i = 0; i < 8; ++i) {
      options.job_id[static_cast<std::size_t>(i)] ^= static_cast<std::uint8_t>(job.made >> (8 * i));
    }
    if (info.root_listener) {
      HOCKET_RETURN_IF_ERROR(start_coordinator(options.key, options.job_id, config.interface,
                                               std::move(info.root_listener), &options.root,
                                               config.join_deadline_ms));
    }
    HOCKET_RETURN_IF_ERROR(Session::join(options, &session));
    job.session = session;
    job.joined_in = fork_generation();
  }
  return join(options, config, job.made++, std::move(session), out);
}

}  // namespace
}  // namespace hocket::internal::api

using namespace hocket::internal;

hocketResult_t hocketGetUniqueId(hocketUniqueId* uniqueId) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    if (uniqueId == nullptr) return invalid_argument("uniqueId is NULL");
    CommConfig config;
    Settings settings;
    HOCKET_RETURN_IF_ERROR(api::make_config(nullptr, {}, &config, &settings));
    UniqueId id;
    HOCKET_RETURN_IF_ERROR(make_unique_id(&id));
    HOCKET_RETURN_IF_ERROR(start_coordinator(id.key, id.job_id, config.interface, UniqueFd(),
                                             &id.root, config.join_deadline_ms));
    const UniqueIdBytes bytes = encode(id);
    static_assert(sizeof bytes == sizeof uniqueId->internal);
    std::memcpy(uniqueId->internal, bytes.data(), bytes.size());
    return {};
  });
}

namespace {

hocketResult_t init_rank(const char* function, hocketComm_t* comm, int nranks,
                         const hocketUniqueId& commId, int rank, const hocketConfig_t* config) {
  return api::guarded(function, nullptr, [&]() -> Status {
    if (comm == nullptr) return invalid_argument("comm is NULL");
    *comm = nullptr;
    HOCKET_RETURN_IF_ERROR(api::not_in_group());
    if (nranks < 1 || nranks > max_ranks) {
      return invalid_argument("nranks is " + std::to_string(nranks) +
                              ": a communicator has at least 1 rank and at most " +
                              std::to_string(max_ranks));
    }
    if (rank < 0 || rank >= nranks) {
      return invalid_argument("rank " + std::to_string(rank) + " does not exist among " +
                              std::to_string(nranks) + " ranks");
    }
    UniqueId id;
    UniqueIdBytes bytes;
    std::memcpy(bytes.data(), commId.internal, bytes.size());
    HOCKET_RETURN_IF_ERROR(decode(bytes, &id));
    CommConfig full;
    Settings settings;
    HOCKET_RETURN_IF_ERROR(api::make_config(config, {}, &full, &settings));
    if (full.name.empty()) full.name = "world";
    return api::fill(function, full, comm,
                     [=](StopRequest* stop, std::unique_ptr<Communicator>* out) {
                       JoinOptions options = api::join_options(full, rank, nranks, stop);
                       options.key = id.key;
                       options.job_id = id.job_id;
                       options.root = id.root;
                       return api::join(options, full, 0, nullptr, out);
                     });
  });
}

}  // namespace

hocketResult_t hocketCommInitRank(hocketComm_t* comm, int nranks, hocketUniqueId commId, int rank) {
  return init_rank(__func__, comm, nranks, commId, rank, nullptr);
}

hocketResult_t hocketCommInitRankConfig(hocketComm_t* comm, int nranks, hocketUniqueId commId,
                                        int rank, hocketConfig_t* config) {
  return init_rank(__func__, comm, nranks, commId, rank, config);
}

hocketResult_t hocketCommInitFromEnv(hocketComm_t* comm, const hocketConfig_t* config) {
  const char* const function = __func__;
  return api::guarded(function, nullptr, [&]() -> Status {
    if (comm == nullptr) return invalid_argument("comm is NULL");
    *comm = nullptr;
    HOCKET_RETURN_IF_ERROR(api::not_in_group());
    CommConfig full;
    Settings settings;
    HOCKET_RETURN_IF_ERROR(api::make_config(config, {}, &full, &settings));
    if (full.name.empty()) full.name = "world";
    return api::fill(function, full, comm,
                     [=](StopRequest* stop, std::unique_ptr<Communicator>* out) {
                       return api::make_from_launcher(full, settings, stop, out);
                     });
  });
}

hocketResult_t hocketCommSplit(hocketComm_t comm, int color, int key, hocketComm_t* newcomm,
                               hocketConfig_t* config) {
  const char* const function = __func__;
  return api::guarded(function, comm, [&]() -> Status {
    if (newcomm == nullptr) return invalid_argument("newcomm is NULL");
    *newcomm = nullptr;
    HOCKET_RETURN_IF_ERROR(api::check(comm));
    HOCKET_RETURN_IF_ERROR(api::not_in_group());
    if (color < 0 && color != HOCKET_SPLIT_NOCOLOR) {
      return invalid_argument("color is negative, and is not HOCKET_SPLIT_NOCOLOR");
    }
    Communicator* parent = comm->communicator.get();
    CommConfig full;
    Settings settings;
    HOCKET_RETURN_IF_ERROR(api::make_config(config, parent->config(), &full, &settings));
    std::shared_ptr<api::Split> split;
    {
      const api::CommGuard entered(*parent);
      if (!entered.ok()) {
        return invalid_usage("another thread is inside a call of this communicator");
      }
      split = std::make_shared<api::Split>(*parent, color, key, full);
    }
    if (color == HOCKET_SPLIT_NOCOLOR) return api::split_without_color(comm, split);
    return api::fill(function, full, newcomm,
                     [split](StopRequest* stop, auto* out) { return split->run(stop, out); });
  });
}

hocketResult_t hocketCommFinalize(hocketComm_t comm) {
  return api::guarded(__func__, comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check(comm));
    HOCKET_RETURN_IF_ERROR(api::not_in_group());
    Communicator& communicator = *comm->communicator;
    const api::CommGuard entered(communicator);
    if (!entered.ok()) {
      return invalid_usage("another thread is inside a call of this communicator");
    }
    communicator.flush();
    Call barrier;
    barrier.number = communicator.next_number();
    const Status status = launch_one(communicator, barrier, nullptr);
    comm->finalized.store(true, std::memory_order_relaxed);
    if (status.ok()) communicator.leave();
    return status;
  });
}

hocketResult_t hocketCommDestroy(hocketComm_t comm) {
  if (comm == nullptr) return hocketSuccess;
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::not_in_group());
    if (comm->state.load() == hocketComm::live && comm->fork_generation != fork_generation()) {
      // The parent's: its threads, sockets and locks are not ours to end.
      [[maybe_unused]] Communicator* leaked = comm->communicator.release();
      [[maybe_unused]] HostStream* also = comm->own.release();
      return {};
    }
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    comm->own.reset();
    comm->communicator.reset();
    api::end_registrations(comm);
    api::retire(comm);
    return {};
  });
}

hocketResult_t hocketCommAbort(hocketComm_t comm) {
  return api::guarded(__func__, comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    comm->stop.stop();
    if (comm->ready.load()) {
      comm->communicator->abort();
      return {};
    }
    std::lock_guard lock(comm->mutex);
    if (comm->init_error.ok()) {
      comm->init_error = {Code::aborted, "hocketCommAbort ended the join of this communicator"};
    }
    return {};
  });
}

hocketResult_t hocketCommGetAsyncError(hocketComm_t comm, hocketResult_t* asyncError) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    if (asyncError == nullptr) return invalid_argument("asyncError is NULL");
    if (!comm->ready.load(std::memory_order_acquire)) {
      std::lock_guard lock(comm->mutex);
      const Status& error = comm->init_error;
      *asyncError = error.ok() ? hocketInProgress : static_cast<hocketResult_t>(error.code());
      return {};
    }
    const Status error = comm->communicator->error();
    if (error.ok() && !comm->blocking && comm->communicator->pending()) {
      *asyncError = hocketInProgress;
    } else {
      *asyncError = static_cast<hocketResult_t>(error.code());
    }
    return {};
  });
}

hocketResult_t hocketCommGetCulprit(hocketComm_t comm, int* rank) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    if (comm != nullptr) HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    if (rank == nullptr) return invalid_argument("rank is NULL");
    if (comm == nullptr) {
      *rank = api::last_error().culprit();
      return {};
    }
    if (comm->ready.load(std::memory_order_acquire)) {
      *rank = comm->communicator->error().culprit();
      return {};
    }
    std::lock_guard lock(comm->mutex);
    *rank = comm->init_error.culprit();
    return {};
  });
}

namespace {

/// A query needs a communicator that has joined; errors and finalization do not matter to it.
template <typename Value>
hocketResult_t query(const char* function, hocketComm_t comm, Value* out,
                     Value (*get)(const Communicator&)) {
  return api::guarded(function, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    if (out == nullptr) return invalid_argument("the place for the answer is NULL");
    if (!comm->ready.load(std::memory_order_acquire)) return api::check(comm);
    *out = get(*comm->communicator);
    return {};
  });
}

}  // namespace

hocketResult_t hocketCommCount(hocketComm_t comm, int* count) {
  return query<int>(__func__, comm, count, [](const Communicator& c) { return c.ranks(); });
}

hocketResult_t hocketCommUserRank(hocketComm_t comm, int* rank) {
  return query<int>(__func__, comm, rank, [](const Communicator& c) { return c.rank(); });
}

hocketResult_t hocketCommLocalRank(hocketComm_t comm, int* rank) {
  return query<int>(__func__, comm, rank, [](const Communicator& c) { return c.local_rank(); });
}

hocketResult_t hocketCommLocalCount(hocketComm_t comm, int* count) {
  return query<int>(__func__, comm, count, [](const Communicator& c) { return c.local_ranks(); });
}

hocketResult_t hocketCommNodeCount(hocketComm_t comm, int* count) {
  return query<int>(__func__, comm, count, [](const Communicator& c) { return c.nodes(); });
}

hocketResult_t hocketCommLastAlgorithm(hocketComm_t comm, const char** algorithm,
                                       const char** transport) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    if (algorithm == nullptr || transport == nullptr) {
      return invalid_argument("the place for the answer is NULL");
    }
    if (!comm->ready.load(std::memory_order_acquire)) return api::check(comm);
    *algorithm = comm->communicator->last_algorithm();
    *transport = comm->communicator->last_transport();
    return {};
  });
}
