#include <limits>
#include <map>
#include <tuple>

#include "collectives/plan/program.h"

namespace hocket::internal {
namespace {

class Lowering {
 public:
  Lowering(const Plan& plan, Program* program) : plan_(plan), out_(*program) {}

  Status run() {
    HOCKET_RETURN_IF_ERROR(header());
    HOCKET_RETURN_IF_ERROR(section(plan_.prologue, &out_.prologue));
    for (const Steps& lane : plan_.lanes) {
      Section lowered;
      HOCKET_RETURN_IF_ERROR(section(lane, &lowered));
      out_.lanes.push_back(lowered);
    }
    HOCKET_RETURN_IF_ERROR(section(plan_.epilogue, &out_.epilogue));
    for (Instruction& instruction : out_.code) {
      if (instruction.kind == StepKind::await) {
        instruction.per_chunk = signals_per_chunk_[instruction.flag];
      }
    }
    return {};
  }

 private:
  Status too_large(const char* what) const {
    return internal_error("the plan '" + plan_.algorithm + "' for " +
                          std::to_string(plan_.shape.ranks) + " ranks has too many " + what +
                          " to be lowered");
  }

  Status header() {
    out_ = {};
    out_.algorithm = plan_.algorithm;
    out_.shape = plan_.shape;
    out_.input_blocks = plan_.input_blocks;
    out_.output_blocks = plan_.output_blocks;
    out_.scratch_blocks = plan_.scratch_blocks;
    out_.slots = plan_.slots;
    out_.load_store = plan_.load_store;
    out_.maps_input = plan_.maps_input;
    out_.maps_output = plan_.maps_output;
    out_.single_chunk = plan_.single_chunk;
    out_.private_flags = plan_.private_flags;
    if (plan_.shape.ranks >= all_peers) return too_large("ranks");
    signals_per_chunk_.resize(plan_.private_flags);
    return {};
  }

  Operand operand(const Range& range) {
    out_.wide_scratch |= range.wide;
    const bool message = range.buffer == Buffer::input || range.buffer == Buffer::output;
    return {range.buffer, range.wide,
            static_cast<std::uint16_t>(range.rank == own ? plan_.shape.rank : range.rank),
            range.block, message ? range.block : range.length_block};
  }

  Status section(const Steps& steps, Section* section) {
    section->first = static_cast<std::uint32_t>(out_.code.size());
    section->count = static_cast<std::uint32_t>(steps.size());
    std::map<std::pair<StepKind, int>, std::size_t> messages;
    for (const Step& step : steps) {
      if (step.dsts.size() > std::numeric_limits<std::uint16_t>::max())
        return too_large("operands");
      Instruction lowered{};
      lowered.kind = step.kind;
      lowered.finish = step.finish;
      lowered.peer = step.peer == own ? all_peers : static_cast<std::uint16_t>(step.peer);
      lowered.flag = step.flag;
      lowered.ordinal = step.ordinal;
      lowered.lag = step.lag;
      lowered.dsts = static_cast<std::uint16_t>(step.dsts.size());
      lowered.srcs = static_cast<std::uint32_t>(step.srcs.size());
      lowered.first_operand = static_cast<std::uint32_t>(out_.operands.size());
      for (const Range& range : step.dsts) out_.operands.push_back(operand(range));
      for (const Range& range : step.srcs) out_.operands.push_back(operand(range));
      out_.most_operands = std::max(
          out_.most_operands, static_cast<std::uint32_t>(step.dsts.size() + step.srcs.size()));
      if (step.kind == StepKind::await_arrival && step.peer == own) out_.awaits_all_arrivals = true;
      if (step.kind == StepKind::signal) ++signals_per_chunk_[step.flag];
      if (step.kind == StepKind::send || step.kind == StepKind::recv) {
        const std::size_t number = messages[{step.kind, step.peer}]++;
        if (number >= all_peers) return too_large("messages");
        lowered.message = static_cast<std::uint16_t>(number);
      }
      out_.code.push_back(lowered);
    }
    for (std::size_t i = section->first; i < out_.code.size(); ++i) {
      Instruction& lowered = out_.code[i];
      if (lowered.kind != StepKind::send && lowered.kind != StepKind::recv) continue;
      lowered.per_chunk = static_cast<std::uint16_t>(messages[{lowered.kind, lowered.peer}]);
    }
    return {};
  }

  const Plan& plan_;
  Program& out_;
  std::vector<std::uint16_t> signals_per_chunk_;
};

}  // namespace

Status lower(const Plan& plan, Program* program) { return Lowering(plan, program).run(); }

}  // namespace hocket::internal
