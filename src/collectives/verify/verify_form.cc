#include "collectives/verify/verify_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "collectives/plan/extents.h"
#include "collectives/verify/verify_steps.h"

namespace hocket::internal::verify_detail {

std::string name_of_rank(const Plan& plan) {
  return fmt::format("'{}', rank {},", plan.algorithm, plan.shape.rank);
}

std::string name_of_lane(const Plan& plan, std::size_t lane, std::uint32_t instance) {
  const Lane& l = plan.lanes[lane];
  return fmt::format("{} lane '{}'", name_of_rank(plan), l.name) +
         (l.instances > 1 ? fmt::format(" instance {}", instance) : "");
}

std::string name_of_step(const Plan& plan, std::size_t lane, std::uint32_t instance,
                         std::size_t step) {
  return fmt::format("{}, step {} ({})", name_of_lane(plan, lane, instance), step,
                     print(plan, plan.lanes[lane].steps[step]));
}

Status wrong(const std::string& where, const std::string& what) {
  return invalid_argument("the plan is wrong: " + where + " " + what);
}

std::uint32_t message_blocks(const Plan& plan, Buffer extents) {
  return extents == Buffer::output ? output_blocks(plan) : input_blocks(plan);
}

std::uint32_t blocks_of(const Plan& plan, Buffer buffer) {
  const bool has = buffer == Buffer::output ? has_output(plan.shape) : has_input(plan.shape);
  return has ? message_blocks(plan, buffer) : 0;
}

std::uint64_t item_of(const Plan& plan, const Lane& lane, std::uint32_t instance) {
  return item_of(plan, lane.extents, static_cast<std::uint32_t>(lane.block.at(instance)));
}

bool has_equal_blocks(const Plan& plan) { return !plan.shape.varying && plan.cut == 1; }

bool passes_on(const Plan& plan, const Lane& lane, const Step& step) {
  const auto in_scratch = [](const Range& range) { return range.buffer == Buffer::scratch; };
  return plan.shape.collective == Collective::all_to_all && lane.counts == Counts::all_blocks &&
         std::ranges::all_of(step.srcs, in_scratch) && std::ranges::all_of(step.dsts, in_scratch);
}

std::uint64_t item_of(const Plan& plan, const Lane& lane, const Step& step, std::uint32_t instance,
                      std::uint32_t repetition) {
  return item_of(plan, lane.extents,
                 static_cast<std::uint32_t>(step.block.at(instance, repetition)));
}

std::uint32_t local_rank(const Plan& plan) {
  return static_cast<std::uint32_t>(std::ranges::find(plan.node, plan.shape.rank) -
                                    plan.node.begin());
}

namespace {

/// True if the blocks that the two buffers show are the same items.
bool same_items(const Plan& a, Buffer of_a, const Plan& b, Buffer of_b) {
  if (a.shape.rank == b.shape.rank && of_a == of_b) return true;
  const auto blocks = [](const Plan& plan, Buffer buffer) {
    const CollectiveRow& row = row_of(plan.shape.collective);
    return buffer == Buffer::input ? row.input : row.output;
  };
  return a.shape.collective != Collective::all_to_all && blocks(a, of_a) == blocks(b, of_b) &&
         blocks(a, of_a) != Blocks::own;
}

}  // namespace

bool same_chunks(const Plan& a, const Lane& lane_a, std::uint32_t instance_a, const Plan& b,
                 const Lane& lane_b, std::uint32_t instance_b) {
  if (lane_a.counts != lane_b.counts) return false;
  switch (lane_a.counts) {
    case Counts::once:
      return true;
    case Counts::one_block:
      return item_of(a, lane_a, instance_a) == item_of(b, lane_b, instance_b);
    case Counts::all_blocks:
      return !a.shape.varying || same_items(a, lane_a.extents, b, lane_b.extents);
  }
  return false;
}

namespace {

/// True if every rank knows the number of elements of every block.
bool knows_all_counts(const Plan& plan) {
  if (!plan.shape.varying) return true;
  const CollectiveRow& row = row_of(plan.shape.collective);
  return !row.rooted && plan.shape.collective != Collective::all_to_all;
}

/// Checks the header and the lanes of one rank's plan, but not the steps.
class PlanForm {
 public:
  explicit PlanForm(const Plan& plan) : plan_(plan) {}

  Status check() const {
    for (const std::string& what : {header(), node(), arrivals()}) {
      if (!what.empty()) return wrong(name_of_rank(plan_), what);
    }
    std::array<int, public_flags> publisher;
    publisher.fill(-1);
    for (std::size_t i = 0; i < plan_.lanes.size(); ++i) {
      std::string what = lane(plan_.lanes[i]);
      if (what.empty()) what = publishes(static_cast<int>(i), publisher);
      if (!what.empty()) return wrong(name_of_lane(plan_, i, 0), what);
    }
    return {};
  }

