// circulant: all-reduce, reduce-scatter and all-gather for every number of ranks in the least
// number of rounds, ceil(log2 p) for each phase, with the least number of bytes; for small and
// middle messages.
//
// The skips are s(0) = p, s(k + 1) = s(k) / 2 rounded up, down to s(q) = 1. The block r + i (mod p)
// has the distance i from rank r. The rank owns the block at distance 0.
//
// Reduce-scatter. Before round k a rank has a partial result for each block at the distances 0 ..
// s(k) - 1. In round k it sends those at the distances s(k + 1) .. s(k) - 1 to rank r + s(k + 1),
// all in one message. From that rank they have the distances 0 .. s(k) - s(k + 1) - 1, and it adds
// them to its own partial results. After round q - 1 only the own block is left, and the rank has
// sent p - 1 blocks.
//
//   skips 4, 2, 1     rank 0          rank 1          rank 2          rank 3
//   round 0, to r+2   a2 a3 > 2       b3 b0 > 3       c0 c1 > 0       d1 d2 > 1       inputs
//   round 1, to r+1   a1+c1 > 1       b2+d2 > 2       c3+a3 > 3       d0+b0 > 0       partial
//   fold              a0+c0+(d0+b0)   b1+d1+(a1+c1)   ...                             block 0
//
// All-gather. The rounds in reverse order, and each message in the other direction: a rank gets
// back the results of the blocks that it sent in that round of a reduce-scatter.
//
//   round 1, to r-1   r0 > 3          r1 > 0          r2 > 1          r3 > 2
//   round 0, to r-2   r0 r1 > 2       r1 r2 > 3       r2 r3 > 0       r3 r0 > 1
//
// Scratch of the reduce-scatter. What a round receives stays where it was received (`from` of that
// round), in the order of distances. A partial result is folded when it is sent: from the input,
// and from what the earlier rounds received at that distance. The one for distance i is folded into
// place i - 1 of a run of p - 1 places, so the blocks of a message are next to one another. If s(k
// - 1) is odd, round k - 1 has received s(k) - 1 blocks: then the last block that round k sends has
// one operand less than the others. The all-gather has a place for each distance.
//
// Lanes of the reduce-scatter: `receive` and `send` of each round, `fold` for the own block, and
// `done`, which ends when no lane needs the scratch of a chunk any more. Lanes of the all-gather:
// `receive result`, `send result` and `copy` of each round, and another `done`. Each `receive`
// posts its message when that of the round before has come: a lane has to await only the last one,
// and a rank looks at one link at a time. Over TCP each look is a system call.
//
// The first round sends inputs as they are; partial results of fp16, bf16 and fp8 are sent as fp32,
// and the owner of a block rounds once. The order of a fold depends on the rank of the owner: all
// ranks get the same bits, but other bits than from the plans that fold in rank order.
//
// In place, the results that round k of the all-gather receives overwrite the inputs that round k
// of the reduce-scatter has sent or folded: the copy awaits that send.
//
// Source: Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms" (arXiv
// 2410.14234, 2024). With the skips in reverse order its all-gather is that of Bruck et al. (1997).
#include <algorithm>

#include "base/checked.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr int circulant_slots = 2;

class Circulant {
 public:
  Circulant(const Shape& shape, Plan& plan)
      : shape_(shape),
        plan_(plan),
        r_(shape.rank),
        scatters_(shape.collective != Collective::all_gather),
        gathers_(shape.collective != Collective::reduce_scatter),
        extents_(scatters_ ? Buffer::input : Buffer::output),
        skips_({shape.ranks}) {
    while (skips_.back() > 1) skips_.push_back((skips_.back() + 1) / 2);
    rounds_ = narrowed<std::uint32_t>(skips_.size() - 1);
  }

  void build() {
    plan_.slots = circulant_slots;
    plan_.wide_scratch = scatters_ && shape_.widened && rounds_ > 1;
    if (scatters_) {
      // The blocks that are sent lie first; behind them those that each round receives.
      plan_.scratch_blocks = shape_.ranks - 1;
      for (std::uint32_t k = 0; k < rounds_; ++k) {
        from_.push_back(plan_.scratch_blocks);
        plan_.scratch_blocks += number(k);
      }
    }
    first_gathered_ = plan_.scratch_blocks;
    if (gathers_) plan_.scratch_blocks += shape_.ranks;
    own_lane_ = scatters_ ? 2 * rounds_ + 1 : 0;
    if (scatters_) lay_scatter();
    lay_own();
    if (gathers_) lay_gather();
  }

 private:
  /// The blocks of round k.
  std::uint32_t number(std::uint32_t k) const { return skips_[k] - skips_[k + 1]; }

  Index rank_at(std::int64_t distance) const {
    return by_instance(shape_.rank + distance, 0, shape_.ranks);
  }
  /// The blocks from that distance on.
  Index blocks_at(std::uint32_t distance) const {
    return by_source(std::int64_t{shape_.rank} + distance, 1, shape_.ranks);
  }
  /// Consecutive blocks of scratch.
  Range run(std::uint32_t first, bool wide = false) const {
    return r_.scratch(by_source(first), wide);
  }
  /// What came in round k, from block i on. Inputs are sent in round 0, then partial results.
  Range from(std::uint32_t k, std::uint32_t i) const {
    return run(from_[k] + i, shape_.widened && k > 0);
  }
  Range gathered(std::uint32_t i) const { return run(first_gathered_ + i); }

  void add(const char* name, Steps steps) {
    plan_.lanes.push_back(all_blocks(name, extents_, std::move(steps)));
  }

