// A DistributedSampler for libtorch's DataLoader.
//
//   hocket::training::DistributedSampler samples(dataset.size().value(), comm, {.seed = 1});
//   auto loader = torch::data::make_data_loader(
//       dataset, hocket::training::LoaderSampler(samples), batch size of this rank);
//   for (int epoch = 0; epoch < epochs; ++epoch) {
//     samples.set_epoch(epoch);
//     for (auto& batch : *loader) ...
//   }
#pragma once

#include <torch/data/samplers/base.h>

#include <hocket/training/sampler.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hocket::training {

/// Asks a sampler, which must outlive the loader. The begin of the loader goes on where the sampler
/// is, or, if its epoch has ended, with the next epoch.
///
/// A loader with worker threads reads ahead, and samples.state() with it. To save the state of what
/// the program has trained on, use no workers.
class LoaderSampler final : public ::torch::data::samplers::Sampler<> {
 public:
  explicit LoaderSampler(DistributedSampler& samples) : samples_(&samples) {}

  void reset(std::optional<std::size_t> new_size = std::nullopt) override {
    if (new_size.has_value()) {
      throw InvalidUsage("hocket::training::LoaderSampler",
                         "a DistributedSampler cannot change its size: make a new one");
    }
    if (samples_->consumed() == samples_->size()) samples_->set_epoch(samples_->epoch() + 1);
  }
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override {
    const std::vector<std::uint64_t> samples = samples_->next_batch(batch_size);
    if (samples.empty()) return std::nullopt;
    return std::vector<std::size_t>(samples.begin(), samples.end());
  }
  void save(::torch::serialize::OutputArchive& /*archive*/) const override { refuse(); }
  void load(::torch::serialize::InputArchive& /*archive*/) override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw InvalidUsage("hocket::training::LoaderSampler",
                       "put DistributedSampler::state() into the checkpoint instead of the "
                       "loader's sampler");
  }
  DistributedSampler* samples_;
};

}  // namespace hocket::training