 private:
  std::string header() const {
    const Shape& shape = plan_.shape;
    if (plan_.slots < 1 || plan_.slots > max_slots) {
      return fmt::format("has {} slots, not 1..{}", plan_.slots, max_slots);
    }
    if (plan_.wide_scratch && !shape.widened) {
      return "has wide scratch, but partial results are not wider than the data";
    }
    const bool needs_root = row_of(shape.collective).rooted || is_p2p(shape.collective);
    const bool has_root = shape.root >= 0 && shape.root < std::int64_t{shape.ranks};
    if (needs_root ? !has_root : shape.root != -1) {
      return fmt::format("has root {}, which is none of a {} of {} ranks", shape.root,
                         row_of(shape.collective).name, shape.ranks);
    }
    if (plan_.cut < 1 || (plan_.cut > 1 && row_of(shape.collective).input != Blocks::whole)) {
      return fmt::format("cuts a message of {} blocks that all ranks see alike", plan_.cut);
    }
    if (!knows_all_counts(plan_) && plan_.uses_node() && plan_.small_bytes == 0 &&
        (plan_.scratch_blocks > 0 || plan_.line_blocks > 1)) {
      return "lays out memory that peers read by the longest block, which ranks do not know";
    }
    return plan_.small_bytes > 0 ? small_blocks() : "";
  }

  std::string small_blocks() const {
    const CollectiveRow& row = row_of(plan_.shape.collective);
    if (!may_vary(row) || shares_blocks(row)) {
      return fmt::format(
          "tells small blocks from large ones in a collective ({}) without such blocks", row.name);
    }
    if (plan_.small_bytes % 64 != 0) {
      return fmt::format("has small blocks of up to {} bytes, which is no multiple of 64",
                         plan_.small_bytes);
    }
    if (plan_.node.size() != plan_.shape.ranks || !plan_.single_chunk) {
      return "tells small blocks from large ones, but cuts blocks, or is not for one node";
    }
    if (plan_.line_blocks > 0 || plan_.maps_input || plan_.maps_output) {
      return "has no room for the counts of its blocks: something else is in the arrival line";
    }
    if (plan_.wide_scratch) return "has wide scratch for small blocks, which are not wide";
    const std::size_t counts = counts_in_line(row, plan_.shape.ranks);
    if (counts <= most_counts_in_line) return {};
    return fmt::format("has {} counts of blocks for the arrival line, which has room for {}",
                       counts, most_counts_in_line);
  }

  std::string node() const {
    const Shape& shape = plan_.shape;
    if (!plan_.uses_node()) {
      if (plan_.maps_input || plan_.maps_output) return "maps buffers without a node";
      if (plan_.line_blocks > 0) return "has blocks in its line without a node";
      return {};
    }
    const auto not_ascending = [](std::uint32_t a, std::uint32_t b) { return a >= b; };
    if (std::ranges::adjacent_find(plan_.node, not_ascending) != plan_.node.end() ||
        plan_.node.back() >= shape.ranks) {
      return "has a node that is no ascending list of ranks";
    }
    if (!std::ranges::binary_search(plan_.node, shape.rank)) return "is no rank of its own node";
    if (plan_.line_blocks > 0 && (!plan_.single_chunk || plan_.maps_input || plan_.maps_output)) {
      return "has blocks in its line, which only an unmapped single-chunk plan may have";
    }
    return {};
  }

  std::string arrivals() const {
    std::size_t arrivals = plan_.arrives_first ? 1 : 0;
    for (const Lane& lane : plan_.lanes) {
      const auto arrives = [](const Step& step) { return step.kind == StepKind::arrive; };
      const bool repeats =
          lane.instances != 1 || (lane.counts != Counts::once && !plan_.single_chunk);
      const auto found = static_cast<std::size_t>(std::ranges::count_if(lane.steps, arrives));
      if (found > 0 && repeats) {
        return fmt::format("arrives in lane '{}', which has several chunks or instances",
                           lane.name);
      }
      arrivals += found;
    }
    if (arrivals == (plan_.uses_node() ? 1 : 0)) return {};
    return plan_.uses_node()
               ? fmt::format(
                     "arrives {} times: a plan that uses the node arrives exactly once, or "
                     "scratch halves cannot alternate",
                     arrivals)
               : "arrives, but does not use the node";
  }

