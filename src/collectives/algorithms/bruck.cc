// bruck: an all-to-all in ceil(log2 p) messages of each rank; for blocks of a few bytes between
// many ranks.
//
// The block of rank q for rank q + j (mod p) has the distance j. In round k each rank r sends to
// rank r + 2^k, in one message, all blocks that it has whose distance has bit k set. So a block is
// sent once for each bit of its distance that is set, and these steps add up to the distance. A
// rank sends about p/2 blocks in each round. Without passing blocks on, it would send p - 1
// messages of one block.
//
//   rank 0          rank 1          rank 2          rank 3         a1: of rank 0, for rank 1
//   a1 a3 > 1       b2 b0 > 2       c3 c1 > 3       d0 d2 > 0      round 0: distances 1 and 3
//   d0 | d2         a1 | a3         b2 | b0         c3 | c1        arrived | to be passed on
//   a2 d2 > 2       b3 a3 > 3       c0 b0 > 0       d1 c1 > 1      round 1: distances 2 and 3
//   c0 b0           d1 c1           a2 d2           b3 a3          arrived
//   a0              b1              c2              d3             copy
//
// Runs. The distances with bit k are the runs a = 0, 1, ... of 2^k consecutive distances that begin
// at 2^(k+1) a + 2^k. The last run may be shorter. The first block of each run has no lower bit, so
// it has not been sent before, and comes from the input. The blocks of run 0 have no higher bit:
// after round k they are at their destination.
//
// Scratch. `held` has the blocks that this rank has received and will pass on; the block of the
// distance j is in place j - 1. Each round has its own `packed`, the blocks that it sends one
// behind another, and its own `came`, those that it receives.
//
// Lanes of round k:
//
//   receive   receives the message into `came`
//   arrived   copies run 0 from `came` to the output
//   unpack    when this round's message has been sent, copies the other full runs from `came` to
//             `held`, in place of the blocks that were sent
//   held      does this with the last run, if it is shorter; ends when `unpack` of this round and
//             `held` of the earlier rounds have ended
//   pack      copies full runs from `held` to `packed`, without their first blocks
//   send      copies the first blocks from the input, and a shorter last run from `held`, to
//             `packed`; awaits `pack`, and sends
//
// The places in scratch have the same size, so all blocks have the same length. Each block has one
// chunk, so a block must fit in its place; `pairs` serves longer blocks.
//
// Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems" (IEEE TPDS 1997).
#include <algorithm>

#include "base/checked.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

/// Places of scratch: first + a * by_run + b for block b of run a.
struct Places {
  std::uint32_t first, by_run;
};

class Bruck {
 public:
  Bruck(const Shape& shape, Plan& plan)
      : plan_(plan), r_(shape.rank), rank_(shape.rank), ranks_(shape.ranks) {}

  void build() {
    plan_.single_chunk = true;
    plan_.scratch_blocks = ranks_ - 1;  // `held`
    for (std::uint32_t k = 0; 1U << k < ranks_; ++k) lay_round(k);
    const Index own = fixed(rank_);
    plan_.lanes.push_back(
        all_blocks("copy", Buffer::input, {copy(own, r_.input(own), {r_.output(own)})}));
  }

 private:
  /// The runs of a round, and its lanes.
  struct Round {
    std::uint32_t length;  // of a full run: 2^k
    std::uint32_t full;    // runs
    std::uint32_t last;    // blocks of the last run, if it is not full; 0: there is none
    std::uint32_t packed, came;
    std::uint32_t blocks() const { return full * length + last; }
    std::uint32_t runs() const { return full + (last > 0 ? 1 : 0); }
    /// In `held`: block b of run a.
    Places held() const { return {length - 1, 2 * length}; }
  };

  Round round_of(std::uint32_t k) {
    Round round;
    round.length = 1U << k;
    round.full = ranks_ >> (k + 1);
    const std::uint32_t rest = ranks_ - round.full * 2 * round.length;
    round.last = rest > round.length ? rest - round.length : 0;
    round.packed = plan_.scratch_blocks;
    round.came = round.packed + round.blocks();
    plan_.scratch_blocks = round.came + round.blocks();
    return round;
  }

  std::uint32_t add(const char* name, Buffer extents, Steps steps) {
    plan_.lanes.push_back(all_blocks(name, extents, std::move(steps)));
    return narrowed<std::uint32_t>(plan_.lanes.size() - 1);
  }

  /// A copy of blocks that are passed on.
  Step pass(Index from, Index to, std::uint32_t blocks) const {
    return for_blocks(copy(fixed(0), r_.scratch(from), {r_.scratch(to)}), blocks);
  }

