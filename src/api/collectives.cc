// Collectives, messages and groups: checks arguments, translates them, and collects groups.
#include <vector>

#include "api/handle.h"
#include "base/checked.h"
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
  Status error;  // of the first call that was refused
};
thread_local int group_depth = 0;
thread_local Group* group = nullptr;

struct Sizes {
  std::size_t input = 0, output = 0;  // bytes
};

Status sizes_of(const Call& call, int ranks, Sizes* sizes) {
  const auto bytes = checked_mul(call.count, size_of(call.dtype));
  const auto all = bytes ? checked_mul(*bytes, static_cast<std::uint64_t>(ranks)) : std::nullopt;
  if (!all || *all > PTRDIFF_MAX) {
    return invalid_argument("count is " + std::to_string(call.count) +
                            ": so many elements have more bytes than memory can");
  }
  const bool gathers = call.collective == Collective::all_gather;
  const bool scatters = call.collective == Collective::reduce_scatter;
  sizes->input = scatters ? *all : *bytes;
  sizes->output = gathers ? *all : *bytes;
  if (call.collective == Collective::send) sizes->output = 0;
  if (call.collective == Collective::recv) sizes->input = 0;
  return {};
}

/// No machine has longer addresses.
constexpr std::uint64_t address_space = std::uint64_t{1} << 57;

Status check_ends(const Call& call, const Sizes& sizes) {
  const auto ends = [](const void* buffer, std::uint64_t bytes) {
    const auto start = reinterpret_cast<std::uintptr_t>(buffer);
    return bytes <= address_space && start <= address_space - bytes;
  };
  const bool input = ends(call.input, sizes.input);
  if (input && ends(call.output, sizes.output)) return {};
  return invalid_argument("count is " + std::to_string(call.count) + ": " +
                          (input ? "recvbuff" : "sendbuff") +
                          " would reach past the end of the address space");
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

/// In place is allowed as in NCCL; any other overlap is an error.
Status check_overlap(const Call& call, const Sizes& sizes, int rank) {
  if (!overlap(call.input, sizes.input, call.output, sizes.output)) return {};
  const auto* input = static_cast<const std::byte*>(call.input);
  const auto* output = static_cast<const std::byte*>(call.output);
  const auto place = static_cast<std::size_t>(rank);
  switch (call.collective) {
    case Collective::all_gather:
      if (input == output + place * sizes.input) return {};
      return invalid_argument(
          "the buffers overlap: in place means sendbuff == recvbuff + rank * sendcount elements");
    case Collective::reduce_scatter:
      if (output == input + place * sizes.output) return {};
      return invalid_argument(
          "the buffers overlap: in place means recvbuff == sendbuff + rank * recvcount elements");
    default:
      if (input == output) return {};
      return invalid_argument("the buffers overlap: in place means sendbuff == recvbuff");
  }
}

/// Enumerators are checked before they are narrowed: 263 must not become float32. A C program may
/// pass any int as an enumerator; a variable of the enum's type could not hold that in C++.
Status narrow(int datatype, int op, Call* call) {
  if (datatype < 0 || datatype >= dtype_count) {
    return invalid_argument("datatype " + std::to_string(datatype) +
                            " does not exist: use a hocketDataType_t");
  }
  if (op < 0 || op >= op_count) {
    return invalid_argument("operator " + std::to_string(op) +
                            " does not exist: use a hocketRedOp_t");
  }
  call->dtype = static_cast<Dtype>(datatype);
  call->op = static_cast<Op>(op);
  return {};
}

Status check_call(const Call& call, const Communicator& comm) {
  const bool rooted = call.collective == Collective::broadcast || is_p2p(call);
  if (rooted && (call.root < 0 || call.root >= comm.ranks())) {
    return invalid_argument((is_p2p(call) ? "peer " : "root ") + std::to_string(call.root) +
                            " does not exist: the communicator has ranks 0 to " +
                            std::to_string(comm.ranks() - 1));
  }
  if (is_p2p(call) && call.root == comm.rank() && !in_group()) {
    return invalid_usage(
        "a message to oneself would wait for ever: put hocketSend and hocketRecv in one group");
  }
  Sizes sizes;
  HOCKET_RETURN_IF_ERROR(sizes_of(call, comm.ranks(), &sizes));
  const bool reads = call.collective != Collective::broadcast || call.root == comm.rank();
  if (call.input == nullptr && sizes.input > 0 && reads) {
    return invalid_argument("sendbuff is NULL, but count is " + std::to_string(call.count));
  }
  if (call.output == nullptr && sizes.output > 0) {
    return invalid_argument("recvbuff is NULL, but count is " + std::to_string(call.count));
  }
  HOCKET_RETURN_IF_ERROR(check_ends(call, sizes));
  return reads ? check_overlap(call, sizes, comm.rank()) : Status();
}

HostStream* stream_of(hocketComm* comm, hocketStream_t stream) {
  return stream != nullptr ? stream->stream.get() : comm->own.get();
}

Status two_threads() {
  return invalid_usage(
      "another thread is inside a call of this communicator: use it from one thread at a time, or "
      "make one per thread with hocketCommSplit");
}

Status start(hocketComm* comm, Call& call, int datatype, int op, hocketStream_t stream) {
  if (!is_usable(comm)) [[unlikely]]
    HOCKET_RETURN_IF_ERROR(check(comm));
  Communicator& communicator = *comm->communicator;
  HOCKET_RETURN_IF_ERROR(narrow(datatype, op, &call));
  HOCKET_RETURN_IF_ERROR(check_call(call, communicator));
  if (stream != nullptr) HOCKET_RETURN_IF_ERROR(check_stream(stream));
  HostStream* const host = stream_of(comm, stream);
  if (group_depth > 0) {
    group->calls.push_back({comm, call, host});
    return {};
  }
  const CommGuard entered(communicator);
  if (!entered.ok()) [[unlikely]]
    return two_threads();
  call.number = communicator.order().next_number();
  HOCKET_RETURN_IF_ERROR(launch_one(communicator, call, host));
  if (stream == nullptr && host != nullptr) {
    return {Code::in_progress, "the call runs: ask hocketCommGetAsyncError until it is done"};
  }
  return {};
}

/// call: all of it but datatype and operator.
hocketResult_t run(const char* function, hocketComm* comm, Call&& call, int datatype, int op,
                   hocketStream_t stream) {
  const hocketResult_t outcome =
      guarded(function, comm, [&] { return start(comm, call, datatype, op, stream); });
  if (outcome != hocketSuccess && group_depth > 0 && group->error.ok()) {
    group->error = last_error();
    if (group->error.ok()) group->error = out_of_memory();  // there was no memory to keep the error
  }
  return outcome;
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

Status end_group() {
  if (group_depth == 0) return invalid_usage("hocketGroupEnd without a hocketGroupStart");
  if (--group_depth > 0) return {};
  const std::unique_ptr<Group> ended(std::exchange(group, nullptr));
  // If a call was refused, no call of the group runs: the peers would wait for the missing ones.
  HOCKET_RETURN_IF_ERROR(ended->error);
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

Status cancel_group() {
  if (group_depth == 0) return invalid_usage("there is no hocketGroupStart before it");
  group_depth = 0;
  delete std::exchange(group, nullptr);
  return {};
}

}  // namespace

bool in_group() { return group_depth > 0; }

}  // namespace hocket::internal::api

using namespace hocket::internal;

hocketResult_t hocketAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                               hocketDataType_t datatype, hocketRedOp_t op, hocketComm_t comm,
                               hocketStream_t stream) {
  return api::run(
      __func__, comm,
      {.collective = Collective::all_reduce, .input = sendbuff, .output = recvbuff, .count = count},
      datatype, op, stream);
}

