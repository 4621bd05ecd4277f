// The optimizer whose state is sharded, driven as a hand-written training loop drives it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <hocket/training/clip.hpp>
#include <hocket/training/join.hpp>
#include <hocket/training/report.hpp>
#include <hocket/training/sharded_optimizer.hpp>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "sanitized.h"
#include "training/folder.h"
#include "training/put.h"
#include "training/ranks.h"
#include "training/small_floats.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::put;
using tests::run_ranks;

std::vector<Parameter> mixed_model() {
  return {{"w1", hocketFloat32, {37, 5}, {}}, {"b1", hocketFloat32, {3}, {}},
          {"h", hocketBfloat16, {130}, {}},   {"w2", hocketFloat32, {301}, {}},
          {"d", hocketFloat64, {7, 9}, {}},   {"f", hocketFloat16, {45}, {}}};
}

constexpr BucketLimits optimizer_buckets{.first_bytes = 100, .bytes = 700};

/// A model whose backward writes to memory that the reducer gives.
class Model final : public GradientOwner {
 public:
  Model(Communicator& comm, Sharding sharding, ShardCut cut = ShardCut::elements)
      : rank(comm.rank()),
        reducer(comm, mixed_model(),
                {.limits = optimizer_buckets,
                 .sharding = sharding,
                 .cut = cut,
                 .on_non_finite = OnNonFinite::keep,
                 .owner = this}) {
    if (sharding == Sharding::none) {
      std::vector<void*> places;
      for (const Parameter& p : mixed_model()) {
        own_.emplace_back(p.elements());
        places.push_back(own_.back().data());
      }
      parameters = std::make_unique<ShardedParameters>(reducer, places);
    } else {
      parameters = std::make_unique<ShardedParameters>(reducer);
    }
    for (int p = 0; p < 6; ++p) {
      const Parameter& its = reducer.parameters()[static_cast<std::size_t>(p)];
      for (std::size_t i = 0; i < its.elements(); ++i) {
        put(its.dtype, parameters->place(p), i, std::sin(p + 0.1 * static_cast<double>(i)));
      }
    }
  }

  /// The mean over any number of ranks is exact: rank r differs by r from a whole number.
  void backward(int step, double scale = 1) {
    reducer.begin();
    // Not the order of the first buckets: without sharding, buckets change once.
    for (const int p : {4, 5, 3, 1, 2, 0}) {
      if (reducer.gradient(p) != nullptr) write(p, reducer.gradient(p), step, scale);
      kept_[p] = {step, scale};
      reducer.ready(p);
    }
    reducer.end();
  }
  void write(int p, void* place, int step, double scale) const {
    const Parameter& its = reducer.parameters()[static_cast<std::size_t>(p)];
    for (std::size_t i = 0; i < its.elements(); ++i) {
      const int centre = (step * 7 + p * 3 + static_cast<int>(i)) % 11 - 5;
      const int offset = 2 * rank - (reducer_ranks() - 1);
      put(its.dtype, place, i, scale * (centre + offset));
    }
    if (p == 0 && first_element) put(its.dtype, place, 0, *first_element);
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (int p = 0; p < 6; ++p) {
      const Parameter& its = reducer.parameters()[static_cast<std::size_t>(p)];
      const auto* const data = static_cast<const std::byte*>(parameters->place(p));
      all.insert(all.end(), data, data + its.elements() * element_bytes(its.dtype));
    }
    return all;
  }

  bool needs_gradient(int) override { return false; }
  void moved(int, void*) override {}
  void deliver(int p, void* place) override { write(p, place, kept_[p].first, kept_[p].second); }

  const int rank;
  GradientReducer reducer;
  std::unique_ptr<ShardedParameters> parameters;
  std::optional<double> first_element;  // of this rank's gradients, instead of what is computed

 private:
  int reducer_ranks() const { return const_cast<GradientReducer&>(reducer).communicator().ranks(); }
  std::vector<std::vector<double>> own_;
  std::map<int, std::pair<int, double>> kept_;
};

