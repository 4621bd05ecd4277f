#include "collectives/verify/verify_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "collectives/plan/partition.h"

namespace hocket::internal::verify_detail {

namespace {

bool moves_data(StepKind kind) {
  return kind == StepKind::fold || kind == StepKind::send || kind == StepKind::recv;
}

Status wrong(std::string where, const std::string& what) {
  return invalid_argument("the plan is wrong: " + std::move(where) + " " + what);
}

std::string of_rank(const Plan& plan) {
  return fmt::format("'{}', rank {},", plan.algorithm, plan.shape.rank);
}

/// Checks one rank's plan without the plans of the other ranks.
class PlanForm {
 public:
  PlanForm(const Plan& plan) : plan_(plan), ranks_(plan.shape.ranks) {
    signalled_.resize(plan.private_flags);
  }

  Status check() {
    HOCKET_RETURN_IF_ERROR(check_header());
    std::set<int> met;
    HOCKET_RETURN_IF_ERROR(section(Section::prologue, 0, plan_.prologue, met));
    for (std::size_t i = 0; i < plan_.lanes.size(); ++i) {
      std::set<int> met_in_lane = met;
      HOCKET_RETURN_IF_ERROR(section(Section::lane, i, plan_.lanes[i], met_in_lane));
    }
    HOCKET_RETURN_IF_ERROR(section(Section::epilogue, 0, plan_.epilogue, met));
    if (plan_.load_store && arrivals_ != 1) {
      return wrong(of_rank(plan_),
                   fmt::format("arrives {} times: a load/store plan arrives exactly "
                               "once, or scratch halves cannot alternate",
                               arrivals_));
    }
    return check_awaits();
  }

 private:
  struct Writer {
    int lane = -1;
    int per_chunk = 0;
  };

  Status check_header() const {
    const auto fail = [&](const std::string& what) { return wrong(of_rank(plan_), what); };
    const Shape& shape = plan_.shape;
    if (plan_.slots < 1 || plan_.slots > max_slots) {
      return fail(fmt::format("has {} slots, not 1..{}", plan_.slots, max_slots));
    }
    const auto ranks = static_cast<std::uint32_t>(ranks_);
    const std::uint32_t in = plan_.input_blocks, out = plan_.output_blocks;
    bool fits = true;
    switch (shape.collective) {
      case Collective::all_reduce:
        fits = in == out && in >= 1;
        break;
      case Collective::broadcast:
        fits = in == out && in >= 1 && shape.root >= 0 && shape.root < ranks_;
        break;
      case Collective::all_gather:
        fits = in == 1 && out == ranks;
        break;
      case Collective::reduce_scatter:
        fits = in == ranks && out == 1;
        break;
      case Collective::barrier:
        fits = in == 0 && out == 0;
        break;
      case Collective::send:
        fits = in == 1 && out == 0 && shape.root >= 0 && shape.root < ranks_;
        break;
      case Collective::recv:
        fits = in == 0 && out == 1 && shape.root >= 0 && shape.root < ranks_;
        break;
      case Collective::reduce:
      case Collective::gather:
      case Collective::scatter:
      case Collective::all_to_all:
        fits = false;  // only the second form has plans for them
        break;
    }
    if (!fits) {
      return fail(fmt::format("has {} input and {} output blocks and root {}, which is no {}", in,
                              out, shape.root, name_of(shape.collective)));
    }
    if (!plan_.load_store && (plan_.maps_input || plan_.maps_output)) {
      return fail("maps buffers without load/store links");
    }
    return {};
  }

  Status section(Section section, std::size_t lane, const Steps& steps, std::set<int>& met) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::string what = check_step(section, lane, steps[i], met);
      if (!what.empty()) return wrong(name_of_step(plan_, section, lane, i), what);
    }
    return {};
  }

