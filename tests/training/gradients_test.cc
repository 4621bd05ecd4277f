// The reducer of gradients, driven as a hand-written training loop drives it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <hocket/training/gradients.hpp>
#include <hocket/training/join.hpp>
#include <limits>
#include <random>

#include "sanitized.h"
#include "seed.h"
#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::run_ranks;

Parameter parameter(const std::string& name, std::vector<std::int64_t> sizes,
                    hocketDataType_t dtype = hocketFloat32) {
  return {name, dtype, std::move(sizes), {}};
}

std::vector<Parameter> small_model() {
  return {parameter("first.weight", {8, 3}), parameter("first.bias", {8}),
          parameter("second.weight", {5, 8}), parameter("second.bias", {5})};
}

/// So that every parameter has a bucket of its own.
constexpr BucketLimits one_each{.first_bytes = 1, .bytes = 1};

std::span<float> gradient(GradientReducer& reducer, int parameter) {
  return {static_cast<float*>(reducer.gradient(parameter)),
          reducer.parameters()[static_cast<std::size_t>(parameter)].elements()};
}

/// The gradient of a rank in a step: small whole numbers, so that sums and means are exact.
float value(int rank, int step, int parameter, std::size_t element) {
  return static_cast<float>((rank + 1) * 8 * (step + 1) + parameter +
                            4 * static_cast<int>(element % 5));
}

float mean(int ranks, int step, int parameter, std::size_t element) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value(rank, step, parameter, element);
  return sum / static_cast<float>(ranks);
}

void compute(GradientReducer& reducer, int rank, int step, int parameter) {
  const std::span<float> out = gradient(reducer, parameter);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = value(rank, step, parameter, i);
}

void expect_means(GradientReducer& reducer, int ranks, int step) {
  for (int p = 0; p < static_cast<int>(reducer.parameters().size()); ++p) {
    const std::span<float> out = gradient(reducer, p);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_FLOAT_EQ(out[i], mean(ranks, step, p, i)) << p << ' ' << i;
    }
  }
}

TEST(Gradients, every_place_has_the_mean_of_all_ranks_whatever_the_order_on_each_rank) {
  const std::uint64_t seed = tests::seed();
  for (const int ranks : {1, 2, 3, 5}) {
    run_ranks(ranks, [&](Communicator& comm) {
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(comm.rank()));
      GradientReducer reducer(comm, small_model(), {.limits = one_each, .least_overlap_us = 0});
      std::vector<int> order = reverse_order(4);
      for (int step = 0; step < 6; ++step) {
        std::shuffle(order.begin(), order.end(), random);
        reducer.begin();
        for (const int p : order) {
          compute(reducer, comm.rank(), step, p);
          reducer.ready(p);
        }
        reducer.end();
        expect_means(reducer, ranks, step);
      }
    });
  }
}

TEST(Gradients, of_all_types_are_averaged_in_one_step) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(
        comm, {parameter("d", {3}, hocketFloat64), parameter("f", {3}),
               parameter("h", {3}, hocketFloat16), parameter("b", {3}, hocketBfloat16)});
    const bool first = comm.rank() == 0;
    for (int step = 0; step < 3; ++step) {
      reducer.begin();
      std::fill_n(static_cast<double*>(reducer.gradient(0)), 3, first ? 1.0 : 2.0);
      std::fill_n(static_cast<float*>(reducer.gradient(1)), 3, first ? 1.0f : 2.0f);
      std::fill_n(static_cast<std::uint16_t*>(reducer.gradient(2)), 3, first ? 0x3c00 : 0x4000);
      std::fill_n(static_cast<std::uint16_t*>(reducer.gradient(3)), 3, first ? 0x3f80 : 0x4000);
      for (const int p : {3, 2, 1, 0}) reducer.ready(p);
      reducer.end();
      EXPECT_EQ(static_cast<double*>(reducer.gradient(0))[2], 1.5);
      EXPECT_EQ(static_cast<float*>(reducer.gradient(1))[2], 1.5f);
      EXPECT_EQ(static_cast<std::uint16_t*>(reducer.gradient(2))[2], 0x3e00);
      EXPECT_EQ(static_cast<std::uint16_t*>(reducer.gradient(3))[2], 0x3fc0);
    }
  });
}

