// Functions with short names that make steps and ranges. Builders use them.
#pragma once

#include <utility>
#include <vector>

#include "collectives/plan/plan.h"

namespace hocket::internal::steps {

inline Range range(Buffer buffer, std::uint32_t block, int rank, bool wide = false) {
  return {.buffer = buffer, .wide = wide, .rank = static_cast<std::int16_t>(rank), .block = block};
}
inline Range input(std::uint32_t block, int rank = own) {
  return range(Buffer::input, block, rank);
}
inline Range output(std::uint32_t block, int rank = own) {
  return range(Buffer::output, block, rank);
}
inline Range scratch(std::uint32_t block, int rank = own) {
  return range(Buffer::scratch, block, rank);
}
/// Scratch for partial results. wide: the elements have the accumulator's type.
inline Range partial(std::uint32_t block, bool wide) {
  return range(Buffer::scratch, block, own, wide);
}
inline Range line(std::uint32_t block, int rank = own) { return range(Buffer::line, block, rank); }

/// A step whose ranges all hold block `block` of the message.
inline Step step_on(StepKind kind, std::uint32_t block, std::vector<Range> srcs,
                    std::vector<Range> dsts) {
  Step step;
  step.kind = kind;
  step.srcs = std::move(srcs);
  step.dsts = std::move(dsts);
  for (std::vector<Range>* ranges : {&step.srcs, &step.dsts}) {
    for (Range& r : *ranges) {
      if (r.buffer == Buffer::scratch || r.buffer == Buffer::line) r.length_block = block;
    }
  }
  return step;
}
inline Step copy(std::uint32_t block, Range src, std::vector<Range> dsts) {
  return step_on(StepKind::fold, block, {src}, std::move(dsts));
}
/// A fold into a partial result, which a later step folds further.
inline Step fold(std::uint32_t block, std::vector<Range> srcs, Range dst) {
  return step_on(StepKind::fold, block, std::move(srcs), {dst});
}
/// The last fold of a value: it rounds the result, and divides it for avg.
inline Step finish(std::uint32_t block, std::vector<Range> srcs, std::vector<Range> dsts) {
  Step step = step_on(StepKind::fold, block, std::move(srcs), std::move(dsts));
  step.finish = true;
  return step;
}
inline Step message(StepKind kind, int peer) {
  Step step;
  step.kind = kind;
  step.peer = static_cast<std::int16_t>(peer);
  return step;
}
inline Step send(int peer, std::uint32_t block, Range src) {
  Step step = step_on(StepKind::send, block, {src}, {});
  step.peer = static_cast<std::int16_t>(peer);
  return step;
}
inline Step recv(int peer, std::uint32_t block, Range dst) {
  Step step = step_on(StepKind::recv, block, {}, {dst});
  step.peer = static_cast<std::int16_t>(peer);
  return step;
}
inline Step send_empty(int peer) { return message(StepKind::send, peer); }
inline Step recv_empty(int peer) { return message(StepKind::recv, peer); }
inline Step arrive() { return message(StepKind::arrive, own); }
inline Step await_arrival(int peer = own) { return message(StepKind::await_arrival, peer); }

inline Step flag_step(StepKind kind, int peer, int flag, int ordinal, int lag) {
  Step step = message(kind, peer);
  step.flag = static_cast<std::uint16_t>(flag);
  step.ordinal = static_cast<std::uint16_t>(ordinal);
  step.lag = static_cast<std::uint16_t>(lag);
  return step;
}
inline Step notify(int flag) { return flag_step(StepKind::notify, own, flag, 1, 0); }
inline Step wait(int flag, int peer = own, int lag = 0) {
  return flag_step(StepKind::wait, peer, flag, 1, lag);
}
inline Step signal(int flag) { return flag_step(StepKind::signal, own, flag, 1, 0); }
inline Step await(int flag, int ordinal = 1, int lag = 0) {
  return flag_step(StepKind::await, own, flag, ordinal, lag);
}

/// The prologue of the plans `staged` and `direct`. If a buffer is not mapped, the executor runs
/// the body of `staged` after it.
Steps arrival_barrier();
/// The contributions of all ranks in absolute rank order: `mine` for this rank, `theirs` with the
/// rank of the peer for every other rank.
std::vector<Range> in_rank_order(const Shape& shape, Range mine, Range theirs);

}  // namespace hocket::internal::steps
