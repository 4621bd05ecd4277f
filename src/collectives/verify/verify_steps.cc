#include "collectives/verify/verify_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/verify/verify_form.h"

namespace hocket::internal::verify_detail {

namespace {

const char* const other_chunks = "whose chunks are those of other blocks";

/// Checks the steps of one rank's plan. Each function returns what is wrong, or nothing.
class StepsForm {
 public:
  StepsForm(std::span<const Plan> plans, std::size_t rank)
      : plans_(plans), plan_(plans[rank]), ranks_(plan_.shape.ranks) {}

  Status check() {
    for (std::size_t l = 0; l < plan_.lanes.size(); ++l) {
      lane_ = &plan_.lanes[l];
      for (std::size_t s = 0; s < lane_->steps.size(); ++s) {
        const Step& step = lane_->steps[s];
        std::string what = form(step);
        // What depends on no instance is checked once.
        const std::uint32_t instances =
            depends_on_instance(step) ? lane_->instances : std::min(lane_->instances, 1U);
        for (instance_ = 0; what.empty() && instance_ < instances; ++instance_)
          what = indices(step);
        if (what.empty()) continue;
        return wrong(name_of_step(plan_, l, instance_ == 0 ? 0 : instance_ - 1, s), what);
      }
    }
    return {};
  }

 private:
  bool depends_on_instance(const Step& step) const {
    const auto depends = [](const Index& index) { return index.by_instance != 0; };
    const auto range_depends = [&](const Range& range) {
      return depends(range.rank) || depends(range.block);
    };
    return depends(step.peer) || depends(step.tag) || depends(step.block) ||
           depends(step.instance) || depends(lane_->block) ||
           std::ranges::any_of(step.srcs, range_depends) ||
           std::ranges::any_of(step.dsts, range_depends);
  }

  std::string form(const Step& step) const {
    if (step.finish && step.kind != StepKind::fold) return "finishes without a fold";
    if (step.repeat < 1 || step.repeat > most_instances) {
      return fmt::format("is repeated {} times", step.repeat);
    }
    switch (step.kind) {
      case StepKind::fold:
        if (step.srcs.empty() || step.dsts.empty()) return "folds nothing";
        if (lane_->counts == Counts::once) return "handles data in a lane that has no blocks";
        break;
      case StepKind::send:
        if (step.srcs.size() > 1 || !step.dsts.empty()) return "does not send one range";
        break;
      case StepKind::recv:
        if (step.dsts.size() > 1 || !step.srcs.empty()) return "does not receive one range";
        break;
      default:
        if (moves_data(step)) return "synchronises, but names ranges";
        if (step.when != When::always) return "synchronises, but has a condition";
        return sync(step);
    }
    if (is_message(step) && moves_data(step) == (lane_->counts == Counts::once)) {
      return moves_data(step) ? "handles data in a lane that has no blocks"
                              : "is an empty message, but its lane does not run once";
    }
    std::string what = several_blocks(step);
    if (what.empty()) what = condition(step);
    return what.empty() ? widths(step) : what;
  }

  /// Checks for which blocks a data step runs.
  std::string condition(const Step& step) const {
    if (static_cast<unsigned>(step.when) > static_cast<unsigned>(When::large)) {
      return "has an unknown condition";
    }
    if (plan_.small_bytes == 0) {
      if (step.when == When::always) return {};
      return "has a condition, but the plan does not tell small blocks from large ones";
    }
    if (step.when != When::always && (!moves_data(step) || step.repeat != 1)) {
      return "has a condition, but handles no block, or several";
    }
    if (step.when != When::always && passes_on(plan_, *lane_, step)) {
      return "has a condition, but may handle a block of other ranks";
    }
    const auto in_scratch = [](const Range& range) { return range.buffer == Buffer::scratch; };
    const bool uses_scratch =
        std::ranges::any_of(step.srcs, in_scratch) || std::ranges::any_of(step.dsts, in_scratch);
    if (uses_scratch && step.when != When::small) {
      return "uses scratch, which has room for small blocks only, for other blocks too";
    }
    return {};
  }

