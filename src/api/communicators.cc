#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "api/config.h"
#include "api/handle.h"
#include "api/making.h"
#include "api/process.h"
#include "bootstrap/join/unique_id.h"
#include "engine/group_creation.h"
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
  return invalid_usage(
      "this call is not allowed inside a group: call it before hocketGroupStart or after "
      "hocketGroupEnd");
}

Status check_rank_count(const char* name, int ranks) {
  if (ranks >= 1 && ranks <= max_ranks) return {};
  return invalid_argument(std::string(name) + " is " + std::to_string(ranks) +
                          ": a communicator has at least 1 rank and at most " +
                          std::to_string(max_ranks));
}

/// The configuration of a communicator that is joined.
Status config_of_join(const hocketConfig_t* config, CommConfig* out) {
  Settings settings;
  HOCKET_RETURN_IF_ERROR(make_config(config, {}, out, &settings));
  if (out->name.empty()) out->name = "world";
  return {};
}

/// The configuration of a communicator that is made from comm.
Status config_of_part(const hocketComm& comm, const hocketConfig_t* config, CommConfig* out) {
  Settings settings;
  return make_config(config, comm.communicator->config(), out, &settings);
}

Status another_thread_inside() {
  return invalid_usage("another thread is inside a call of this communicator");
}

Making joining(const char* function, const UniqueId& id, int rank, int ranks,
               const CommConfig& config, hocketComm_t* out) {
  Making making{function, config.blocking, out, nullptr};
  making.begin = [=](Make* make) -> Status {
    *make = [=](const CommContext& context, std::unique_ptr<Communicator>* made) {
      return join_job(id, rank, ranks, config, context, made);
    };
    return {};
  };
  return making;
}

/// A rank of a split that gets no communicator has no handle to ask whether the split has ended:
/// the stream of comm runs it, if comm has a stream, and comm is asked.
Making splitting(const char* function, hocketComm* comm, int color, int key,
                 const CommConfig& config, hocketComm_t* out) {
  const bool gets_none = color == Communicator::no_color;
  Making making{function, config.blocking || gets_none, gets_none ? nullptr : out, nullptr};
  making.begin = [=](Make* make) -> Status {
    HOCKET_RETURN_IF_ERROR(check(comm));
    const CommGuard entered(*comm->communicator);
    if (!entered.ok()) return another_thread_inside();
    const auto split = std::make_shared<Split>(*comm->communicator, color, key, config);
    if (gets_none && comm->own != nullptr) {
      HOCKET_RETURN_IF_ERROR(comm->own->push([split] {
        ErrorCell no_errors;
        std::unique_ptr<Communicator> none;
        return split->run(no_errors, nullptr, &none);
      }));
      return {Code::in_progress, "the split runs: ask hocketCommGetAsyncError until it is done"};
    }
    *make = [split](const CommContext& context, std::unique_ptr<Communicator>* made) {
      return split->run(context.errors, context.stop, made);
    };
    return {};
  };
  return making;
}

/// ranks: the members that the user gives; this rank is among them.
Status take_members(const Communicator& comm, const int* ranks, int nranks,
                    std::vector<int>* members) {
  if (ranks == nullptr) return invalid_argument("ranks is NULL");
  if (nranks < 1 || nranks > comm.ranks()) {
    return invalid_argument("nranks is " + std::to_string(nranks) + ": comm has " +
                            std::to_string(comm.ranks()) + " ranks");
  }
  members->assign(ranks, ranks + nranks);
  std::vector<int> place_of(static_cast<std::size_t>(comm.ranks()), -1);
  for (int i = 0; i < nranks; ++i) {
    const std::string name = "ranks[" + std::to_string(i) + "]";
    if (ranks[i] < 0 || ranks[i] >= comm.ranks()) {
      return invalid_argument(name + " is " + std::to_string(ranks[i]) + ": comm has ranks 0 to " +
                              std::to_string(comm.ranks() - 1));
    }
    int& place = place_of[static_cast<std::size_t>(ranks[i])];
    if (place >= 0) {
      return invalid_argument("rank " + std::to_string(ranks[i]) + " is in ranks[" +
                              std::to_string(place) + "] and in " + name + ": give each rank once");
    }
    place = i;
  }
  if (place_of[static_cast<std::size_t>(comm.rank())] >= 0) return {};
  return invalid_argument("ranks does not have rank " + std::to_string(comm.rank()) +
                          ", which is this rank: only members call");
}