std::vector<AdamWGroup> no_decay_for_vectors() {
  return {{[](const Parameter& p) { return p.sizes.size() == 1; }, {.weight_decay = 0}}};
}

/// The parameters after some steps without sharding, on one rank.
std::vector<std::byte> expected_after(int steps) {
  std::vector<std::byte> bytes;
  run_ranks(1, [&](Communicator& comm) {
    Model model(comm, Sharding::none);
    ShardedAdamW optimizer(*model.parameters, {}, no_decay_for_vectors());
    for (int step = 0; step < steps; ++step) {
      model.backward(step);
      optimizer.step();
    }
    bytes = model.bytes();
  });
  return bytes;
}

TEST(ShardedAdamW, gives_every_rank_the_bits_of_one_rank_without_sharding) {
  const std::vector<std::byte> expected = expected_after(4);
  for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
    for (const ShardCut cut : {ShardCut::elements, ShardCut::parameters}) {
      for (const int ranks : {1, 2, 3, 5}) {
        if (tests::sanitized && ranks > 3) continue;  // the same code
        run_ranks(ranks, [&](Communicator& comm) {
          Model model(comm, sharding, cut);
          ShardedAdamW optimizer(*model.parameters, {}, no_decay_for_vectors());
          for (int step = 0; step < 4; ++step) {
            model.backward(step);
            EXPECT_TRUE(optimizer.step());
          }
          EXPECT_EQ(model.bytes(), expected) << static_cast<int>(sharding) << ' ' << ranks;
        });
      }
    }
  }
}

/// With ranks in processes: see CMakeLists.txt.
TEST(Processes, update_shards_and_have_the_bits_of_one_rank_without_sharding) {
  const std::vector<std::byte> expected = expected_after(4);
  Communicator comm = Communicator::from_environment();
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    Model model(comm, sharding);
    ShardedAdamW optimizer(*model.parameters, {}, no_decay_for_vectors());
    for (int step = 0; step < 4; ++step) {
      model.backward(step);
      optimizer.step();
    }
    EXPECT_EQ(model.bytes(), expected) << static_cast<int>(sharding);
  }
}

/// Three epochs in which rank r has r + 1, then r, then r + 2 batches.
struct UnevenEpochs {
  Model model;
  ShardedAdamW optimizer;
  bool by_active;
  double max_norm;  // of clipped gradients; 0: they are not clipped
  int updates = 0;

  UnevenEpochs(Communicator& comm, Sharding sharding, bool divide_by_active, double clip)
      : model(comm, sharding),
        optimizer(*model.parameters, {}, no_decay_for_vectors()),
        by_active(divide_by_active),
        max_norm(clip) {}
  void update() {
    optimizer.set_learning_rate(0.01 / ++updates);
    if (max_norm > 0) clip_grad_norm(model.reducer, max_norm);
    EXPECT_TRUE(optimizer.step({.skip_nonfinite = true}));
  }
  template <typename Update>
  void run(JoinOptions options, Update update_in_loop) {
    options.divide_by_active = by_active;
    for (const int extra : {1, 0, 2}) {
      Join join(model.reducer, options);
      for (int step = 0; step < model.rank + extra; ++step) {
        model.backward(step + extra);
        update_in_loop(join);
      }
      join.finish();
    }
  }
};

/// Without sharding, and each rank steps as long as it has data: the last rank makes all steps.
std::vector<std::byte> expected_of_uneven_ranks(int ranks, bool by_active, double max_norm) {
  std::vector<std::byte> bytes;
  run_ranks(ranks, [&](Communicator& comm) {
    UnevenEpochs epochs(comm, Sharding::none, by_active, max_norm);
    epochs.run({}, [&](Join&) { epochs.update(); });
    if (comm.rank() == ranks - 1) bytes = epochs.model.bytes();
  });
  return bytes;
}

