// PreMulSum multiplies every input by the scalar of its rank, exactly once. The verifier proves for
// which plans that is so.
#include <gtest/gtest.h>

#include <iterator>

#include "collectives/plan/json.h"
#include "collectives/plan/steps.h"
#include "collectives/select/selector.h"
#include "collectives/verify/verify.h"
#include "data.h"
#include "plans.h"

namespace hocket::internal {
namespace {

using namespace steps;

using Plans = std::vector<Plan>;

constexpr Index whole = {.base = 0};

Lane lane(const char* name, Steps steps) {
  return one_block(name, Buffer::input, whole, std::move(steps));
}

/// A reduce of 3 ranks over messages, in which no rank has lanes yet.
Plans empty_reduce(std::uint32_t root) {
  Plans plans(3);
  for (std::uint32_t r = 0; r < 3; ++r) {
    plans[r].algorithm = "handmade";
    plans[r].shape = {.collective = Collective::reduce,
                      .rank = r,
                      .ranks = 3,
                      .root = static_cast<std::int32_t>(root),
                      .widened = true};
    plans[r].scratch_blocks = 3;
    plans[r].single_chunk = true;
    plans[r].wide_scratch = true;
  }
  return plans;
}

std::string scalars_of(const Plans& plans) {
  const Proof proof = prove(plans);
  EXPECT_TRUE(proof.status.ok()) << proof.status.message();
  return proof.scalars.message();
}

/// Runs PreMulSum on data.
std::string result_of(const Plans& plans) {
  DrawnCall call;
  call.dtype = Dtype::bfloat16;
  call.op = Op::pre_mul_sum;
  call.count = 5;
  RankBuffers buffers(plans, call);
  const Status status =
      interpret(plans, buffers.sizes, buffers.inputs, buffers.outputs, call.interpretation());
  return status.ok() ? buffers.check() : status.message();
}

/// Of the ranks `far`, `near` and the root, `near` passes the input of `far` on as it is, or
/// (folds) folds it with its own.
Plans chain(bool folds, std::uint32_t root = 2) {
  Plans plans = empty_reduce(root);
  const std::uint32_t far = (root + 1) % 3, near = (root + 2) % 3;
  const Ranges f(far), n(near), r(root);
  const Index to_near = fixed(near), to_root = fixed(root), from_far = fixed(far),
              from_near = fixed(near), tag = fixed(0), second_tag = fixed(1);
  plans[far].lanes = {lane("send", {send(to_near, tag, whole, f.input(whole))})};
  const Range raw = n.scratch(fixed(0));
  if (folds) {
    const Range sum = n.scratch(fixed(1), true), partial = r.scratch(fixed(0), true);
    plans[near].lanes = {
        lane("pass", {recv(from_far, tag, whole, raw), fold(whole, {raw, n.input(whole)}, sum),
                      send(to_root, tag, whole, sum)})};
    plans[root].lanes = {
        lane("fold", {recv(from_near, tag, whole, partial),
                      finish(whole, {partial, r.input(whole)}, {r.output(whole)})})};
    return plans;
  }
  plans[near].lanes = {
      lane("pass", {recv(from_far, tag, whole, raw), send(to_root, tag, whole, raw),
                    send(to_root, second_tag, whole, n.input(whole))})};
  const Range first = r.scratch(fixed(0)), second = r.scratch(fixed(1));
  plans[root].lanes = {
      lane("fold", {recv(from_near, tag, whole, first), recv(from_near, second_tag, whole, second),
                    finish(whole, {first, second, r.input(whole)}, {r.output(whole)})})};
  return plans;
}

TEST(Scalars, belong_to_the_rank_that_sends_an_input) {
  EXPECT_EQ(scalars_of(chain(true)), "success");
  EXPECT_EQ(result_of(chain(true)), "");
}

TEST(Scalars, of_an_input_that_another_rank_passes_on_are_unknown) {
  EXPECT_NE(scalars_of(chain(false))
                .find("'handmade', rank 2, lane 'fold', step 2 (finish s[0] + s[1] + in[0] -> "
                      "out[0] (block 0)) in chunk 0 of 1, out of place, reads the input of rank 0 "
                      "from scratch block 0, where PreMulSum expects that of rank 1"),
            std::string::npos)
      << scalars_of(chain(false));
  EXPECT_NE(result_of(chain(false)), "") << "the verifier is too strict";
}

TEST(Scalars, multiply_once_what_was_wide_before) {
  Plans plans = chain(true);
  const Ranges r0(0);
  const Range wide = r0.scratch(fixed(0), true), narrow = r0.scratch(fixed(1));
  plans[0].lanes[0].steps = {copy(whole, r0.input(whole), {wide}), copy(whole, wide, {narrow}),
                             send(fixed(1), fixed(0), whole, narrow)};
  EXPECT_NE(scalars_of(plans).find("copies what is wide into a narrow place: PreMulSum would "
                                   "multiply it twice"),
            std::string::npos)
      << scalars_of(plans);
  EXPECT_NE(result_of(plans), "") << "the verifier is too strict";
}

/// A place in which an input was received keeps the scalar of its sender.
TEST(Scalars, of_an_own_input_where_one_was_received_before_are_unknown) {
  Plans plans = chain(true);
  const Ranges r1(1);
  const Range raw = r1.scratch(fixed(0)), both = r1.scratch(fixed(1), true),
              first = r1.scratch(fixed(2), true);
  plans[1].lanes[0].steps = {recv(fixed(0), fixed(0), whole, raw), fold(whole, {raw}, first),
                             copy(whole, r1.input(whole), {raw}), fold(whole, {first, raw}, both),
                             send(fixed(2), fixed(0), whole, both)};
  EXPECT_NE(scalars_of(plans).find("reads the input of rank 1 from scratch block 0, where "
                                   "PreMulSum expects that of rank 0"),
            std::string::npos)
      << scalars_of(plans);
  EXPECT_NE(result_of(plans), "") << "the verifier is too strict";
}

/// The algorithm that is chosen where a user's plan is to be used wherever it can.
std::string algorithm_with(const std::shared_ptr<const LoadedPlan>& plan, Op op) {
  SelectorOptions options;
  options.ranks = 3;
  options.one_node = false;
  Selector selector(options);
  selector.add(plan, true);
  const Selection* selection = nullptr;
  const CallKey key = {.collective = Collective::reduce,
                       .dtype = Dtype::bfloat16,
                       .op = op,
                       .root = 2,
                       .count = 100};
  const Status status = selector.select(key, &selection);
  EXPECT_TRUE(status.ok()) << status.message();
  return status.ok() ? selection->program->algorithm() : "";
}

TEST(Scalars, choose_only_a_loaded_plan_that_tells_whose_input_is_where) {
  for (const bool folds : {false, true}) {
    Plans all;
    for (std::uint32_t root = 0; root < 3; ++root)
      std::ranges::copy(chain(folds, root), std::back_inserter(all));
    PlanFile file;
    const Status read = read_plan(write_json(all, false), "text", &file);
    ASSERT_TRUE(read.ok()) << read.message();
    std::shared_ptr<const LoadedPlan> plan;
    const Status verified = LoadedPlans().verify(file, 3, &plan);
    ASSERT_TRUE(verified.ok()) << verified.message();
    EXPECT_EQ("handmade", algorithm_with(plan, Op::sum));
    EXPECT_EQ(folds, algorithm_with(plan, Op::pre_mul_sum) == "handmade");
  }
}

}  // namespace
}  // namespace hocket::internal
