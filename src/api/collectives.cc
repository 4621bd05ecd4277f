// Collectives, messages and groups: checks arguments, translates them, and collects groups.
#include <algorithm>
#include <map>
#include <vector>

#include "api/arguments.h"
#include "api/handle.h"
#include "api/making.h"
#include "engine/group.h"

namespace hocket::internal::api {
namespace {

/// A call that a group has collected. It keeps the handle instead of the communicator, because the
/// user may end the communicator before the group ends.
struct CollectedCall {
  hocketComm* comm;
  Call call;
  HostStream* stream;
};

/// The group that a thread has begun, from its outermost start to its end. A thread_local must not
/// have a destructor: its first use would end the process if there is no memory.
struct Group {
  std::vector<CollectedCall> calls;
  std::vector<Making> makings;  // communicators to make; calls is empty then
  Status error;                 // of the first call that was refused
};
[[gnu::tls_model("initial-exec")]] thread_local int group_depth = 0;  // every call reads it
thread_local Group* group = nullptr;

Status check_arguments(const VaryingArguments* varying, const Communicator& comm, Call* call) {
  const int rank = comm.rank(), ranks = comm.ranks();
  HOCKET_RETURN_IF_ERROR(check_root(*call, ranks));
  if (is_p2p(*call) && call->root == rank && !in_group()) {
    return invalid_usage(
        "a message to oneself would wait for ever: put hocketSend and hocketRecv in one group");
  }
  if (varying != nullptr) [[unlikely]]
    return take_blocks(*varying, rank, ranks, call);
  return check_buffers(*call, rank, ranks);
}

HostStream* stream_of(hocketComm* comm, hocketStream_t stream) {
  return stream != nullptr ? stream->stream.get() : comm->own.get();
}

Status two_threads() {
  return invalid_usage(
      "another thread is inside a call of this communicator: use it from one thread at a time, or "
      "make one per thread with hocketCommSplit");
}

Status calls_and_makings() {
  return invalid_usage(
      "a group either makes communicators or runs operations: close this group first");
}

/// The engine sees by the address that the blocks are those of the call before.
void share_blocks(hocketComm* comm, Call* call) {
  if (comm->latest_blocks == nullptr || *comm->latest_blocks != *call->varying) {
    comm->latest_blocks = call->varying;
  } else {
    call->varying = comm->latest_blocks;
  }
}

/// Sets *call to the call of the arguments, which have passed all checks then.
Status check_call(hocketComm* comm, const Arguments& arguments, const VaryingArguments* varying,
                  hocketStream_t stream, Call* call) {
  *call = call_of(arguments);
  HOCKET_RETURN_IF_ERROR(narrow(arguments.datatype, arguments.op, comm, call));
  HOCKET_RETURN_IF_ERROR(check_arguments(varying, *comm->communicator, call));
  return stream != nullptr ? check_stream(stream) : Status();
}

Status add_to_group(hocketComm* comm, const Arguments& arguments, const VaryingArguments* varying,
                    hocketStream_t stream) {
  Call call;
  HOCKET_RETURN_IF_ERROR(check_call(comm, arguments, varying, stream, &call));
  if (!group->makings.empty()) return calls_and_makings();
  group->calls.push_back({comm, call, stream_of(comm, stream)});
  return {};
}

/// Inside the communicator.
Status check_and_launch(hocketComm* comm, const Arguments& arguments,
                        const VaryingArguments* varying, hocketStream_t stream) {
  Communicator& communicator = *comm->communicator;
  Call call;
  HOCKET_RETURN_IF_ERROR(check_call(comm, arguments, varying, stream, &call));
  if (varying != nullptr) share_blocks(comm, &call);
  call.number = call.row = communicator.order().next_number();
  comm->latest.of(arguments.collective)
      .keep(arguments, varying, call, communicator.rank(), communicator.ranks());
  HostStream* const host = stream_of(comm, stream);
  HOCKET_RETURN_IF_ERROR(launch_one(communicator, call, host));
  if (stream == nullptr && host != nullptr) {
    return {Code::in_progress, "the call runs: ask hocketCommGetAsyncError until it is done"};
  }
  return {};
}

Status start(hocketComm* comm, const Arguments& arguments, const VaryingArguments* varying,
             hocketStream_t stream) {
  if (!is_usable(comm)) [[unlikely]]
    HOCKET_RETURN_IF_ERROR(check(comm));
  if (group_depth > 0) return add_to_group(comm, arguments, varying, stream);
  Communicator& communicator = *comm->communicator;
  const CommGuard entered(communicator);
  if (!entered.ok()) [[unlikely]]
    return two_threads();
  const bool here = stream == nullptr && comm->own == nullptr;
  CheckedCall& latest = comm->latest.of(arguments.collective);
  if (!here || !latest.take(arguments, varying)) {
    return check_and_launch(comm, arguments, varying, stream);
  }
  Call& call = latest.call();
  call.number = communicator.order().next_number();
  return launch_one(communicator, call, nullptr);
}

/// varying: of a v-variant, else null. Never inline: its callers would copy all arguments once
/// more.
[[gnu::noinline]] hocketResult_t run(const char* function, hocketComm* comm,
                                     const Arguments& arguments, hocketStream_t stream,
                                     const VaryingArguments* varying = nullptr) {
  return guarded_in_group(function, comm, [&] { return start(comm, arguments, varying, stream); });
}

/// A message to oneself needs both its halves in one group: alone it would wait for ever.
Status check_own_messages(const std::vector<GroupedCall>& calls, const Communicator* of) {
  int unmatched = 0;
  for (const GroupedCall& one : calls) {
    if (one.communicator != of || !is_p2p(one.call) || one.call.root != of->rank()) continue;
    unmatched += one.call.collective == Collective::send ? 1 : -1;
  }
  if (unmatched == 0) return {};
  return invalid_usage(
      "the group has more messages from this rank to itself than it receives, or fewer: the others "
      "would wait for ever");
}

Status no_group() {
  return invalid_usage("this thread has no open group: call hocketGroupStart before");
}

Status end_group() {
  if (group_depth == 0) return no_group();
  if (--group_depth > 0) return {};
  const std::unique_ptr<Group> ended(std::exchange(group, nullptr));
  // If a call was refused, no call of the group runs: the peers would wait for the missing ones.
  HOCKET_RETURN_IF_ERROR(ended->error);
  if (!ended->makings.empty()) return make_all(ended->makings);
  std::vector<GroupedCall> calls;
  std::vector<std::unique_ptr<CommGuard>> entered;
  std::vector<Communicator*> held;
  bool in_progress = false;
  for (const CollectedCall& one : ended->calls) {
    HOCKET_RETURN_IF_ERROR(check(one.comm));
    Communicator* communicator = one.comm->communicator.get();
    calls.push_back({communicator, one.call, one.stream});
    in_progress |= one.stream != nullptr && one.stream == one.comm->own.get();
    if (std::find(held.begin(), held.end(), communicator) != held.end()) continue;
    held.push_back(communicator);
    entered.push_back(std::make_unique<CommGuard>(*communicator));
    if (!entered.back()->ok()) return two_threads();
  }
  if (calls.empty()) return {};
  for (const Communicator* communicator : held)
    HOCKET_RETURN_IF_ERROR(check_own_messages(calls, communicator));
  for (GroupedCall& one : calls) one.call.number = one.communicator->order().next_number();
  HOCKET_RETURN_IF_ERROR(launch(calls));
  if (in_progress) return {Code::in_progress, "the group runs: ask hocketCommGetAsyncError"};
  return {};
}

/// The time of the calls, in nanoseconds: those of one communicator one after another, those of
/// different ones beside one another.
Status estimate(const std::vector<CollectedCall>& calls, double* ns) {
  std::map<Communicator*, double> time_of;
  for (const CollectedCall& one : calls) {
    HOCKET_RETURN_IF_ERROR(check(one.comm));
    Communicator* const communicator = one.comm->communicator.get();
    const CommGuard entered(*communicator);
    if (!entered.ok()) return two_threads();
    communicator->order().flush();
    double time = 0;
    HOCKET_RETURN_IF_ERROR(communicator->estimate(one.call, &time));
    time_of[communicator] += time;
  }
  *ns = 0;
  for (const auto& [communicator, time] : time_of) *ns = std::max(*ns, time);
  return {};
}

Status simulate_group(hocketSimInfo_t* info) {
  if (group_depth == 0) return no_group();
  if (info == nullptr) return invalid_argument("simInfo is NULL");
  if (info->magic != HOCKET_SIM_INFO_MAGIC || info->size < sizeof(hocketSimInfo_t)) {
    return invalid_argument("simInfo was not begun with HOCKET_SIM_INFO_INITIALIZER");
  }
  info->estimatedTime = HOCKET_UNDEF_FLOAT;
  if (--group_depth > 0) return {};
  const std::unique_ptr<Group> ended(std::exchange(group, nullptr));
  HOCKET_RETURN_IF_ERROR(ended->error);
  if (!ended->makings.empty()) return {};
  double ns = 0;
  HOCKET_RETURN_IF_ERROR(estimate(ended->calls, &ns));
  info->estimatedTime = static_cast<float>(ns / 1000);
  return {};
}

Status cancel_group() {
  if (group_depth == 0) return no_group();
  group_depth = 0;
  delete std::exchange(group, nullptr);
  return {};
}

}  // namespace

bool in_group() { return group_depth > 0; }

Status collect(Making making) {
  if (!group->calls.empty()) return calls_and_makings();
  group->makings.push_back(std::move(making));
  return {};
}

hocketResult_t note_in_group(hocketResult_t outcome) noexcept {
  if (outcome != hocketSuccess && group_depth > 0 && group->error.ok()) [[unlikely]] {
    group->error = last_error();
    if (group->error.ok()) group->error = out_of_memory();  // there was no memory to keep the error
  }
  return outcome;
}

}  // namespace hocket::internal::api