  std::string lane(const Lane& lane) const {
    if (lane.window < 1) return "has a window of 0 instances";
    if (lane.steps.empty()) return "has no steps";
    if (lane.instances > most_instances) {
      return fmt::format("has {} instances; the most is {}", lane.instances, most_instances);
    }
    if (lane.counts == Counts::once) return {};
    if (lane.extents != Buffer::input && lane.extents != Buffer::output) {
      return "has extents of neither the input nor the output";
    }
    const std::uint32_t blocks =
        plan_.shape.varying ? blocks_of(plan_, lane.extents) : message_blocks(plan_, lane.extents);
    if (blocks == 0) return "has extents of a buffer that the rank does not have";
    if (lane.counts == Counts::all_blocks) {
      return knows_all_counts(plan_) || plan_.single_chunk
                 ? ""
                 : "needs the counts of all blocks, which ranks do not know";
    }
    if (lane.counts != Counts::one_block) return "has an unknown kind of counts";
    for (std::uint32_t i = 0; i < lane.instances; ++i) {
      const std::int64_t block = lane.block.at(i);
      if (block >= 0 && block < blocks) continue;
      return fmt::format("has block {} of {} in instance {}", block, blocks, i);
    }
    return {};
  }

  std::string publishes(int number, std::array<int, public_flags>& publisher) const {
    const Lane& lane = plan_.lanes[number];
    if (lane.publishes == -1) return {};
    if (lane.publishes < 0 || lane.publishes >= public_flags) {
      return fmt::format("publishes flag {} of {}", lane.publishes, public_flags);
    }
    if (!plan_.uses_node()) return "publishes a flag, but the plan does not use the node";
    if (lane.instances != 1) return "publishes a flag, but has not exactly one instance";
    int& first = publisher[lane.publishes];
    if (first >= 0) {
      return fmt::format("publishes flag {}, which lane '{}' publishes too", lane.publishes,
                         plan_.lanes[first].name);
    }
    first = number;
    return {};
  }

  const Plan& plan_;
};

/// The shape that rank `rank` must have, if rank 0 has `first`.
Shape shape_of(const Shape& first, std::size_t rank) {
  Shape shape = first;
  shape.rank = static_cast<std::uint32_t>(rank);
  if (is_p2p(first.collective) && rank == 1) {
    shape.collective = first.collective == Collective::send ? Collective::recv : Collective::send;
    shape.root = 0;
  }
  return shape;
}

/// Checks that the plans of all ranks agree in what must be equal.
Status check_alike(std::span<const Plan> plans) {
  const Plan& first = plans[0];
  if (first.shape.ranks != plans.size()) {
    return wrong(name_of_rank(first), fmt::format("is for {} ranks, but there are {} plans",
                                                  first.shape.ranks, plans.size()));
  }
  if (is_p2p(first.shape.collective) && (plans.size() != 2 || first.shape.root != 1)) {
    return wrong(name_of_rank(first), "is no send or recv between two ranks");
  }
  for (std::size_t r = 0; r < plans.size(); ++r) {
    const Plan& plan = plans[r];
    if (plan.shape != shape_of(first.shape, r)) {
      return wrong(name_of_rank(plan), is_p2p(first.shape.collective)
                                           ? "is no partner for rank 0's send or recv"
                                           : "is for another shape than rank 0's, or another rank");
    }
    if (plan.cut != first.cut) {
      return wrong(name_of_rank(plan), "cuts the message in other blocks than rank 0");
    }
    if (plan.slots != first.slots || plan.scratch_blocks != first.scratch_blocks ||
        plan.line_blocks != first.line_blocks || plan.wide_scratch != first.wide_scratch) {
      return wrong(name_of_rank(plan), "differs from rank 0's in its slots, scratch or line");
    }
    if (plan.maps_input != first.maps_input || plan.maps_output != first.maps_output ||
        plan.single_chunk != first.single_chunk || plan.uses_node() != first.uses_node() ||
        plan.small_bytes != first.small_bytes) {
      return wrong(name_of_rank(plan), "differs from rank 0's in what it needs");
    }
    for (const std::uint32_t q : plan.node) {
      if (q < plans.size() && plans[q].node == plan.node) continue;
      return wrong(name_of_rank(plan), fmt::format("differs from that of rank {} in its node", q));
    }
  }
  return {};
}

}  // namespace

Status check_form(std::span<const Plan> plans) {
  if (plans.empty()) return invalid_argument("there are no plans to verify");
  HOCKET_RETURN_IF_ERROR(check_alike(plans));
  for (const Plan& plan : plans) HOCKET_RETURN_IF_ERROR(PlanForm(plan).check());
  return check_steps(plans);
}

}  // namespace hocket::internal::verify_detail
