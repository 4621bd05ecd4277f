// Ranks with different numbers of batches, driven as a hand-written training loop drives them.
#include <gtest/gtest.h>

#include <cstring>
#include <hocket/training/join.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::run_ranks;

std::vector<Parameter> two_parameters() {
  return {{"weight", hocketFloat32, {9, 4}, {}}, {"bias", hocketFloat32, {21}, {}}};
}

/// Whole numbers.
float value(int rank, int step, int parameter, std::size_t element) {
  return static_cast<float>(100 * (rank + 1) + 10 * step + 5 * parameter +
                            static_cast<int>(element % 3));
}

/// A program that keeps its gradients from step to step until it zeroes them, as libtorch does.
class Keeper final : public GradientOwner {
 public:
  Keeper(Communicator& comm, ReducerOptions options) : rank(comm.rank()) {
    options.limits = {.first_bytes = 1, .bytes = 1};
    options.owner = this;
    reducer = std::make_unique<GradientReducer>(comm, two_parameters(), options);
  }
  void backward(int step, bool synchronize = true) {
    reducer->begin(synchronize);
    for (const int p : {1, 0}) {
      std::vector<float>& own = kept[p];
      own.resize(two_parameters()[static_cast<std::size_t>(p)].elements());
      for (std::size_t i = 0; i < own.size(); ++i) own[i] = value(rank, step, p, i);
      if (void* const place = reducer->gradient(p); place != nullptr) deliver(p, place);
      reducer->ready(p);
    }
    reducer->end();
  }

  bool needs_gradient(int parameter) override { return kept.contains(parameter); }
  void moved(int, void*) override {}
  void deliver(int parameter, void* place) override {
    const std::vector<float>& own = kept.at(parameter);
    std::memcpy(place, own.data(), own.size() * sizeof(float));
  }

  const int rank;
  std::unique_ptr<GradientReducer> reducer;
  std::map<int, std::vector<float>> kept;
};

/// The ranks from first_active on have data.
void expect_averages(GradientReducer& reducer, int step, int first_active, bool by_active) {
  const int ranks = reducer.communicator().ranks();
  for (const TensorRange& held : reducer.held()) {
    const int p = held.tensor.name == "weight" ? 0 : 1;
    for (std::size_t i = 0; i < held.elements; ++i) {
      float sum = 0;
      for (int rank = first_active; rank < ranks; ++rank) {
        sum += value(rank, step, p, held.begin + i);
      }
      ASSERT_FLOAT_EQ(static_cast<const float*>(held.data)[i],
                      sum / static_cast<float>(by_active ? ranks - first_active : ranks))
          << held.tensor.name << ' ' << i << " in step " << step;
    }
  }
}

TEST(Join, of_a_rank_that_keeps_the_averages_of_its_last_step_the_others_get_zeros) {
  for (const int ranks : {2, 3}) {
    for (const bool by_active : {false, true}) {
      run_ranks(ranks, [&](Communicator& comm) {
        Keeper keeper(comm, {});
        for (const int extra : {2, 2, 0}) {  // in the last epoch rank 0 has no data at all
          Join join(*keeper.reducer, {.divide_by_active = by_active});
          for (int step = 0; step < extra + 2 * comm.rank(); ++step) {
            keeper.backward(step);
            expect_averages(*keeper.reducer, step, (step + 2 - extra) / 2, by_active);
          }
          join.finish();
          expect_averages(*keeper.reducer, extra + 2 * ranks - 3, ranks - 1, by_active);
        }
      });
    }
  }
}

}  // namespace
}  // namespace hocket::training