  /// Checks a step of a lane of all blocks, which may handle several of them.
  std::string several_blocks(const Step& step) const {
    if (lane_->counts != Counts::all_blocks) {
      return step.repeat == 1 ? "" : "handles several blocks in a lane of one block";
    }
    for (const std::vector<Range>* ranges : {&step.srcs, &step.dsts}) {
      for (const Range& range : *ranges) {
        if (step.repeat > 1 && range.repeat > 1) return "repeats a range for each of its blocks";
        if (!is_message(step) || step.repeat == 1) continue;
        if (range.buffer != Buffer::scratch) {
          return "is a message of several blocks outside scratch";
        }
        if (range.block.by_source != 1 || range.block.modulo != 0) {
          return "is a message of blocks that do not follow one another";
        }
      }
    }
    return {};
  }

  std::string sync(const Step& step) const {
    if (step.kind == StepKind::await) {
      if (step.lane < plan_.lanes.size()) return {};
      return fmt::format("names lane {} of {}", step.lane, plan_.lanes.size());
    }
    if (static_cast<unsigned>(step.kind) > static_cast<unsigned>(StepKind::await_board)) {
      return "is of an unknown kind";
    }
    if (step.kind == StepKind::await_board) return "belongs to the entry, which has it already";
    if (!plan_.uses_node()) return "needs links within a node";
    if (step.kind == StepKind::wait && step.flag >= public_flags) {
      return fmt::format("uses flag {} of {}", step.flag, public_flags);
    }
    return {};
  }

  std::string widths(const Step& step) const {
    std::uint64_t sources = 0;
    for (const std::vector<Range>* ranges : {&step.srcs, &step.dsts}) {
      for (const Range& range : *ranges) {
        if (static_cast<unsigned>(range.buffer) > static_cast<unsigned>(Buffer::line)) {
          return "names an unknown buffer";
        }
        if (range.repeat < 1 || range.repeat > most_instances ||
            (range.repeat > 1 && is_message(step))) {
          return fmt::format("repeats a range {} times", range.repeat);
        }
        if (range.wide && (range.buffer != Buffer::scratch || !plan_.wide_scratch)) {
          return range.buffer == Buffer::scratch
                     ? "has a wide range, but the plan has no wide scratch"
                     : "has a wide range outside scratch";
        }
        if (ranges == &step.srcs) sources += range.repeat;
      }
    }
    for (const Range& dst : step.dsts) {
      if (dst.buffer == Buffer::input) return "writes into an input";
      if (dst.wide != step.dsts[0].wide) return "writes places of different width";
    }
    if (step.kind != StepKind::fold) return {};
    if (step.finish && step.dsts[0].wide) return "finishes into a wide place";
    if (plan_.shape.widened && sources > 1 && !step.finish && !step.dsts[0].wide) {
      return "rounds a partial result: its destination is not wide";
    }
    return {};
  }

  /// Checks the indices of a step in instance instance_.
  std::string indices(const Step& step) const {
    if (is_message(step)) {
      const std::int64_t peer = step.peer.at(instance_), tag = step.tag.at(instance_);
      if (peer < 0 || peer >= ranks_) return fmt::format("names rank {} of {}", peer, ranks_);
      if (peer == plan_.shape.rank) return "names the rank itself as its peer";
      if (tag < 0 || tag > most_tag) return fmt::format("has tag {}", tag);
    }
    if (moves_data(step)) return data(step);
    switch (step.kind) {
      case StepKind::await_arrival:
      case StepKind::wait:
        return peers(step);
      case StepKind::await:
        return awaited(step);
      default:
        return {};
    }
  }

  std::string peers(const Step& step) const {
    const std::size_t locals = plan_.node.size();
    if (!step.all) {
      const std::int64_t peer = step.peer.at(instance_);
      if (peer < 0 || peer >= static_cast<std::int64_t>(locals)) {
        return fmt::format("names local rank {} of {}", peer, locals);
      }
      if (peer == local_rank(plan_)) return "names the rank itself as its peer";
      return step.kind == StepKind::wait ? published(step, plan_.node[peer]) : "";
    }
    if (step.kind == StepKind::await_arrival) return {};
    for (const std::uint32_t q : plan_.node) {
      std::string what = q == plan_.shape.rank ? "" : published(step, q);
      if (!what.empty()) return what;
    }
    return {};
  }

  std::string published(const Step& step, std::uint32_t rank) const {
    const Plan& peer = plans_[rank];
    const auto publishes = [&](const Lane& lane) { return lane.publishes == step.flag; };
    const auto found = std::ranges::find_if(peer.lanes, publishes);
    if (found == peer.lanes.end()) {
      return fmt::format("waits for a flag that rank {} never publishes", rank);
    }
    if (same_chunks(plan_, *lane_, instance_, peer, *found, 0)) return {};
    return fmt::format("waits for lane '{}' of rank {}, {}", found->name, rank, other_chunks);
  }