hocketResult_t hocketBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                               hocketDataType_t datatype, int root, hocketComm_t comm,
                               hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::broadcast,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = count,
                   .root = root},
                  datatype, hocketSum, stream);
}

hocketResult_t hocketAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                               hocketDataType_t datatype, hocketComm_t comm,
                               hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::all_gather,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = sendcount},
                  datatype, hocketSum, stream);
}

hocketResult_t hocketReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                   hocketDataType_t datatype, hocketRedOp_t op, hocketComm_t comm,
                                   hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::reduce_scatter,
                   .input = sendbuff,
                   .output = recvbuff,
                   .count = recvcount},
                  datatype, op, stream);
}

hocketResult_t hocketBarrier(hocketComm_t comm, hocketStream_t stream) {
  return api::run(__func__, comm, {.collective = Collective::barrier}, hocketInt8, hocketSum,
                  stream);
}

hocketResult_t hocketSend(const void* sendbuff, size_t count, hocketDataType_t datatype, int peer,
                          hocketComm_t comm, hocketStream_t stream) {
  return api::run(__func__, comm,
                  {.collective = Collective::send, .input = sendbuff, .count = count, .root = peer},
                  datatype, hocketSum, stream);
}

hocketResult_t hocketRecv(void* recvbuff, size_t count, hocketDataType_t datatype, int peer,
                          hocketComm_t comm, hocketStream_t stream) {
  return api::run(
      __func__, comm,
      {.collective = Collective::recv, .output = recvbuff, .count = count, .root = peer}, datatype,
      hocketSum, stream);
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

hocketResult_t hocketGroupCancel(void) {
  return api::guarded(__func__, nullptr, [] { return api::cancel_group(); });
}

hocketResult_t hocketGroupDepth(int* depth) {
  if (depth == nullptr) return api::result(__func__, invalid_argument("depth is NULL"));
  *depth = api::group_depth;
  return hocketSuccess;
}
