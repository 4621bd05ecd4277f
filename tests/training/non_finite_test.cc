// Gradients that are NaN or infinite on a rank before they are reduced.
#include <gtest/gtest.h>

#include <algorithm>
#include <hocket/training/clip.hpp>
#include <hocket/training/loss_scaler.hpp>
#include <hocket/training/non_finite.hpp>
#include <limits>

#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::run_ranks;

constexpr float infinite = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr Sharding kept_shardings[] = {Sharding::none, Sharding::zero1, Sharding::zero2};

std::vector<Parameter> non_finite_model() {
  return {{"first", hocketFloat32, {37}, {}},
          {"second", hocketFloat32, {90}, {}},
          {"third", hocketFloat32, {11}, {}}};
}

/// Every parameter has a bucket of its own, so that in zero2 one is reduced while others arrive.
ReducerOptions non_finite_options(Sharding sharding, bool overlaps,
                                  OnNonFinite on_non_finite = OnNonFinite::error) {
  return {.limits = {.first_bytes = 1, .bytes = 1},
          .sharding = sharding,
          .on_non_finite = on_non_finite,
          .least_overlap_us = overlaps ? 0 : infinite};
}

void fill(GradientReducer& reducer, int p, float value) {
  const std::size_t elements = reducer.parameters()[static_cast<std::size_t>(p)].elements();
  std::fill_n(static_cast<float*>(reducer.gradient(p)), elements, value);
}

/// Where a gradient is wrong.
struct Wrong {
  int parameter = 0;
  std::size_t element = 0;
  float value = not_a_number;
};

void non_finite_backward(GradientReducer& reducer, const std::vector<Wrong>& wrong,
                         bool synchronize = true) {
  reducer.begin(synchronize);
  for (const int p : {2, 1, 0}) {
    fill(reducer, p, 1);
    for (const Wrong& each : wrong) {
      if (each.parameter != p) continue;
      static_cast<float*>(reducer.gradient(p))[each.element] = each.value;
    }
    reducer.ready(p);
  }
  reducer.end();
}

void expect_finite_backward(GradientReducer& reducer) {
  non_finite_backward(reducer, {});
  EXPECT_EQ(reducer.non_finite(), nullptr);
  for (const TensorRange& range : reducer.held()) {
    for (std::size_t i = 0; i < range.elements; ++i) {
      ASSERT_EQ(static_cast<const float*>(range.data)[i], 1) << range.tensor.name << ' ' << i;
    }
  }
  reducer.discard();
}

TEST(NonFinite, an_own_gradient_is_an_error_of_backward_on_all_ranks_and_names_the_rank) {
  for (const int ranks : {2, 3}) {
    for (const Sharding sharding : kept_shardings) {
      for (const bool overlaps : {false, true}) {
        run_ranks(ranks, [&](Communicator& comm) {
          GradientReducer reducer(comm, non_finite_model(), non_finite_options(sharding, overlaps));
          const int last = comm.ranks() - 1;
          for (int step = 0; step < 3; ++step) {
            // Not where this rank holds the average, if it is sharded.
            std::vector<Wrong> wrong;
            if (comm.rank() == last) wrong = {{2, 10, -infinite}, {1, 3, not_a_number}};
            try {
              non_finite_backward(reducer, wrong);
              ADD_FAILURE() << "no error";
            } catch (const InvalidArgument& error) {
              EXPECT_EQ(error.culprit(), last);
              const std::string expected =
                  "the gradient of parameter 'second' (float32, 90) is NaN "
                  "or infinite on rank " +
                  std::to_string(last) + " (and those of 1 more parameters)";
              EXPECT_NE(std::string(error.what()).find(expected), std::string::npos)
                  << error.what();
            }
            expect_finite_backward(reducer);
          }
        });
      }
    }
  }
}

TEST(NonFinite, own_gradients_of_several_ranks_are_named_together) {
  run_ranks(3, [](Communicator& comm) {
    GradientReducer reducer(comm, non_finite_model());
    std::vector<Wrong> wrong;
    if (comm.rank() != 1) wrong = {{0, 36, not_a_number}};
    try {
      non_finite_backward(reducer, wrong);
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.culprit(), -1);
      EXPECT_NE(std::string(error.what()).find("infinite on ranks 0 and 2, before"),
                std::string::npos)
          << error.what();
    }
  });
}

