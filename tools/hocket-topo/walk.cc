#include "walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace hocket::topo {

using namespace internal;

namespace {

constexpr std::uint32_t never = 0xffffffff;

/// An instance of a lane that has started.
struct Thread {
  const Plan* plan;
  const Lane* lane;
  std::uint32_t lane_number, instance;
  std::uint32_t time;      // at which its next step may run
  std::uint32_t next = 0;  // step
};

/// "2", "2 3 0": the blocks of a data step; "2 blocks" where it passes on blocks of other ranks.
std::string label_of(const Thread& thread, const Step& step) {
  const std::vector<Range>& ranges = step.srcs.empty() ? step.dsts : step.srcs;
  if (ranges.empty()) return {};
  const bool passes_on = thread.plan->shape.collective == Collective::all_to_all &&
                         thread.lane->counts == Counts::all_blocks;
  std::string text;
  if (passes_on) {
    text = fmt::format("{} block{}", step.repeat, step.repeat == 1 ? "" : "s");
  } else {
    for (std::uint32_t j = 0; j < step.repeat; ++j) {
      text += fmt::format("{}{}", j > 0 ? " " : "", step.block.at(thread.instance, j));
    }
  }
  return ranges[0].wide ? text + " wide" : text;
}

class Walker {
 public:
  Walker(std::span<const Plan> plans, Walk* out) : plans_(plans), out_(out) {
    arrived_.resize(plans.size(), never);
    for (const Plan& plan : plans) {
      std::vector<std::vector<std::uint32_t>>& lanes = ended_.emplace_back();
      for (const Lane& lane : plan.lanes) lanes.emplace_back(lane.instances, never);
      if (plan.arrives_first) arrived_[plan.shape.rank] = 0;
      for (std::uint32_t l = 0; l < plan.lanes.size(); ++l) {
        const std::uint32_t first = std::min(plan.lanes[l].window, plan.lanes[l].instances);
        for (std::uint32_t i = 0; i < first; ++i) {
          threads_.push_back({&plan, &plan.lanes[l], l, i, plan.arrives_first ? 1U : 0U});
        }
      }
    }
  }

  Status run() {
    for (bool moved = true; moved;) {
      moved = false;
      // A thread that ends may add one, so threads are named by their index.
      for (std::size_t t = 0; t < threads_.size(); ++t) moved = advance(t) || moved;
    }
    for (const Thread& thread : threads_) {
      if (thread.next == thread.lane->steps.size()) continue;
      return internal_error(fmt::format("rank {} waits for ever at: {}", thread.plan->shape.rank,
                                        print(*thread.plan, thread.lane->steps[thread.next])));
    }
    std::ranges::stable_sort(out_->arrows, {}, [](const Arrow& arrow) {
      return std::tuple(arrow.time, arrow.from, arrow.to);
    });
    return {};
  }

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::int64_t>;  // from, to, tag

  bool advance(std::size_t index) {
    bool moved = false;
    while (threads_[index].next < threads_[index].lane->steps.size()) {
      Thread& thread = threads_[index];
      const Step& next = thread.lane->steps[thread.next];
      if (next.when != When::large && !step(thread, next)) return moved;
      moved = true;
      if (++thread.next == thread.lane->steps.size()) end(Thread(thread));
    }
    return moved;
  }

  void end(const Thread& thread) {
    ended_[thread.plan->shape.rank][thread.lane_number][thread.instance] = thread.time;
    out_->end = std::max(out_->end, thread.time);
    const std::uint32_t following = thread.instance + thread.lane->window;
    if (following < thread.lane->instances) {
      threads_.push_back({thread.plan, thread.lane, thread.lane_number, following, thread.time});
    }
  }

