#include <algorithm>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "collectives/plan/program.h"

namespace hocket::internal {
namespace {

bool varies(const Index& index) { return index.by_instance != 0 || index.modulo != 0; }

template <typename T>
constexpr std::uint64_t most = std::numeric_limits<T>::max();

class Lowering {
 public:
  explicit Lowering(const Plan& plan) : plan_(plan) {}

  Status run() {
    std::uint64_t counters = 0, active = 0;
    for (const Step& step : entry_of(plan_)) HOCKET_RETURN_IF_ERROR(add(step));
    header_.entry = static_cast<std::uint32_t>(code_.size());
    for (const Lane& lane : plan_.lanes) {
      if (counters > most<std::uint32_t>) return too_large("lane instances");
      lanes_.push_back({.first = static_cast<std::uint32_t>(code_.size()),
                        .count = static_cast<std::uint32_t>(lane.steps.size()),
                        .instances = lane.instances,
                        .window = std::min(lane.window, lane.instances),
                        .first_counter = static_cast<std::uint32_t>(counters),
                        .block = lane.block,
                        .publishes = lane.publishes,
                        .counts = lane.counts,
                        .extents = lane.extents});
      counters += lane.instances;
      active += lanes_.back().window;
      for (const Step& step : lane.steps) {
        if (!tags_fit(lane, step)) return too_large("message tags");
        HOCKET_RETURN_IF_ERROR(add(step));
      }
    }
    if (counters > most<std::uint32_t>) return too_large("lane instances");
    header_.counters = static_cast<std::uint32_t>(counters);
    header_.active = static_cast<std::uint32_t>(active);
    return fill_header();
  }

  void write(std::vector<std::uint64_t>& words) const {
    words.assign(divide_up(header_.bytes, sizeof(std::uint64_t)), 0);
    auto* out = reinterpret_cast<std::byte*>(words.data());
    std::memcpy(out, &header_, sizeof header_);
    copy(lanes_, out + header_.first_lane);
    copy(code_, out + header_.first_instruction);
    copy(operands_, out + header_.first_operand);
  }

 private:
  template <typename T>
  static void copy(const std::vector<T>& from, std::byte* out) {
    if (!from.empty()) std::memcpy(out, from.data(), from.size() * sizeof(T));
  }

  Status too_large(const char* what) const {
    return internal_error("the plan '" + plan_.algorithm + "' for " +
                          std::to_string(plan_.shape.ranks) + " ranks has too many " + what +
                          " to be lowered");
  }

  /// Tags have at most 16 bits. A plan has no more tags than ranks, and max_ranks fits 16 bits.
  static bool tags_fit(const Lane& lane, const Step& step) {
    if (step.kind != StepKind::send && step.kind != StepKind::recv) return true;
    for (std::uint32_t i = 0; i < lane.instances; ++i) {
      const std::int64_t tag = step.tag.at(i);
      if (tag < 0 || tag > static_cast<std::int64_t>(most<std::uint16_t>)) return false;
    }
    return true;
  }

  /// True if some of the range's buffers may be a peer's.
  bool is_of_peers(const Range& range) const {
    if (!plan_.uses_node()) return false;
    const bool is_one = range.rank.by_instance == 0 && range.rank.by_source == 0;
    const std::int64_t rank = range.rank.at(0);
    return !is_one || plan_.node[static_cast<std::size_t>(rank)] != plan_.shape.rank;
  }