void expect_bits_of_uneven_ranks(Communicator& comm, Sharding sharding, bool by_active,
                                 double max_norm, const std::vector<std::byte>& expected) {
  UnevenEpochs epochs(comm, sharding, by_active, max_norm);
  epochs.run({.update = [&] { epochs.update(); }}, [](Join& join) { join.update(); });
  EXPECT_EQ(epochs.updates, 3 * comm.ranks());
  EXPECT_EQ(epochs.optimizer.steps(), 3 * comm.ranks());
  EXPECT_EQ(epochs.model.bytes(), expected)
      << static_cast<int>(sharding) << ' ' << comm.ranks() << ' ' << by_active;
}

TEST(ShardedAdamW, of_ranks_with_fewer_batches_has_the_bits_of_ranks_without_sharding) {
  for (const bool by_active : {false, true}) {
    for (const int ranks : {2, 3}) {
      // With three ranks the order of the sums in the norm would change its last bits.
      const double max_norm = ranks == 2 ? 5 : 0;
      const auto expected = expected_of_uneven_ranks(ranks, by_active, max_norm);
      for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
        run_ranks(ranks, [&](Communicator& comm) {
          expect_bits_of_uneven_ranks(comm, sharding, by_active, max_norm, expected);
        });
      }
    }
  }
}

/// With ranks in processes: see CMakeLists.txt.
TEST(Processes, with_fewer_batches_update_shards_and_have_the_bits_of_ranks_without_sharding) {
  Communicator comm = Communicator::from_environment();
  const auto expected = expected_of_uneven_ranks(comm.ranks(), false, 0);
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    expect_bits_of_uneven_ranks(comm, sharding, false, 0, expected);
  }
}

TEST(ShardedAdamW, refuses_a_step_in_which_ranks_without_data_would_be_missing) {
  run_ranks(2, [](Communicator& comm) {
    Model model(comm, Sharding::zero1);
    ShardedAdamW optimizer(*model.parameters);
    Join join(model.reducer, {.update = [&] { optimizer.step(); }});
    model.backward(0);
    const auto expect_refused = [](const std::string& message) {
      EXPECT_NE(message.find("call Join::update()"), std::string::npos) << message;
    };
    expect_refused(message_of<InvalidUsage>([&] { optimizer.step(); }));
    expect_refused(message_of<InvalidUsage>([&] { optimizer.step({.skip_nonfinite = true}); }));
    expect_refused(message_of<InvalidUsage>([&] { clip_grad_norm(model.reducer, 1); }));
    join.update();
    join.finish();
    model.backward(1);
    optimizer.step();
  });
}

TEST(ShardedAdamW, groups_have_options_of_their_own) {
  run_ranks(2, [](Communicator& comm) {
    Model model(comm, Sharding::zero1);
    ShardedAdamW optimizer(*model.parameters, {.learning_rate = 0.5},
                           {{[](const Parameter& p) { return p.name == "b1"; }, {}}});
    ASSERT_EQ(optimizer.groups(), 2u);
    optimizer.options(0).learning_rate = 0;
    const auto value = [&](int p) { return *static_cast<float*>(model.parameters->place(p)); };
    const float still = value(1), moves = value(0);
    model.backward(0);
    optimizer.step();
    EXPECT_EQ(value(1), still);
    EXPECT_GT(std::abs(value(0) - moves), 0.3);
    optimizer.set_learning_rate(0);
    const float moved = value(0);
    model.backward(1);
    optimizer.step();
    EXPECT_EQ(value(0), moved);
  });
}

TEST(ShardedAdamW, scales_gradients_in_the_same_pass) {
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    run_ranks(2, [&](Communicator& comm) {
      Model plain(comm, sharding), scaled(comm, sharding);
      ShardedAdamW of_plain(*plain.parameters), of_scaled(*scaled.parameters);
      for (int step = 0; step < 3; ++step) {
        plain.backward(step);
        of_plain.step();
        scaled.backward(step, 64);
        of_scaled.step({.gradient_scale = 1.0 / 64});
      }
      EXPECT_EQ(plain.bytes(), scaled.bytes());
    });
  }
}

