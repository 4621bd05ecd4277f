// ring: every rank exchanges messages only with its two neighbours, in both directions at the same
// time.
//
// Reduce-scatter. Rank j owns block j. Partial results of a block are sent towards its owner from
// both sides, and each rank on the way folds its input in. The owner folds the partial result from
// the left, its own input, and the partial result from the right. `left` = p/2 ranks send to the
// right, the other p-1-left to the left, so a block makes at most p/2 hops instead of p-1, with the
// same bytes. Four ranks, block 0 (left 2, right 1):
//
//   rank 2 --2--> rank 3 --2+3--> rank 0 <--1-- rank 1         2+3, then 0, then 1: -> output
//
//   rank:             0          1          2          3
//   step 0 right      block 2    block 3    block 0    block 1     raw input, narrow
//   step 1 right      block 1    block 2    block 3    block 0     partial, wide
//   step 0 left       block 3    block 0    block 1    block 2     raw input, narrow
//
// The first hop carries an input as it is; partial results of fp16, bf16 and fp8 are sent as fp32,
// so that every element is rounded once, by its owner. The order of a fold depends on the rank of
// the owner: all ranks get the same bits, but other bits than from the plans that fold in rank
// order.
//
// All-gather. A finished block is sent from rank to rank away from its owner, in both directions.
// In an all-reduce it makes the longer way in the direction that the reduce-scatter used for the
// shorter one, so each direction carries p-1 blocks.
//
// Lanes. A message has the same lane at both ends, and a send must not wait for a recv. So the
// edges of the ring are coloured (2 colours, 3 if p is odd), and the colour of an edge is its lane.
// Each direction and phase has its own colours. One more lane has the owner's fold.
//
// Scratch, for each direction: `last` (the last partial result for the own block), `raw` (the first
// message, narrow), and two blocks for partial results that are passed on, which alternate by step.
// Flags: have (a partial result is folded, or `last` is received), sent, got (a finished block is
// received), folded (the owner's fold has ended). In place, a finished block overwrites an input
// block. That input has been folded before, because it is part of the result. But the send of a raw
// block may not have ended: the receiver of the result awaits `sent`.
//
// The ring is Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations" (JPDC 2009); sending in both directions halves the steps.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr int ring_slots = 2;
constexpr int folded = 6;
constexpr int flag_count = 7;

/// One of the two directions. sign: +1 to higher ranks, -1 to lower ranks.
struct Direction {
  int sign;
  int hops;             // of a block's partials before they reach the owner
  int gather_hops;      // of a finished block
  std::uint32_t first;  // scratch block
  int have, sent, got;  // private flags

  std::uint32_t last() const { return first; }
  std::uint32_t raw() const { return first + 1; }
  std::uint32_t passing(int step) const { return first + 2 + step % 2; }
  std::uint32_t scratch_blocks() const { return hops == 0 ? 0 : hops == 1 ? 1 : hops == 2 ? 3 : 4; }
};

class Ring {
 public:
  Ring(const Shape& shape, Plan& plan)
      : shape_(shape), plan_(plan), colours_(shape.ranks % 2 == 0 ? 2 : 3) {
    const int left = shape.ranks / 2, right = shape.ranks - 1 - left;
    const bool folds = shape.collective != Collective::all_gather;
    ways_[0] = {+1, left, folds ? right : left, 0, 0, 2, 4};
    ways_[1] = {-1, right, folds ? left : right, ways_[0].scratch_blocks(), 1, 3, 5};
  }

  void build() {
    const bool scatters = shape_.collective != Collective::all_gather;
    const bool gathers = shape_.collective != Collective::reduce_scatter;
    int base = 0;
    if (scatters) {
      plan_.scratch_blocks = ways_[0].scratch_blocks() + ways_[1].scratch_blocks();
      for (const Direction& way : ways_) {
        send_partials(way, lane(base, way.sign, shape_.rank));
        receive_partials(way, lane(base, way.sign, at(-way.sign)));
        base += colours_;
      }
    }
    if (gathers) {
      for (const Direction& way : ways_) {
        send_results(way, scatters, lane(base, way.sign, shape_.rank));
        receive_results(way, scatters, lane(base, way.sign, at(-way.sign)));
        base += colours_;
      }
    }
    finish_own(scatters, lane(base));
    plan_.private_flags = flag_count;
  }