TEST(Gradients, are_reduced_while_backward_still_computes) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model(), {.limits = one_each, .least_overlap_us = 0});
    for (int step = 0; step < 2; ++step) {
      reducer.begin();
      for (const int p : {3, 2, 1, 0}) {
        compute(reducer, comm.rank(), step, p);
        reducer.ready(p);
        if (step == 0 || p != 3) continue;
        const volatile float* place = gradient(reducer, 3).data();
        // Before end(). The other rank writes there meanwhile: a race, which the test wants to see.
        while (!tests::thread_sanitized && *place != mean(2, step, 3, 0)) {
          std::this_thread::yield();
        }
      }
      reducer.end();
    }
  });
}

/// By default such a small model's buckets are reduced by end(). With a sanitizer the figures from
/// which their time is estimated are wrong.
ReducerOptions with_default_overlap() {
  ReducerOptions options{.limits = one_each};
  if (tests::sanitized) options.least_overlap_us = std::numeric_limits<float>::infinity();
  return options;
}

TEST(Gradients, tell_when_their_buckets_were_communicated) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model(), with_default_overlap());
    for (int step = 0; step < 3; ++step) {
      const double begin = now_s();
      reducer.begin();
      for (const int p : {3, 2, 1, 0}) reducer.ready(p);
      reducer.end();
      const CommunicationTimings timings = reducer.last_timings();
      ASSERT_EQ(timings.buckets.size(), 4u);
      double last = begin;
      for (const BucketTiming& bucket : timings.buckets) {
        EXPECT_EQ(bucket.bytes,
                  reducer.layout().buckets()[static_cast<std::size_t>(bucket.bucket)].bytes());
        EXPECT_LE(begin, bucket.begin_s);
        EXPECT_LE(bucket.begin_s, bucket.end_s);
        EXPECT_LE(last, bucket.end_s);
        last = bucket.end_s;
      }
      EXPECT_LE(timings.wait_begin_s, timings.wait_end_s);
      EXPECT_LE(last, timings.wait_end_s);
      EXPECT_LE(timings.wait_end_s, now_s());
    }
  });
}

TEST(Gradients, that_take_little_time_are_reduced_at_the_end) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model(), with_default_overlap());
    for (int step = 0; step < 2; ++step) {
      reducer.begin();
      for (const int p : {3, 2, 1, 0}) {
        compute(reducer, comm.rank(), step, p);
        reducer.ready(p);
      }
      const float own = gradient(reducer, 3)[0];
      comm.barrier();  // the other rank has launched its buckets, too
      EXPECT_EQ(gradient(reducer, 3)[0], own);
      reducer.end();
      expect_means(reducer, 2, step);
    }
  });
}

TEST(Gradients, after_the_first_backward_buckets_have_the_order_of_rank_0) {
  run_ranks(3, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model(), {.limits = one_each, .least_overlap_us = 0});
    const std::vector<int> order =
        comm.rank() == 0 ? std::vector<int>{1, 3, 0, 2} : std::vector<int>{0, 1, 2, 3};
    for (int step = 0; step < 3; ++step) {
      reducer.begin();
      if (step > 0) {
        std::vector<int> of_buckets;
        for (const Bucket& bucket : reducer.layout().buckets()) {
          of_buckets.push_back(bucket.slots[0].parameter);
        }
        EXPECT_EQ(of_buckets, (std::vector<int>{1, 3, 0, 2}));
      }
      for (const int p : order) {
        compute(reducer, comm.rank(), step, p);
        reducer.ready(p);
      }
      reducer.end();
      expect_means(reducer, 3, step);
    }
  });
}

/// Needs the gradients of some parameters from step to step.
class KeepsSome final : public GradientOwner {
 public:
  bool needs_gradient(int parameter) override { return parameter % 2 == 0; }
  void moved(int parameter, void* place) override { places[parameter] = place; }
  std::map<int, void*> places;
};

