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
// One of the two ways has one hop more if p is even. In an all-reduce the reduce-scatter has the
// longer way to the right and the all-gather has it to the left, so that each direction carries p-1
// blocks in all.
//
// Lanes of one direction. The tag of a message counts the steps; those of the all-gather follow
// those of the reduce-scatter. With p = 2 both neighbours are the same rank, and each phase has
// only one direction.
//
//   h is the number of steps in this direction.
//
//   lane             instances   what the lane does
//   send raw         1           sends an input block: step 0
//   receive raw      1           receives step 0, folds its input in
//   pass             h - 2       receives step i + 1, folds its input in
//   send on          h - 1       awaits `receive raw` (i = 0) or instance i - 1 of `pass`; sends
//                                step i + 1
//   receive partial  1           receives step h - 1: the partial result for the own block
//
//   send result      1           sends the own block: step 0 of the all-gather
//   receive result   h - 1       receives step i
//   forward          h - 1       awaits instance i of `receive result`, sends step i + 1
//   receive last     1           receives step h - 1
//
// One more lane, `fold`, has the owner's fold (in an all-gather: `copy`, the copy of the own
// block).
//
// Scratch, for each direction: `last` (the last partial result for the own block), `raw` (the first
// message, narrow), and a block for each partial result that is passed on. A slot is used again
// when its partial result is sent, or when the owner's fold has ended.
//
// In place, a finished block overwrites this rank's input of that block, which is a part of the
// result. So the rank has either folded that input, and needs it no longer, or has begun to send it
// (`send raw`), and must await the end of the send. The result of the block that was sent in one
// direction arrives last in the other direction, so `receive last` awaits `send raw`.
//
// Windows. All instances of `pass` and `send on` are active at the same time. With a constant
// window of w instances, long messages would deadlock. A chunk of step t leaves its slot when the
// next rank has a free slot for step t + 1; that rank frees the slot by sending an earlier chunk to
// the rank after it, and so on to step t + w. But the instance of step t + w begins only when that
// of step t has ended: after w * slots chunks all slots are full. With all instances active, the
// recv of chunk k in step t waits until chunk k - slots has been sent in step t + 1, and that send
// waits for the recv of the same chunk in step t + 1 at the next rank. The number of the chunk
// decreases along these waits, so they end.
//
// In the all-gather a constant window is enough, because finished blocks need no slots. Let t be
// the least step that has not ended on some rank. All earlier steps have ended, so the instances
// that receive and forward step t are active on all ranks, and wait for nothing else.
//
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations" (JPDC 2009); sending in both directions halves the steps.
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr int ring_slots = 2;
constexpr std::uint32_t result_window = 4;

/// One of the two directions. sign: +1 to higher ranks, -1 to lower ranks.
struct Direction {
  int sign;
  std::uint32_t hops;             // of a block's partial results before they reach the owner
  std::uint32_t result_hops;      // of a finished block
  std::uint32_t first_block = 0;  // in scratch
  // Indices of its lanes in the plan.
  std::uint32_t send_raw = 0, receive_raw = 0, pass = 0, send_on = 0, receive_partial = 0;
  std::uint32_t receive_result = 0;

  std::uint32_t last() const { return first_block; }
  std::uint32_t raw() const { return first_block + 1; }
  std::uint32_t passing() const { return first_block + 2; }  // the first of hops - 1
  std::uint32_t scratch_blocks() const { return hops < 2 ? hops : hops + 1; }
};

class Ring {
 public:
  Ring(const Shape& shape, Plan& plan)
      : shape_(shape),
        plan_(plan),
        r_(shape.rank),
        scatters_(shape.collective != Collective::all_gather),
        gathers_(shape.collective != Collective::reduce_scatter),
        first_result_tag_(shape.ranks / 2) {
    const std::uint32_t left = shape.ranks / 2, right = shape.ranks - 1 - left;
    ways_[0] = {.sign = +1,
                .hops = scatters_ ? left : 0,
                .result_hops = !gathers_   ? 0
                               : scatters_ ? right
                                           : left};
    ways_[1] = {.sign = -1,
                .hops = scatters_ ? right : 0,
                .result_hops = !gathers_   ? 0
                               : scatters_ ? left
                                           : right};
  }

  void build() {
    plan_.slots = scatters_ ? ring_slots : 1;
    plan_.wide_scratch = scatters_ && shape_.widened;
    number_lanes();
    for (const Direction& way : ways_) lay_scatter(way);
    lay_own();
    for (const Direction& way : ways_) lay_gather(way);
  }

 private:
  /// Lanes await lanes that follow them, so they are numbered first.
  void number_lanes() {
    std::uint32_t lanes = 0;
    for (Direction& way : ways_) {
      way.first_block = plan_.scratch_blocks;
      plan_.scratch_blocks += way.scratch_blocks();
      if (way.hops > 0) way.send_raw = lanes++;
      if (way.hops > 1) way.receive_raw = lanes++;
      if (way.hops > 2) way.pass = lanes++;
      if (way.hops > 1) way.send_on = lanes++;
      if (way.hops > 0) way.receive_partial = lanes++;
    }
    own_lane_ = lanes++;
    for (Direction& way : ways_) {
      if (way.result_hops > 0) ++lanes;  // send result
      if (way.result_hops > 1) way.receive_result = lanes++;
      if (way.result_hops > 1) ++lanes;  // forward
      if (way.result_hops > 0) ++lanes;  // receive last
    }
  }

