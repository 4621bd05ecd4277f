// What the builders have in common by which one rank of each node, its plan leader ("leader"
// below), exchanges messages with the leaders of the other nodes (leaders.cc, leaders_rooted.cc).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

/// The leader of a node is its local rank 0, but the root leads its own node.
class Leaders {
 public:
  static constexpr int result = 0;  // the flag of a leader: it has received what its peers read

 protected:
  Leaders(Plan& plan, const Shape& shape, Buffer extents)
      : plan_(plan),
        shape_(shape),
        layout_(*shape.layout),
        extents_(extents),
        node_(layout_.node_of(shape.rank)),
        nodes_(layout_.nodes()),
        local_(layout_.local_rank(shape.rank)),
        locals_(narrowed<std::uint32_t>(plan.node.size())),
        r_(local_) {
    plan.single_chunk = true;
    for (std::uint32_t node = 0, next = 0; node < nodes_; ++node) {
      first_.push_back(next);
      next += narrowed<std::uint32_t>(layout_.ranks_of(node).size());
    }
  }

  /// Scratch has a place for the block of each rank, those of a node side by side.
  std::uint32_t place(std::uint32_t rank) const {
    return first_[layout_.node_of(rank)] + layout_.local_rank(rank);
  }
  Range place_of(std::uint32_t rank) const { return r_.scratch(steps::fixed(place(rank))); }
  std::uint32_t leader_of(std::uint32_t node) const {
    const auto root = static_cast<std::uint32_t>(shape_.root);
    const bool roots = shape_.root >= 0 && layout_.node_of(root) == node;
    return roots ? root : layout_.ranks_of(node)[0];
  }
  bool leads() const { return leader_of(node_) == shape_.rank; }
  Index local_leader() const { return steps::fixed(layout_.local_rank(leader_of(node_))); }
  Range of_leader(const Range& range) const { return steps::at(range, local_leader()); }
  /// The number-th of the other nodes, from 1 on: so not all leaders send to the same node at
  /// first.
  std::uint32_t node_after(std::uint32_t number) const { return (node_ + number) % nodes_; }
  std::uint32_t node_before(std::uint32_t number) const {
    return (node_ + nodes_ - number) % nodes_;
  }

  std::uint32_t add(const char* name, Steps lane_steps) {
    plan_.lanes.push_back(steps::all_blocks(name, extents_, std::move(lane_steps)));
    return narrowed<std::uint32_t>(plan_.lanes.size() - 1);
  }
  /// What the local peers of a leader await before they read its scratch.
  void add_result(Steps received) {
    const std::uint32_t lane = add("result", std::move(received));
    if (locals_ > 1) plan_.lanes[lane].publishes = result;
  }

  /// Adds the lanes that send the blocks of the ranks of node `of` to the leader of node `to`, when
  /// lane `ready` has ended. They lie in scratch from `first` on.
  void send_blocks(std::uint32_t to, std::uint32_t of, std::uint32_t first, std::uint32_t ready);
  /// The same for receiving. received: gets steps that await the lanes. collect: gets steps that do
  /// so, and copy the blocks to the output; or null.
  void receive_blocks(std::uint32_t from, std::uint32_t of, std::uint32_t first, Steps* received,
                      Steps* collect);

  Plan& plan_;
  const Shape& shape_;
  const Layout& layout_;
  const Buffer extents_;
  const std::uint32_t node_, nodes_, local_, locals_;
  const steps::Ranges r_;
  std::vector<std::uint32_t> first_;  // place of a node's first rank
};

}  // namespace hocket::internal::algorithms
