#include "operation.h"

#include <algorithm>

namespace hocket::perf {
namespace {

constexpr std::size_t slot_alignment = 128;

}  // namespace

std::size_t stride_of(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + slot_alignment - 1) / slot_alignment * slot_alignment;
}

Operation::Operation(const Ground& ground, const Expectation& expectation, bool in_place,
                     Slots slots, std::size_t stride, int group)
    : ground_(ground),
      expectation_(expectation),
      in_place_(in_place),
      slots_(slots),
      stride_(stride),
      group_(static_cast<std::size_t>(group)),
      blocks_(expectation.blocks()),
      own_count_(expectation.own_count(expectation.rank)),
      own_offset_(expectation.block_start(expectation.rank, expectation.rank) *
                  size_of(expectation.dtype)) {}

void Operation::fill() {
  ++round_;
  Expectation e = expectation_;
  if (e.collective == Collective::barrier) return;
  e.seed.iteration = round_;
  const std::size_t used = in_place_ ? slots_.out : slots_.in;
  for (std::size_t slot = 0; slot < used; ++slot) {
    e.seed.slot = slot;
    // A broadcast reads only the input of the root. In place, the buffers of all ranks are
    // rewritten, because old bytes that are right would hide a broadcast that did nothing.
    generate_input(e, e.rank, input(slot));
  }
}

// In place, input and output overlap as in NCCL: the input of an all-gather or gather is the rank's
// part of the output, and the output of a reduce-scatter or scatter is the rank's part of the
// input.
char* Operation::input(std::size_t k) const {
  const Expectation& e = expectation_;
  const std::size_t at = input_slot(k) * stride_;
  if (!in_place_) return ground_.send + at;
  if (!has_output_parts(e.collective)) return ground_.recv + at;
  return ground_.recv + at + own_offset_;
}

char* Operation::output(std::size_t k) const {
  const Expectation& e = expectation_;
  const std::size_t at = k % slots_.out * stride_;
  if (!in_place_ || !has_input_parts(e.collective)) return ground_.recv + at;
  return ground_.recv + at + own_offset_;
}

bool Operation::send(std::size_t k, int to, Failure* failure) {
  const Expectation& e = expectation_;
  return ok(hocketSend(input(k), e.count, e.dtype, to, ground_.comm, ground_.stream), "hocketSend",
            ground_.comm, failure);
}

bool Operation::receive(std::size_t k, int from, Failure* failure) {
  const Expectation& e = expectation_;
  return ok(hocketRecv(output(k), e.count, e.dtype, from, ground_.comm, ground_.stream),
            "hocketRecv", ground_.comm, failure);
}

bool Operation::collective(std::size_t k, Failure* failure) {
  const Expectation& e = expectation_;
  const char* in = input(k);
  char* out = output(k);
  hocketComm_t comm = ground_.comm;
  hocketStream_t stream = ground_.stream;
  const hocketRedOp_t op = ground_.redop;
  switch (e.collective) {
    case Collective::all_reduce:
      return ok(hocketAllReduce(in, out, e.count, e.dtype, op, comm, stream), "hocketAllReduce",
                comm, failure);
    case Collective::all_gather:
      return ok(hocketAllGather(in, out, e.count, e.dtype, comm, stream), "hocketAllGather", comm,
                failure);
    case Collective::reduce_scatter:
      return ok(hocketReduceScatter(in, out, e.count, e.dtype, op, comm, stream),
                "hocketReduceScatter", comm, failure);
    case Collective::broadcast:
      return ok(hocketBroadcast(in, out, e.count, e.dtype, e.root, comm, stream), "hocketBroadcast",
                comm, failure);
    case Collective::reduce:
      return ok(hocketReduce(in, out, e.count, e.dtype, op, e.root, comm, stream), "hocketReduce",
                comm, failure);
    case Collective::gather:
      return ok(hocketGather(in, out, e.count, e.dtype, e.root, comm, stream), "hocketGather", comm,
                failure);
    case Collective::scatter:
      return ok(hocketScatter(in, out, e.count, e.dtype, e.root, comm, stream), "hocketScatter",
                comm, failure);
    case Collective::alltoall:
      return ok(hocketAlltoAll(in, out, e.count, e.dtype, comm, stream), "hocketAlltoAll", comm,
                failure);
    default:
      return ok(hocketBarrier(comm, stream), "hocketBarrier", comm, failure);
  }
}

