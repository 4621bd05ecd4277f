// What a training loop needs, with ranks in processes: hocket-run starts this program several times
// (see CMakeLists.txt), or a test does. Without hocket-run there is one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <hocket/training/gradients.hpp>
#include <hocket/training/groups.hpp>
#include <hocket/training/loss_scaler.hpp>
#include <hocket/training/non_finite.hpp>
#include <hocket/training/sampler.hpp>
#include <hocket/training/token_normalisation.hpp>
#include <limits>
#include <numeric>
#include <optional>
#include <string>

#include "sanitized.h"
#include "training/child.h"

namespace hocket::training {
namespace {

/// Where one rank is different: the last.
bool is_last(const Communicator& comm) { return comm.rank() == comm.ranks() - 1; }

TEST(Processes, receive_every_sample_once_and_know_the_same_state) {
  Communicator comm = Communicator::from_environment();
  constexpr std::uint64_t size = 101;
  DistributedSampler sampler(size, comm, {.seed = 7, .tail = Tail::uneven});
  std::vector<std::uint64_t> times(size), consumed;
  for (auto batch = sampler.next_batch(4); !batch.empty(); batch = sampler.next_batch(4)) {
    for (const std::uint64_t sample : batch) ++times[sample];
  }
  comm.all_reduce(times, hocketSum);
  EXPECT_EQ(times, std::vector<std::uint64_t>(size, 1));
  EXPECT_EQ(sampler.consumed(), size);
}

TEST(Processes, agree_on_steps_that_are_left_out_and_on_the_rank_with_the_cause) {
  Communicator comm = Communicator::from_environment();
  GradientReducer reducer(comm,
                          {{"first", hocketFloat32, {9}, {}}, {"second", hocketFloat16, {7}, {}}});
  LossScaler scaler({.growth_interval = 2});
  for (int step = 0; step < 3; ++step) {
    reducer.begin(false);
    if (step == 0 && is_last(comm)) {
      static_cast<float*>(reducer.gradient(0))[8] = std::numeric_limits<float>::infinity();
    }
    for (const int p : {1, 0}) reducer.ready(p);
    reducer.end();
    const auto found = find_non_finite(reducer);
    ASSERT_EQ(found.has_value(), step == 0);
    if (found.has_value()) {
      EXPECT_EQ(found->parameter.name, "first");
      EXPECT_EQ(found->ranks, std::vector<int>{comm.ranks() - 1});
    }
    EXPECT_EQ(scaler.unscale(reducer), step != 0);
    scaler.update();
    static_cast<float*>(reducer.gradient(0))[8] = 0;
  }
  EXPECT_EQ(scaler.scale(), 65536);  // halved, and doubled after two steps
}

TEST(Processes, count_the_tokens_of_all) {
  Communicator comm = Communicator::from_environment();
  const int ranks = comm.ranks();
  const TokenNormalisation mean =
      normalise_tokens(comm, static_cast<std::uint64_t>(10 * (comm.rank() + 1)));
  EXPECT_EQ(mean.tokens, static_cast<std::uint64_t>(5 * ranks * (ranks + 1)));
  EXPECT_DOUBLE_EQ(mean.factor, ranks / static_cast<double>(mean.tokens));
}

TEST(Processes, are_a_mesh) {
  Communicator comm = Communicator::from_environment();
  Mesh mesh(comm, {{"replicate", comm.ranks() % 2 == 0 ? 2 : 1}, {"shard", -1}});
  const int sum = mesh.along("shard").all_reduce(comm.rank(), hocketSum);
  EXPECT_EQ(mesh.along("replicate").all_reduce(sum, hocketSum),
            comm.ranks() * (comm.ranks() - 1) / 2);
}

/// A rank of hocket-run. A new communicator gets the handle of a destroyed one when some thousands
/// have been destroyed since. All ranks destroy the same communicators, so they get it at the same
/// time.
TEST(StepOrderChild, DISABLED_makes_reducers_of_two_communicators_with_one_handle) {
  Communicator comm = Communicator::from_environment();
  const auto backward = [](GradientReducer& reducer) {
    reducer.begin();
    reducer.ready(0);
    reducer.end();
    reducer.discard();
  };
  const std::vector<Parameter> model = {{"weight", hocketFloat32, {9}, {}}};
  hocketComm_t handle = nullptr;
  std::optional<GradientReducer> first;  // keeps the order of `part`
  {
    Communicator part = comm.split(is_last(comm) ? 1 : 0, -comm.rank());
    handle = part.get();
    first.emplace(part, model);
    backward(*first);
  }
  std::optional<Communicator> again;
  for (int made = 0; made < 10'000 && !again; ++made) {
    Communicator next = comm.duplicate();
    if (next.get() == handle) again = std::move(next);
  }
  ASSERT_TRUE(again.has_value()) << "no communicator had the handle";
  GradientReducer second(*again, model), third(*again, model);
  backward(second);
  backward(*first);
  // All ranks of the new communicator compare their backwards, not those of `part` alone.
  EXPECT_THROW(backward(is_last(comm) ? third : second), Mismatch);
}

TEST(StepOrder, is_not_shared_by_communicators_with_one_handle) {
  if (tests::sanitized) GTEST_SKIP() << "thousands of communicators: the Release build makes them";
  const std::string child =
      "HOCKET_DEADLINE_MS=10000 " + tests::hocket_run(3) + tests::command_of("StepOrderChild.*");
  EXPECT_EQ(0, std::system(child.c_str()));
}

}  // namespace
}  // namespace hocket::training