TEST(Gradients, that_the_program_needs_move_with_their_places) {
  run_ranks(2, [](Communicator& comm) {
    KeepsSome owner;
    GradientReducer reducer(comm, small_model(), {.limits = one_each, .owner = &owner});
    reducer.begin();
    for (const int p : {0, 1, 2, 3}) {
      compute(reducer, comm.rank(), 0, p);
      reducer.ready(p);
    }
    reducer.end();
    reducer.begin();
    for (int p = 0; p < 4; ++p) {
      EXPECT_EQ(owner.places.at(p), reducer.gradient(p));
      EXPECT_EQ(gradient(reducer, p)[1], p % 2 == 0 ? mean(2, 0, p, 1) : 0.0f);
    }
  });
}

TEST(Gradients, add_up_over_backwards_that_do_not_synchronize) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model(), {.limits = one_each, .least_overlap_us = 0});
    for (int round = 0; round < 3; ++round) {
      for (int p = 0; p < 4; ++p) std::ranges::fill(gradient(reducer, p), 0.0f);
      for (const bool synchronize : {false, false, true}) {
        reducer.begin(synchronize);
        EXPECT_EQ(reducer.synchronizes(), synchronize);
        for (const int p : {3, 2, 1, 0}) {
          for (float& element : gradient(reducer, p))
            element += 1.0f + static_cast<float>(comm.rank());
          reducer.ready(p);
        }
        reducer.end();
        if (synchronize) {
          EXPECT_EQ(gradient(reducer, 2)[3], 4.5f);
        }
      }
    }
  });
}

TEST(Gradients, a_parameter_without_a_gradient_on_one_rank_is_an_error_on_all) {
  run_ranks(3, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model(), {.limits = one_each, .least_overlap_us = 0});
    for (int step = 0; step < 4; ++step) {
      const bool skips = step == 2 && comm.rank() == 1;
      reducer.begin();
      for (const int p : {3, 2, 1, 0}) {
        if (skips && p == 2) continue;
        compute(reducer, comm.rank(), step, p);
        reducer.ready(p);
      }
      if (step != 2) {
        reducer.end();
        expect_means(reducer, 3, step);  // after the error too
        continue;
      }
      try {
        reducer.end();
        ADD_FAILURE() << "no error";
      } catch (const Mismatch& error) {
        EXPECT_EQ(error.culprit(), 1);
        EXPECT_NE(
            std::string(error.what())
                .find("parameter 'second.weight' (float32, 5 x 8) received no gradient in this "
                      "backward on rank 1, but received one on the other ranks"),
            std::string::npos)
            << error.what();
      }
    }
  });
}

TEST(Gradients, a_parameter_that_no_rank_uses_is_an_error_in_the_first_step_too) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model());
    reducer.begin();
    for (const int p : {3, 0}) reducer.ready(p);
    const std::string message = message_of<Mismatch>([&] { reducer.end(); });
    EXPECT_NE(message.find("'first.bias' (float32, 8) received no gradient in this backward on any "
                           "rank (1 more parameters have a problem too)"),
              std::string::npos)
        << message;
  });
}

TEST(Gradients, unused_parameters_count_as_zero_where_they_are_allowed) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model(),
                            {.limits = one_each, .find_unused_parameters = true});
    for (int step = 0; step < 4; ++step) {
      reducer.begin();
      for (const int p : {3, 2, 1, 0}) {
        if (p == 1 || (p == 2 && comm.rank() == 0)) {  // 1 is used by no rank, 2 by rank 1 only
          if (step % 2 == 0) reducer.absent(p);        // else known at the end
          continue;
        }
        compute(reducer, comm.rank(), step, p);
        reducer.ready(p);
      }
      reducer.end();
      EXPECT_TRUE(reducer.was_used(0));
      EXPECT_FALSE(reducer.was_used(1));
      EXPECT_TRUE(reducer.was_used(2));
      EXPECT_EQ(gradient(reducer, 0)[3], mean(2, step, 0, 3));
      EXPECT_EQ(gradient(reducer, 1)[3], 0.0f);
      EXPECT_EQ(gradient(reducer, 2)[3], value(1, step, 2, 3) / 2);
    }
  });
}

