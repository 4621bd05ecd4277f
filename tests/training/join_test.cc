// Ranks with different numbers of batches, driven as a hand-written training loop drives them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <hocket/training/join.hpp>
#include <hocket/training/loss_scaler.hpp>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "matrix/ranks.h"
#include "sanitized.h"
#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::run_ranks;

std::vector<Parameter> two_parameters() {
  return {{"weight", hocketFloat32, {9, 4}, {}}, {"bias", hocketFloat32, {21}, {}}};
}

/// Whole numbers.
float uneven_value(int rank, int step, int parameter, std::size_t element) {
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
      for (std::size_t i = 0; i < own.size(); ++i) own[i] = uneven_value(rank, step, p, i);
      if (infinite) own[0] = std::numeric_limits<float>::infinity();
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
  bool infinite = false;  // an element of each gradient
};

/// The ranks from first_active on have data.
void expect_averages(GradientReducer& reducer, int step, int first_active, bool by_active) {
  const int ranks = reducer.communicator().ranks();
  for (const TensorRange& held : reducer.held()) {
    const int p = held.tensor.name == "weight" ? 0 : 1;
    for (std::size_t i = 0; i < held.elements; ++i) {
      float sum = 0;
      for (int rank = first_active; rank < ranks; ++rank) {
        sum += uneven_value(rank, step, p, held.begin + i);
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

/// The first epoch has a rank that was never in a backward of its own.
TEST(Join, of_ranks_with_sharded_gradients_follows_each_backward_and_each_update) {
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    for (const int ranks : {2, 3}) {
      for (const bool by_active : {false, true}) {
        run_ranks(ranks, [&](Communicator& comm) {
          Keeper keeper(comm, {.sharding = sharding});
          int extra = 0, step = 0;
          const auto update = [&] {
            expect_averages(*keeper.reducer, step, (step + 2 - extra) / 2, by_active);
            keeper.reducer->discard();
            keeper.kept.clear();
            ++step;
          };
          for (extra = 0; extra < 4; extra += 2) {
            step = 0;
            Join join(*keeper.reducer, {.divide_by_active = by_active, .update = update});
            while (step < extra + 2 * comm.rank()) {
              keeper.backward(step);
              join.update();
            }
            join.finish();
            EXPECT_EQ(step, extra + 2 * (ranks - 1));  // every rank made every update
          }
        });
      }
    }
  }
}

TEST(Join, of_ranks_that_accumulate_adds_what_they_reduce_before_an_update) {
  for (const Sharding sharding : {Sharding::zero1, Sharding::zero2}) {
    run_ranks(2, [&](Communicator& comm) {
      Keeper keeper(comm, {.sharding = sharding});
      int updates = 0;
      Join join(*keeper.reducer, {.update = [&] {
        for (const TensorRange& held : keeper.reducer->held()) {
          const int p = held.tensor.name == "weight" ? 0 : 1;
          // Steps 0 and 1 of both ranks, then 2 and 3 of rank 1.
          float sum = 0;
          for (int rank = updates; rank < 2; ++rank) {
            sum += uneven_value(rank, 2 * updates, p, held.begin) +
                   uneven_value(rank, 2 * updates + 1, p, held.begin);
          }
          EXPECT_FLOAT_EQ(*static_cast<const float*>(held.data), sum / 2);
        }
        keeper.reducer->discard();
        ++updates;
      }});
      for (int step = 0; step < 2 + 2 * comm.rank(); ++step) {
        keeper.backward(step);
        keeper.kept.clear();
        if (step % 2 == 1) join.update();
      }
      join.finish();
      EXPECT_EQ(updates, 2);
    });
  }
}

/// Runs a loop that must fail on this rank, and returns the error's message.
template <typename Loop>
std::string failure_of(Loop loop) {
  const std::string message = message_of<Error>(loop);
  EXPECT_NE(message, "");
  return message;
}

TEST(Join, whose_rank_ends_its_data_with_gradients_that_were_not_reduced_names_the_parameter) {
  for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
    run_ranks(2, [&](Communicator& comm) {
      Communicator short_waits = comm.duplicate({.deadline = std::chrono::seconds(20)});
      Keeper keeper(short_waits, {.sharding = sharding});
      const std::string message = failure_of([&] {
        Join join(*keeper.reducer, {.update = [&] { keeper.reducer->discard(); }});
        keeper.backward(0);
        join.update();
        keeper.backward(1, comm.rank() == 0);
        join.finish();
      });
      if (comm.rank() == 0) {
        EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
      } else {
        EXPECT_NE(message.find("parameter 'weight' (float32, 9 x 4) has a gradient of a backward "
                               "that did not synchronize"),
                  std::string::npos)
            << message;
      }
    });
  }
}

TEST(Join, allows_gradients_that_were_not_reduced_if_the_program_has_dropped_them) {
  run_ranks(2, [](Communicator& comm) {
    Keeper keeper(comm, {});
    Join join(*keeper.reducer);
    if (comm.rank() == 1) keeper.backward(0, false);
    keeper.kept.clear();
    join.finish();
  });
}

/// The rank that gets the error first ends its Join at once. Over TCP, the all-gather of another
/// rank may still wait for data that the first rank forwards.
TEST(Join, of_ranks_that_make_different_calls_names_the_ranks_and_the_calls) {
  constexpr int rounds = tests::sanitized ? 20 : 150;
  const auto make_different_calls = [](Communicator& comm) {
    for (int round = 0; round < rounds; ++round) {
      Keeper keeper(comm, {});
      const std::string message = message_of<Mismatch>([&] {
        Join join(*keeper.reducer, {.update = [] {}});
        if (comm.rank() == 0) join.finish();
        if (comm.rank() == 1) join.update();
        if (comm.rank() == 2) keeper.backward(0);
      });
      EXPECT_NE(message.find("rank 2 began a backward while rank 1 called Join::update()"),
                std::string::npos)
          << message;
    }
  };
  run_ranks(3, make_different_calls);
  const ranks::Env tcp{{{"HOCKET_TRANSPORT", "tcp"}}};
  run_ranks(3, make_different_calls);
}

/// What ends the Join of rank 1. Rank 0 has no data, the other ranks have.
struct End {
  const char* what;
  std::function<void(Keeper&)> step;  // of a rank that has data
  std::function<void(Keeper&)> update;
  hocketResult_t code;   // on the other ranks
  const char* sentence;  // in the error of the other ranks
};

const End ends[] = {
    {"its backward fails",
     [](Keeper& keeper) {
       if (keeper.rank != 1) return keeper.backward(0);
       keeper.reducer->begin();
       keeper.reducer->abandon();
       throw std::runtime_error("no memory");
     },
     [](Keeper&) {}, hocketRemoteError, "backward failed on rank 1, with an exception"},
    {"its gradients are infinite",
     [](Keeper& keeper) {
       keeper.infinite = keeper.rank == 1;
       keeper.backward(0);
     },
     [](Keeper&) {}, hocketInvalidArgument, "rank 1"},
    {"its loop throws within a backward",
     [](Keeper& keeper) {
       if (keeper.rank != 1) return keeper.backward(0);
       keeper.reducer->begin();
       throw std::runtime_error("no memory");
     },
     [](Keeper&) {}, hocketRemoteError, "rank 1 ended its Join with an exception"},
    {"its loop throws between backwards",
     [](Keeper& keeper) {
       keeper.backward(0);
       if (keeper.rank == 1) throw std::runtime_error("no memory");
       keeper.backward(1);
     },
     [](Keeper&) {}, hocketRemoteError, "rank 1 ended its Join with an exception"},
    {"its update throws while the others communicate", [](Keeper& keeper) { keeper.backward(0); },
     [](Keeper& keeper) {
       if (keeper.rank == 1) throw std::runtime_error("no memory");
       EXPECT_EQ(keeper.reducer->communicator().all_reduce(1, hocketSum), 4);
     },
     hocketRemoteError, "rank 1 ended its Join with an exception"},
};

/// A rank that gets the error leaves at once. So the error of the next rank may be that of the
/// first rank that left, if that rank's end arrives earlier: several rounds, with several ranks.
TEST(Join, that_an_exception_ends_gives_every_other_rank_an_error_with_that_rank_and_the_cause) {
  for (const End& end : ends) {
    SCOPED_TRACE(end.what);
    run_ranks(4, [&](Communicator& comm) {
      Communicator short_waits = comm.duplicate({.deadline = std::chrono::seconds(20)});
      for (int round = 0; round < (tests::sanitized ? 6 : 20); ++round) {
        Keeper keeper(short_waits, {.sharding = round % 2 == 0 ? Sharding::none : Sharding::zero1});
        const auto loop = [&] {
          Join join(*keeper.reducer, {.update = [&] { end.update(keeper); }});
          if (comm.rank() != 0) {
            end.step(keeper);
            join.update();
          }
          join.finish();
        };
        try {
          loop();
          ADD_FAILURE() << "no error on rank " << comm.rank();
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), end.code) << "rank " << comm.rank() << ": " << error.what();
          EXPECT_EQ(error.culprit(), 1) << error.what();
          EXPECT_NE(std::string(error.what()).find(end.sentence), std::string::npos)
              << error.what();
        } catch (const std::runtime_error& error) {
          EXPECT_EQ(comm.rank(), 1) << error.what();
        }
      }
    });
  }
}