using namespace hocket::internal;

hocketResult_t hocketAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                               hocketDataType_t datatype, hocketRedOp_t op, hocketComm_t comm,
                               hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::all_reduce,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = count,
                   .datatype = datatype,
                   .op = op},
                  stream);
}

hocketResult_t hocketBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                               hocketDataType_t datatype, int root, hocketComm_t comm,
                               hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::broadcast,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = count,
                   .root = root,
                   .datatype = datatype},
                  stream);
}

hocketResult_t hocketAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                               hocketDataType_t datatype, hocketComm_t comm,
                               hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::all_gather,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = sendcount,
                   .datatype = datatype},
                  stream);
}

hocketResult_t hocketReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                   hocketDataType_t datatype, hocketRedOp_t op, hocketComm_t comm,
                                   hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::reduce_scatter,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = recvcount,
                   .datatype = datatype,
                   .op = op},
                  stream);
}

hocketResult_t hocketBcast(void* buff, size_t count, hocketDataType_t datatype, int root,
                           hocketComm_t comm, hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::broadcast,
                   .input = buff,
                   .output = buff,
                   .count = count,
                   .root = root,
                   .datatype = datatype},
                  stream);
}

hocketResult_t hocketReduce(const void* sendbuff, void* recvbuff, size_t count,
                            hocketDataType_t datatype, hocketRedOp_t op, int root,
                            hocketComm_t comm, hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::reduce,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = count,
                   .root = root,
                   .datatype = datatype,
                   .op = op},
                  stream);
}

