#include "collectives/plan/plan_file.h"

#include <fmt/format.h>

#include <algorithm>

namespace hocket::internal {
namespace {

// Of the plans of all ranks, and of one. A step counts once for each instance, and so does each of
// its ranges. The verifier needs time in proportion to that.
constexpr std::int64_t most_work_of_all = 1 << 17, most_work = 1 << 14;
// Instances of one rank that are active at a time. The verifier keeps a clock of every instance for
// every other one, so its memory grows with the square of this number.
constexpr std::int64_t most_active = 320;
constexpr std::int64_t most_scratch_blocks = 1024;  // of all slots together
constexpr std::int64_t most_cut = 256;
constexpr std::int64_t most_small_bytes = 1 << 16;

/// Puts the numbers of one rank into the formulas of a file. The first error stays; what follows it
/// is built with zeros.
class Building {
 public:
  Building(const PlanFile& file, const Shape& shape, Plan* out)
      : file_(file),
        plan_(*out),
        names_{.r = shape.rank, .p = shape.ranks, .root = shape.root},
        own_rank_(static_cast<std::int32_t>(shape.rank)) {
    plan_ = {};
    plan_.algorithm = file.name;
    plan_.shape = shape;
    if (file.medium == Medium::both) {
      const Layout& layout = *shape.layout;
      plan_.node = layout.ranks_of(layout.node_of(shape.rank));
      names_.n = layout.nodes();
      names_.k = static_cast<std::int64_t>(plan_.node.size());
      own_rank_ = static_cast<std::int32_t>(layout.local_rank(shape.rank));
    }
  }

  Status run() {
    header();
    std::vector<const LaneText*> present;
    for (const LaneText& text : file_.lanes) {
      if (is_present(text)) present.push_back(&text);
    }
    for (const LaneText* text : present) plan_.lanes.push_back(lane(*text, present));
    return status_;
  }

 private:
  void fail(const std::string& place, const std::string& what) {
    if (!status_.ok()) return;
    std::string where = fmt::format("rank {} of {}", names_.r, names_.p);
    if (names_.root >= 0) where += fmt::format(", root {}", names_.root);
    status_ = refused(file_, fmt::format("{}: {} ({})", place, what, where));
  }

  std::uint32_t number(const std::string& place, const Expression& text, std::int64_t least,
                       std::int64_t most) {
    std::int64_t value = least;
    const Status status = text.number(names_, least, most, &value);
    if (!status.ok()) fail(place, status.message());
    return static_cast<std::uint32_t>(std::clamp(value, least, most));
  }

  Index index(const std::string& place, const Expression& text) {
    Index value;
    const Status status = text.index(names_, &value);
    if (!status.ok()) fail(place, status.message());
    return value;
  }

  void header() {
    const bool widened = plan_.shape.widened;
    if (file_.medium == Medium::node) {
      for (std::uint32_t rank = 0; rank < plan_.shape.ranks; ++rank) plan_.node.push_back(rank);
    }
    const Names own = names_;
    names_.r = names_.root = 0;  // these are the same on all ranks, whatever the root
    if (names_.k > 0) names_.k = plan_.shape.layout->ranks_of_largest();
    plan_.cut = number("cut", file_.cut, 1, most_cut);
    plan_.slots = file_.slots;
    plan_.scratch_blocks = number("scratch_blocks", file_.scratch_blocks, 0,
                                  most_scratch_blocks / std::max<int>(1, file_.slots));
    plan_.line_blocks = number("line_blocks", file_.line_blocks, 0, line_payload_bytes);
    plan_.small_bytes = number("small_bytes", file_.small_bytes, 0, most_small_bytes);
    names_ = own;
    plan_.wide_scratch = file_.wide_scratch && widened;
    plan_.arrives_first = file_.arrives_first;
    plan_.maps_input = file_.maps_input;
    plan_.maps_output = file_.maps_output;
    plan_.single_chunk = file_.single_chunk;
  }

  bool is_present(const LaneText& text) {
    bool present = true;
    if (!text.when) return present;
    const Status status = text.when->holds(names_, &present);
    if (!status.ok()) fail(text.place + ".when", status.message());
    return present;
  }

  Lane lane(const LaneText& text, const std::vector<const LaneText*>& present) {
    Lane made;
    made.name = text.name;
    made.counts = text.counts;
    made.extents = text.extents;
    made.block = index(text.place + ".block", text.block);
    made.instances = number(text.place + ".instances", text.instances, 0, most_work);
    made.window = text.window ? number(text.place + ".window", *text.window, 1, most_work)
                              : std::max(1U, made.instances);
    made.publishes = text.publishes;
    active_ += std::min(made.window, made.instances);
    if (active_ > most_active) {
      fail(text.place, fmt::format("more than {} instances of all lanes together are active at a "
                                   "time: give the lane a 'window'",
                                   most_active));
    }
    for (const StepText& step_text : text.steps) {
      Step made_step = step(step_text, made, present);
      count_work(step_text.place, made, made_step);
      if (!status_.ok()) break;
      made.steps.push_back(std::move(made_step));
    }
    return made;
  }

