// Ranks whose backwards run in another order, or are not synchronized on some ranks only.
#include <gtest/gtest.h>

#include <algorithm>
#include <hocket/training/gradients.hpp>
#include <limits>
#include <string>
#include <vector>

#include "sanitized.h"
#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::run_ranks;

std::vector<Parameter> model(const std::string& name) {
  return {{name + ".first", hocketFloat32, {37}, {}},
          {name + ".second", hocketFloat32, {90}, {}},
          {name + ".third", hocketFloat32, {11}, {}}};
}

/// How a reducer reduces, and when.
struct Way {
  Sharding sharding;
  bool overlaps;
};
constexpr Way all_ways[] = {{Sharding::none, false},
                            {Sharding::none, true},
                            {Sharding::zero1, false},
                            {Sharding::zero1, true},
                            {Sharding::zero2, true}};

/// Every parameter has a bucket of its own, so that in zero2 backward itself waits for buckets.
ReducerOptions options_of_way(const Way& way) {
  return {.limits = {.first_bytes = 1, .bytes = 1},
          .sharding = way.sharding,
          .least_overlap_us = way.overlaps ? 0 : std::numeric_limits<float>::infinity()};
}

void ordered_backward(GradientReducer& reducer, bool synchronize = true) {
  reducer.begin(synchronize);
  for (const int p : {2, 1, 0}) {
    const std::size_t elements = reducer.parameters()[static_cast<std::size_t>(p)].elements();
    // In zero2 there is no place in a backward that is not synchronized.
    if (void* const place = reducer.gradient(p)) {
      std::fill_n(static_cast<float*>(place), elements, 1.0f);
    }
    reducer.ready(p);
  }
  reducer.end();
  reducer.discard();
}

void expect_mismatch(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
}

/// Every rank but the last: "rank 0", "ranks 0 and 1".
std::string others_of(const Communicator& comm) {
  return comm.ranks() == 2 ? "on rank 0" : "on ranks 0 and 1";
}

/// After the first step the buckets are rebuilt. Fewer with the thread sanitizer, the slowest.
const std::vector<int> steps_before_error =
    tests::thread_sanitized ? std::vector<int>{0, 2} : std::vector<int>{0, 1, 2};

TEST(StepOrder, backwards_of_two_reducers_in_another_order_are_an_error_on_all_ranks) {
  for (const int ranks : {2, 3}) {
    for (const Way& way : all_ways) {
      for (const int steps_before : steps_before_error) {
        run_ranks(ranks, [&](Communicator& comm) {
          GradientReducer a(comm, model("a"), options_of_way(way)),
              b(comm, model("b"), options_of_way(way)), c(comm, model("c"), options_of_way(way));
          for (int step = 0; step < steps_before; ++step) {
            ordered_backward(a);
            ordered_backward(b);
          }
          const bool last = comm.rank() + 1 == ranks;
          try {
            ordered_backward(last ? b : a);
            ADD_FAILURE() << "no error on rank " << comm.rank();
          } catch (const Mismatch& error) {
            EXPECT_EQ(error.culprit(), ranks - 1);
            expect_mismatch(
                error.what(),
                {"the ranks run different backwards", others_of(comm),
                 "reducer 0 (3 parameters, the first is 'a.first') that reduces gradients",
                 "on rank " + std::to_string(ranks - 1),
                 "reducer 1 (3 parameters, the first is 'b.first') that reduces gradients"});
          }
          // All reducers have ended, also the one whose backward all ranks run alike.
          for (GradientReducer* each : {&c, &a, &b}) {
            EXPECT_NE(message_of<Mismatch>([&] { ordered_backward(*each); }), "");
          }
        });
      }
    }
  }
}

