// What a training loop needs, with ranks in processes: hocket-run starts this program several times
// (see CMakeLists.txt). Without hocket-run there is one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <hocket/training/groups.hpp>
#include <hocket/training/loss_scaler.hpp>
#include <hocket/training/non_finite.hpp>
#include <hocket/training/sampler.hpp>
#include <hocket/training/token_normalisation.hpp>
#include <limits>
#include <numeric>

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

}  // namespace
}  // namespace hocket::training