  // ------------------------------------------------------------------------------------------
  // the reduce-scatter
  std::uint32_t receive_lane(std::uint32_t k) const { return 2 * k; }
  std::uint32_t send_lane(std::uint32_t k) const { return 2 * k + 1; }
  std::uint32_t done_lane() const { return 2 * rounds_; }

  void lay_scatter() {
    Steps done;
    for (std::uint32_t k = 0; k < rounds_; ++k) {
      const std::uint32_t skip = skips_[k + 1];
      Steps receive = {await(done_lane(), fixed(0), circulant_slots)};
      if (k > 0) receive.push_back(await(receive_lane(k - 1), fixed(0)));
      receive.push_back(for_blocks(
          recv(rank_at(-std::int64_t{skip}), fixed(k), blocks_at(0), from(k, 0)), number(k)));
      add("receive", std::move(receive));
      lay_send(k);
      done.push_back(await(send_lane(k), fixed(0)));
    }
    done.push_back(await(own_lane_, fixed(0)));
    add("done", std::move(done));
  }

  void lay_send(std::uint32_t k) {
    const std::uint32_t first = skips_[k + 1], end = skips_[k];
    // The blocks below `full` came in all earlier rounds, and at most one more in all but the last.
    const std::uint32_t full = k == 0 ? end : std::min(end, number(k - 1));
    const bool wide = shape_.widened && k > 0;
    Steps steps;
    if (k > 0) steps.push_back(await(receive_lane(k - 1), fixed(0)));
    if (full > first) {
      steps.push_back(
          for_blocks(fold(blocks_at(first), parts(first, k), run(first - 1, wide)), full - first));
    }
    if (full < end) {
      steps.push_back(fold(blocks_at(full), parts(full, k - 1), run(full - 1, wide)));
    }
    steps.push_back(for_blocks(
        send(rank_at(first), fixed(k), blocks_at(first), run(first - 1, wide)), end - first));
    add("send", std::move(steps));
  }

  /// The operands of the partial result of block i on: the input, and what came in `rounds` rounds.
  std::vector<Range> parts(std::uint32_t i, std::uint32_t rounds) const {
    std::vector<Range> all = {r_.input(blocks_at(i))};
    for (std::uint32_t k = 0; k < rounds; ++k) all.push_back(from(k, i));
    return all;
  }

  // ------------------------------------------------------------------------------------------
  // the own block
  void lay_own() {
    const Index own = fixed(shape_.rank);
    const Range output = r_.output(gathers_ ? own : fixed(0));
    Steps steps;
    if (scatters_) steps.push_back(await(receive_lane(rounds_ - 1), fixed(0)));
    if (gathers_) steps.push_back(await(gathered_lane(), fixed(0), circulant_slots));
    if (scatters_) {
      std::vector<Range> results = {output};
      if (gathers_) results.push_back(gathered(0));
      steps.push_back(finish(own, parts(0, rounds_), std::move(results)));
    } else {
      steps.push_back(copy(own, r_.input(fixed(0)), {gathered(0)}));
      steps.push_back(copy(own, r_.input(fixed(0)), {output}));
    }
    add(scatters_ ? "fold" : "own", std::move(steps));
  }

  // ------------------------------------------------------------------------------------------
  // the all-gather: its first round is round q - 1
  std::uint32_t receive_result_lane(std::uint32_t k) const {
    return own_lane_ + 1 + 3 * (rounds_ - 1 - k);
  }
  std::uint32_t send_result_lane(std::uint32_t k) const { return receive_result_lane(k) + 1; }
  std::uint32_t copy_lane(std::uint32_t k) const { return receive_result_lane(k) + 2; }
  std::uint32_t gathered_lane() const { return own_lane_ + 1 + 3 * rounds_; }

  void lay_gather() {
    Steps done;
    for (std::uint32_t k = rounds_; k-- > 0;) {
      const std::uint32_t skip = skips_[k + 1], tag = rounds_ + k;
      // The lane after which the blocks that this round sends are there.
      const std::uint32_t source = k + 1 == rounds_ ? own_lane_ : receive_result_lane(k + 1);
      Steps receive = {await(gathered_lane(), fixed(0), circulant_slots), await(source, fixed(0))};
      receive.push_back(
          for_blocks(recv(rank_at(skip), fixed(tag), blocks_at(skip), gathered(skip)), number(k)));
      add("receive result", std::move(receive));
      add("send result",
          {await(source, fixed(0)),
           for_blocks(send(rank_at(-std::int64_t{skip}), fixed(tag), blocks_at(0), gathered(0)),
                      number(k))});
      Steps copies = {await(receive_result_lane(k), fixed(0))};
      if (scatters_) copies.push_back(await(send_lane(k), fixed(0)));
      copies.push_back(for_blocks(
          copy(blocks_at(skip), gathered(skip), {r_.output(blocks_at(skip))}), number(k)));
      add("copy", std::move(copies));
      done.push_back(await(send_result_lane(k), fixed(0)));
      done.push_back(await(copy_lane(k), fixed(0)));
    }
    add("done", std::move(done));
  }

  const Shape& shape_;
  Plan& plan_;
  const Ranges r_;
  const bool scatters_, gathers_;
  const Buffer extents_;
  std::vector<std::uint32_t> skips_;
  std::uint32_t rounds_ = 0;
  std::vector<std::uint32_t> from_;  // in scratch, by round
  std::uint32_t first_gathered_ = 0;
  std::uint32_t own_lane_ = 0;
};

}  // namespace

void circulant(Plan& plan, const Shape& shape) { Circulant(shape, plan).build(); }

}  // namespace hocket::internal::algorithms
