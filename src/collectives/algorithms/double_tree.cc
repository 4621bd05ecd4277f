// double-tree: two trees, each of which carries one half of the message; for messages that are too
// short for a ring and long enough to fill a link.
//
// In one binary tree a message goes down as follows: half of the ranks are leaves, which send
// nothing, and each other rank sends two messages for the one that it receives. With two trees, in
// which no rank has children in both, all ranks do the same: each passes one half of the message on
// in one tree, and is a leaf in the other tree.
//
// With v = rank - root (mod p), the root of the collective is v = 0. It is in neither tree: it
// sends to the top of each tree, or receives from it. The n = p - 1 other ranks have the positions
// 1 .. n in each tree. Let h be the largest power of two that divides a position x. Then x has the
// children x - h/2 and x + h/2; if x + h/2 is beyond n, the second child is x + h/4, or x + h/8,
// ... An odd position is a leaf. The top is the largest power of two up to n. In the first tree the
// position of v is v. In the second one it is n + 1 - v if n is even, else v + 1, and 1 for v = n.
// So each even v, which has children in the first tree, has an odd position in the second one.
//
//   first tree, block 0    second tree, block 1        all-reduce: up to the root, then down.
//          0                      0                    reduce: up. broadcast: down.
//          |                      |
//          2                      1
//         / \                    / \                   The lanes of a tree are those of tree.cc,
//        1   3                  3   2                  for one block of the message.
//
//   rank 0            rank 1            rank 2            rank 3            an all-reduce, up
//                     b0 > 2            receives b0, d0   d0 > 2            block 0
//   receives b+c+d                      folds, b+c+d > 0
//                     receives c1, d1   c1 > 1            d1 > 1            block 1
//   receives b+c+d    folds, b+c+d > 0
//   folds both blocks, and sends each down its tree
//
// Each block is cut in chunks: while a rank passes one chunk on, it receives the next one.
//
// Source: Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction
// and scan" (Parallel Computing 2009). The positions are those of NCCL's double binary trees.
#include <bit>

#include "base/checked.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/trees.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

namespace {

constexpr std::uint32_t trees = 2, most_children = 2;

/// One of the two trees; a position 0 stands for the root.
class Tree {
 public:
  Tree(const Shape& shape, std::uint32_t root, std::uint32_t number)
      : ranks_(shape.ranks), root_(root), others_(shape.ranks - 1), number_(number) {}

  TreeEdges edges_of(std::uint32_t rank) const {
    const std::uint32_t v = (rank + ranks_ - root_) % ranks_;
    TreeEdges edges;
    if (v == 0) {
      add_child(edges, std::bit_floor(others_));
      return edges;
    }
    const std::uint32_t position = position_of(v);
    const std::uint32_t height = position & (~position + 1);  // as the number 2^zeros
    std::uint32_t parent = (position ^ height) | (height << 1);
    if (parent > others_) parent = position ^ height;
    edges.parent = parent == 0 ? root_ : rank_of(parent);
    if (height > 1) add_child(edges, position - height / 2);
    std::uint32_t distance = height / 2;
    while (distance > 0 && position + distance > others_) distance /= 2;
    if (distance > 0) add_child(edges, position + distance);
    return edges;
  }

 private:
  void add_child(TreeEdges& edges, std::uint32_t position) const {
    edges.children.push_back({.rank = rank_of(position), .is_leaf = position % 2 == 1});
  }
  std::uint32_t position_of(std::uint32_t v) const {
    if (number_ == 0) return v;
    return others_ % 2 == 0 ? others_ + 1 - v : v % others_ + 1;
  }
  std::uint32_t rank_of(std::uint32_t position) const {
    std::uint32_t v = position;
    if (number_ == 1 && others_ % 2 == 0) v = others_ + 1 - position;
    if (number_ == 1 && others_ % 2 == 1) v = (position + others_ - 2) % others_ + 1;
    return narrowed<std::uint32_t>((std::uint64_t{v} + root_) % ranks_);
  }

  std::uint32_t ranks_, root_;
  std::uint32_t others_;  // ranks that are not the root
  std::uint32_t number_;
};

TreePart half(std::uint32_t tree) {
  return {.block = steps::fixed(tree),
          .first_scratch = tree * (most_children + 1),
          .most_children = most_children,
          .up_tag = 2 * tree,
          .down_tag = 2 * tree + 1};
}

/// Calls visit(edges, part) for each of the two trees.
void for_each_tree(Plan& plan, const Shape& shape, std::uint32_t root, auto&& visit) {
  plan.cut = trees;
  for (std::uint32_t tree = 0; tree < trees; ++tree) {
    visit(Tree(shape, root, tree).edges_of(shape.rank), half(tree));
  }
}

}  // namespace

void double_tree_all_reduce(Plan& plan, const Shape& shape) {
  plan.scratch_blocks = trees * half(0).scratch_blocks();
  for_each_tree(plan, shape, 0, [&](const TreeEdges& edges, const TreePart& part) {
    lay_result_down(plan, edges, part, lay_up(plan, edges, part));
  });
}

void double_tree_reduce(Plan& plan, const Shape& shape) {
  plan.scratch_blocks = trees * half(0).scratch_blocks();
  for_each_tree(plan, shape, narrowed<std::uint32_t>(shape.root),
                [&](const TreeEdges& edges, const TreePart& part) { lay_up(plan, edges, part); });
}

void double_tree_broadcast(Plan& plan, const Shape& shape) {
  for_each_tree(plan, shape, narrowed<std::uint32_t>(shape.root),
                [&](const TreeEdges& edges, const TreePart& part) { lay_down(plan, edges, part); });
}

}  // namespace hocket::internal::algorithms