  std::string awaited(const Step& step) const {
    if (step.end) return {};
    const Lane& other = plan_.lanes[step.lane];
    for (std::uint32_t j = 0; j < step.repeat; ++j) {
      const std::int64_t instance = step.instance.at(instance_, j);
      if (instance < 0 || instance >= other.instances) continue;
      const auto there = static_cast<std::uint32_t>(instance);
      if (same_chunks(plan_, *lane_, instance_, plan_, other, there)) continue;
      return fmt::format("awaits chunks of lane '{}' instance {}, {}", other.name, there,
                         other_chunks);
    }
    return {};
  }

  std::string data(const Step& step) const {
    for (std::uint32_t repetition = 0; repetition < step.repeat; ++repetition) {
      std::string what = data(step, repetition);
      if (!what.empty()) return what;
    }
    return {};
  }

  std::string data(const Step& step, std::uint32_t repetition) const {
    const std::int64_t block = step.block.at(instance_, repetition);
    const std::uint32_t blocks = message_blocks(plan_, lane_->extents);
    if (block < 0 || block >= blocks) {
      return fmt::format("handles block {} of {}", block, blocks);
    }
    if (lane_->counts == Counts::one_block && block != lane_->block.at(instance_)) {
      return fmt::format("handles block {} in a lane of block {}", block,
                         lane_->block.at(instance_));
    }
    const std::uint64_t item = item_of(plan_, lane_->extents, static_cast<std::uint32_t>(block));
    for (const std::vector<Range>* ranges : {&step.dsts, &step.srcs}) {
      for (const Range& range : *ranges) {
        const bool varies = range.rank.by_source != 0 || range.block.by_source != 0;
        for (std::uint32_t j = 0; j < (varies ? range.repeat : 1); ++j) {
          std::string what = place(range, repetition + j, item, ranges == &step.dsts);
          if (!what.empty()) return what;
        }
      }
    }
    return {};
  }

  /// Checks the place of range number `j` of a Range.
  std::string place(const Range& range, std::uint32_t j, std::uint64_t item, bool writes) const {
    const std::int64_t rank = range.rank.at(instance_, j), block = range.block.at(instance_, j);
    const Plan* owner = &plan_;
    if (plan_.uses_node()) {
      if (rank < 0 || rank >= static_cast<std::int64_t>(plan_.node.size())) {
        return fmt::format("names local rank {} of {}", rank, plan_.node.size());
      }
      owner = &plans_[plan_.node[rank]];
    } else if (rank != plan_.shape.rank) {
      return fmt::format("touches memory of rank {} that it cannot reach", rank);
    }
    const std::uint32_t blocks = range.buffer == Buffer::scratch ? owner->scratch_blocks
                                 : range.buffer == Buffer::line  ? owner->line_blocks
                                                                 : blocks_of(*owner, range.buffer);
    if (block < 0 || block >= blocks) return fmt::format("names block {} of {}", block, blocks);
    const bool callers = range.buffer == Buffer::input || range.buffer == Buffer::output;
    if (callers) {
      const std::uint64_t there = item_of(*owner, range.buffer, static_cast<std::uint32_t>(block));
      if (there != item) {
        return fmt::format("names block {}, which is item {} of the message, for item {}", block,
                           there, item);
      }
    }
    if (owner == &plan_) return {};
    const bool mapped = range.buffer == Buffer::input ? plan_.maps_input : plan_.maps_output;
    if (callers && !mapped) {
      return fmt::format("touches memory of rank {} that it cannot reach", owner->shape.rank);
    }
    if (writes && !callers) {
      return fmt::format("writes into library memory of rank {}", owner->shape.rank);
    }
    return {};
  }

  std::span<const Plan> plans_;
  const Plan& plan_;
  const std::int64_t ranks_;
  const Lane* lane_ = nullptr;
  std::uint32_t instance_ = 0;
};

}  // namespace

Status check_steps(std::span<const Plan> plans) {
  for (std::size_t r = 0; r < plans.size(); ++r) {
    HOCKET_RETURN_IF_ERROR(StepsForm(plans, r).check());
  }
  return {};
}

}  // namespace hocket::internal::verify_detail