TEST(Gradients, an_unused_parameter_keeps_what_earlier_backwards_added_up) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model(),
                            {.limits = one_each, .find_unused_parameters = true});
    reducer.begin(false);
    for (const int p : {3, 2, 1, 0}) {
      compute(reducer, comm.rank(), 0, p);
      reducer.ready(p);
    }
    reducer.end();
    reducer.begin();
    for (const int p : {3, 1, 0}) reducer.ready(p);  // 2 is used in the backward before only
    reducer.end();
    EXPECT_TRUE(reducer.was_used(2));
    expect_means(reducer, 2, 0);
  });
}

TEST(Gradients, a_parameter_that_becomes_ready_twice_is_reduced_after_the_second_time) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model(), {.limits = one_each, .least_overlap_us = 0});
    for (int step = 0; step < 3; ++step) {
      reducer.begin();
      std::ranges::fill(gradient(reducer, 3), 1.0f);  // the module of parameter 3 is used twice
      reducer.ready(3);
      compute(reducer, comm.rank(), step, 2);
      reducer.ready(2);
      for (float& element : gradient(reducer, 3)) element += 2.0f;
      for (const int p : {3, 1, 0}) {
        if (p != 3) compute(reducer, comm.rank(), step, p);
        reducer.ready(p);
      }
      reducer.end();
      EXPECT_EQ(gradient(reducer, 3)[0], 3.0f);
    }
  });
}

TEST(Gradients, a_gradient_that_comes_after_its_bucket_was_reduced_is_an_error_on_all_ranks) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model(), {.limits = one_each, .least_overlap_us = 0});
    for (int step = 0; step < 2; ++step) {
      reducer.begin();
      for (const int p : {3, 2, 1, 0}) {
        compute(reducer, comm.rank(), step, p);
        reducer.ready(p);
      }
      if (step == 0) {
        reducer.end();
        continue;
      }
      if (comm.rank() == 0) reducer.ready(3);
      const std::string message = message_of<Mismatch>([&] { reducer.end(); });
      EXPECT_NE(message.find("'second.bias' (float32, 5) received a gradient on rank 0 after its "
                             "bucket had been reduced"),
                std::string::npos)
          << message;
    }
  });
}

TEST(Gradients, models_that_differ_are_refused_on_all_ranks_with_the_first_difference) {
  struct Case {
    std::vector<Parameter> other;
    std::string message;
  };
  std::vector<Parameter> longer = small_model(), renamed = small_model(), wider = small_model(),
                         typed = small_model(), strided = small_model();
  longer.push_back(parameter("third.weight", {2}));
  renamed[1].name = "first.offset";
  wider[2].sizes = {5, 9};
  typed[3].dtype = hocketFloat64;
  strided[0].strides = {1, 8};
  const Case cases[] = {
      {longer,
       "at parameter 4: rank 0 has no parameter there (of 4), rank 2 has 'third.weight' "
       "(float32, 2) (of 5)"},
      {renamed,
       "at parameter 1: rank 0 has 'first.bias' (float32, 8) there (of 4), rank 2 has "
       "'first.offset' (float32, 8) (of 4)"},
      {wider, "rank 2 has 'second.weight' (float32, 5 x 9)"},
      {typed, "rank 2 has 'second.bias' (float64, 5)"},
      {strided, "rank 2 has 'first.weight' (float32, 8 x 3), strides 1 x 8"},
  };
  for (const Case& each : cases) {
    run_ranks(3, [&](Communicator& comm) {
      const std::string message = message_of<Mismatch>(
          [&] { GradientReducer reducer(comm, comm.rank() == 2 ? each.other : small_model()); });
      EXPECT_NE(message.find(each.message), std::string::npos) << message;
    });
  }
}