TEST(Join, that_an_exception_ends_ends_the_reducer) {
  run_ranks(2, [](Communicator& comm) {
    Keeper keeper(comm, {});
    keeper.infinite = comm.rank() == 1;
    EXPECT_THROW(
        {
          Join join(*keeper.reducer);
          keeper.backward(0);
        },
        InvalidArgument);
    EXPECT_NE(message_of<InvalidUsage>([&] {
                keeper.backward(1);
              }).find("a Join of this reducer ended with an exception"),
              std::string::npos);
  });
}

TEST(Join, that_needs_an_update_and_has_none_is_refused) {
  run_ranks(2, [](Communicator& comm) {
    Keeper keeper(comm, {.sharding = Sharding::zero1}), whole(comm, {});
    EXPECT_NE(message_of<InvalidUsage>([&] {
                Join join(*keeper.reducer);
              }).find("make it in JoinOptions::update"),
              std::string::npos);
    Join join(*whole.reducer);
    EXPECT_NE(message_of<InvalidUsage>([&] { join.update(); }).find("JoinOptions::update is empty"),
              std::string::npos);
    join.finish();
    EXPECT_NE(message_of<InvalidUsage>([&] { join.update(); }).find("after finish()"),
              std::string::npos);
  });
}

TEST(Join, whose_update_throws_on_a_rank_without_data_is_an_error_on_all) {
  run_ranks(2, [](Communicator& comm) {
    Communicator short_waits = comm.duplicate({.deadline = std::chrono::seconds(20)});
    Keeper keeper(short_waits, {.sharding = Sharding::zero1});
    const auto loop = [&] {
      Join join(*keeper.reducer, {.update = [&] {
        if (comm.rank() == 0) throw std::runtime_error("no memory");
        keeper.reducer->discard();
      }});
      if (comm.rank() == 1) {
        keeper.backward(0);
        join.update();
      }
      join.finish();
    };
    if (comm.rank() == 0) {
      EXPECT_THROW(loop(), std::runtime_error);
    } else {
      EXPECT_NE(failure_of(loop).find("rank 0"), std::string::npos);
    }
  });
}

TEST(Join, of_a_loss_scaler_has_the_same_scale_on_ranks_with_and_without_data) {
  for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
    run_ranks(2, [&](Communicator& comm) {
      Keeper keeper(comm, {.sharding = sharding, .on_non_finite = OnNonFinite::keep});
      LossScaler scaler({.initial_scale = 64});
      int steps = 0;
      Join join(*keeper.reducer, {.update = [&] {
        if (scaler.unscale(*keeper.reducer)) ++steps;
        keeper.reducer->discard();
        scaler.update();
      }});
      for (int step = 0; step < 1 + 2 * comm.rank(); ++step) {
        keeper.infinite = step == 1;
        keeper.backward(step);
        keeper.kept.clear();
        join.update();
      }
      join.finish();
      EXPECT_EQ(scaler.scale(), 32);
      EXPECT_EQ(steps, 2);
      Join again(*keeper.reducer, {.update = [] {}});
      EXPECT_NE(message_of<InvalidUsage>([&] {
                  scaler.unscale(*keeper.reducer);
                }).find("would not take part in this call"),
                std::string::npos);
      again.finish();
    });
  }
}

}  // namespace
}  // namespace hocket::training