bool Operation::collective_of_blocks(std::size_t k, Failure* failure) {
  const Expectation& e = expectation_;
  const char* in = input(k);
  char* out = output(k);
  const std::size_t *counts = blocks_.counts.data(), *starts = blocks_.starts.data();
  hocketComm_t comm = ground_.comm;
  hocketStream_t stream = ground_.stream;
  switch (e.collective) {
    case Collective::all_gather:
      return ok(hocketAllGatherV(in, own_count_, out, counts, starts, e.dtype, comm, stream),
                "hocketAllGatherV", comm, failure);
    case Collective::reduce_scatter:
      return ok(hocketReduceScatterV(in, out, counts, e.dtype, ground_.redop, comm, stream),
                "hocketReduceScatterV", comm, failure);
    case Collective::gather:
      return ok(hocketGatherV(in, own_count_, out, counts, starts, e.dtype, e.root, comm, stream),
                "hocketGatherV", comm, failure);
    case Collective::scatter:
      return ok(hocketScatterV(in, counts, starts, out, own_count_, e.dtype, e.root, comm, stream),
                "hocketScatterV", comm, failure);
    default:
      return ok(hocketAlltoAllV(in, counts, starts, out, counts, starts, e.dtype, comm, stream),
                "hocketAlltoAllV", comm, failure);
  }
}

bool Operation::call(std::size_t k, Failure* failure) {
  const Expectation& e = expectation_;
  switch (e.collective) {
    case Collective::sendrecv:  // every rank sends to the next
      return ok(hocketGroupStart(), "hocketGroupStart", ground_.comm, failure) &&
             send(k, (e.rank + 1) % e.ranks, failure) && receive(k, e.source(), failure) &&
             ok(hocketGroupEnd(), "hocketGroupEnd", ground_.comm, failure);
    case Collective::latency:
      return e.sends_first() ? send(k, e.partner(), failure) && receive(k, e.partner(), failure)
                             : receive(k, e.partner(), failure) && send(k, e.partner(), failure);
    case Collective::bandwidth:
      return e.sends_first() ? send(k, e.partner(), failure) : receive(k, e.partner(), failure);
    case Collective::bibandwidth:
      return receive(k, e.partner(), failure) && send(k, e.partner(), failure);
    default:
      return e.varying ? collective_of_blocks(k, failure) : collective(k, failure);
  }
}

/// The receiver of a window of messages acknowledges all of them to the sender.
bool Operation::acknowledge(Failure* failure) {
  const Expectation& e = expectation_;
  if (e.collective != Collective::bandwidth) return true;
  const std::size_t bytes = sizeof acknowledgement_;
  if (e.sends_first()) {
    return ok(
        hocketRecv(acknowledgement_, bytes, hocketUint8, e.partner(), ground_.comm, ground_.stream),
        "hocketRecv", ground_.comm, failure);
  }
  return ok(
      hocketSend(acknowledgement_, bytes, hocketUint8, e.partner(), ground_.comm, ground_.stream),
      "hocketSend", ground_.comm, failure);
}

bool Operation::iterate(std::size_t first, Failure* failure) {
  // A rank that sends and receives needs a group even for a window of one.
  const bool fused = group_ > 1 || expectation_.collective == Collective::bibandwidth;
  if (fused && !ok(hocketGroupStart(), "hocketGroupStart", ground_.comm, failure)) return false;
  for (std::size_t k = first; k < first + group_; ++k) {
    if (!call(k, failure)) return false;
  }
  if (fused && !ok(hocketGroupEnd(), "hocketGroupEnd", ground_.comm, failure)) return false;
  return acknowledge(failure);
}

bool Operation::wait(Failure* failure) {
  return ok(hocketStreamSynchronize(ground_.stream), "hocketStreamSynchronize", ground_.comm,
            failure);
}

std::uint64_t Operation::hash(std::size_t k) const {
  return hash_bytes(output(k), expectation_.output_count() * size_of(expectation_.dtype));
}

std::size_t Operation::wrong(std::size_t k) const {
  Expectation e = expectation_;
  e.seed.iteration = round_;
  e.seed.slot = input_slot(k);
  return count_wrong(e, output(k));
}

}  // namespace hocket::perf
