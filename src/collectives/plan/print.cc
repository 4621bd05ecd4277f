// How a plan looks to people: in golden files, in reviews, in the verifier's sentences. A line a
// step.
//
//   in[2] out[2] s[2] line[0]   block 2 of this rank's input, output, scratch; its line
//   s[2]@3                      that of local rank 3
//   s[2]w                       partial results, wide
//   s[(3-j)%4]{j<3}             three ranges: s[3], s[2], s[1]
//   (block 5)                   the step handles block 5 of the message, although not all of its
//                               ranges name a block 5
//   (1+i)%4                     depends on the instance i of the lane
//   copy in[(1+j)%4] -> s[j] (blocks (1+j)%4{j<3})
//                               blocks 1, 2 and 3, each from its place to its own
//   await 2 fold (4 back)       until lane 2, `fold`, has completed the chunk 4 before this chunk
//   await end of 0 send[j]{j<3} until instances 0, 1 and 2 of lane 0, `send`, have ended
//   send in[0] -> 2 tag 0 if large
//                               left out if the block is small
//   await board                 until this rank's line and scratch are free
#include <fmt/format.h>

#include <algorithm>

#include "collectives/plan/plan.h"

namespace hocket::internal {

namespace {

/// "+2i", "-i", ...: nothing if the factor is 0.
std::string term(std::int32_t factor, char variable) {
  if (factor == 0) return {};
  const std::int64_t size = factor < 0 ? -std::int64_t{factor} : factor;
  return fmt::format("{}{}{}", factor < 0 ? '-' : '+', size == 1 ? "" : fmt::format("{}", size),
                     variable);
}

/// "3", "1+i", "(1+i)%4", "j%4".
std::string text_of(const Index& index) {
  if (index.by_instance == 0 && index.by_source == 0) return fmt::format("{}", index.at(0));
  std::string sum = term(index.by_instance, 'i') + term(index.by_source, 'j');
  if (index.base != 0) {
    sum = fmt::format("{}", index.base) + sum;
  } else if (sum[0] == '+') {
    sum.erase(0, 1);
  }
  if (sum.size() > 1 && index.modulo != 0) sum = fmt::format("({})", sum);
  return index.modulo == 0 ? sum : fmt::format("{}%{}", sum, index.modulo);
}

/// The index of a range or an instance that stands for `repeat`: if for itself alone, j is 0.
Index repeated(Index index, std::uint32_t repeat) {
  if (repeat == 1) index.by_source = 0;
  return index;
}

std::string text_of_repeat(std::uint32_t repeat) {
  return repeat == 1 ? "" : fmt::format("{{j<{}}}", repeat);
}

/// The number of the plan's own rank in its ranges.
Index own_rank(const Plan& plan) {
  const auto found = std::ranges::find(plan.node, plan.shape.rank);
  const std::int64_t local = found - plan.node.begin();
  return {.base = static_cast<std::int32_t>(plan.uses_node() ? local : plan.shape.rank)};
}

/// In a step that stands for `blocks` blocks.
std::string text_of(const Plan& plan, const Range& range, std::uint32_t blocks) {
  static const char* const names[] = {"in", "out", "s", "line"};
  const auto index = static_cast<unsigned>(range.buffer);
  const Index block = repeated(range.block, std::max(range.repeat, blocks));
  const Index rank = repeated(range.rank, std::max(range.repeat, blocks));
  std::string text = fmt::format("{}[{}]", index < 4 ? names[index] : "?", text_of(block));
  if (range.wide) text += 'w';
  if (rank != own_rank(plan)) text += '@' + text_of(rank);
  return text + text_of_repeat(range.repeat);
}

std::string text_of(const Plan& plan, const std::vector<Range>& ranges, const char* between,
                    std::uint32_t blocks) {
  if (ranges.empty()) return "nothing";
  std::string text;
  for (const Range& range : ranges) {
    text += (text.empty() ? "" : between) + text_of(plan, range, blocks);
  }
  return text;
}

/// The block of the message, if the ranges do not show it; of several blocks, how many they are.
std::string block_text(const Step& step) {
  const auto shows = [&](const Range& range) { return range.block == step.block; };
  if (step.repeat == 1 && std::ranges::all_of(step.srcs, shows) &&
      std::ranges::all_of(step.dsts, shows)) {
    return {};
  }
  return fmt::format(" ({} {}{})", step.repeat == 1 ? "block" : "blocks",
                     text_of(repeated(step.block, step.repeat)), text_of_repeat(step.repeat));
}

std::string lag_text(const Step& step) {
  return step.lag == 0 ? "" : fmt::format(" ({} back)", step.lag);
}

std::string of_peer(const Step& step) {
  return " of " + (step.all ? std::string("all") : text_of(step.peer));
}

const char* name_of_fold(const Step& step) {
  if (step.finish) return "finish";
  return step.srcs.size() == 1 && step.srcs[0].repeat == 1 ? "copy" : "fold";
}

std::string text_of_await(const Plan& plan, const Step& step) {
  std::string lane = fmt::format("{}", step.lane);
  bool alone = false;
  if (step.lane < plan.lanes.size()) {
    lane += ' ' + plan.lanes[step.lane].name;
    alone = plan.lanes[step.lane].instances == 1 && step.instance == Index{};
  }
  if (!alone) lane += fmt::format("[{}]", text_of(repeated(step.instance, step.repeat)));
  return fmt::format("await {}{}{}{}", step.end ? "end of " : "", lane, text_of_repeat(step.repeat),
                     lag_text(step));
}

/// The lane as it runs: where it has one instance, i is 0 and no index shows it.
Lane without_i(Lane lane) {
  if (lane.instances != 1) return lane;
  lane.block.by_instance = 0;
  for (Step& step : lane.steps) {
    for (Index* index : {&step.instance, &step.peer, &step.tag, &step.block}) {
      index->by_instance = 0;
    }
    for (std::vector<Range>* ranges : {&step.dsts, &step.srcs}) {
      for (Range& range : *ranges) range.rank.by_instance = range.block.by_instance = 0;
    }
  }
  return lane;
}

std::string title_of(std::size_t number, const Lane& lane) {
  std::string text = fmt::format("lane {} {}: ", number, lane.name);
  const char* const buffer = lane.extents == Buffer::output ? "output" : "input";
  switch (lane.counts) {
    case Counts::once:
      text += "once";
      break;
    case Counts::one_block:
      text += fmt::format("block {} of the {}", text_of(lane.block), buffer);
      break;
    case Counts::all_blocks:
      text += fmt::format("all blocks of the {}", buffer);
      break;
  }
  if (lane.instances != 1) {
    text += fmt::format(", {} instances, window {}", lane.instances, lane.window);
  }
  if (lane.publishes >= 0) text += fmt::format(", publishes {}", lane.publishes);
  return text;
}

}  // namespace

namespace {

std::string text_of(const Plan& plan, const Step& step) {
  switch (step.kind) {
    case StepKind::fold:
      return fmt::format("{} {} -> {}", name_of_fold(step),
                         text_of(plan, step.srcs, " + ", step.repeat),
                         text_of(plan, step.dsts, ", ", step.repeat)) +
             block_text(step);
    case StepKind::send:
      return fmt::format("send {} -> {} tag {}", text_of(plan, step.srcs, ", ", step.repeat),
                         text_of(step.peer), text_of(step.tag)) +
             block_text(step);
    case StepKind::recv:
      return fmt::format("recv {} tag {} -> {}", text_of(step.peer), text_of(step.tag),
                         text_of(plan, step.dsts, ", ", step.repeat)) +
             block_text(step);
    case StepKind::arrive:
      return "arrive";
    case StepKind::await_arrival:
      return "await arrival" + of_peer(step);
    case StepKind::wait:
      return fmt::format("wait {}", step.flag) + of_peer(step) + lag_text(step);
    case StepKind::await:
      return text_of_await(plan, step);
    case StepKind::await_board:
      return "await board";
  }
  return fmt::format("unknown step {}", static_cast<int>(step.kind));
}

}  // namespace

std::string print(const Plan& plan, const Step& step) {
  static const char* const conditions[] = {"", " if small", " if large"};
  const auto when = static_cast<unsigned>(step.when);
  return text_of(plan, step) + (when < 3 ? conditions[when] : " if ?");
}

std::string print(const Plan& plan) {
  const Shape& shape = plan.shape;
  std::string text = fmt::format("{} by {}: rank {} of {}", name_of(shape.collective),
                                 plan.algorithm, shape.rank, shape.ranks);
  if (shape.root >= 0) text += fmt::format(", root {}", shape.root);
  if (shape.varying) text += ", varying";
  if (shape.widened) text += ", widened";
  text += fmt::format("\ncut {}; {}scratch {} x {} slots; ", plan.cut,
                      plan.wide_scratch ? "wide " : "", plan.scratch_blocks, plan.slots);
  if (plan.line_blocks > 0) text += fmt::format("line {}; ", plan.line_blocks);
  text += !plan.uses_node()                     ? "messages"
          : plan.node.size() < plan.shape.ranks ? "load/store and messages"
                                                : "load/store";
  if (plan.maps_input) text += "; maps inputs";
  if (plan.maps_output) text += "; maps outputs";
  if (plan.single_chunk) text += "; single chunk";
  if (plan.small_bytes > 0) text += fmt::format("; small: {} bytes", plan.small_bytes);
  text += '\n';
  const Steps entry = entry_of(plan);
  if (!entry.empty()) text += "entry\n";
  for (const Step& step : entry) text += "  " + print(plan, step) + '\n';
  for (std::size_t i = 0; i < plan.lanes.size(); ++i) {
    const Lane lane = without_i(plan.lanes[i]);
    text += title_of(i, lane) + '\n';
    for (const Step& step : lane.steps) text += "  " + print(plan, step) + '\n';
  }
  return text;
}

}  // namespace hocket::internal