hocketResult_t hocketGather(const void* sendbuff, void* recvbuff, size_t count,
                            hocketDataType_t datatype, int root, hocketComm_t comm,
                            hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::gather,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = count,
                   .root = root,
                   .datatype = datatype},
                  stream);
}

hocketResult_t hocketScatter(const void* sendbuff, void* recvbuff, size_t count,
                             hocketDataType_t datatype, int root, hocketComm_t comm,
                             hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::scatter,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = count,
                   .root = root,
                   .datatype = datatype},
                  stream);
}

hocketResult_t hocketAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                              hocketDataType_t datatype, hocketComm_t comm, hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::all_to_all,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = count,
                   .datatype = datatype},
                  stream);
}

hocketResult_t hocketAllGatherV(const void* sendbuff, size_t sendcount, void* recvbuff,
                                const size_t* recvcounts, const size_t* displs,
                                hocketDataType_t datatype, hocketComm_t comm,
                                hocketStream_t stream) {
  const api::VaryingArguments varying{.output = {recvcounts, displs, "recvcounts", "displs"},
                                      .own_count_name = "sendcount"};
  return api::run(__func__, comm,
                  {.collective = Collective::all_gather,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = sendcount,
                   .datatype = datatype},
                  stream, &varying);
}

hocketResult_t hocketGatherV(const void* sendbuff, size_t sendcount, void* recvbuff,
                             const size_t* recvcounts, const size_t* displs,
                             hocketDataType_t datatype, int root, hocketComm_t comm,
                             hocketStream_t stream) {
  const api::VaryingArguments varying{.output = {recvcounts, displs, "recvcounts", "displs"},
                                      .own_count_name = "sendcount"};
  return api::run(__func__, comm,
                  {.collective = Collective::gather,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = sendcount,
                   .root = root,
                   .datatype = datatype},
                  stream, &varying);
}