TEST(Gradients, wrong_parameters_and_calls_are_refused) {
  run_ranks(1, [](Communicator& comm) {
    EXPECT_NE(message_of<InvalidArgument>([&] {
                GradientReducer reducer(comm, {parameter("n", {2}, hocketInt64)});
              }).find("parameter 'n'"),
              std::string::npos);
    EXPECT_NE(message_of<InvalidArgument>([&] {
                GradientReducer reducer(comm, {parameter("n", {2}), parameter("n", {3})});
              }).find("two parameters have the name 'n'"),
              std::string::npos);
    GradientReducer reducer(comm, small_model());
    EXPECT_THROW(reducer.ready(0), InvalidUsage);
    EXPECT_THROW(reducer.end(), InvalidUsage);
    reducer.begin();
    EXPECT_THROW(reducer.absent(0), InvalidUsage);
    reducer.begin();  // a forward without a backward
    for (const int p : {3, 2, 1, 0}) reducer.ready(p);
    EXPECT_NE(message_of<InvalidUsage>([&] { reducer.begin(); }).find("end() was not called"),
              std::string::npos);
    reducer.begin();
  });
}

TEST(Gradients, parameters_that_one_rank_refuses_are_an_error_on_all_ranks) {
  run_ranks(3, [](Communicator& comm) {
    std::vector<Parameter> mine = small_model();
    if (comm.rank() == 1) mine[2].dtype = hocketInt64;
    const std::string message =
        message_of<InvalidArgument>([&] { GradientReducer reducer(comm, mine); });
    EXPECT_NE(message.find("parameter 'second.weight' has the datatype"), std::string::npos)
        << message;
    EXPECT_NE(message.find("rank 1: "), std::string::npos) << message;
  });
}

TEST(Gradients, with_a_static_graph_what_the_first_backward_left_out_is_not_waited_for) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(
        comm, small_model(),
        {.limits = one_each, .static_graph = true, .reorder = false, .least_overlap_us = 0});
    for (int step = 0; step < 3; ++step) {
      reducer.begin();
      for (const int p : {3, 1, 0}) {  // 2 is never used; rank 1 never uses 1
        if (p == 1 && comm.rank() == 1) continue;
        compute(reducer, comm.rank(), step, p);
        reducer.ready(p);
        if (step == 0 || p != 1) continue;
        // The bucket of 2, which lies before that of 1, does not hold this one back.
        const volatile float* place = gradient(reducer, 1).data();
        const double limit = now_s() + 20;
        while (!tests::thread_sanitized && *place != value(0, step, 1, 0) / 2) {
          ASSERT_LT(now_s(), limit) << "the bucket of parameter 1 is not reduced before end()";
          std::this_thread::yield();
        }
      }
      reducer.end();
      EXPECT_FALSE(reducer.was_used(2));
      EXPECT_TRUE(reducer.was_used(1));
      EXPECT_EQ(gradient(reducer, 0)[3], mean(2, step, 0, 3));
      EXPECT_EQ(gradient(reducer, 1)[3], value(0, step, 1, 3) / 2);
      EXPECT_EQ(gradient(reducer, 2)[3], 0.0f);
    }
    // Now rank 0 uses parameter 2, and rank 1 does not use parameter 0.
    reducer.begin();
    for (const int p : {3, 2, 1, 0}) {
      if (comm.rank() == 1 && p != 3) continue;
      // The place of 2 is being reduced already: wrong use, in which the sanitizer sees a race.
      if (p != 2 || !tests::thread_sanitized) compute(reducer, comm.rank(), 3, p);
      reducer.ready(p);
    }
    const std::string message = message_of<Mismatch>([&] { reducer.end(); });
    EXPECT_NE(message.find("'first.weight' (float32, 8 x 3) received no gradient in this backward "
                           "on rank 1"),
              std::string::npos)
        << message;
  });
}

TEST(Gradients, a_parameter_that_a_static_graph_left_out_may_receive_no_gradient_later) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model(), {.limits = one_each, .static_graph = true});
    reducer.begin();
    for (const int p : {3, 1, 0}) reducer.ready(p);
    reducer.end();
    reducer.begin();
    for (const int p : {2, 3, 1, 0}) {  // before any bucket is reduced
      if (p != 2 || comm.rank() == 1) reducer.ready(p);
    }
    const std::string message = message_of<Mismatch>([&] { reducer.end(); });
    EXPECT_NE(message.find("'second.weight' (float32, 5 x 8) received a gradient on rank 1"),
              std::string::npos)
        << message;
  });
}