  std::string check_step(Section section, std::size_t lane, const Step& step, std::set<int>& met) {
    const bool in_lane = section == Section::lane;
    const bool of_peer = step.kind == StepKind::send || step.kind == StepKind::recv;
    if (step.peer != own && (step.peer < 0 || step.peer >= ranks_)) {
      return fmt::format("names rank {} of {}", step.peer, ranks_);
    }
    if (step.peer == plan_.shape.rank || (of_peer && step.peer == own)) {
      return "names the rank itself as its peer";
    }
    if (!in_lane &&
        (moves_data(step.kind) || step.kind == StepKind::signal || step.kind == StepKind::await)) {
      return "stands in the prologue or epilogue, which only meet and notify";
    }
    if (step.finish && step.kind != StepKind::fold) return "finishes without a fold";
    switch (step.kind) {
      case StepKind::fold:
        if (step.srcs.empty() || step.dsts.empty()) return "folds nothing";
        break;
      case StepKind::send:
        if (step.srcs.size() > 1 || !step.dsts.empty()) return "does not send one range";
        break;
      case StepKind::recv:
        if (step.dsts.size() > 1 || !step.srcs.empty()) return "does not receive one range";
        break;
      default:
        if (!step.srcs.empty() || !step.dsts.empty()) return "synchronises, but names ranges";
        return check_sync(section, lane, step, met);
    }
    return check_ranges(step, met);
  }

  std::string check_sync(Section section, std::size_t lane, const Step& step, std::set<int>& met) {
    const bool is_private = step.kind == StepKind::signal || step.kind == StepKind::await;
    if (!is_private && !plan_.load_store) return "needs load/store links";
    switch (step.kind) {
      case StepKind::arrive:
        ++arrivals_;
        if (section == Section::epilogue) return "arrives in the epilogue";
        if (section == Section::lane && !plan_.single_chunk) return "arrives once per chunk";
        return {};
      case StepKind::await_arrival:
        for (int r = 0; r < ranks_; ++r) {
          if (step.peer == own || step.peer == r) met.insert(r);
        }
        return {};
      case StepKind::notify:
      case StepKind::wait:
        return check_public(section, lane, step);
      default:
        break;
    }
    if (step.flag >= plan_.private_flags) {
      return fmt::format("uses private flag {} of {}", step.flag, plan_.private_flags);
    }
    if (step.kind == StepKind::await) {
      if (step.ordinal < 1) return "awaits ordinal 0: ordinals begin with 1";
      return {};
    }
    Writer& writer = signalled_[step.flag];
    if (writer.lane >= 0 && writer.lane != static_cast<int>(lane)) {
      return fmt::format("signals a flag that lane {} signals too", writer.lane);
    }
    writer.lane = static_cast<int>(lane);
    ++writer.per_chunk;
    return {};
  }

  std::string check_public(Section section, std::size_t lane, const Step& step) {
    if (step.flag >= public_flags) {
      return fmt::format("uses public flag {} of {}", step.flag, public_flags);
    }
    if (step.ordinal != 1) return "uses an ordinal: a public flag is notified once per chunk";
    if (section != Section::lane && step.lag != 0) return "looks chunks back outside the chunks";
    Public& flag = public_[step.flag];
    if (flag.used && flag.section != section) {
      return "uses a public flag of another section of the plan";
    }
    flag.used = true;
    flag.section = section;
    if (step.kind == StepKind::wait) return {};
    if (flag.notified) return "notifies a flag a second time in one chunk";
    flag.notified = true;
    (void)lane;
    return {};
  }

  std::string check_ranges(const Step& step, const std::set<int>& met) {
    for (const Range& dst : step.dsts) {
      std::string what = check_range(dst, true, met);
      if (!what.empty()) return what;
      if (dst.wide != step.dsts[0].wide) return "writes places of different width";
    }
    for (const Range& src : step.srcs) {
      std::string what = check_range(src, false, met);
      if (!what.empty()) return what;
    }
    if (step.finish && step.dsts[0].wide) return "finishes into a wide place";
    if (plan_.shape.widened && step.kind == StepKind::fold && step.srcs.size() > 1 &&
        !step.finish && !step.dsts[0].wide) {
      return "rounds a partial result: its destination is not wide";
    }
    return {};
  }

