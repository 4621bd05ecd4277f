// k-nomial: a tree in which a rank has up to k - 1 = 3 children for each digit; for small messages
// between many nodes.
//
// With v = rank - root (mod p), written in digits of radix 4, the parent of v is v with its last
// digit that is not 0 set to 0. The longest way has ceil(log4 p) messages, one after another,
// instead of ceil(log2 p) as in the tree of radix 2 (tree.cc). In exchange a rank sends up to three
// messages for each digit, which are under way at the same time. So this tree is better where the
// latency of a message is much larger than its overhead.
//
//        0          broadcast: down. A rank receives into its output and sends from there, chunk by
//      / | \        chunk; the larger subtree comes first.
//     1  2  3
//                   reduce: up. A rank folds its input and its children's partial results, in that
//                   order, in one step. The root is shape.root.
//
//   rank 0            rank 1            rank 2            rank 3            a reduce with root 0
//   receives b        b > 0                                                 receive up / send up
//   receives c                          c > 0                               receive up / send up
//   receives d                                            d > 0             receive up / send up
//   folds a+b+c+d                                                           fold
//
// gather and scatter: the subtree of the child v + d is v + d, v + d + 1, ..., so its blocks follow
// one another, and are sent in one message. In the scratch of v, place d is for the block of v + d.
// A gather goes up: each rank receives the blocks of its children's subtrees into scratch, behind
// its own block, and sends all of them to its parent. A scatter goes down: each rank sends to each
// child the blocks of that child's subtree. A leaf sends from its input, or receives into its
// output. In `pairs` the root receives, or sends, the same bytes in p - 1 messages. A gather of 6
// ranks (rank 3, which is not drawn, does what ranks 1 and 2 do):
//
//   rank 0            rank 1            rank 2            rank 4            rank 5
//                                                         receives f        f > 4
//   receives b, c, d  b > 0             c > 0             e f > 0
//   receives e f                                                            copies b, c, ...
//
// A slot of scratch is used again when the copies and the messages from it have ended.
//
// Source: the k-nomial trees of MPICH and Open MPI. Chan, Heimlich, Purkayastha and van de Geijn,
// "Collective communication: theory, practice, and experience" (CCPE 2007) describe the tree of
// radix 2.
#include "base/checked.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/trees.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr std::uint32_t radix = 4;

TreeEdges edges_of(const Shape& shape) {
  return nomial_edges(shape, narrowed<std::uint32_t>(shape.root), radix);
}
TreePart whole_message(const Shape& shape) {
  return {.block = fixed(0), .most_children = most_nomial_children(shape, radix)};
}

constexpr int subtree_slots = 2;
constexpr Index only = {.base = 0}, tag = {.base = 0};

/// A rank's part of a gather or a scatter.
class Subtree {
 public:
  Subtree(const Shape& shape, Plan& plan)
      : plan_(plan),
        r_(shape.rank),
        rank_(shape.rank),
        ranks_(shape.ranks),
        edges_(edges_of(shape)) {
    plan_.slots = subtree_slots;
    plan_.scratch_blocks = ranks_;
    for (const TreeEdges::Child& child : edges_.children) size_ += child.size;
  }

  void gather() {
    if (edges_.is_leaf()) {
      plan_.lanes = {one_block("send", Buffer::input, only,
                               {steps::send(parent(), tag, only, r_.input(only))})};
      return;
    }
    const auto children = narrowed<std::uint32_t>(edges_.children.size());
    for (std::uint32_t c = 0; c < children; ++c) {
      const TreeEdges::Child& child = edges_.children[c];
      // The root copies what each child sends, another rank sends all together.
      const std::uint32_t reader = edges_.is_root() ? children + c : children + 1;
      add("receive", Buffer::output,
          {await(reader, only, subtree_slots),
           for_blocks(recv(fixed(child.rank), tag, blocks_at(child.distance), run(child.distance)),
                      child.size)});
    }
    const Index own = fixed(rank_);
    if (edges_.is_root()) {
      for (std::uint32_t c = 0; c < children; ++c) {
        const TreeEdges::Child& child = edges_.children[c];
        const Index blocks = blocks_at(child.distance);
        add("copy", Buffer::output,
            {await(c, only),
             for_blocks(copy(blocks, run(child.distance), {r_.output(blocks)}), child.size)});
      }
      add("own", Buffer::output, {copy(own, r_.input(only), {r_.output(own)})});
      return;
    }
    add("own", Buffer::output,
        {await(children + 1, only, subtree_slots), copy(own, r_.input(only), {run(0)})});
    Steps steps;
    for (std::uint32_t lane = 0; lane <= children; ++lane) steps.push_back(await(lane, only));
    steps.push_back(for_blocks(steps::send(parent(), tag, blocks_at(0), run(0)), size_));
    add("send", Buffer::output, std::move(steps));
  }

  void scatter() {
    if (edges_.is_leaf()) {
      plan_.lanes = {
          one_block("receive", Buffer::output, only, {recv(parent(), tag, only, r_.output(only))})};
      return;
    }
    const auto children = narrowed<std::uint32_t>(edges_.children.size());
    const Index own = fixed(rank_);
    if (!edges_.is_root()) {
      Steps steps;  // the lanes that read the scratch: `own`, and the sends
      for (std::uint32_t lane = 1; lane <= children + 1; ++lane) {
        steps.push_back(await(lane, only, subtree_slots));
      }
      steps.push_back(for_blocks(recv(parent(), tag, blocks_at(0), run(0)), size_));
      add("receive", Buffer::input, std::move(steps));
      add("own", Buffer::input, {await(0, only), copy(own, run(0), {r_.output(only)})});
    }
    for (std::uint32_t c = children; c-- > 0;) {
      const TreeEdges::Child& child = edges_.children[c];
      const Index blocks = blocks_at(child.distance);
      Steps steps;
      if (edges_.is_root()) {
        steps.push_back(
            for_blocks(copy(blocks, r_.input(blocks), {run(child.distance)}), child.size));
      } else {
        steps.push_back(await(0, only));
      }
      steps.push_back(
          for_blocks(steps::send(fixed(child.rank), tag, blocks, run(child.distance)), child.size));
      add("send", Buffer::input, std::move(steps));
    }
    if (edges_.is_root()) {
      add("own", Buffer::input, {copy(own, r_.input(own), {r_.output(only)})});
    }
  }

 private:
  Index parent() const { return fixed(edges_.parent); }
  Index blocks_at(std::uint32_t distance) const {
    return by_source(std::int64_t{rank_} + distance, 1, ranks_);
  }
  Range run(std::uint32_t first) const { return r_.scratch(by_source(first)); }
  void add(const char* name, Buffer extents, Steps steps) {
    plan_.lanes.push_back(all_blocks(name, extents, std::move(steps)));
  }

  Plan& plan_;
  const Ranges r_;
  const std::uint32_t rank_, ranks_;
  const TreeEdges edges_;
  std::uint32_t size_ = 1;  // of the subtree
};

}  // namespace

void k_nomial_gather(Plan& plan, const Shape& shape) { Subtree(shape, plan).gather(); }

void k_nomial_scatter(Plan& plan, const Shape& shape) { Subtree(shape, plan).scatter(); }

void k_nomial_reduce(Plan& plan, const Shape& shape) {
  const TreePart part = whole_message(shape);
  plan.scratch_blocks = part.scratch_blocks();
  lay_up(plan, edges_of(shape), part);
}

void k_nomial_broadcast(Plan& plan, const Shape& shape) {
  lay_down(plan, edges_of(shape), whole_message(shape));
}

}  // namespace hocket::internal::algorithms
