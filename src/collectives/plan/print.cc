// How a plan looks to people: in golden files, in reviews, in the verifier's sentences. A line a
// step.
//
//   in[2] out[2] s[2] line[0]   block 2 of this rank's input, output, scratch; its line
//   s[2]@3                      rank 3's
//   s[2]w                       partial results, wide
//   s[2]:5                      scratch block 2 that holds block 5 of the message
//   await 1 #2 (4 back)         the second signal of private flag 1, four chunks ago
#include <fmt/format.h>

#include "collectives/plan/plan.h"

namespace hocket::internal {

namespace {

std::string text_of(const Range& range) {
  static const char* const names[] = {"in", "out", "s", "line"};
  const bool library = range.buffer == Buffer::scratch || range.buffer == Buffer::line;
  const auto index = static_cast<unsigned>(range.buffer);
  std::string text = fmt::format("{}[{}]", index < 4 ? names[index] : "?", range.block);
  if (range.wide) text += 'w';
  if (library && range.length_block != range.block) text += fmt::format(":{}", range.length_block);
  if (range.rank != own) text += fmt::format("@{}", range.rank);
  return text;
}

std::string text_of(const std::vector<Range>& ranges, const char* between) {
  if (ranges.empty()) return "nothing";
  std::string text;
  for (const Range& range : ranges) text += (text.empty() ? "" : between) + text_of(range);
  return text;
}

std::string of_peer(const Step& step) {
  return step.peer == own ? " of all" : fmt::format(" of {}", step.peer);
}

std::string count_text(const Step& step) {
  std::string text;
  if (step.ordinal != 1) text += fmt::format(" #{}", step.ordinal);
  if (step.lag != 0) text += fmt::format(" ({} back)", step.lag);
  return text;
}

void add(std::string& text, const std::string& title, const Steps& steps) {
  if (steps.empty()) return;
  text += title + '\n';
  for (const Step& step : steps) text += "  " + print(step) + '\n';
}

}  // namespace

std::string print(const Step& step) {
  switch (step.kind) {
    case StepKind::fold:
      return fmt::format("{} {} -> {}",
                         step.finish             ? "finish"
                         : step.srcs.size() == 1 ? "copy"
                                                 : "fold",
                         text_of(step.srcs, " + "), text_of(step.dsts, ", "));
    case StepKind::send:
      return fmt::format("send {} -> {}", text_of(step.srcs, ", "), step.peer);
    case StepKind::recv:
      return fmt::format("recv {} -> {}", step.peer, text_of(step.dsts, ", "));
    case StepKind::arrive:
      return "arrive";
    case StepKind::await_arrival:
      return "await arrival" + of_peer(step);
    case StepKind::notify:
      return fmt::format("notify {}", step.flag);
    case StepKind::wait:
      return fmt::format("wait {}", step.flag) + count_text(step) + of_peer(step);
    case StepKind::signal:
      return fmt::format("signal {}", step.flag);
    case StepKind::await:
      return fmt::format("await {}", step.flag) + count_text(step);
  }
  return fmt::format("unknown step {}", static_cast<int>(step.kind));
}

std::string print(const Plan& plan) {
  const Shape& shape = plan.shape;
  std::string text = fmt::format("{} by {}: rank {} of {}", name_of(shape.collective),
                                 plan.algorithm, shape.rank, shape.ranks);
  if (shape.root >= 0) text += fmt::format(", root {}", shape.root);
  if (shape.widened) text += ", widened";
  text += fmt::format("\nblocks: in {}, out {}, scratch {} x {} slots; {}", plan.input_blocks,
                      plan.output_blocks, plan.scratch_blocks, plan.slots,
                      plan.load_store ? "load/store" : "messages");
  if (plan.maps_input) text += "; maps inputs";
  if (plan.maps_output) text += "; maps outputs";
  if (plan.single_chunk) text += "; single chunk";
  if (plan.private_flags > 0) text += fmt::format("; {} private flags", plan.private_flags);
  text += '\n';
  add(text, "prologue", plan.prologue);
  for (std::size_t i = 0; i < plan.lanes.size(); ++i) {
    add(text, fmt::format("lane {}", i), plan.lanes[i]);
  }
  add(text, "epilogue", plan.epilogue);
  return text;
}

}  // namespace hocket::internal