  /// False: the step must wait for another thread.
  bool step(Thread& thread, const Step& step) {
    const std::uint32_t rank = thread.plan->shape.rank;
    switch (step.kind) {
      case StepKind::fold:
        add_accesses(thread, step);
        return true;
      case StepKind::send: {
        const auto to = static_cast<std::uint32_t>(step.peer.at(thread.instance));
        sent_[{rank, to, step.tag.at(thread.instance)}] = thread.time;
        out_->arrows.push_back({rank, to, thread.time, true, label_of(thread, step)});
        return true;
      }
      case StepKind::recv: {
        const auto from = static_cast<std::uint32_t>(step.peer.at(thread.instance));
        const auto found = sent_.find({from, rank, step.tag.at(thread.instance)});
        if (found == sent_.end()) return false;
        thread.time = std::max(thread.time, found->second + 1);
        return true;
      }
      case StepKind::arrive:
        arrived_[rank] = thread.time;
        return true;
      case StepKind::await_arrival:
        return see(thread, step, [&](std::uint32_t peer) { return arrived_[peer]; });
      case StepKind::wait:
        return step.lag > 0 ||
               see(thread, step, [&](std::uint32_t peer) { return published(peer, step.flag); });
      case StepKind::await:
        return await(thread, step);
      case StepKind::await_board:  // no step of a lane
        return true;
    }
    return false;
  }

  /// Until what time_of says of the local peers of the step is one message time ago.
  bool see(Thread& thread, const Step& step, auto&& time_of) const {
    const std::vector<std::uint32_t>& node = thread.plan->node;
    const std::int64_t one = step.peer.at(thread.instance);
    std::uint32_t time = thread.time;
    for (std::size_t local = 0; local < node.size(); ++local) {
      if (node[local] == thread.plan->shape.rank) continue;
      if (!step.all && static_cast<std::int64_t>(local) != one) continue;
      const std::uint32_t there = time_of(node[local]);
      if (there == never) return false;
      time = std::max(time, there + 1);
    }
    thread.time = time;
    return true;
  }

  std::uint32_t published(std::uint32_t rank, int flag) const {
    const std::vector<Lane>& lanes = plans_[rank].lanes;
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      if (lanes[l].publishes == flag) return ended_[rank][l][0];
    }
    return never;
  }

  bool await(Thread& thread, const Step& step) const {
    if (!step.end && step.lag > 0) return true;
    const std::vector<std::uint32_t>& instances = ended_[thread.plan->shape.rank][step.lane];
    std::uint32_t time = thread.time;
    for (std::uint32_t j = 0; j < step.repeat; ++j) {
      const std::int64_t instance = step.instance.at(thread.instance, j);
      if (instance < 0 || instance >= std::ssize(instances)) continue;
      const std::uint32_t there = instances[static_cast<std::size_t>(instance)];
      if (there == never) return false;
      time = std::max(time, there);
    }
    thread.time = time;
    return true;
  }

  /// The memory of peers that a step reads or writes.
  void add_accesses(const Thread& thread, const Step& step) const {
    const std::vector<std::uint32_t>& node = thread.plan->node;
    if (node.empty()) return;
    const std::uint32_t rank = thread.plan->shape.rank;
    for (const std::vector<Range>* ranges : {&step.srcs, &step.dsts}) {
      for (const Range& range : *ranges) {
        for (std::uint32_t j = 0; j < std::max(range.repeat, step.repeat); ++j) {
          const std::uint32_t peer =
              node[static_cast<std::size_t>(range.rank.at(thread.instance, j))];
          if (peer == rank) continue;
          const bool reads = ranges == &step.srcs;
          out_->arrows.push_back({reads ? peer : rank, reads ? rank : peer, thread.time, false,
                                  fmt::format("{}", step.block.at(thread.instance))});
        }
      }
    }
  }

  std::span<const Plan> plans_;
  Walk* out_;
  std::vector<Thread> threads_;
  std::map<Key, std::uint32_t> sent_;
  std::vector<std::uint32_t> arrived_;                          // by rank
  std::vector<std::vector<std::vector<std::uint32_t>>> ended_;  // by rank, lane and instance
};

}  // namespace

Status walk(std::span<const Plan> plans, Walk* out) {
  *out = {};
  return Walker(plans, out).run();
}

}  // namespace hocket::topo