  std::string check_range(const Range& range, bool writes, const std::set<int>& met) const {
    const bool foreign = range.rank != own && range.rank != plan_.shape.rank;
    if (foreign && (range.rank < 0 || range.rank >= ranks_)) {
      return fmt::format("names rank {} of {}", range.rank, ranks_);
    }
    if (range.wide && range.buffer != Buffer::scratch) return "has a wide range outside scratch";
    std::uint32_t blocks = 0;
    bool reachable = plan_.load_store;
    switch (range.buffer) {
      case Buffer::input:
        if (writes) return "writes into an input";
        blocks = plan_.input_blocks;
        reachable = plan_.maps_input;
        break;
      case Buffer::output:
        blocks = plan_.output_blocks;
        reachable = plan_.maps_output;
        break;
      case Buffer::scratch:
        blocks = plan_.scratch_blocks;
        break;
      case Buffer::line:
        if (!plan_.load_store || !plan_.single_chunk || plan_.maps_input || plan_.maps_output) {
          return "uses the line's payload, which only an unmapped single-chunk plan has";
        }
        blocks = static_cast<std::uint32_t>(message_blocks(plan_));
        break;
    }
    if (range.block >= blocks) {
      return fmt::format("names block {} of {}", range.block, blocks);
    }
    const bool library = range.buffer == Buffer::scratch || range.buffer == Buffer::line;
    if (library && range.length_block >= message_blocks(plan_)) {
      return fmt::format("has the length of block {} of {}", range.length_block,
                         message_blocks(plan_));
    }
    if (!foreign) return {};
    if (!reachable)
      return fmt::format("touches memory of rank {} that it cannot reach", range.rank);
    if (writes && range.buffer != Buffer::output) {
      return fmt::format("writes into library memory of rank {}", range.rank);
    }
    if (!met.contains(range.rank)) {
      return fmt::format("touches memory of rank {} before awaiting its arrival", range.rank);
    }
    return {};
  }

  Status check_awaits() const {
    for (std::size_t lane = 0; lane < plan_.lanes.size(); ++lane) {
      const Steps& steps = plan_.lanes[lane];
      for (std::size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].kind != StepKind::await) continue;
        const int signals = signalled_[steps[i].flag].per_chunk;
        if (steps[i].ordinal <= signals) continue;
        return wrong(
            name_of_step(plan_, Section::lane, lane, i),
            fmt::format("awaits a signal that never comes: there are {} per chunk", signals));
      }
    }
    return {};
  }

  struct Public {
    bool used = false, notified = false;
    Section section = Section::prologue;
  };
  const Plan& plan_;
  const int ranks_;
  int arrivals_ = 0;
  std::array<Public, public_flags> public_;
  std::vector<Writer> signalled_;
};

/// Checks that the plans of all ranks agree in what must be equal.
Status check_alike(std::span<const Plan> plans) {
  const Plan& first = plans[0];
  if (first.shape.ranks != static_cast<int>(plans.size())) {
    return wrong(of_rank(first), fmt::format("is for {} ranks, but there are {} plans",
                                             first.shape.ranks, plans.size()));
  }
  for (std::size_t r = 0; r < plans.size(); ++r) {
    const Plan& plan = plans[r];
    Shape shape = first.shape;
    shape.rank = static_cast<int>(r);
    if (is_p2p(shape.collective)) {
      if (!is_p2p(plan.shape.collective) || plan.shape.ranks != shape.ranks) {
        return wrong(of_rank(plan), "is no partner for a send or recv");
      }
      shape = plan.shape;
      shape.rank = static_cast<int>(r);
    } else if (plan.input_blocks != first.input_blocks ||
               plan.output_blocks != first.output_blocks) {
      return wrong(of_rank(plan), "cuts the message in other blocks than rank 0");
    }
    if (plan.shape != shape) {
      return wrong(of_rank(plan), "is for another shape than rank 0's, or another rank");
    }
    if (plan.slots != first.slots || plan.scratch_blocks != first.scratch_blocks ||
        plan.load_store != first.load_store || plan.maps_input != first.maps_input ||
        plan.maps_output != first.maps_output || plan.single_chunk != first.single_chunk) {
      return wrong(of_rank(plan), "differs from rank 0's in its scratch or in what it needs");
    }
  }
  return {};
}