TEST(ShardedAdamW, skips_a_step_on_all_ranks_if_a_gradient_of_any_rank_is_not_finite) {
  for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
    run_ranks(3, [&](Communicator& comm) {
      Model model(comm, sharding), other(comm, sharding);
      ShardedAdamW optimizer(*model.parameters), of_other(*other.parameters);
      const std::vector<std::byte> before = model.bytes();
      // In the shard of one rank.
      if (comm.rank() == 1) model.first_element = std::numeric_limits<double>::infinity();
      model.backward(0);
      model.first_element.reset();
      EXPECT_FALSE(optimizer.step({.skip_nonfinite = true}));
      EXPECT_EQ(model.bytes(), before);
      EXPECT_EQ(optimizer.steps(), 0);
      // As if the step had not been.
      model.backward(1);
      EXPECT_TRUE(optimizer.step({.skip_nonfinite = true}));
      other.backward(1);
      of_other.step();
      EXPECT_EQ(model.bytes(), other.bytes());
    });
  }
}

/// The state and the parameters of all ranks, by name: what a checkpoint has.
class Saved {
 public:
  void add(const std::vector<TensorRange>& ranges) {
    const std::lock_guard lock(mutex_);
    for (const TensorRange& range : ranges) {
      const std::size_t width = element_bytes(range.tensor.dtype);
      std::vector<std::byte>& tensor = tensors_[range.tensor.name];
      tensor.resize(range.tensor.elements() * width);
      std::memcpy(tensor.data() + range.begin * width, range.data, range.elements * width);
      elements_ += range.elements;
    }
  }
  void read_into(const std::vector<TensorRange>& ranges) const {
    for (const TensorRange& range : ranges) {
      const std::size_t width = element_bytes(range.tensor.dtype);
      std::memcpy(range.data, tensors_.at(range.tensor.name).data() + range.begin * width,
                  range.elements * width);
    }
  }
  std::size_t elements() const { return elements_; }
  std::size_t names() const { return tensors_.size(); }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::byte>> tensors_;
  std::size_t elements_ = 0;
};

TEST(ShardedAdamW, goes_on_with_another_number_of_ranks_and_another_strategy) {
  const std::vector<std::byte> expected = expected_after(5);
  Saved saved;
  run_ranks(3, [&](Communicator& comm) {
    Model model(comm, Sharding::zero1);
    ShardedAdamW optimizer(*model.parameters, {}, no_decay_for_vectors());
    for (int step = 0; step < 3; ++step) {
      model.backward(step);
      optimizer.step();
    }
    saved.add(model.parameters->ranges());
    saved.add(optimizer.state());
  });
  constexpr std::size_t elements = 185 + 3 + 130 + 301 + 63 + 45;
  EXPECT_EQ(saved.elements(), 3 * elements + 130 + 45);  // master copies of two
  EXPECT_EQ(saved.names(), 6u * 3 + 2);
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    for (const int ranks : {1, 2, 4}) {
      run_ranks(ranks, [&](Communicator& comm) {
        Model model(comm, sharding);
        ShardedAdamW optimizer(*model.parameters, {}, no_decay_for_vectors());
        std::memset(model.parameters->place(0), 0, 37 * 5 * 4);
        saved.read_into(model.parameters->ranges());
        model.parameters->gather();
        saved.read_into(optimizer.state());
        optimizer.set_steps(3);
        for (int step = 3; step < 5; ++step) {
          model.backward(step);
          optimizer.step();
        }
        EXPECT_EQ(model.bytes(), expected);
      });
    }
  }
}

TEST(ShardedAdamW, makes_float32_copies_anew_of_parameters_that_were_written) {
  run_ranks(2, [](Communicator& comm) {
    Model model(comm, Sharding::zero1);
    ShardedAdamW optimizer(*model.parameters, {.learning_rate = 0});
    for (std::size_t i = 0; i < 130; ++i) put(hocketBfloat16, model.parameters->place(2), i, 3);
    optimizer.read_parameters();
    model.backward(0);
    optimizer.step();
    EXPECT_EQ(static_cast<std::uint16_t*>(model.parameters->place(2))[129],
              small::Bfloat16::narrow(3));
  });
}