  /// The rank (or block) at that distance from this rank.
  Index at(std::int64_t distance) const {
    return by_instance(shape_.rank + distance, 0, shape_.ranks);
  }
  /// The rank (or block) at that distance for instance 0, and one step further for each instance.
  Index along(std::int64_t distance, int step) const {
    return by_instance(shape_.rank + distance, step, shape_.ranks);
  }
  Range partial(Index block) const { return r_.scratch(block, shape_.widened); }
  Range last(const Direction& way) const {
    return r_.scratch(fixed(way.last()), shape_.widened && way.hops > 1);
  }
  void add(Lane lane) { plan_.lanes.push_back(std::move(lane)); }

  void lay_scatter(const Direction& way) {
    if (way.hops == 0) return;
    const Index to = at(way.sign), from = at(-way.sign);
    const std::int64_t farthest = std::int64_t{way.sign} * way.hops;  // whose owner gets step 0
    const Index sent = at(farthest);
    add(one_block("send raw", Buffer::input, sent, {send(to, fixed(0), sent, r_.input(sent))}));
    if (way.hops > 1) lay_passing(way, to, from);
    const Index own = at(0);
    add(one_block(
        "receive partial", Buffer::input, own,
        {await(own_lane_, fixed(0), ring_slots), recv(from, fixed(way.hops - 1), own, last(way))}));
  }

  void lay_passing(const Direction& way, Index to, Index from) {
    // The block of step t is one nearer to this rank than that of step t - 1.
    const std::int64_t first = std::int64_t{way.sign} * (way.hops - 1);
    const Index raw_block = at(first);
    const Range raw = r_.scratch(fixed(way.raw())), folded = partial(fixed(way.passing()));
    add(one_block("receive raw", Buffer::input, raw_block,
                  {recv(from, fixed(0), raw_block, raw), await(way.send_on, fixed(0), ring_slots),
                   fold(raw_block, {raw, r_.input(raw_block)}, folded)}));
    if (way.hops > 2) {
      const Index block = along(first - way.sign, -way.sign);
      const Range sum = partial(by_instance(way.passing() + 1, 1));
      const std::uint32_t passes = way.hops - 2;
      add(instances(one_block("pass", Buffer::input, block,
                              {await(way.send_on, by_instance(1, 1), ring_slots),
                               recv(from, by_instance(1, 1), block, sum),
                               fold(block, {sum, r_.input(block)}, sum)}),
                    passes, passes));
    }
    // For instance 0 the lane `pass` has no instance, for the others the lane `receive raw` has
    // none: such an await is over at once.
    const Index block = along(first, -way.sign);
    std::vector<Step> steps = {await(way.receive_raw, by_instance(0, 1))};
    if (way.hops > 2) steps.push_back(await(way.pass, by_instance(-1, 1)));
    steps.push_back(send(to, by_instance(1, 1), block, partial(by_instance(way.passing(), 1))));
    add(instances(one_block("send on", Buffer::input, block, std::move(steps)), way.hops - 1,
                  way.hops - 1));
  }

  void lay_own() {
    const Index own = at(0);
    if (!scatters_) {
      add(one_block("copy", Buffer::output, own,
                    {copy(own, r_.input(fixed(0)), {r_.output(own)})}));
      return;
    }
    std::vector<Step> steps;
    std::vector<Range> parts = {r_.input(own)};
    for (const Direction& way : ways_) {
      if (way.hops == 0) continue;
      steps.push_back(await(way.receive_partial, fixed(0)));
      parts.insert(way.sign > 0 ? parts.begin() : parts.end(), last(way));
    }
    steps.push_back(finish(own, std::move(parts), {r_.output(gathers_ ? own : fixed(0))}));
    add(one_block("fold", Buffer::input, own, std::move(steps)));
  }

  void lay_gather(const Direction& way) {
    if (way.result_hops == 0) return;
    const Index to = at(way.sign), from = at(-way.sign), own = at(0);
    const std::uint32_t passes = way.result_hops - 1;
    std::vector<Step> steps;
    if (scatters_) steps.push_back(await(own_lane_, fixed(0)));
    steps.push_back(
        send(to, fixed(first_result_tag_), own, scatters_ ? r_.output(own) : r_.input(fixed(0))));
    add(one_block("send result", Buffer::output, own, std::move(steps)));
    if (passes > 0) {
      const Index block = along(-way.sign, -way.sign);
      add(instances(
          one_block("receive result", Buffer::output, block,
                    {recv(from, by_instance(first_result_tag_, 1), block, r_.output(block))}),
          passes, result_window));
      add(instances(
          one_block("forward", Buffer::output, block,
                    {await(way.receive_result, by_instance(0, 1)),
                     send(to, by_instance(first_result_tag_ + 1, 1), block, r_.output(block))}),
          passes, result_window));
    }
    const Direction& other = ways_[way.sign > 0 ? 1 : 0];
    const Index block = at(-std::int64_t{way.sign} * way.result_hops);
    steps.clear();
    if (scatters_) steps.push_back(await(other.send_raw, fixed(0)));
    steps.push_back(recv(from, fixed(first_result_tag_ + passes), block, r_.output(block)));
    add(one_block("receive last", Buffer::output, block, std::move(steps)));
  }

  const Shape& shape_;
  Plan& plan_;
  const Ranges r_;
  const bool scatters_, gathers_;
  const std::uint32_t first_result_tag_;  // no direction has more steps of the reduce-scatter
  Direction ways_[2] = {};
  std::uint32_t own_lane_ = 0;
};

}  // namespace

void ring(Plan& plan, const Shape& shape) { Ring(shape, plan).build(); }

}  // namespace hocket::internal::algorithms