hocketResult_t hocketScatterV(const void* sendbuff, const size_t* sendcounts, const size_t* displs,
                              void* recvbuff, size_t recvcount, hocketDataType_t datatype, int root,
                              hocketComm_t comm, hocketStream_t stream) {
  const api::VaryingArguments varying{.input = {sendcounts, displs, "sendcounts", "displs"},
                                      .own_count_name = "recvcount"};
  return api::run(__func__, comm,
                  {.collective = Collective::scatter,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = recvcount,
                   .root = root,
                   .datatype = datatype},
                  stream, &varying);
}

hocketResult_t hocketReduceScatterV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                    hocketDataType_t datatype, hocketRedOp_t op, hocketComm_t comm,
                                    hocketStream_t stream) {
  const api::VaryingArguments varying{.input = {.counts = recvcounts, .counts_name = "recvcounts"}};
  return api::run(__func__, comm,
                  {.collective = Collective::reduce_scatter,
                   .input = sendbuff,
                   .output = recvbuff,
                   .datatype = datatype,
                   .op = op},
                  stream, &varying);
}

hocketResult_t hocketAlltoAllV(const void* sendbuff, const size_t* sendcounts,
                               const size_t* sdispls, void* recvbuff, const size_t* recvcounts,
                               const size_t* rdispls, hocketDataType_t datatype, hocketComm_t comm,
                               hocketStream_t stream) {
  const api::VaryingArguments varying{.input = {sendcounts, sdispls, "sendcounts", "sdispls"},
                                      .output = {recvcounts, rdispls, "recvcounts", "rdispls"}};
  return api::run(__func__, comm,
                  {.collective = Collective::all_to_all,
                   .input = sendbuff,
                   .output = recvbuff,
                   .datatype = datatype},
                  stream, &varying);
}

hocketResult_t hocketBarrier(hocketComm_t comm, hocketStream_t stream) {
  return api::run(__func__, comm, {.collective = Collective::barrier, .datatype = hocketInt8},
                  stream);
}

hocketResult_t hocketSend(const void* sendbuff, size_t count, hocketDataType_t datatype, int peer,
                          hocketComm_t comm, hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::send,
                   .input = sendbuff,
                   .count = count,
                   .root = peer,
                   .datatype = datatype},
                  stream);
}

hocketResult_t hocketRecv(void* recvbuff, size_t count, hocketDataType_t datatype, int peer,
                          hocketComm_t comm, hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::recv,
                   .output = recvbuff,
                   .count = count,
                   .root = peer,
                   .datatype = datatype},
                  stream);
}

hocketResult_t hocketGroupStart(void) {
  return api::guarded(__func__, nullptr, []() -> Status {
    if (api::group_depth == 0) api::group = new api::Group;
    ++api::group_depth;
    return {};
  });
}

hocketResult_t hocketGroupEnd(void) {
  return api::guarded(__func__, nullptr, [] { return api::end_group(); });
}

hocketResult_t hocketGroupSimulateEnd(hocketSimInfo_t* simInfo) {
  return api::guarded(__func__, nullptr, [&] { return api::simulate_group(simInfo); });
}

hocketResult_t hocketGroupCancel(void) {
  return api::guarded(__func__, nullptr, [] { return api::cancel_group(); });
}

hocketResult_t hocketGroupDepth(int* depth) {
  if (depth == nullptr) return api::result(__func__, invalid_argument("depth is NULL"));
  *depth = api::group_depth;
  return hocketSuccess;
}