TEST(ShardedAdamW, allocates_what_the_formula_says) {
  for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
    for (const int ranks : {1, 2, 3}) {
      run_ranks(ranks, [&](Communicator& comm) {
        Model model(comm, sharding);
        ShardedAdamW optimizer(*model.parameters);
        const TrainingMemory memory = optimizer.memory();
        const TrainingMemory expected =
            memory_of(sharding, mixed_model(), ranks, comm.rank(), optimizer_buckets);
        EXPECT_EQ(memory.parameter_arena, expected.parameter_arena);
        EXPECT_EQ(memory.gradient_arena, expected.gradient_arena);
        EXPECT_EQ(memory.gradient_pool, expected.gradient_pool);
        EXPECT_EQ(memory.optimizer_state, expected.optimizer_state);
      });
    }
  }
}

TEST(ShardedParameters, tell_when_their_buckets_were_gathered) {
  const tests::Folder folder;
  for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
    run_ranks(2, [&](Communicator& comm) {
      Model model(comm, sharding);
      ShardedAdamW optimizer(*model.parameters);
      StepTrace trace(comm);
      StepRecorder recorder(StepRecorder::Options{.trace = &trace});
      model.backward(0);
      recorder.begin(1);
      recorder.enter(Phase::optimizer);
      const double begin = now_s();
      optimizer.step();
      const CommunicationTimings timings = model.parameters->last_timings();
      recorder.add(timings);
      const StepReport report = recorder.end();
      trace.write(folder / "trace");
      const bool is_traced =
          tests::slurp(folder / "trace").find("\"gather 0\"") != std::string::npos;
      comm.barrier();  // all ranks have read the trace
      EXPECT_EQ(is_traced, sharding != Sharding::none);
      if (sharding == Sharding::none) {
        EXPECT_TRUE(timings.buckets.empty());
        return;
      }
      std::size_t bytes = 0;
      double last = begin;
      ASSERT_EQ(timings.buckets.size(), model.reducer.layout().buckets().size());
      for (const BucketTiming& bucket : timings.buckets) {
        bytes += model.reducer.layout().buckets()[static_cast<std::size_t>(bucket.bucket)].bytes();
        EXPECT_LE(begin, bucket.begin_s);
        EXPECT_LE(std::max(last, bucket.begin_s), bucket.end_s);
        last = bucket.end_s;
      }
      EXPECT_LE(timings.wait_begin_s, timings.wait_end_s);
      EXPECT_LE(last, timings.wait_end_s);
      EXPECT_EQ(report.bytes, bytes);
      EXPECT_GT(report.communication_s, 0);
      EXPECT_GE(report.exposed_s, timings.wait_end_s - timings.wait_begin_s);
    });
  }
}

TEST(ShardedParameters, tell_the_other_ranks_of_an_update_that_throws) {
  run_ranks(2, [](Communicator& comm) {
    Model model(comm, Sharding::zero1);
    model.backward(0);
    comm.barrier();  // rank 1 fails after the backward of all ranks
    const auto step = [&] {
      model.parameters->update(model.parameters->pieces(), [&](const ShardedParameters::Piece&) {
        if (comm.rank() == 1) throw std::runtime_error("out of luck");
      });
    };
    if (comm.rank() == 1) {
      EXPECT_EQ(message_of<std::runtime_error>(step), "out of luck");
    } else {
      EXPECT_NE(message_of<Error>(step), "");
    }
  });
}

TEST(ShardedParameters, refuse_places_of_the_program_where_gradients_are_sharded) {
  run_ranks(1, [](Communicator& comm) {
    GradientReducer sharded(comm, mixed_model(), {.sharding = Sharding::zero1});
    GradientReducer whole(comm, mixed_model());
    EXPECT_NE(message_of<InvalidUsage>([&] { ShardedParameters(sharded, {nullptr}); }), "");
    EXPECT_NE(message_of<InvalidArgument>([&] { ShardedParameters(whole, {nullptr}); }), "");
    EXPECT_NE(message_of<InvalidUsage>([&] { ShardedParameters{whole}; }), "");
  });
}

}  // namespace
}  // namespace hocket::training