/// Checks that the sends and recvs of each lane pair up, and that each flag that a step waits for
/// is notified.
Status check_partners(std::span<const Plan> plans) {
  using Key = std::tuple<int, int, std::size_t>;  // from, to, lane
  std::map<Key, std::pair<int, int>> messages;    // sends, recvs
  std::vector<std::array<bool, public_flags>> notified(plans.size());
  const auto each_step = [&](auto&& visit) {
    for (const Plan& plan : plans) {
      for (const Step& s : plan.prologue) visit(plan, Section::prologue, std::size_t{0}, s);
      for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
        for (const Step& s : plan.lanes[lane]) visit(plan, Section::lane, lane, s);
      }
      for (const Step& s : plan.epilogue) visit(plan, Section::epilogue, std::size_t{0}, s);
    }
  };
  Status status;
  each_step([&](const Plan& plan, Section, std::size_t lane, const Step& step) {
    const int rank = plan.shape.rank;
    if (step.kind == StepKind::send) ++messages[{rank, step.peer, lane}].first;
    if (step.kind == StepKind::recv) ++messages[{step.peer, rank, lane}].second;
    if (step.kind == StepKind::notify) notified[rank][step.flag] = true;
  });
  for (const auto& [key, count] : messages) {
    if (count.first == count.second) continue;
    return wrong(fmt::format("'{}', lane {}:", plans[0].algorithm, std::get<2>(key)),
                 fmt::format("rank {} sends {} messages per chunk to rank {}, which receives {}",
                             std::get<0>(key), count.first, std::get<1>(key), count.second));
  }
  each_step([&](const Plan& plan, Section section, std::size_t lane, const Step& step) {
    if (step.kind != StepKind::wait || !status.ok()) return;
    for (int r = 0; r < static_cast<int>(plans.size()); ++r) {
      if (r == plan.shape.rank || (step.peer != own && step.peer != r)) continue;
      if (notified[r][step.flag]) continue;
      const char* names[] = {"prologue", "lane", "epilogue"};
      status = wrong(fmt::format("{} {} {} ({})", of_rank(plan), names[static_cast<int>(section)],
                                 lane, print(step)),
                     fmt::format("waits for a flag that rank {} never notifies", r));
      return;
    }
  });
  return status;
}

}  // namespace

std::string name_of_step(const Plan& plan, Section section, std::size_t lane, std::size_t step) {
  const Steps& steps = section == Section::prologue ? plan.prologue
                       : section == Section::lane   ? plan.lanes[lane]
                                                    : plan.epilogue;
  const std::string where = section == Section::prologue ? "prologue"
                            : section == Section::lane   ? fmt::format("lane {}", lane)
                                                         : "epilogue";
  return fmt::format("{} {}, step {} ({})", of_rank(plan), where, step, print(steps[step]));
}

Status check_form(std::span<const Plan> plans) {
  if (plans.empty()) return invalid_argument("there are no plans to verify");
  HOCKET_RETURN_IF_ERROR(check_alike(plans));
  for (const Plan& plan : plans) HOCKET_RETURN_IF_ERROR(PlanForm(plan).check());
  return check_partners(plans);
}

}  // namespace hocket::internal::verify_detail
