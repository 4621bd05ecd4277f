// A DistributedSampler behind libtorch's DataLoader.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <hocket/training/torch/loader_sampler.hpp>
#include <numeric>

#include "training/ranks.h"

namespace hocket::training {
namespace {

/// Sample i is the number i.
struct Numbers : torch::data::datasets::Dataset<Numbers, std::int64_t> {
  explicit Numbers(std::size_t count) : count(count) {}
  std::int64_t get(std::size_t index) override { return static_cast<std::int64_t>(index); }
  std::optional<std::size_t> size() const override { return count; }
  std::size_t count;
};

TEST(LoaderSampler, gives_every_sample_to_one_rank_in_each_epoch) {
  constexpr std::size_t count = 23;
  std::vector<std::int64_t> every(count);
  std::iota(every.begin(), every.end(), 0);
  for (const std::size_t workers : {0, 2}) {
    std::vector<std::vector<std::int64_t>> epochs(3);
    for (const int rank : {0, 1, 2}) {
      DistributedSampler samples(count, rank, 3, {.seed = 2, .tail = Tail::uneven});
      auto loader =
          torch::data::make_data_loader(Numbers(count), LoaderSampler(samples),
                                        torch::data::DataLoaderOptions(4).workers(workers));
      for (std::uint64_t epoch = 0; epoch < epochs.size(); ++epoch) {
        if (epoch == 1) samples.set_epoch(1);  // epoch 2 begins by itself
        std::size_t received = 0;
        for (const auto& batch : *loader) {
          received += batch.size();
          epochs[epoch].insert(epochs[epoch].end(), batch.begin(), batch.end());
        }
        EXPECT_EQ(samples.epoch(), epoch);
        EXPECT_EQ(samples.consumed(), count);
        EXPECT_EQ(received, rank < 2 ? 8u : 7u);
      }
    }
    EXPECT_NE(epochs[0], epochs[1]);
    EXPECT_NE(epochs[1], epochs[2]);
    for (auto& epoch : epochs) {
      std::ranges::sort(epoch);
      EXPECT_EQ(epoch, every);
    }
  }
}

TEST(LoaderSampler, goes_on_in_the_middle_of_an_epoch) {
  DistributedSampler samples(12, 0, 1, {.seed = 3}), others(12, 0, 1);
  auto all = samples.next_batch(12);
  samples.set_epoch(0);
  (void)samples.next_batch(5);
  others.resume(samples.state());
  auto loader = torch::data::make_data_loader(Numbers(12), LoaderSampler(others), 4);
  std::vector<std::uint64_t> rest;
  for (const auto& batch : *loader) rest.insert(rest.end(), batch.begin(), batch.end());
  EXPECT_EQ(rest, std::vector<std::uint64_t>(all.begin() + 5, all.end()));
}

TEST(LoaderSampler, what_it_cannot_do_is_refused) {
  DistributedSampler samples(12, 0, 1);
  LoaderSampler sampler(samples);
  torch::serialize::OutputArchive archive;
  EXPECT_THROW(sampler.save(archive), InvalidUsage);
  EXPECT_THROW(sampler.reset(5), InvalidUsage);
}

}  // namespace
}  // namespace hocket::training
