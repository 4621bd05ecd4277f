// tree: ceil(log2 p) steps; for small messages between nodes.
//
// The binomial tree. With v = rank - root (mod p), rank v's children are v + 1, v + 2, v + 4, ...
// as far as the power of two is below v's lowest set bit (the root: all of them); the subtree of
// child v + 2^i is the ranks v + 2^i .. v + 2^(i+1) - 1. Each distance has a lane of its own, at
// both ends; an all-reduce has one for the way up and one for the way down.
//
//        0          broadcast: down. A rank receives into its output and sends from there; chunk
//       / \         by chunk, so a long message is a pipeline. The larger subtree comes first.
//      1   2
//          |        all-reduce: up, then down. A rank folds its input and its children's partials,
//          3        in this order (v; v+1; v+2..v+3; ...), in one go.
//
//   rank 0            rank 1            rank 2            rank 3            an all-reduce's lane
//   receives b        b > 0             receives d        d > 2             0, up
//   receives c+d                        folds, c+d > 0                      1, up
//   folds to r                                                              2, the root's
//   r > 2                               receives r                          3, down
//   r > 1             receives r        r > 3             receives r        4, down
//
// Partials of fp16, bf16 and fp8 travel as fp32, what a leaf sends is its plain input; the root
// rounds once. The order is by rank but grouped by subtree: other bits than the plans that fold in
// rank order where p > 3. In place: the result overwrites the input; an inner rank's input has been
// folded long before the result exists, a leaf's may still be on its way out, so it awaits `sent`.
//
// barrier: dissemination (Hensgen, Finkel, Manber 1988): in round i tell rank + 2^i, hear from
// rank - 2^i; half the steps of up and down. Round i's edges form rings; they are coloured as in
// ring.cc, so that telling does not wait for hearing.
#include <bit>
#include <numeric>

#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr int tree_slots = 2;

/// A rank's place in the binomial tree.
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

  int rank_of(int place) const { return (place + root) % ranks; }
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
  // The lane with the largest subtree is the first: it has the longest way to go.
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
  const int folded = levels, sent = levels + 1, have = levels + 2;  // below: child i's partial
  plan.private_flags = levels + 3;
  plan.scratch_blocks = levels + 1;  // child i's partial, and the own one
  plan.lanes.resize(2 * levels + 1);
  const auto up = [&](int i) -> Steps& { return plan.lanes[i]; };  // levels: the root's fold
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

/// Colour of the edge that leaves `from` where every rank r has an edge to r + distance.
int colour(int from, int distance, int ranks) {
  const int rings = std::gcd(distance, ranks);
  const int length = ranks / rings;
  int place = 0;
  for (int r = from % rings; r != from; r = (r + distance) % ranks) ++place;
  return length % 2 == 1 && place == length - 1 ? 2 : place % 2;
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
    Steps& tell = plan.lanes[3 * round + colour(shape.rank, distance, shape.ranks)];
    for (int earlier = 0; earlier < round; ++earlier) tell.push_back(await(earlier));
    tell.push_back(send_empty(to));
    Steps& hear = plan.lanes[3 * round + colour(from, distance, shape.ranks)];
    hear = {recv_empty(from), signal(round)};
  }
}

}  // namespace hocket::internal::algorithms