TEST(Gradients, a_backward_that_fails_on_one_rank_is_told_to_the_others_and_the_next_one_works) {
  run_ranks(3, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model(), {.limits = one_each});
    for (int step = 0; step < 4; ++step) {
      reducer.begin();
      const bool fails = comm.rank() == 1 && step % 2 == 0;
      for (const int p : {3, 2, 1, 0}) {
        if (fails && p == 1) break;
        compute(reducer, comm.rank(), step, p);
        reducer.ready(p);
      }
      if (fails) {
        reducer.abandon();
        reducer.abandon();  // nothing is under way any more
        continue;
      }
      const std::string message = message_of<RemoteError>([&] { reducer.end(); });
      if (step % 2 == 1) {
        EXPECT_EQ(message, "");
        expect_means(reducer, 3, step);
      } else {
        EXPECT_NE(message.find("backward failed on rank 1"), std::string::npos) << message;
      }
    }
  });
}

TEST(Join, of_ranks_with_more_steps_the_gradients_are_reduced_with_zeros_of_those_that_are_done) {
  for (const bool divide_by_active : {false, true}) {
    run_ranks(3, [&](Communicator& comm) {
      GradientReducer reducer(comm, small_model(), {.limits = one_each});
      int root = -1;
      for (int epoch = 0; epoch < 2; ++epoch) {
        Join join(reducer, {.divide_by_active = divide_by_active,
                            .finished = [&](int rank) { root = rank; }});
        for (int step = 0; step <= comm.rank(); ++step) {  // rank 2 has three steps
          reducer.begin();
          for (const int p : {3, 2, 1, 0}) {
            compute(reducer, comm.rank(), step, p);
            reducer.ready(p);
          }
          reducer.end();
          float sum = 0;
          for (int rank = step; rank < 3; ++rank) sum += value(rank, step, 2, 4);
          EXPECT_FLOAT_EQ(gradient(reducer, 2)[4],
                          sum / static_cast<float>(divide_by_active ? 3 - step : 3));
        }
        join.finish();
        EXPECT_FLOAT_EQ(gradient(reducer, 2)[4],
                        value(2, 2, 2, 4) / (divide_by_active ? 1.0f : 3.0f));
        EXPECT_EQ(root, 2);
        EXPECT_THROW(join.finish(), InvalidUsage);
      }
    });
  }
}

TEST(Join, that_an_exception_ends_gives_the_other_ranks_an_error) {
  run_ranks(2, [](Communicator& comm) {
    Communicator short_waits = comm.duplicate({.deadline = std::chrono::seconds(20)});
    GradientReducer reducer(short_waits, small_model());
    comm.barrier();  // rank 1 fails after all ranks have their reducer
    const auto loop = [&] {
      Join join(reducer);
      if (comm.rank() == 1) throw std::runtime_error("no more data");
      join.finish();
    };
    if (comm.rank() == 1) {
      EXPECT_THROW(loop(), std::runtime_error);
    } else {
      try {
        loop();
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_NE(error.code(), hocketTimeout);
        EXPECT_EQ(error.culprit(), 1);
      }
    }
    comm.barrier();  // rank 1 has its reducer until rank 0 has its error
  });
}

TEST(Gradients, ranks_that_announce_different_calls_are_told_so) {
  run_ranks(3, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model());
    EXPECT_THROW(reducer.announce(GradientReducer::Turn::other), InvalidUsage);
    reducer.set_uneven(true);
    const std::string message = message_of<Mismatch>([&] {
      if (comm.rank() == 1) {
        reducer.begin();
      } else {
        reducer.announce(GradientReducer::Turn::other);
      }
    });
    EXPECT_NE(message.find("rank 1 began a backward while ranks 0 and 2 began a forward"),
              std::string::npos)
        << message;
  });
}