  Status add(const Step& step) {
    Instruction lowered{};
    lowered.kind = step.kind;
    lowered.when = step.when;
    lowered.finish = step.finish;
    lowered.all = step.all;
    lowered.end = step.end;
    lowered.flag = step.flag;
    lowered.lag = step.lag;
    lowered.peer = step.kind == StepKind::await ? step.instance : step.peer;
    lowered.tag = step.tag;
    lowered.block = step.block;
    lowered.lane = step.lane;
    lowered.repeat = step.repeat;
    if (operands_.size() > most<std::uint32_t> / 2) return too_large("operands");
    lowered.first_operand = static_cast<std::uint32_t>(operands_.size());
    lowered.dsts = static_cast<std::uint32_t>(step.dsts.size());
    lowered.srcs = static_cast<std::uint32_t>(step.srcs.size());
    std::uint64_t number = 0;
    for (const std::vector<Range>* ranges : {&step.dsts, &step.srcs}) {
      for (const Range& range : *ranges) {
        number += range.repeat;
        header_.uses_scratch |= range.buffer == Buffer::scratch;
        header_.writes_scratch |=
            ranges == &step.dsts && range.buffer == Buffer::scratch && !is_of_peers(range);
        header_.accesses_inputs |= range.buffer == Buffer::input && is_of_peers(range);
        header_.accesses_outputs |= range.buffer == Buffer::output && is_of_peers(range);
        operands_.push_back({range.rank, range.block, range.repeat, range.buffer, range.wide,
                             varies(range.rank) || varies(range.block), 0});
      }
    }
    if (number > most<std::uint32_t>) return too_large("operands");
    header_.most_operands = std::max(header_.most_operands, static_cast<std::uint32_t>(number));
    header_.awaits |= step.kind == StepKind::await;
    header_.sends_messages |= step.kind == StepKind::send || step.kind == StepKind::recv;
    code_.push_back(lowered);
    return {};
  }

  Status fill_header() {
    header_.rank = plan_.shape.rank;
    header_.ranks = plan_.shape.ranks;
    header_.root = plan_.shape.root;
    header_.collective = plan_.shape.collective;
    header_.input_blocks = input_blocks(plan_);
    header_.output_blocks = output_blocks(plan_);
    header_.line_blocks = plan_.line_blocks;
    header_.scratch_blocks = plan_.scratch_blocks;
    header_.slots = plan_.slots;
    header_.small_bytes = plan_.small_bytes;
    header_.wide_scratch = plan_.wide_scratch;
    header_.uses_node = plan_.uses_node();
    header_.sends_messages |= plan_.uses_node() && plan_.node.size() < plan_.shape.ranks;
    header_.arrives_first = plan_.arrives_first;
    header_.waits_await_arrivals = waits_await_arrivals(plan_);
    header_.maps_input = plan_.maps_input;
    header_.maps_output = plan_.maps_output;
    header_.single_chunk = plan_.single_chunk;
    header_.lanes = static_cast<std::uint32_t>(lanes_.size());
    header_.instructions = static_cast<std::uint32_t>(code_.size());
    header_.operands = static_cast<std::uint32_t>(operands_.size());
    std::uint64_t offset = sizeof(ProgramHeader);
    const auto place = [&](std::uint32_t* first, std::size_t bytes) {
      *first = static_cast<std::uint32_t>(offset);
      offset += bytes;
    };
    place(&header_.first_lane, lanes_.size() * sizeof(LaneCode));
    place(&header_.first_instruction, code_.size() * sizeof(Instruction));
    place(&header_.first_operand, operands_.size() * sizeof(Operand));
    if (offset > most<std::uint32_t>) return too_large("steps");
    header_.bytes = static_cast<std::uint32_t>(offset);
    return {};
  }

  const Plan& plan_;
  ProgramHeader header_{};
  std::vector<LaneCode> lanes_;
  std::vector<Instruction> code_;
  std::vector<Operand> operands_;
};

}  // namespace

std::vector<std::uint32_t> message_peers(const Program& program) {
  std::vector<std::uint32_t> peers;
  for (const LaneCode& lane : program.lanes()) {
    for (const Instruction& step : program.code().subspan(lane.first, lane.count)) {
      if (step.kind != StepKind::send && step.kind != StepKind::recv) continue;
      for (std::uint32_t i = 0; i < lane.instances; ++i) {
        peers.push_back(static_cast<std::uint32_t>(step.peer.at(i)));
      }
    }
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

Status lower(const Plan& plan, Program* program) {
  Lowering lowering(plan);
  HOCKET_RETURN_IF_ERROR(lowering.run());
  lowering.write(program->words_);
  program->algorithm_ = plan.algorithm;
  return {};
}

}  // namespace hocket::internal
