#include <cstring>

#include "api/config.h"
#include "api/handle.h"
#include "api/process.h"
#include "bootstrap/join/unique_id.h"
#include "engine/job.h"
#include "engine/split.h"

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
static_assert(static_cast<int>(Dtype::float8_e5m2) + 1 == hocketNumTypes);
static_assert(static_cast<int>(Op::avg) + 1 == hocketNumOps);

Status not_in_group() {
  if (!in_group()) return {};
  return invalid_usage("communicators are made and ended outside of groups");
}

/// Makes a handle and its communicator, now or, if config is not blocking, on the handle's stream.
using Make = std::function<Status(const CommContext&, std::unique_ptr<Communicator>*)>;
Status fill(const char* function, const CommConfig& config, hocketComm_t* out, Make make) {
  *out = nullptr;
  auto handle = make_handle();
  SharedParts& shared = Process::current().shared;
  if (config.blocking) {
    HOCKET_RETURN_IF_ERROR(make({shared, handle->errors}, &handle->communicator));
    handle->ready.store(true, std::memory_order_release);
    *out = handle.release();
    return {};
  }
  handle->blocking = false;
  handle->own = std::make_unique<HostStream>();
  hocketComm* raw = handle.get();
  HOCKET_RETURN_IF_ERROR(handle->own->push([function, raw, &shared, make = std::move(make)] {
    const Status status = status_of_call([&] {
      return make({shared, raw->errors, &raw->stop}, &raw->communicator);
    });
    if (!status.ok()) {
      raw->errors.set(status);
      raw->errors.note_returned(function, status);
      return Status();
    }
    raw->ready.store(true);
    if (raw->stop.stopped()) raw->communicator->abort();  // the stop came after make()
    return Status();
  }));
  *out = handle.release();
  return {Code::in_progress,
          "the communicator joins: ask hocketCommGetAsyncError until it is done"};
}

/// The split of a rank that gets no communicator, and so has no handle to ask whether the split has
/// ended: this thread runs it, or the stream of comm does.
Status split_without_color(hocketComm* comm, const std::shared_ptr<Split>& split) {
  const auto run = [split] {
    ErrorCell no_errors;
    std::unique_ptr<Communicator> none;
    return split->run(no_errors, nullptr, &none);
  };
  if (comm->own == nullptr) return run();
  HOCKET_RETURN_IF_ERROR(comm->own->push(run));
  return {Code::in_progress, "the split runs: ask hocketCommGetAsyncError until it is done"};
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
    HOCKET_RETURN_IF_ERROR(open_job(config, &id));
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
                     [=](const CommContext& context, std::unique_ptr<Communicator>* out) {
                       return join_job(id, rank, nranks, full, context, out);
                     });
  });
}

}  // namespace

hocketResult_t hocketCommInitRank(hocketComm_t* comm, int nranks, hocketUniqueId commId, int rank) {
  return init_rank(__func__, comm, nranks, commId, rank, nullptr);
}

hocketResult_t hocketCommInitRankConfig(hocketComm_t* comm, int nranks, hocketUniqueId commId,
                                        int rank, const hocketConfig_t* config) {
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
                     [=](const CommContext& context, std::unique_ptr<Communicator>* out) {
                       LaunchedJob& job = api::Process::current().launched_job;
                       return job.join(full, settings, context, out);
                     });
  });
}

hocketResult_t hocketCommSplit(hocketComm_t comm, int color, int key, hocketComm_t* newcomm,
                               const hocketConfig_t* config) {
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
    std::shared_ptr<Split> split;
    {
      const api::CommGuard entered(*parent);
      if (!entered.ok()) {
        return invalid_usage("another thread is inside a call of this communicator");
      }
      split = std::make_shared<Split>(*parent, color, key, full);
    }
    if (color == HOCKET_SPLIT_NOCOLOR) return api::split_without_color(comm, split);
    return api::fill(function, full, newcomm, [split](const CommContext& context, auto* out) {
      return split->run(context.errors, context.stop, out);
    });
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
    const Status status = communicator.finalize();
    comm->finalized.store(true, std::memory_order_relaxed);
    return status;
  });
}

hocketResult_t hocketCommDestroy(hocketComm_t comm) {
  if (comm == nullptr) return hocketSuccess;
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::not_in_group());
    if (comm->state.load() == hocketComm::live && comm->fork_generation != fork_generation()) {
      // The threads, sockets and locks belong to the parent process.
      [[maybe_unused]] Communicator* leaked = comm->communicator.release();
      [[maybe_unused]] HostStream* also = comm->own.release();
      return {};
    }
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    comm->own.reset();
    comm->communicator.reset();
    api::Process::current().registrations.end_all(comm);
    api::Process::current().operators.end_all(comm);
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
    comm->errors.set({Code::aborted, "hocketCommAbort ended the join of this communicator"});
    return {};
  });
}

hocketResult_t hocketCommGetAsyncError(hocketComm_t comm, hocketResult_t* asyncError) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    if (asyncError == nullptr) return invalid_argument("asyncError is NULL");
    if (!comm->ready.load(std::memory_order_acquire)) {
      const Status error = comm->errors.get();
      *asyncError = error.ok() ? hocketInProgress : static_cast<hocketResult_t>(error.code());
      return {};
    }
    const Status error = comm->communicator->error();
    if (error.ok() && !comm->blocking && comm->communicator->order().pending()) {
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
    *rank = api::error_of(comm).culprit();
    return {};
  });
}

namespace {

/// A query needs a communicator that has joined; it may be in error or finalized.
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

hocketResult_t hocketCommDumpRecord(hocketComm_t comm, const char* path) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    if (!comm->ready.load(std::memory_order_acquire)) return api::check(comm);
    if (path != nullptr && *path == 0) return invalid_argument("path is empty");
    return comm->communicator->dump_record(path == nullptr ? "" : path);
  });
}