Making grouping(const char* function, hocketComm* comm, std::vector<int> members, int tag,
                const CommConfig& config, hocketComm_t* out) {
  Making making{function, config.blocking, out, nullptr};
  making.begin = [=, members = std::move(members)](Make* make) -> Status {
    HOCKET_RETURN_IF_ERROR(check(comm));
    const CommGuard entered(*comm->communicator);
    if (!entered.ok()) return another_thread_inside();
    const auto creation =
        std::make_shared<GroupCreation>(*comm->communicator, members, tag, config);
    *make = [creation](const CommContext& context, std::unique_ptr<Communicator>* made) {
      return creation->run(context.errors, context.stop, made);
    };
    return {};
  };
  return making;
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

/// ids: of one job or more; the first one is used.
hocketResult_t init_rank(const char* function, hocketComm_t* comm, int nranks,
                         std::span<const hocketUniqueId> ids, int rank,
                         const hocketConfig_t* config) {
  return api::guarded_in_group(function, nullptr, [&]() -> Status {
    if (comm == nullptr) return invalid_argument("comm is NULL");
    *comm = nullptr;
    HOCKET_RETURN_IF_ERROR(api::check_rank_count("nranks", nranks));
    if (rank < 0 || rank >= nranks) {
      return invalid_argument("rank " + std::to_string(rank) +
                              " does not exist: " + "a communicator of " + std::to_string(nranks) +
                              " ranks has ranks 0 to " + std::to_string(nranks - 1));
    }
    UniqueId id;
    for (std::size_t i = ids.size(); i-- > 0;) {  // the first one last
      UniqueIdBytes bytes;
      std::memcpy(bytes.data(), ids[i].internal, bytes.size());
      HOCKET_RETURN_IF_ERROR(decode(bytes, &id));
    }
    CommConfig full;
    HOCKET_RETURN_IF_ERROR(api::config_of_join(config, &full));
    return api::make_or_collect(api::joining(function, id, rank, nranks, full, comm));
  });
}

}  // namespace

hocketResult_t hocketCommInitRank(hocketComm_t* comm, int nranks, hocketUniqueId commId, int rank) {
  return init_rank(__func__, comm, nranks, {&commId, 1}, rank, nullptr);
}

hocketResult_t hocketCommInitRankConfig(hocketComm_t* comm, int nranks, hocketUniqueId commId,
                                        int rank, const hocketConfig_t* config) {
  return init_rank(__func__, comm, nranks, {&commId, 1}, rank, config);
}

hocketResult_t hocketCommInitRankScalable(hocketComm_t* newcomm, int nranks, int myrank, int nId,
                                          hocketUniqueId* commIds, const hocketConfig_t* config) {
  const Status ids = status_of_call([&]() -> Status {
    if (newcomm == nullptr) return invalid_argument("newcomm is NULL");
    *newcomm = nullptr;
    HOCKET_RETURN_IF_ERROR(api::check_rank_count("nranks", nranks));
    if (nId < 1 || nId > nranks) {
      return invalid_argument("nId is " + std::to_string(nId) +
                              ": give at least 1 unique id, and at most one for each rank");
    }
    return commIds != nullptr ? Status() : invalid_argument("commIds is NULL");
  });
  if (!ids.ok()) return api::guarded_in_group(__func__, nullptr, [&] { return ids; });
  return init_rank(__func__, newcomm, nranks, {commIds, static_cast<std::size_t>(nId)}, myrank,
                   config);
}

hocketResult_t hocketCommInitAll(hocketComm_t* comms, int ndev, const int*) {
  const char* const function = __func__;
  return api::guarded_in_group(function, nullptr, [&]() -> Status {
    if (comms == nullptr) return invalid_argument("comms is NULL");
    HOCKET_RETURN_IF_ERROR(api::check_rank_count("ndev", ndev));
    std::fill_n(comms, ndev, nullptr);
    CommConfig config;
    HOCKET_RETURN_IF_ERROR(api::config_of_join(nullptr, &config));
    UniqueId id;
    HOCKET_RETURN_IF_ERROR(open_job(config, &id));
    std::vector<api::Making> makings;
    makings.reserve(static_cast<std::size_t>(ndev));
    for (int rank = 0; rank < ndev; ++rank) {
      makings.push_back(api::joining(function, id, rank, ndev, config, comms + rank));
    }
    if (!api::in_group()) return api::make_all(makings);
    for (api::Making& making : makings) HOCKET_RETURN_IF_ERROR(api::collect(std::move(making)));
    return {};
  });
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
    api::Making making{function, full.blocking, comm, nullptr};
    making.begin = [=](api::Make* make) -> Status {
      *make = [=](const CommContext& context, std::unique_ptr<Communicator>* made) {
        LaunchedJob& job = api::Process::current().launched_job;
        return job.join(full, settings, context, made);
      };
      return {};
    };
    return api::make_or_collect(std::move(making));
  });
}

