// recursive doubling: in round k a rank exchanges its partial result with the rank whose number
// differs in bit k; for small messages between nodes.
//
// After round k a rank has the fold of 2^(k+1) inputs, so log2 p rounds are enough: half as many as
// up a tree and down again. Each rank sends the whole message in every round.
//
//   rank 0          rank 1          rank 2          rank 3
//   a <> 1          b <> 0          c <> 3          d <> 2          send 0 / receive 0
//   a+b             a+b             c+d             c+d             fold 0, into scratch
//   a+b <> 2        a+b <> 3        c+d <> 0        c+d <> 1        send 1 / receive 1
//   (a+b)+(c+d)     (a+b)+(c+d)     (a+b)+(c+d)     (a+b)+(c+d)     fold 1, into the output
//
// Let c be the largest power of two up to p: the ranks below c, the core, take part in the rounds.
// Rank c + i sends its input to rank i before the rounds, and receives the result from it after
// them. So with p = 5 rank 0 begins with a+e.
//
// A fold has the partial result of the lower ranks first, on both ranks. So all ranks get the same
// bits, but other bits than from the plans that fold in rank order. An input is sent as it is;
// partial results of fp16, bf16 and fp8 are sent as fp32, and each rank of the core rounds once.
//
// A receive is posted when the round before has ended here: over TCP a rank looks at each link on
// which it awaits a message, and each look is a system call.
//
// A slot of scratch is used again when its partial result has been sent and folded. In place, the
// result overwrites the input, whose send may not have ended: the last fold awaits it.
//
// This file has no all-gather and no reduce-scatter: `circulant` makes them in as few rounds and
// with as few bytes, for every p.
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH" (IJHPCA 2005).
#include <algorithm>
#include <bit>

#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr int doubling_slots = 2;
constexpr Index whole = {.base = 0}, edge_tag = {.base = 0};

/// A rank of the core.
class Doubling {
 public:
  Doubling(const Shape& shape, Plan& plan)
      : shape_(shape),
        plan_(plan),
        r_(shape.rank),
        core_(std::bit_floor(shape.ranks)),
        rounds_(std::bit_width(core_) - 1) {}

  void build() {
    plan_.slots = doubling_slots;
    plan_.scratch_blocks = 2 * rounds_ + 1;
    plan_.wide_scratch = shape_.widened && shape_.ranks > 2;
    if (shape_.rank >= core_) return lay_extra();
    first_lane_ = has_extra(shape_.rank) ? 1 : 0;
    if (has_extra(shape_.rank)) lay_extra_input();
    for (std::uint32_t k = 0; k < rounds_; ++k) lay_round(k);
    if (has_extra(shape_.rank)) {
      add("send result", Buffer::output,
          {await(fold_lane(rounds_ - 1), fixed(0)), send(extra(), edge_tag, whole, result())});
    }
  }

 private:
  std::uint32_t receive_lane(std::uint32_t round) const { return first_lane_ + 3 * round; }
  std::uint32_t send_lane(std::uint32_t round) const { return receive_lane(round) + 1; }
  std::uint32_t fold_lane(std::uint32_t round) const { return receive_lane(round) + 2; }

  bool has_extra(std::uint32_t rank) const { return rank + core_ < shape_.ranks; }
  Index extra() const { return fixed(std::int64_t{shape_.rank} + core_); }
  Range result() const { return r_.output(whole); }
  /// What the partner of round k sends. It is wide if it is a partial result.
  Range theirs(std::uint32_t k) const {
    const std::uint32_t partner = shape_.rank ^ (1U << k);
    return r_.scratch(fixed(k), shape_.widened && (k > 0 || has_extra(partner)));
  }
  /// The partial result of this rank before round k.
  Range sum(std::uint32_t k) const { return r_.scratch(fixed(rounds_ + k), shape_.widened); }
  Range mine(std::uint32_t k) const {
    return k > 0 || has_extra(shape_.rank) ? sum(k) : r_.input(whole);
  }

  void add(const char* name, Buffer extents, Steps steps) {
    plan_.lanes.push_back(one_block(name, extents, whole, std::move(steps)));
  }

  /// A rank that is not in the core.
  void lay_extra() {
    const Index partner = fixed(std::int64_t{shape_.rank} - core_);
    add("send", Buffer::input, {send(partner, edge_tag, whole, r_.input(whole))});
    add("receive result", Buffer::output,
        {await(0, fixed(0)), recv(partner, edge_tag, whole, result())});
  }

  void lay_extra_input() {
    const Range raw = r_.scratch(fixed(std::int64_t{2} * rounds_));
    Steps steps = {recv(extra(), edge_tag, whole, raw)};
    await_use_of_sum(0, &steps);
    steps.push_back(fold(whole, {r_.input(whole), raw}, sum(0)));
    add("receive extra", Buffer::input, std::move(steps));
  }

  /// Until the partial result before round k may be overwritten.
  void await_use_of_sum(std::uint32_t k, Steps* steps) const {
    steps->push_back(await(send_lane(k), fixed(0), doubling_slots));
    steps->push_back(await(fold_lane(k), fixed(0), doubling_slots));
  }

  void lay_round(std::uint32_t k) {
    const Index partner = fixed(shape_.rank ^ (1U << k)), tag = fixed(k + 1);
    Steps receive_steps = {await(fold_lane(k), fixed(0), doubling_slots)};
    if (k > 0) receive_steps.push_back(await(fold_lane(k - 1), fixed(0)));
    receive_steps.push_back(recv(partner, tag, whole, theirs(k)));
    add("receive", Buffer::input, std::move(receive_steps));
    Steps send_steps, fold_steps = {await(receive_lane(k), fixed(0))};
    if (k > 0 || has_extra(shape_.rank)) {
      const Step made = await(k > 0 ? fold_lane(k - 1) : 0, fixed(0));
      send_steps.push_back(made);
      fold_steps.push_back(made);
    }
    send_steps.push_back(send(partner, tag, whole, mine(k)));
    add("send", Buffer::input, std::move(send_steps));

    std::vector<Range> parts = {mine(k), theirs(k)};
    if ((shape_.rank >> k & 1) != 0) std::swap(parts[0], parts[1]);
    if (k + 1 < rounds_) {
      await_use_of_sum(k + 1, &fold_steps);
      fold_steps.push_back(fold(whole, std::move(parts), sum(k + 1)));
    } else {
      if (!has_extra(shape_.rank)) fold_steps.push_back(await(send_lane(0), fixed(0)));
      fold_steps.push_back(finish(whole, std::move(parts), {result()}));
    }
    add("fold", Buffer::input, std::move(fold_steps));
  }

  const Shape& shape_;
  Plan& plan_;
  const Ranges r_;
  const std::uint32_t core_;      // ranks
  const std::uint32_t rounds_;    // of the core
  std::uint32_t first_lane_ = 0;  // of round 0
};

}  // namespace

void recursive_doubling(Plan& plan, const Shape& shape) { Doubling(shape, plan).build(); }

}  // namespace hocket::internal::algorithms
