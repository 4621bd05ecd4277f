// What the builders for several nodes have in common: load and store within each node, messages
// between nodes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

/// A rank's place in its layout, and the lanes of its plan. The ranks arrive first. The
/// scratch of a rank holds `slots` chunks at the same time.
class Levels {
 protected:
  static constexpr int slots = 4;

  Levels(Plan& plan, const Shape& shape)
      : plan_(plan),
        shape_(shape),
        layout_(*shape.layout),
        node_(layout_.node_of(shape.rank)),
        nodes_(layout_.nodes()),
        own_(layout_.local_rank(shape.rank)),
        locals_(size_of(node_)),
        r_(own_) {
    plan.slots = slots;
    plan.arrives_first = true;
  }

  std::uint32_t size_of(std::uint32_t node) const {
    return narrowed<std::uint32_t>(layout_.ranks_of(node).size());
  }
  bool alone_on(std::uint32_t node) const { return size_of(node) == 1; }
  bool one_local_rank() const { return locals_ == 1; }
  /// The rank of a node that does the work of local rank `local`; the node may have fewer ranks.
  std::uint32_t rank_on(std::uint32_t node, std::uint32_t local) const {
    return layout_.ranks_of(node)[local % size_of(node)];
  }
  /// All other nodes, beginning with the node after `node`: so not all ranks send to the same node
  /// at first.
  std::vector<std::uint32_t> nodes_after(std::uint32_t node) const {
    std::vector<std::uint32_t> nodes;
    for (std::uint32_t i = 1; i < nodes_; ++i) nodes.push_back((node + i) % nodes_);
    return nodes;
  }

  /// Adds a lane; returns its number.
  std::uint32_t add(Lane lane) {
    plan_.lanes.push_back(std::move(lane));
    return next_lane() - 1;
  }
  std::uint32_t next_lane() const { return narrowed<std::uint32_t>(plan_.lanes.size()); }
  /// Reserves a lane that is made later; returns its number.
  std::uint32_t reserve() { return add({}); }

  Plan& plan_;
  const Shape& shape_;
  const Layout& layout_;
  const std::uint32_t node_, nodes_;
  const std::uint32_t own_, locals_;  // this rank's local rank, and the ranks of its node
  const steps::Ranges r_;
};

}  // namespace hocket::internal::algorithms
