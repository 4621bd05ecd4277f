#include "collectives/verify/verify_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "collectives/verify/verify_form.h"

namespace hocket::internal::verify_detail {

namespace {

using Node = std::size_t;

/// The components of a graph: nodes that reach one another have the same number.
class Components {
 public:
  explicit Components(const std::vector<std::vector<Node>>& edges)
      : edges_(edges), low_(edges.size(), 0), component_(edges.size(), none) {
    for (Node node = 0; node < edges.size(); ++node) {
      if (low_[node] == 0) visit(node);
    }
  }
  std::size_t of(Node node) const { return component_[node]; }

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  struct Frame {
    Node node;
    std::size_t number;  // in the order of the visits, from 1
    std::size_t next;    // edge
  };

  /// Tarjan, "Depth-first search and linear graph algorithms" (1972), with a stack of its own.
  void visit(Node start) {
    std::vector<Frame> frames;
    enter(start, frames);
    while (!frames.empty()) {
      Frame& frame = frames.back();
      const Node node = frame.node;
      if (frame.next < edges_[node].size()) {
        const Node to = edges_[node][frame.next++];
        if (low_[to] == 0) {
          enter(to, frames);
        } else if (component_[to] == none) {
          low_[node] = std::min(low_[node], low_[to]);
        }
        continue;
      }
      if (low_[node] == frame.number) close(node);
      frames.pop_back();
      if (!frames.empty()) {
        std::size_t& low = low_[frames.back().node];
        low = std::min(low, low_[node]);
      }
    }
  }

  void enter(Node node, std::vector<Frame>& frames) {
    low_[node] = ++visited_;
    open_.push_back(node);
    frames.push_back({node, visited_, 0});
  }

  /// The nodes that were opened since `first`, and it, are a component.
  void close(Node first) {
    for (Node node = none; node != first;) {
      node = open_.back();
      open_.pop_back();
      component_[node] = components_;
    }
    ++components_;
  }

  const std::vector<std::vector<Node>>& edges_;
  std::vector<std::size_t> low_;        // the least number that a node reaches; 0: not visited
  std::vector<std::size_t> component_;  // none: open
  std::vector<Node> open_;
  std::size_t visited_ = 0, components_ = 0;
};

class Waits {
 public:
  Waits(std::span<const Plan> plans, const Messages& messages) : plans_(plans) {
    Node next = 0;
    for (const Plan& plan : plans) {
      std::vector<Node>& firsts = first_.emplace_back();
      for (const Lane& lane : plan.lanes) {
        firsts.push_back(next);
        next += lane.instances * lane.steps.size();
      }
    }
    edges_.resize(next);
    ends_.assign(messages.size(), none);
    for (const Plan& plan : plans) add(plan, messages);
  }

  Status check() const {
    const Components components(edges_);
    for (const Whole& whole : whole_) {
      if (components.of(whole.from) == components.of(whole.to)) return describe(whole);
    }
    return {};
  }

 private:
  static constexpr Node none = ~Node{0};
  struct Whole {
    Node from, to;
    std::uint32_t rank, lane, instance, step;
  };

  Node node(std::uint32_t rank, std::size_t lane, std::size_t instance, std::size_t step) const {
    return first_[rank][lane] + instance * plans_[rank].lanes[lane].steps.size() + step;
  }
  Node last(std::uint32_t rank, std::size_t lane, std::size_t instance) const {
    return node(rank, lane, instance + 1, 0) - 1;
  }

  void add(const Plan& plan, const Messages& messages) {
    const std::uint32_t rank = plan.shape.rank;
    for (std::uint32_t l = 0; l < plan.lanes.size(); ++l) {
      const Lane& lane = plan.lanes[l];
      for (std::uint32_t i = 0; i < lane.instances; ++i) {
        for (std::uint32_t s = 0; s < lane.steps.size(); ++s) {
          const Node here = node(rank, l, i, s);
          if (s > 0) {
            edges_[here].push_back(here - 1);
          } else if (lane.counts != Counts::once) {
            edges_[here].push_back(last(rank, l, i));
          }
          if (s == 0 && i >= lane.window) {
            add_whole({here, last(rank, l, i - lane.window), rank, l, i, s});
          }
          if (is_message(lane.steps[s])) {
            connect(here, ends_[messages.of(rank, l, i, s)]);
          } else {
            add_waits(plan, l, i, s);
          }
        }
      }
    }
  }