 private:
  /// The rank (or block) at that distance from this rank.
  int at(int distance) const {
    return ((shape_.rank + distance) % shape_.ranks + shape_.ranks) % shape_.ranks;
  }

  Steps& lane(int number) {
    if (plan_.lanes.size() <= static_cast<std::size_t>(number)) plan_.lanes.resize(number + 1);
    return plan_.lanes[number];
  }
  /// The lane of the edge that leaves rank `from`.
  Steps& lane(int base, int sign, int from) {
    const int position = sign > 0 ? from : (shape_.ranks - from) % shape_.ranks;
    const bool odd_one = colours_ == 3 && position == shape_.ranks - 1;
    return lane(base + (odd_one ? 2 : position % 2));
  }

  void send_partials(const Direction& way, Steps& lane) {
    for (int step = 0; step < way.hops; ++step) {
      const int block = at(way.sign * (way.hops - step));
      if (step > 0) lane.push_back(await(way.have, step));
      lane.push_back(send(at(way.sign), block,
                          step == 0 ? input(block) : partial(way.passing(step - 1), wide())));
      lane.push_back(signal(way.sent));
    }
  }

  void receive_partials(const Direction& way, Steps& lane) {
    const int from = at(-way.sign);
    for (int step = 0; step + 1 < way.hops; ++step) {
      const int block = at(way.sign * (way.hops - 1 - step));
      const Range sum = partial(way.passing(step), wide());
      const Range incoming = step == 0 ? scratch(way.raw()) : sum;
      if (step >= 2) lane.push_back(await(way.sent, step));  // the old content is sent
      lane.push_back(recv(from, block, incoming));
      if (step == 0) lane.push_back(await(way.sent, way.hops, ring_slots));
      lane.push_back(fold(block, {incoming, input(block)}, sum));
      lane.push_back(signal(way.have));
    }
    if (way.hops == 0) return;
    lane.push_back(await(folded, 1, ring_slots));
    lane.push_back(recv(from, shape_.rank, partial(way.last(), wide() && way.hops > 1)));
    lane.push_back(signal(way.have));
  }

  /// The owner's fold; in an all-gather the copy of the own block.
  void finish_own(bool scatters, Steps& lane) {
    const int mine = shape_.rank;
    if (!scatters) {
      lane.push_back(copy(mine, input(0), {output(mine)}));
      return;
    }
    std::vector<Range> parts = {input(mine)};
    for (const Direction& way : ways_) {
      if (way.hops == 0) continue;
      lane.push_back(await(way.have, way.hops));
      const Range part = partial(way.last(), wide() && way.hops > 1);
      parts.insert(way.sign > 0 ? parts.begin() : parts.end(), part);
    }
    const bool gathers = shape_.collective == Collective::all_reduce;
    lane.push_back(finish(mine, std::move(parts), {output(gathers ? mine : 0)}));
    lane.push_back(signal(folded));
  }

  void send_results(const Direction& way, bool scatters, Steps& lane) {
    for (int step = 0; step < way.gather_hops; ++step) {
      const int block = at(-way.sign * step);
      if (step > 0) {
        lane.push_back(await(way.got, step));
      } else if (scatters) {
        lane.push_back(await(folded));
      }
      lane.push_back(send(at(way.sign), block, step == 0 && !scatters ? input(0) : output(block)));
    }
  }

  void receive_results(const Direction& way, bool scatters, Steps& lane) {
    const Direction& other = ways_[way.sign > 0 ? 1 : 0];
    for (int step = 0; step < way.gather_hops; ++step) {
      const int block = at(-way.sign * (step + 1));
      const bool last = step + 1 == way.gather_hops;
      // This rank has sent its raw input of the block that arrives last in the other direction.
      if (last && scatters) lane.push_back(await(other.sent));
      lane.push_back(recv(at(-way.sign), block, output(block)));
      if (!last) lane.push_back(signal(way.got));
    }
  }

  bool wide() const { return shape_.widened; }

  const Shape& shape_;
  Plan& plan_;
  const int colours_;
  Direction ways_[2];
};

}  // namespace

void ring(Plan& plan, const Shape& shape) {
  plan.slots = ring_slots;
  Ring(shape, plan).build();
}

}  // namespace hocket::internal::algorithms