  /// Adds a lane that copies blocks first_block .. of the full runs from first_run on; returns the
  /// number of its instances. They are the runs, or the blocks of a run if these are fewer.
  std::uint32_t add_runs(const char* name, Steps steps, const Round& round, Places from, Places to,
                         std::uint32_t first_run, std::uint32_t first_block) {
    const std::uint32_t runs = round.full - first_run, blocks = round.length - first_block;
    const bool by_run = runs <= blocks;
    const auto index = [&](Places places) {
      const std::int64_t first =
          std::int64_t{places.first} + std::int64_t{first_run} * places.by_run + first_block;
      const auto step = narrowed<std::int32_t>(places.by_run);
      return Index{.base = narrowed<std::int32_t>(first),
                   .by_instance = by_run ? step : 1,
                   .by_source = by_run ? 1 : step};
    };
    steps.push_back(pass(index(from), index(to), by_run ? blocks : runs));
    const std::uint32_t number = by_run ? runs : blocks;
    plan_.lanes.push_back(
        instances(all_blocks(name, Buffer::input, std::move(steps)), number, number));
    return number;
  }

  void lay_round(std::uint32_t k) {
    const Round round = round_of(k);
    const Index tag = fixed(k), to = by_instance(std::int64_t{rank_} + round.length, 0, ranks_),
                from = by_instance(std::int64_t{rank_} - round.length, 0, ranks_);
    const std::uint32_t receive = add(
        "receive", Buffer::output,
        {for_blocks(recv(from, tag, fixed(0), r_.scratch(by_source(round.came))), round.blocks())});
    const Index source = by_source(std::int64_t{rank_} - round.length, -1, ranks_);
    add("arrived", Buffer::output,
        {await(receive, fixed(0)),
         for_blocks(copy(source, r_.scratch(by_source(round.came)), {r_.output(source)}),
                    std::min(round.length, round.blocks()))});
    const std::uint32_t send = lay_send(round, to, tag);
    if (2 * round.length < ranks_) lay_unpack(round, receive, send);
  }

  std::uint32_t lay_send(const Round& round, Index to, Index tag) {
    const Places packed = {round.packed, round.length};
    const auto step = narrowed<std::int32_t>(2 * round.length);
    const Index fresh = by_source(std::int64_t{rank_} + round.length, step, ranks_);
    Steps steps = {for_blocks(
        copy(fresh, r_.input(fresh),
             {r_.scratch(by_source(packed.first, narrowed<std::int32_t>(round.length)))}),
        round.runs())};
    if (round.length > 1) {
      const Step unpacked = await(held_lane_, fixed(0));
      steps.push_back(unpacked);
      if (round.last > 1) {
        steps.push_back(pass(by_source(round.held().first + round.full * round.held().by_run + 1),
                             by_source(packed.first + round.full * packed.by_run + 1),
                             round.last - 1));
      }
      if (round.full > 0) {
        const std::uint32_t number =
            add_runs("pack", {unpacked}, round, round.held(), packed, 0, 1);
        steps.push_back(
            await_each(narrowed<std::uint32_t>(plan_.lanes.size() - 1), by_source(0), number));
      }
    }
    steps.push_back(for_blocks(steps::send(to, tag, fixed(0), r_.scratch(by_source(packed.first))),
                               round.blocks()));
    return add("send", Buffer::input, std::move(steps));
  }

  void lay_unpack(const Round& round, std::uint32_t receive, std::uint32_t send) {
    const Places came = {round.came, round.length};
    const Step come = await(receive, fixed(0)), sent = await(send, fixed(0));
    Steps steps = {come, sent};
    if (round.full > 1) {
      const std::uint32_t number =
          add_runs("unpack", {come, sent}, round, came, round.held(), 1, 0);
      steps.push_back(
          await_each(narrowed<std::uint32_t>(plan_.lanes.size() - 1), by_source(0), number));
    }
    if (round.length > 1) steps.push_back(await(held_lane_, fixed(0)));
    if (round.last > 0 && round.full > 0) {
      steps.push_back(pass(by_source(came.first + round.full * came.by_run),
                           by_source(round.held().first + round.full * round.held().by_run),
                           round.last));
    }
    held_lane_ = add("held", Buffer::input, std::move(steps));
  }

  Plan& plan_;
  const Ranges r_;
  const std::uint32_t rank_, ranks_;
  std::uint32_t held_lane_ = 0;  // of the round before
};

}  // namespace

void bruck(Plan& plan, const Shape& shape) { Bruck(shape, plan).build(); }

}  // namespace hocket::internal::algorithms