  void count_work(const std::string& place, const Lane& lane, const Step& step) {
    std::int64_t each = 1;
    for (const std::vector<Range>* ranges : {&step.dsts, &step.srcs}) {
      for (const Range& range : *ranges) each += range.repeat;
    }
    // No factor is above most_work, so that four of them fit.
    work_ += std::min(each * step.repeat, 2 * most_work) * std::max(1U, lane.instances);
    const std::int64_t most = std::min(most_work, most_work_of_all / names_.p);
    if (work_ > most) {
      fail(place, fmt::format("the steps of all instances of the rank together name more than {} "
                              "ranges: that is too much to be verified",
                              most));
    }
  }

  std::uint32_t lane_of(const StepText& text, const std::vector<const LaneText*>& present) {
    if (text.lane.empty()) return text.lane_number;
    std::size_t found = present.size();
    for (std::size_t i = 0; i < present.size(); ++i) {
      if (present[i]->name != text.lane) continue;
      if (found < present.size()) {
        fail(text.place, "names lane " + in_quotes(text.lane) +
                             ", which this rank has twice: give "
                             "the number of the lane instead");
      }
      found = i;
    }
    if (found == present.size()) {
      fail(text.place, "names lane " + in_quotes(text.lane) + ", which this rank does not have");
    }
    return static_cast<std::uint32_t>(found);
  }

  Step step(const StepText& text, const Lane& lane, const std::vector<const LaneText*>& present) {
    Step made;
    made.kind = text.kind;
    made.when = text.when;
    made.finish = text.finish;
    made.all = text.all;
    made.end = text.end;
    made.flag = text.flag;
    made.lag = text.lag;
    if (text.kind == StepKind::await) {
      made.lane = lane_of(text, present);
      made.instance = index(text.place + ".instance", text.instance);
    }
    made.repeat = number(text.place + ".repeat", text.repeat, 1, most_work);
    made.peer = index(text.place, text.peer);
    made.tag = index(text.place + ".tag", text.tag);
    ranges(text, text.dsts, &made.dsts);
    ranges(text, text.srcs, &made.srcs);
    if (text.block) {
      made.block = index(text.place + ".block", *text.block);
    } else if (!made.dsts.empty() || !made.srcs.empty()) {
      made.block = lane.block;
    }
    return made;
  }

  void ranges(const StepText& step, const std::vector<RangeText>& texts, std::vector<Range>* out) {
    for (const RangeText& text : texts) {
      Range range;
      range.buffer = text.buffer;
      range.wide = text.wide && plan_.shape.widened;
      range.rank = text.rank ? index(step.place, *text.rank) : Index{.base = own_rank_};
      range.block = index(step.place, text.block);
      if (text.repeat) range.repeat = number(step.place, *text.repeat, 0, most_work);
      if (range.repeat > 0) out->push_back(range);
    }
  }

  const PlanFile& file_;
  Plan& plan_;
  Names names_;
  std::int32_t own_rank_;  // in ranges: the local rank, which is the rank if all are on one node
  std::int64_t work_ = 0, active_ = 0;
  Status status_;
};

/// True for several nodes, which are as the file says.
bool is_layout(const std::vector<std::uint32_t>& in_file, const Layout& nodes) {
  std::vector<std::uint32_t> node_of = in_file;
  if (in_file.empty()) {
    if (nodes.ranks_of_largest() != nodes.ranks_of_smallest()) return false;
    for (std::uint32_t rank = 0; rank < nodes.ranks(); ++rank) {
      node_of.push_back(rank / nodes.ranks_of_largest());
    }
  }
  const Layout served(node_of);
  if (nodes.nodes() < 2 || served.ranks() != nodes.ranks()) return false;
  for (std::uint32_t rank = 0; rank < nodes.ranks(); ++rank) {
    if (served.node_of(rank) != nodes.node_of(rank)) return false;
  }
  return true;
}

}  // namespace

Status refused(const PlanFile& file, const std::string& what) {
  return invalid_argument(fmt::format("{}: plan {}: {}", file.source, in_quotes(file.name), what));
}

bool PlanFile::serves(std::uint32_t number_of_ranks, const Layout* nodes) const {
  Names names{.p = number_of_ranks};
  if (medium == Medium::both) {
    if (nodes == nullptr || !is_layout(layout, *nodes)) return false;
    names.n = nodes->nodes();
    names.k = nodes->ranks_of_largest();
  }
  bool serves = false;
  const Status status = ranks.holds(names, &serves);
  return status.ok() && serves && number_of_ranks >= 2 && number_of_ranks <= most_ranks_of_file;
}

Status PlanFile::build(const Shape& shape, Plan* out) const {
  return Building(*this, shape, out).run();
}

}  // namespace hocket::internal