hocketResult_t hocketCommSplit(hocketComm_t comm, int color, int key, hocketComm_t* newcomm,
                               const hocketConfig_t* config) {
  const char* const function = __func__;
  return api::guarded_in_group(function, comm, [&]() -> Status {
    if (newcomm == nullptr) return invalid_argument("newcomm is NULL");
    *newcomm = nullptr;
    HOCKET_RETURN_IF_ERROR(api::check(comm));
    if (color < 0 && color != HOCKET_SPLIT_NOCOLOR) {
      return invalid_argument("color is negative, and is not HOCKET_SPLIT_NOCOLOR");
    }
    CommConfig full;
    HOCKET_RETURN_IF_ERROR(api::config_of_part(*comm, config, &full));
    return api::make_or_collect(api::splitting(function, comm, color, key, full, newcomm));
  });
}

hocketResult_t hocketCommDuplicate(hocketComm_t comm, hocketComm_t* newcomm,
                                   const hocketConfig_t* config) {
  const char* const function = __func__;
  return api::guarded_in_group(function, comm, [&]() -> Status {
    if (newcomm == nullptr) return invalid_argument("newcomm is NULL");
    *newcomm = nullptr;
    HOCKET_RETURN_IF_ERROR(api::check(comm));
    CommConfig full;
    HOCKET_RETURN_IF_ERROR(api::config_of_part(*comm, config, &full));
    return api::make_or_collect(
        api::splitting(function, comm, Communicator::duplicate, 0, full, newcomm));
  });
}

hocketResult_t hocketCommCreateGroup(hocketComm_t comm, const int* ranks, int nranks, int tag,
                                     hocketComm_t* newcomm, const hocketConfig_t* config) {
  const char* const function = __func__;
  return api::guarded_in_group(function, comm, [&]() -> Status {
    if (newcomm == nullptr) return invalid_argument("newcomm is NULL");
    *newcomm = nullptr;
    HOCKET_RETURN_IF_ERROR(api::check(comm));
    if (tag < 0) return invalid_argument("tag is " + std::to_string(tag) + ": give 0 or more");
    std::vector<int> members;
    HOCKET_RETURN_IF_ERROR(api::take_members(*comm->communicator, ranks, nranks, &members));
    CommConfig full;
    HOCKET_RETURN_IF_ERROR(api::config_of_part(*comm, config, &full));
    return api::make_or_collect(
        api::grouping(function, comm, std::move(members), tag, full, newcomm));
  });
}

hocketResult_t hocketCommFinalize(hocketComm_t comm) {
  return api::guarded(__func__, comm, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check(comm));
    HOCKET_RETURN_IF_ERROR(api::not_in_group());
    Communicator& communicator = *comm->communicator;
    const api::CommGuard entered(communicator);
    if (!entered.ok()) {
      return api::another_thread_inside();
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
      if (comm->own != nullptr) comm->own->waiters()->ask();
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

hocketResult_t hocketCommMembers(hocketComm_t comm, hocketMember_t* members, int count) {
  return api::guarded(__func__, nullptr, [&]() -> Status {
    HOCKET_RETURN_IF_ERROR(api::check_handle(comm));
    if (members == nullptr) return invalid_argument("members is NULL");
    if (!comm->ready.load(std::memory_order_acquire)) return api::check(comm);
    const Membership& membership = comm->communicator->membership();
    if (count != membership.ranks()) {
      return invalid_argument("count is " + std::to_string(count) + ", but comm has " +
                              std::to_string(membership.ranks()) + " ranks");
    }
    const std::vector<Membership::RankOnNode> ranks = membership.ranks_on_nodes();
    for (int rank = 0; rank < count; ++rank) {
      const Member& from = membership.member(rank);
      const Membership::RankOnNode& on_node = ranks[static_cast<std::size_t>(rank)];
      hocketMember_t& to = members[rank];
      to = {membership.session_rank(rank), on_node.node, on_node.local_rank, from.pid, {}};
      from.host.copy(to.host, sizeof to.host - 1);
    }
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