/// Keeps the gradients that have no place yet.
class Keeps final : public GradientOwner {
 public:
  bool needs_gradient(int) override { return false; }
  void moved(int, void*) override {}
  void deliver(int parameter, void* place) override {
    ++delivered;
    static_cast<float*>(place)[0] = parameter == 0 ? value : 1;
  }
  float value = 1;
  int delivered = 0;
};

TEST(NonFinite, an_owner_that_keeps_a_gradient_in_zero2_is_no_way_around) {
  run_ranks(2, [](Communicator& comm) {
    Keeps owner;
    ReducerOptions options = non_finite_options(Sharding::zero2, true);
    options.owner = &owner;
    GradientReducer reducer(comm, non_finite_model(), options);
    owner.value = comm.rank() == 1 ? not_a_number : 1;
    reducer.begin();
    EXPECT_EQ(reducer.gradient(0), nullptr);  // the third bucket: only the first two have places
    reducer.ready(0);
    for (const int p : {1, 2}) {
      fill(reducer, p, 1);
      reducer.ready(p);
    }
    const std::string message = message_of<InvalidArgument>([&] { reducer.end(); });
    EXPECT_EQ(owner.delivered, 1);
    EXPECT_NE(message.find("'first' (float32, 37) is NaN or infinite on rank 1, before"),
              std::string::npos)
        << message;
  });
}

TEST(NonFinite, a_loop_that_leaves_steps_out_learns_the_rank_and_the_parameter) {
  for (const Sharding sharding : kept_shardings) {
    run_ranks(3, [&](Communicator& comm) {
      GradientReducer reducer(comm, non_finite_model(),
                              non_finite_options(sharding, true, OnNonFinite::keep));
      LossScaler scaler;
      for (int step = 0; step < 4; ++step) {
        std::vector<Wrong> wrong;
        if (step % 2 == 0 && comm.rank() == 1) wrong = {{1, 89, infinite}};
        non_finite_backward(reducer, wrong);
        const NonFinite* const own = reducer.non_finite();
        ASSERT_EQ(own != nullptr, step % 2 == 0);
        const auto found = find_non_finite(reducer);
        ASSERT_EQ(found.has_value(), step % 2 == 0);
        if (own != nullptr) {
          for (const NonFinite& each : {*own, *found}) {
            EXPECT_EQ(each.parameter.name, "second");
            EXPECT_EQ(each.ranks, std::vector<int>{1});
            EXPECT_EQ(each.parameters, 1u);
            EXPECT_FALSE(each.only_average);
          }
        }
        EXPECT_EQ(scaler.unscale(reducer), step % 2 != 0);
        scaler.update();
        reducer.discard();
      }
    });
  }
}

TEST(NonFinite, of_a_backward_that_was_not_synchronized_is_found_in_the_next_that_is) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, non_finite_model(), {.find_unused_parameters = true});
    reducer.begin(false);
    fill(reducer, 0, comm.rank() == 1 ? not_a_number : 1);
    reducer.ready(0);
    reducer.end();
    reducer.begin();
    fill(reducer, 1, 1);
    reducer.ready(1);
    const std::string message = message_of<InvalidArgument>([&] { reducer.end(); });
    EXPECT_NE(message.find("'first' (float32, 37) is NaN or infinite on rank 1, before"),
              std::string::npos)
        << message;
  });
}

TEST(NonFinite, stays_known_while_further_averages_are_added) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, non_finite_model(),
                            non_finite_options(Sharding::zero1, false, OnNonFinite::keep));
    std::vector<Wrong> wrong;
    // Rank 0 holds the average of this element.
    if (comm.rank() == 1) wrong = {{0, 0, not_a_number}};
    non_finite_backward(reducer, wrong);
    non_finite_backward(reducer, {});
    const auto found = find_non_finite(reducer);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->ranks, std::vector<int>{1});
    reducer.discard();
    expect_finite_backward(reducer);
  });
}

TEST(NonFinite, an_average_that_is_too_large_is_told_from_an_own_gradient) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, non_finite_model());
    non_finite_backward(reducer, {{1, 7, std::numeric_limits<float>::max()}});  // on every rank
    EXPECT_EQ(reducer.non_finite(), nullptr);
    const auto found = find_non_finite(reducer);
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(found->only_average);
    const std::string message = message_of<InvalidArgument>(
        [&] { (void)gradient_norm(reducer, {.error_if_nonfinite = true}); });
    EXPECT_NE(message.find("the average of the gradients of parameter 'second' (float32, 90) is "
                           "NaN or infinite, but the gradients of all ranks were finite before"),
              std::string::npos)
        << message;
  });
}

}  // namespace
}  // namespace hocket::training
