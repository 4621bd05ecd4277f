// tree: ceil(log2 p) steps; for small messages between nodes.
//
// The binomial tree. With v = rank - root (mod p), the children of v are v + 2^i < p for each 2^i
// below the lowest set bit of v (the root: for each 2^i). The subtree of child v + 2^i has the
// ranks v + 2^i .. v + 2^(i+1) - 1. Each distance 2^i has a lane of its own, at both ends; an
// all-reduce has one for the way up and one for the way down.
//
//        0          broadcast: down. A rank receives into its output and sends from there; chunk
//       / \         by chunk, so a long message is a pipeline. The larger subtree comes first.
//      1   2
//          |        all-reduce: up, then down. A rank folds its input and its children's partials,
//          3        in this order (v; v+1; v+2..v+3; ...), in one step.
//
//   rank 0            rank 1            rank 2            rank 3            an all-reduce's lane
//   receives b        b > 0             receives d        d > 2             0, up
//   receives c+d                        folds, c+d > 0                      1, up
//   folds to r                                                              2, the root's
//   r > 2                               receives r                          3, down
//   r > 1             receives r        r > 3             receives r        4, down
//
// Partial results of fp16, bf16 and fp8 are sent as fp32; a leaf sends its input as it is; the root
// rounds once. Each subtree is folded before its parent's fold, so if p > 3 the bits differ from
// those of the plans that fold in rank order. In place, the result overwrites the input. An inner
// rank has folded its input before the result exists. The send of a leaf may not have ended, so a
// leaf awaits `sent` before it receives the result.
//
// barrier: dissemination (Hensgen, Finkel, Manber 1988). In round i a rank sends to rank + 2^i and
// receives from rank - 2^i: half the steps of a way up and down the tree. The edges of round i form
// rings, which are coloured as in ring.cc, so that a send does not wait for a recv.
#include <bit>
#include <numeric>

#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr int tree_slots = 2;

/// The position of a rank in the binomial tree.
struct TreePlace {
  int ranks, root, v;
  int levels;   // of the whole tree
  int to_root;  // lane to the parent; the root: levels

  TreePlace(const Shape& shape, int root)
      : ranks(shape.ranks),
        root(root),
        v((shape.rank - root + shape.ranks) % shape.ranks),
        levels(static_cast<int>(std::bit_width(static_cast<unsigned>(shape.ranks - 1)))),
        to_root(v == 0 ? levels : std::countr_zero(static_cast<unsigned>(v))) {}

  int rank_of(int position) const { return (position + root) % ranks; }
  bool is_root() const { return v == 0; }
  int parent() const { return rank_of(v - (1 << to_root)); }
  bool has_child(int i) const { return i < to_root && v + (1 << i) < ranks; }
  int child(int i) const { return rank_of(v + (1 << i)); }
  bool child_is_leaf(int i) const { return i == 0 || v + (1 << i) + 1 >= ranks; }
  bool is_leaf() const { return !has_child(0); }
};

}  // namespace

void tree_broadcast(Plan& plan, const Shape& shape) {
  const TreePlace place(shape, shape.root);
  constexpr int have = 0;
  plan.private_flags = 1;
  plan.lanes.resize(place.levels + 1);
  // The lane of the largest subtree is the first, because the messages of that subtree take
  // longest.
  const auto lane = [&](int i) -> Steps& { return plan.lanes[place.levels - 1 - i]; };
  if (place.is_root()) {
    plan.lanes[place.levels] = {copy(0, input(0), {output(0)})};
  } else {
    lane(place.to_root) = {recv(place.parent(), 0, output(0)), signal(have)};
  }
  for (int i = 0; place.has_child(i); ++i) {
    if (place.is_root()) {
      lane(i) = {send(place.child(i), 0, input(0))};
    } else {
      lane(i) = {await(have), send(place.child(i), 0, output(0))};
    }
  }
}

void tree_all_reduce(Plan& plan, const Shape& shape) {
  const TreePlace place(shape, 0);
  plan.slots = tree_slots;
  const int levels = place.levels;
  // Flag i < levels: the partial result of child i is received.
  const int folded = levels, sent = levels + 1, have = levels + 2;
  plan.private_flags = levels + 3;
  plan.scratch_blocks = levels + 1;  // child i's partial result, and that of this rank
  plan.lanes.resize(2 * levels + 1);
  const auto up = [&](int i) -> Steps& { return plan.lanes[i]; };  // up(levels): the root's fold
  const auto down = [&](int i) -> Steps& { return plan.lanes[2 * levels - i]; };

  Steps gathered;
  std::vector<Range> parts = {input(0)};
  for (int i = 0; place.has_child(i); ++i) {
    const Range part = partial(i, shape.widened && !place.child_is_leaf(i));
    up(i) = {await(folded, 1, tree_slots), recv(place.child(i), 0, part), signal(i)};
    gathered.push_back(await(i));
    parts.push_back(part);
    down(i) = {await(place.is_root() ? folded : have), send(place.child(i), 0, output(0))};
  }
  Steps& own_lane = up(place.to_root);
  own_lane = std::move(gathered);
  if (place.is_root()) {
    own_lane.push_back(finish(0, std::move(parts), {output(0)}));
    own_lane.push_back(signal(folded));
    return;
  }
  if (place.is_leaf()) {
    own_lane = {send(place.parent(), 0, input(0)), signal(sent)};
    down(place.to_root) = {await(sent)};
  } else {
    const Range sum = partial(levels, shape.widened);
    own_lane.push_back(fold(0, std::move(parts), sum));
    own_lane.push_back(signal(folded));
    own_lane.push_back(send(place.parent(), 0, sum));
  }
  down(place.to_root).push_back(recv(place.parent(), 0, output(0)));
  down(place.to_root).push_back(signal(have));
}

namespace {

/// The colour of the edge from `from` to from + distance, if every rank r has an edge to r +
/// distance.
int colour(int from, int distance, int ranks) {
  const int rings = std::gcd(distance, ranks);
  const int length = ranks / rings;
  int position = 0;
  for (int r = from % rings; r != from; r = (r + distance) % ranks) ++position;
  return length % 2 == 1 && position == length - 1 ? 2 : position % 2;
}

}  // namespace

void tree_barrier(Plan& plan, const Shape& shape) {
  const auto levels = static_cast<int>(std::bit_width(static_cast<unsigned>(shape.ranks - 1)));
  plan.single_chunk = true;
  plan.private_flags = levels;
  plan.lanes.resize(std::size_t{3} * levels);
  for (int round = 0; round < levels; ++round) {
    const int distance = 1 << round;
    const int to = (shape.rank + distance) % shape.ranks;
    const int from = (shape.rank - distance + shape.ranks) % shape.ranks;
    Steps& sends = plan.lanes[3 * round + colour(shape.rank, distance, shape.ranks)];
    for (int earlier = 0; earlier < round; ++earlier) sends.push_back(await(earlier));
    sends.push_back(send_empty(to));
    Steps& receives = plan.lanes[3 * round + colour(from, distance, shape.ranks)];
    receives = {recv_empty(from), signal(round)};
  }
}

}  // namespace hocket::internal::algorithms
