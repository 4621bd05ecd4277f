#include "collectives/plan/steps.h"

#include "base/checked.h"

namespace hocket::internal::steps {
namespace {

Step data_step(StepKind kind, Index block, std::vector<Range> srcs, std::vector<Range> dsts) {
  Step step;
  step.kind = kind;
  step.block = block;
  step.srcs = std::move(srcs);
  step.dsts = std::move(dsts);
  return step;
}

Step message(StepKind kind, Index peer, Index tag) {
  Step step;
  step.kind = kind;
  step.peer = peer;
  step.tag = tag;
  return step;
}

Index shifted(Index index, std::uint32_t sources) {
  index.base += index.by_source * narrowed<std::int32_t>(sources);
  return index;
}

}  // namespace

std::vector<Range> in_rank_order(std::uint32_t own, std::uint32_t ranks, const Range& mine,
                                 const Range& theirs) {
  std::vector<Range> ranges;
  if (own > 0) ranges.push_back(times(theirs, own));
  ranges.push_back(mine);
  if (own + 1 < ranks) {
    Range rest = times(theirs, ranks - own - 1);
    rest.rank = shifted(rest.rank, own + 1);
    rest.block = shifted(rest.block, own + 1);
    ranges.push_back(rest);
  }
  return ranges;
}

Step copy(Index block, Range src, std::vector<Range> dsts) {
  return data_step(StepKind::fold, block, {src}, std::move(dsts));
}
Step fold(Index block, std::vector<Range> srcs, Range dst) {
  return data_step(StepKind::fold, block, std::move(srcs), {dst});
}
Step for_blocks(Step step, std::uint32_t blocks) {
  step.repeat = blocks;
  return step;
}
Step when_small(Step step) {
  step.when = When::small;
  return step;
}
Step when_large(Step step) {
  step.when = When::large;
  return step;
}
Step finish(Index block, std::vector<Range> srcs, std::vector<Range> dsts) {
  Step step = data_step(StepKind::fold, block, std::move(srcs), std::move(dsts));
  step.finish = true;
  return step;
}
Step send(Index peer, Index tag, Index block, Range src) {
  Step step = data_step(StepKind::send, block, {src}, {});
  step.peer = peer;
  step.tag = tag;
  return step;
}
Step recv(Index peer, Index tag, Index block, Range dst) {
  Step step = data_step(StepKind::recv, block, {}, {dst});
  step.peer = peer;
  step.tag = tag;
  return step;
}
Step send_empty(Index peer, Index tag) { return message(StepKind::send, peer, tag); }
Step recv_empty(Index peer, Index tag) { return message(StepKind::recv, peer, tag); }

Step await_board() {
  Step step;
  step.kind = StepKind::await_board;
  step.all = true;
  return step;
}
Step arrive() {
  Step step;
  step.kind = StepKind::arrive;
  return step;
}
Step await_arrival() {
  Step step;
  step.kind = StepKind::await_arrival;
  step.all = true;
  return step;
}
Step await_arrival(Index peer) {
  Step step;
  step.kind = StepKind::await_arrival;
  step.peer = peer;
  return step;
}
Step wait_all(int flag, int lag) {
  Step step = wait({}, flag, lag);
  step.all = true;
  return step;
}
Step wait(Index peer, int flag, int lag) {
  Step step;
  step.kind = StepKind::wait;
  step.peer = peer;
  step.flag = narrowed<std::uint16_t>(flag);
  step.lag = narrowed<std::uint16_t>(lag);
  return step;
}
Step await(std::uint32_t lane, Index instance, int lag) {
  return await_each(lane, instance, 1, lag);
}
Step await_each(std::uint32_t lane, Index instance, std::uint32_t repeat, int lag) {
  Step step;
  step.kind = StepKind::await;
  step.lane = lane;
  step.instance = instance;
  step.repeat = repeat;
  step.lag = narrowed<std::uint16_t>(lag);
  return step;
}
Step await_end(std::uint32_t lane, Index instance, std::uint32_t repeat) {
  Step step = await_each(lane, instance, repeat, 0);
  step.end = true;
  return step;
}

std::vector<Run> runs_of(const std::vector<std::uint32_t>& blocks) {
  std::vector<Run> runs;
  for (const std::uint32_t block : blocks) {
    Run* const run = runs.empty() ? nullptr : &runs.back();
    if (run != nullptr && run->length == 1) run->distance = block - run->first;
    if (run != nullptr && block == run->first + run->length * run->distance) {
      ++run->length;
    } else {
      runs.push_back({.first = block});
    }
  }
  return runs;
}

Lane once(std::string name, Steps steps) {
  Lane lane;
  lane.name = std::move(name);
  lane.steps = std::move(steps);
  return lane;
}
Lane all_blocks(std::string name, Buffer extents, Steps steps) {
  Lane lane = once(std::move(name), std::move(steps));
  lane.counts = Counts::all_blocks;
  lane.extents = extents;
  return lane;
}
Lane one_block(std::string name, Buffer extents, Index block, Steps steps) {
  Lane lane = once(std::move(name), std::move(steps));
  lane.counts = Counts::one_block;
  lane.extents = extents;
  lane.block = block;
  return lane;
}

}  // namespace hocket::internal::steps