  void add_whole(const Whole& whole) {
    edges_[whole.from].push_back(whole.to);
    whole_.push_back(whole);
  }

  void connect(Node here, Node& partner) {
    if (partner == none) {
      partner = here;
      return;
    }
    edges_[here].push_back(partner);
    edges_[partner].push_back(here);
  }

  void add_waits(const Plan& plan, std::uint32_t l, std::uint32_t i, std::uint32_t s) {
    const Lane& lane = plan.lanes[l];
    const Step& step = lane.steps[s];
    const std::uint32_t rank = plan.shape.rank;
    const Node here = node(rank, l, i, s);
    const bool waits = step.kind == StepKind::wait || step.kind == StepKind::await_arrival;
    const bool is_over = step.lag > 0 && lane.counts == Counts::once;  // there is no such chunk
    if (step.kind == StepKind::await && (step.end || !is_over)) {
      for (std::uint32_t j = 0; j < step.repeat; ++j) {
        const std::int64_t instance = step.instance.at(i, j);
        if (instance < 0 || instance >= plan.lanes[step.lane].instances) continue;
        const Node there = last(rank, step.lane, static_cast<std::size_t>(instance));
        if (step.end) {
          add_whole({here, there, rank, l, i, s});
        } else {
          edges_[here].push_back(there);
        }
      }
    } else if (waits && !is_over) {
      const std::int64_t one = step.all ? -1 : step.peer.at(i);
      for (std::size_t local = 0; local < plan.node.size(); ++local) {
        const std::uint32_t peer = plan.node[local];
        if (peer == rank || (one >= 0 && local != static_cast<std::size_t>(one))) continue;
        const Node there = awaited(plans_[peer], step);
        if (there != none) edges_[here].push_back(there);
      }
    }
  }

  /// What ends a wait or an await_arrival for that peer; none: it arrives before all lanes.
  Node awaited(const Plan& peer, const Step& step) const {
    const bool arrival = step.kind == StepKind::await_arrival;
    for (std::size_t l = 0; l < peer.lanes.size(); ++l) {
      const Lane& lane = peer.lanes[l];
      if (!arrival && lane.publishes == step.flag) return last(peer.shape.rank, l, 0);
      const auto found = std::ranges::find(lane.steps, StepKind::arrive, &Step::kind);
      if (arrival && found != lane.steps.end()) {
        return node(peer.shape.rank, l, 0, found - lane.steps.begin());
      }
    }
    return none;
  }

  Status describe(const Whole& whole) const {
    const Plan& plan = plans_[whole.rank];
    const Lane& lane = plan.lanes[whole.lane];
    if (whole.step == 0 && whole.instance >= lane.window &&
        whole.to == last(whole.rank, whole.lane, whole.instance - lane.window)) {
      return wrong("deadlock with many chunks:",
                   fmt::format("{} begins only when instance {} has ended, which waits for it",
                               name_of_lane(plan, whole.lane, whole.instance),
                               whole.instance - lane.window));
    }
    return wrong("deadlock with many chunks:",
                 name_of_step(plan, whole.lane, whole.instance, whole.step) +
                     " awaits the end of a lane that waits for this one");
  }

  std::span<const Plan> plans_;
  std::vector<std::vector<Node>> first_;  // node of each lane, by rank
  std::vector<std::vector<Node>> edges_;
  std::vector<Whole> whole_;
  std::vector<Node> ends_;  // by message: its end that was added first
};

}  // namespace

Status check_progress(std::span<const Plan> plans, const Messages& messages) {
  return Waits(plans, messages).check();
}

}  // namespace hocket::internal::verify_detail
