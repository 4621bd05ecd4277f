// The check of hocket-perf: it accepts results of the library's arithmetic, and no larger errors.
#include "check.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "reduce/fold.h"
#include "sanitized.h"

namespace hocket::perf {
namespace {

using namespace internal;  // the reference for reductions

constexpr std::size_t test_count = 5003;  // more than one piece, and odd

std::vector<char> input_of(const Expectation& e, int rank) {
  std::vector<char> bytes(e.input_count(rank) * size_of(e.dtype));
  generate_input(e, rank, bytes.data());
  return bytes;
}

/// The library's numbers of what NCCL does not have follow NCCL's.
Dtype inner_of(hocketDataType_t dtype) {
  return static_cast<Dtype>(dtype < hocketInt16 ? dtype : hocketNumTypes + dtype - hocketInt16);
}
Op inner_of(hocketRedOp_t op) {
  return static_cast<Op>(op < hocketAnd ? op : hocketNumOps + op - hocketAnd);
}

/// What e.rank should hold, by fold_reference.
std::vector<char> right_result(const Expectation& e) {
  const std::size_t size = size_of(e.dtype);
  std::vector<std::vector<char>> inputs;
  for (int r = 0; r < e.ranks; ++r) inputs.push_back(input_of(e, r));
  std::vector<char> result(e.output_count() * size);
  switch (e.collective) {
    case Collective::all_gather:
    case Collective::gather:
      for (int r = 0; r < e.ranks; ++r) {
        const std::vector<char>& input = inputs[static_cast<std::size_t>(r)];
        std::memcpy(result.data() + e.block_start(e.rank, r) * size, input.data(), input.size());
      }
      return result;
    case Collective::scatter:
      std::memcpy(
          result.data(),
          inputs[static_cast<std::size_t>(e.root)].data() + e.block_start(e.root, e.rank) * size,
          result.size());
      return result;
    case Collective::alltoall:
      for (int r = 0; r < e.ranks; ++r) {
        std::memcpy(result.data() + e.block_start(e.rank, r) * size,
                    inputs[static_cast<std::size_t>(r)].data() + e.block_start(r, e.rank) * size,
                    e.block_count(r, e.rank) * size);
      }
      return result;
    case Collective::broadcast:
      return inputs[static_cast<std::size_t>(e.root)];
    case Collective::sendrecv:
      return inputs[static_cast<std::size_t>((e.rank + e.ranks - 1) % e.ranks)];
    case Collective::latency:
    case Collective::bandwidth:
    case Collective::bibandwidth:
      return inputs[static_cast<std::size_t>((e.rank + e.ranks / 2) % e.ranks)];
    default:
      break;
  }
  const std::size_t first =
      e.collective == Collective::reduce_scatter ? e.block_start(e.rank, e.rank) : 0;
  std::vector<FoldSource> sources;
  for (const auto& input : inputs) sources.push_back({input.data() + first * size, false});
  void* destination = result.data();
  Fold fold;
  fold.srcs = sources.data();
  fold.src_count = e.ranks;
  fold.dsts = &destination;
  fold.count = e.output_count();
  fold.dtype = inner_of(e.dtype);
  fold.op = e.op == mul_sum ? Op::sum : inner_of(e.op);
  std::vector<std::uint64_t> scalars(inputs.size());
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    const float factor = static_cast<float>(mul_sum_factor(static_cast<int>(r)));
    if (is_widened(fold.dtype)) {
      std::memcpy(&scalars[r], &factor, sizeof factor);
    } else {
      write_factor(mul_sum_factor(static_cast<int>(r)), e.dtype, &scalars[r]);
    }
  }
  if (e.op == mul_sum) fold.scalars = scalars.data();
  fold.divisor = static_cast<std::uint32_t>(e.ranks);
  fold_reference(fold);
  return result;
}

Expectation expectation(Collective collective, int dtype, int op, int ranks) {
  Expectation e;
  e.collective = collective;
  e.dtype = static_cast<hocketDataType_t>(dtype);
  e.op = static_cast<hocketRedOp_t>(op);
  e.rank = ranks - 1;
  e.ranks = ranks;
  // Only the root has the result of these.
  const bool at_root = collective == Collective::reduce || collective == Collective::gather;
  e.root = at_root ? e.rank : ranks / 2;
  e.count = test_count;
  e.seed.row = static_cast<std::uint64_t>(100 * dtype + op);
  return e;
}

std::string describe(const Expectation& e) {
  return name_of(e.collective, e.varying) + " " + name_of(e.dtype) + " " + name_of(e.op) + " of " +
         std::to_string(e.ranks);
}

TEST(Check, right_results_of_every_type_and_operator_pass) {
  for (const int ranks : {1, 2, 3, 8, 13}) {
    if (tests::sanitized && ranks != 1 && ranks != 3) continue;  // the same code
    for (const hocketDataType_t dtype : all_dtypes()) {
      for (const hocketRedOp_t op : all_ops()) {
        if (!computes(op, dtype)) continue;
        for (const Collective collective :
             {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce}) {
          Expectation e = expectation(collective, dtype, op, ranks);
          EXPECT_EQ(count_wrong(e, right_result(e).data()), 0u) << describe(e);
          e.varying = has_parts(collective);
          EXPECT_EQ(count_wrong(e, right_result(e).data()), 0u) << describe(e);
        }
      }
    }
  }
}

TEST(Check, right_copies_pass_and_a_flipped_bit_is_one_wrong_element) {
  for (int c = 0; c < 2 * collective_count; ++c) {
    const auto collective = static_cast<Collective>(c / 2);
    const bool varying = c % 2 == 1;
    if (collective == Collective::barrier || (varying && !has_parts(collective))) continue;
    for (const hocketDataType_t dtype : all_dtypes()) {
      // The greatest of several values is exact in every type: any flipped bit is wrong.
      Expectation e = expectation(collective, dtype, hocketMax, 4);
      e.varying = varying;
      std::vector<char> result = right_result(e);
      ASSERT_EQ(count_wrong(e, result.data()), 0u) << describe(e);
      for (const std::size_t at : {std::size_t{0}, result.size() / 2, result.size() - 1}) {
        result[at] ^= 1;
        EXPECT_EQ(count_wrong(e, result.data()), 1u) << describe(e) << ", byte " << at;
        result[at] ^= 1;
      }
    }
  }
}

TEST(Check, varying_blocks_have_three_halves_and_one_half_in_turn) {
  using Sizes = std::vector<std::size_t>;
  const struct {
    Collective collective;
    std::size_t count;
    int rank, ranks;
    Sizes counts, starts;
  } cases[] = {
      {Collective::all_gather, 10, 1, 4, {15, 5, 15, 5}, {0, 15, 20, 35}},
      {Collective::scatter, 10, 2, 3, {15, 5, 10}, {0, 15, 20}},
      {Collective::gather, 7, 0, 2, {10, 4}, {0, 10}},
      {Collective::reduce_scatter, 1, 0, 2, {1, 1}, {0, 1}},
      {Collective::reduce_scatter, 10, 0, 1, {10}, {0}},
      {Collective::alltoall, 10, 0, 3, {15, 5, 10}, {0, 15, 20}},
      {Collective::alltoall, 10, 1, 3, {5, 10, 15}, {0, 5, 15}},
      {Collective::alltoall, 10, 2, 3, {10, 15, 5}, {0, 10, 25}},
  };
  for (const auto& test : cases) {
    Expectation e;
    e.collective = test.collective;
    e.count = test.count;
    e.varying = true;
    e.rank = test.rank;
    e.ranks = test.ranks;
    EXPECT_EQ(e.blocks().counts, test.counts) << describe(e);
    EXPECT_EQ(e.blocks().starts, test.starts) << describe(e);
    EXPECT_EQ(e.block_start(e.rank, e.ranks), e.whole_count()) << describe(e);
  }
}

TEST(Check, only_the_own_block_of_a_varying_call_is_longer_or_shorter) {
  Expectation e = expectation(Collective::all_gather, hocketFloat32, hocketSum, 4);
  e.count = 10;
  e.varying = true;  // rank 3
  EXPECT_EQ(e.input_count(0), 15u);
  EXPECT_EQ(e.input_count(3), 5u);
  EXPECT_EQ(e.output_count(), 40u);
  e.collective = Collective::reduce_scatter;
  EXPECT_EQ(e.input_count(0), 40u);
  EXPECT_EQ(e.output_count(), 5u);
}

TEST(Check, a_sum_off_by_two_units_in_the_last_place_is_wrong) {
  for (const int dtype : {hocketFloat32, hocketFloat64, hocketFloat16, hocketBfloat16}) {
    const Expectation e = expectation(Collective::all_reduce, dtype, hocketSum, 2);
    std::vector<char> result = right_result(e);
    // With two ranks there is one rounding (two for the narrow types): the bound of most elements
    // is below two units in the last place; those whose terms cancel have a wider one.
    const std::size_t size = size_of(e.dtype);
    for (std::size_t i = 0; i < e.count; ++i) result[i * size] ^= 4;
    EXPECT_GT(count_wrong(e, result.data()), e.count / 3) << describe(e);
  }
}

TEST(Check, rounding_every_partial_sum_of_bfloat16_is_seen) {
  Expectation e = expectation(Collective::all_reduce, hocketBfloat16, hocketSum, 13);
  std::vector<char> sum = input_of(e, 0);
  for (int r = 1; r < e.ranks; ++r) {
    const std::vector<char> next = input_of(e, r);
    const FoldSource sources[2] = {{sum.data(), false}, {next.data(), false}};
    void* destination = sum.data();
    Fold fold;
    fold.srcs = sources;
    fold.src_count = 2;
    fold.dsts = &destination;
    fold.count = e.count;
    fold.dtype = Dtype::bfloat16;
    fold_reference(fold);
  }
  EXPECT_GT(count_wrong(e, sum.data()), e.count / 10);
}

TEST(Check, not_a_number_and_stale_results_are_wrong) {
  Expectation e = expectation(Collective::all_reduce, hocketFloat32, hocketSum, 3);
  std::vector<char> result = right_result(e);
  const float not_a_number = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(result.data() + 40, &not_a_number, sizeof not_a_number);
  EXPECT_EQ(count_wrong(e, result.data()), 1u);
  const std::vector<char> stale = right_result(e);
  e.seed.iteration = 1;
  EXPECT_GT(count_wrong(e, stale.data()), e.count - 10);
}

}  // namespace
}  // namespace hocket::perf