TEST(StepOrder, a_backward_that_one_rank_does_not_synchronize_is_an_error_on_all_ranks) {
  for (const int ranks : {2, 3}) {
    for (const Way& way : all_ways) {
      if (way.sharding == Sharding::zero2) continue;  // needs an owner that keeps gradients
      for (const int steps_before : steps_before_error) {
        run_ranks(ranks, [&](Communicator& comm) {
          GradientReducer reducer(comm, model("a"), options_of_way(way));
          for (int step = 0; step < steps_before; ++step) ordered_backward(reducer);
          const bool last = comm.rank() + 1 == ranks;
          const std::string message = message_of<Mismatch>([&] {
            ordered_backward(reducer, !last);
            // The others have an error in that backward; this rank has it in the next at the
            // latest.
            if (last) ordered_backward(reducer);
          });
          expect_mismatch(message, {others_of(comm), "that reduces gradients",
                                    "on rank " + std::to_string(ranks - 1), "no_sync()"});
        });
      }
    }
  }
}

TEST(StepOrder, a_rank_that_synchronizes_alone_gets_an_error) {
  for (const Way& way : all_ways) {
    if (way.sharding == Sharding::zero2) continue;
    run_ranks(3, [&](Communicator& comm) {
      GradientReducer reducer(comm, model("a"), options_of_way(way));
      ordered_backward(reducer);
      const std::string message = message_of<Mismatch>([&] {
        ordered_backward(reducer, comm.rank() == 0);
        ordered_backward(reducer);
      });
      expect_mismatch(message, {"on rank 0 one of", "on ranks 1 and 2 one of", "no_sync()"});
    });
  }
}

/// The averages are those of the sums of all backwards of each rank: rank r runs r + 1 of them.
TEST(StepOrder, ranks_that_accumulate_over_different_numbers_of_backwards_say_so) {
  for (const Way& way : all_ways) {
    if (way.sharding == Sharding::zero2) continue;
    run_ranks(3, [&](Communicator& comm) {
      ReducerOptions options = options_of_way(way);
      options.uneven_accumulation = true;
      GradientReducer reducer(comm, model("a"), options);
      const auto add_ones = [&](bool synchronize) {
        reducer.begin(synchronize);
        for (const int p : {2, 1, 0}) {
          float* const place = static_cast<float*>(reducer.gradient(p));
          const std::size_t elements = reducer.parameters()[static_cast<std::size_t>(p)].elements();
          for (std::size_t i = 0; i < elements; ++i) place[i] += 1;
          reducer.ready(p);
        }
        reducer.end();
      };
      for (int step = 0; step < 3; ++step) {
        for (int p = 0; p < 3; ++p) {
          std::fill_n(static_cast<float*>(reducer.gradient(p)),
                      reducer.parameters()[static_cast<std::size_t>(p)].elements(), 0.0f);
        }
        for (int i = 0; i < comm.rank(); ++i) add_ones(false);
        add_ones(true);
        for (const TensorRange& range : reducer.held()) {
          const auto* const values = static_cast<const float*>(range.data);
          for (std::size_t i = 0; i < range.elements; ++i) ASSERT_EQ(values[i], 2.0f);
        }
        reducer.discard();
      }
    });
  }
}

TEST(StepOrder, backwards_in_the_same_order_that_begin_inside_of_one_another_are_no_error) {
  for (const Way& way : all_ways) {
    if (way.sharding == Sharding::zero2) continue;
    run_ranks(2, [&](Communicator& comm) {
      GradientReducer a(comm, model("a"), options_of_way(way)),
          b(comm, model("b"), options_of_way(way));
      for (int step = 0; step < 4; ++step) {
        for (const bool synchronize : {false, true}) {
          a.begin(synchronize);
          b.begin(synchronize);
          for (const int p : {2, 1, 0}) {
            a.ready(p);
            b.ready(p);
          }
          a.end();
          b.end();
        }
        ordered_backward(b);
        ordered_backward(a);
      }
    });
  }
}

TEST(StepOrder, reducers_of_another_communicator_have_an_order_of_their_own) {
  run_ranks(3, [](Communicator& comm) {
    GradientReducer of_all(comm, model("all"));
    // Ranks 0 and 1, in the other order; and rank 2 alone.
    Communicator part = comm.split(comm.rank() / 2, -comm.rank());
    GradientReducer of_part(part, model("part"));
    for (int step = 0; step < 3; ++step) {
      for (int times = 0; times <= (comm.rank() == 2 ? 2 : 0); ++times) ordered_backward(of_part);
      ordered_backward(of_all);
    }
  });
}

}  // namespace
}  // namespace hocket::training
