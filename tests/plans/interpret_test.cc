#include "collectives/second/verify/interpret.h"

#include <gtest/gtest.h>

#include "collectives/second/plan/steps.h"
#include "data.h"
#include "plans.h"

namespace hocket::internal::second {
namespace {

/// The largest block that a plan's lines can carry.
std::size_t most_in_line(const Builder& builder, std::uint32_t ranks, Dtype dtype) {
  const std::size_t blocks = row_of(builder.collective).input == Blocks::per_rank ? ranks : 1;
  return line_payload_bytes / size_of(dtype) / blocks;
}

struct Drawn {
  Group group;
  Call call;
};

/// Types, operators, roots, chunks and unequal blocks are drawn; the seed draws them again.
Drawn draw(const Builder& builder, std::uint32_t ranks, std::size_t count, bool varying,
           std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Drawn drawn;
  drawn.group = {.ranks = ranks, .varying = varying};
  const std::uint32_t roots[] = {0, ranks / 2, ranks - 1};
  drawn.group.root = roots[random() % 3];
  Call& call = drawn.call;
  call.dtype = static_cast<Dtype>(random() % dtype_count);
  drawn.group.widened = is_widened(call.dtype);
  call.op = static_cast<Op>(random() % op_count);
  call.chunk_elements = random() % 3 == 0 ? 0 : 1 + random() % 200;
  call.in_place = random() % 2 == 0;
  call.any_bits = builder.rank_order;
  call.seed = seed;
  if (std::string(builder.algorithm) == "inline" && ranks > 1) {
    count = std::min(count, most_in_line(builder, ranks, call.dtype));
  }
  call.count = count;
  if (varying) {
    const bool pairs = builder.collective == Collective::all_to_all;
    call.counts.resize(pairs ? std::size_t{ranks} * ranks : ranks);
    for (std::size_t& each : call.counts) {
      const std::size_t choices[] = {0, std::min<std::size_t>(1, count), count / 2, count};
      each = choices[random() % 4];
    }
  }
  return drawn;
}

std::string text_of(const Drawn& drawn) {
  const Call& call = drawn.call;
  std::string text = "seed " + std::to_string(call.seed) + ": " +
                     std::to_string(drawn.group.ranks) + " ranks, root " +
                     std::to_string(drawn.group.root) + ", " + std::to_string(call.count) + " " +
                     name_of(call.dtype) + ", " + name_of(call.op) + ", chunks of " +
                     std::to_string(call.chunk_elements) + (call.in_place ? ", in place" : "");
  for (const std::size_t count : call.counts) text += " " + std::to_string(count);
  return text;
}

class EveryPlanInterpreted : public testing::TestWithParam<Builder> {
 protected:
  void expect_right(const Drawn& drawn) {
    SCOPED_TRACE(text_of(drawn));
    const std::vector<Plan> plans = plans_of(GetParam(), drawn.group);
    RankBuffers buffers(plans, drawn.call);
    const Status status = interpret(plans, buffers.sizes, buffers.inputs, buffers.outputs,
                                    drawn.call.interpretation());
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(buffers.check(), "");
  }
};

TEST_P(EveryPlanInterpreted, gives_the_bytes_that_the_collective_defines) {
  std::uint64_t seed = 0;
  for (const std::uint32_t ranks : {1, 2, 3, 4, 5, 7, 8, 13}) {
    for (const std::size_t count : {0, 1, 7, 65, 300, 1000}) {
      for (int draws = 0; draws < 6; ++draws) {
        const bool varying = GetParam().varying && draws % 2 == 0;
        expect_right(draw(GetParam(), ranks, count, varying, ++seed));
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(builders, EveryPlanInterpreted, testing::ValuesIn(group_builders()),
                         TestName());

}  // namespace
}  // namespace hocket::internal::second