TEST(Gradients, after_an_error_a_new_reducer_has_memory_that_peers_map) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<Communicator> second;
    second.push_back(comm.duplicate());
    auto reducer = std::make_unique<GradientReducer>(comm, small_model());
    const auto path = [](GradientReducer& of) {
      of.begin();
      for (const int p : {3, 2, 1, 0}) of.ready(p);
      of.end();
      return of.communicator().memory_path(std::span(static_cast<float*>(of.gradient(0)), 24));
    };
    const hocketMemoryPath_t before = path(*reducer);
    comm.barrier();
    if (comm.rank() == 0) reducer->communicator().abort();
    EXPECT_THROW(path(*reducer), Error);
    EXPECT_EQ(static_cast<const float*>(reducer->gradient(0))[0], 0.0f);  // it stays readable
    reducer = std::make_unique<GradientReducer>(second[0], small_model());
    EXPECT_EQ(path(*reducer), before);
    EXPECT_EQ(before, hocketPathMapped);
  });
}

/// Holds bucket 0 back until bucket 1 has been reduced, on this rank.
class SecondFirst final : public BucketReduction {
 public:
  void begin(const BucketData& bucket, Communicator& comm, StreamRef stream) override {
    const auto run = [&](void (*function)(void*)) {
      check(hocketLaunchHostFunc(stream.get(), function, this), "hocketLaunchHostFunc");
    };
    if (bucket.index == 0) run([](void* self) { static_cast<SecondFirst*>(self)->await(); });
    reduce_.begin(bucket, comm, stream);
    if (bucket.index == 1) run([](void* self) { static_cast<SecondFirst*>(self)->second_ = true; });
  }
  bool in_time = true;

 private:
  void await() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!second_ && in_time) {
      std::this_thread::yield();
      in_time = std::chrono::steady_clock::now() < limit;
    }
  }
  AllReduce reduce_;
  std::atomic<bool> second_ = false;
};

TEST(Gradients, two_buckets_are_in_flight) {
  run_ranks(2, [](Communicator& comm) {
    const auto reduction = std::make_shared<SecondFirst>();
    GradientReducer reducer(
        comm, small_model(),
        {.limits = one_each, .reduction = reduction, .reorder = false, .least_overlap_us = 0});
    reducer.begin();
    for (const int p : {3, 2, 1, 0}) {
      compute(reducer, comm.rank(), 0, p);
      reducer.ready(p);
    }
    reducer.end();
    EXPECT_TRUE(reduction->in_time);
    expect_means(reducer, 2, 0);
  });
}

/// Fails on one rank, and only on the communicator of the buckets with odd indices.
class AbortsSecond final : public BucketReduction {
 public:
  void begin(const BucketData& bucket, Communicator& comm, StreamRef stream) override {
    reduce_.begin(bucket, comm, stream);
    if (bucket.index == 1 && comm.rank() == 1) comm.abort();
  }

 private:
  AllReduce reduce_;
};

TEST(Gradients, an_error_of_the_second_communicator_ends_the_reducer_on_all_ranks) {
  run_ranks(3, [](Communicator& comm) {
    GradientReducer reducer(
        comm, small_model(),
        {.limits = one_each, .reduction = std::make_shared<AbortsSecond>(), .least_overlap_us = 0});
    comm.barrier();
    reducer.begin();
    const auto backward = [&] {
      for (const int p : {3, 2, 1, 0}) reducer.ready(p);
      reducer.end();
    };
    EXPECT_NE(message_of<Error>(backward), "");
    EXPECT_THROW(reducer.begin(), Error);
    EXPECT_NE(reducer.communicator().async_error(), hocketSuccess);
  });
}

TEST(Gradients, an_error_of_the_communication_ends_the_reducer_on_all_ranks) {
  run_ranks(2, [](Communicator& comm) {
    GradientReducer reducer(comm, small_model());
    reducer.begin();
    for (const int p : {3, 2, 1, 0}) reducer.ready(p);
    comm.barrier();  // rank 1 aborts after all ranks have announced all gradients
    if (comm.rank() == 1) {
      reducer.communicator().abort();
    }
    EXPECT_THROW(reducer.end(), Error);
    EXPECT_THROW(reducer.begin(), Error);
    EXPECT_THROW(reducer.end(), Error);
  });
}

}  // namespace
}  // namespace hocket::training
