// The lanes of a tree over which a block of the message goes up to the root or down from it. The
// algorithms that use trees (tree.cc, k_nomial.cc, double_tree.cc) differ in the parent of each
// rank.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan/plan.h"

namespace hocket::internal::algorithms {

/// The edges of one rank in a tree: to its parent, and to its children.
struct TreeEdges {
  static constexpr std::uint32_t none = 0xffffffff;
  struct Child {
    std::uint32_t rank;
    bool is_leaf;
    std::uint32_t distance = 0, size = 1;  // nomial_edges: of its v from this rank's; its subtree
  };
  std::uint32_t parent = none;  // none: this rank is the root
  std::vector<Child> children;  // in the order of the fold; the last one has the largest subtree

  bool is_root() const { return parent == none; }
  bool is_leaf() const { return children.empty(); }
};

/// The block that the lanes of one tree carry, and the scratch that they use.
struct TreePart {
  Index block;                      // of the message
  std::uint32_t first_scratch = 0;  // the tree uses most_children + 1 blocks from there
  std::uint32_t most_children = 0;  // of any rank
  std::uint32_t up_tag = 0, down_tag = 1;

  std::uint32_t scratch_blocks() const { return most_children + 1; }
};

inline constexpr int tree_slots = 2;

/// The edges of shape.rank in the tree of radix `radix` that begins at `root`. With v = rank - root
/// (mod p), written in digits of that radix, the parent of v is v with its last digit that is not 0
/// set to 0.
TreeEdges nomial_edges(const Shape& shape, std::uint32_t root, std::uint32_t radix);
/// The greatest number of children of a rank in that tree.
std::uint32_t most_nomial_children(const Shape& shape, std::uint32_t radix);

/// Adds lanes that fold the inputs of all ranks on the way to the root, whose output gets the
/// result: a lane for the partial result of each child, then `fold` (not in a leaf), then `send up`
/// (not in the root). Returns the index of the last lane.
std::uint32_t lay_up(Plan& plan, const TreeEdges& edges, const TreePart& part);
/// Adds lanes that carry the root's output to the outputs of all ranks. last_up: the result of
/// lay_up.
void lay_result_down(Plan& plan, const TreeEdges& edges, const TreePart& part,
                     std::uint32_t last_up);
/// Adds lanes that carry the root's input to the outputs of all ranks.
void lay_down(Plan& plan, const TreeEdges& edges, const TreePart& part);

}  // namespace hocket::internal::algorithms
