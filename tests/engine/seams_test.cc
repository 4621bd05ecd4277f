// Four engines in one thread, on a clock that only the test moves. All that an engine needs from
// outside comes through its three seams: EngineHost, Transport, and the time that run_once() is
// given. Nothing else is there: no session, no other thread, no socket.
//
// So the test also holds what nobody can see in the engine's interface. If an engine waited for a
// peer inside a call, no other engine would run any more, and the test would hang until the limit
// of the test run. If an engine read the clock of the machine, a deadline of ten minutes would not
// pass within the milliseconds that the test takes, and the bound on rounds would end the test.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "collectives/algorithms/builders.h"
#include "engine/simulated_engine.h"
#include "seed.h"

namespace hocket::internal {
namespace {

constexpr int ranks = 4;
constexpr Nanos world_deadline = 600 * nanos_per_s;
constexpr Nanos tick = 100 * nanos_per_ms;
constexpr Nanos start_of_time = 5 * nanos_per_s;  // no relation to any clock of the machine

class World;

class SimulatedRank final : public testing::SimulatedEngine {
 public:
  SimulatedRank(World& world, testing::SimulatedNodes& nodes, int rank,
                const std::string& algorithm)
      : SimulatedEngine(nodes, rank, world_deadline, algorithm), world_(world) {}

  /// What the control plane would bring.
  void hear(const Status& fault) {
    if (heard_.ok()) heard_ = fault;
    engine().fault_pending().store(true);
  }

 private:
  std::string name_of_rank(int rank) const override { return "rank " + std::to_string(rank); }
  void poll_faults(FaultNews* news) override {
    if (news->error.ok()) news->error = heard_;
  }
  void ask_for_late_ranks(std::uint64_t collective, const std::string& what_waits) override;
  void on_failure(const Status& status, std::uint64_t operation, bool tell_peers) override;

  World& world_;
  Status heard_;
};

/// Every rank is a node of its own.
testing::SimulatedNodes make_nodes() { return testing::SimulatedNodes({0, 1, 2, 3}); }

class World {
 public:
  explicit World(const std::string& algorithm = {}) : random_(tests::seed()) {
    for (int r = 0; r < ranks; ++r) {
      ranks_.push_back(std::make_unique<SimulatedRank>(*this, nodes_, r, algorithm));
      order_.push_back(r);
    }
  }
  Engine& engine(int rank) { return ranks_[static_cast<std::size_t>(rank)]->engine(); }
  Nanos elapsed() const { return now_ - start_of_time; }

  void submit(int rank, const Call& call) { engine(rank).submit(call); }
  void tell_all_but(int rank, const Status& fault) {
    for (int r = 0; r < ranks; ++r) {
      if (r != rank) ranks_[static_cast<std::size_t>(r)]->hear(fault);
    }
  }

  /// Each rank that has not begun the collective reports itself.
  void ask_all_but(int rank, std::uint64_t collective, const std::string& what_waits) {
    for (int late = 0; late < ranks; ++late) {
      if (late == rank || engine(late).begun() >= collective) continue;
      const Status fault(Code::timeout, what_waits + ": late is rank " + std::to_string(late),
                         late);
      for (const auto& each : ranks_) each->hear(fault);
    }
  }

  /// Lets the engines take turns, in an order that the seed gives, until `ended`. The clock moves
  /// where nothing else does.
  void run_until(const std::function<bool()>& ended) {
    constexpr int most_quiet_rounds = 2 * static_cast<int>(world_deadline / tick);
    for (int quiet = 0; !ended();) {
      ASSERT_LT(quiet, most_quiet_rounds) << "nothing moves any more, and no deadline ends it";
      std::ranges::shuffle(order_, random_);
      bool moved = false;
      for (const int r : order_) {
        moved |= quiet == 0 ? engine(r).run_once({}) : engine(r).run_once(now_);
        engine(r).report_failure();
      }
      quiet = moved ? 0 : quiet + 1;
      if (!moved) now_ += tick;
    }
  }
  void run_until_idle() {
    run_until(
        [this] { return std::ranges::all_of(order_, [this](int r) { return engine(r).idle(); }); });
  }
  void expect_no_error() {
    for (int r = 0; r < ranks; ++r) {
      EXPECT_TRUE(engine(r).status().ok()) << r << ": " << engine(r).status().message();
    }
  }

 private:
  testing::SimulatedNodes nodes_ = make_nodes();
  std::mt19937_64 random_;
  Nanos now_ = start_of_time;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
  std::vector<int> order_;
};

void SimulatedRank::on_failure(const Status& status, std::uint64_t, bool tell_peers) {
  if (tell_peers) world_.tell_all_but(rank(), status);
}

void SimulatedRank::ask_for_late_ranks(std::uint64_t collective, const std::string& what_waits) {
  world_.ask_all_but(rank(), collective, what_waits);
}

/// The names of the algorithms over messages that the selector knows for a collective.
std::vector<std::string> algorithms_of(Collective collective) {
  std::vector<std::string> names;
  const CallKey key{collective, Dtype::int64, Op::sum, 0, 1000};
  std::vector<Selector::Priced> candidates;
  EXPECT_TRUE(Selector(selector_options(make_nodes(), 0)).candidates(key, &candidates).ok());
  names.reserve(candidates.size());
  for (const Selector::Priced& candidate : candidates) {
    names.emplace_back(candidate.builder->algorithm);
  }
  return names;
}

constexpr std::size_t counts[] = {1, 5, 1000, 20'001};  // of 8 bytes each

using testing::call_of;
using testing::Values;
using testing::values_of;

TEST(Seams, all_reduce_is_right_with_every_algorithm_over_messages) {
  const std::vector<std::string> algorithms = algorithms_of(Collective::all_reduce);
  ASSERT_GE(algorithms.size(), 2U);
  for (const std::string& algorithm : algorithms) {
    World world(algorithm);
    for (const std::size_t count : counts) {
      std::vector<Values> inputs, outputs(ranks, Values(count));
      Values sum(count);
      for (int r = 0; r < ranks; ++r) {
        inputs.push_back(values_of(r, count));
        for (std::size_t i = 0; i < count; ++i) sum[i] += inputs.back()[i];
      }
      for (int r = 0; r < ranks; ++r) {
        world.submit(r, call_of(Collective::all_reduce, inputs[r], outputs[r]));
      }
      ASSERT_NO_FATAL_FAILURE(world.run_until_idle());
      world.expect_no_error();
      EXPECT_EQ(std::vector<Values>(ranks, sum), outputs) << algorithm << ", " << count;
    }
  }
}

TEST(Seams, broadcasts_and_barriers_of_one_queue_are_right) {
  World world;
  for (const std::size_t count : counts) {
    std::vector<std::vector<Values>> buffers(ranks);  // by root, by rank
    for (int root = 0; root < ranks; ++root) buffers[root].assign(ranks, Values(count));
    for (int r = 0; r < ranks; ++r) {
      for (int root = 0; root < ranks; ++root) {
        Values& buffer = buffers[root][r];
        if (r == root) buffer = values_of(root, count);
        world.submit(r, call_of(Collective::broadcast, buffer, buffer, root));
        world.submit(r, Call{});  // a barrier
      }
    }
    ASSERT_NO_FATAL_FAILURE(world.run_until_idle());
    world.expect_no_error();
    for (int root = 0; root < ranks; ++root) {
      EXPECT_EQ(std::vector<Values>(ranks, values_of(root, count)), buffers[root]) << root;
    }
  }
}

TEST(Seams, barrier_ends_nowhere_before_every_rank_has_called_it) {
  World world;
  for (int r = 0; r < ranks - 1; ++r) world.submit(r, Call{});
  ASSERT_NO_FATAL_FAILURE(world.run_until([&] { return world.elapsed() >= world_deadline / 2; }));
  for (int r = 0; r < ranks - 1; ++r) EXPECT_FALSE(world.engine(r).idle()) << r;
  world.submit(ranks - 1, Call{});
  ASSERT_NO_FATAL_FAILURE(world.run_until_idle());
  world.expect_no_error();
  EXPECT_LT(world.elapsed(), world_deadline);
}

TEST(Seams, messages_between_all_pairs_run_at_once) {
  World world;
  for (const std::size_t count : counts) {
    std::vector<Values> sent;
    std::vector<std::vector<Values>> received(ranks);  // by receiver, by sender
    for (int r = 0; r < ranks; ++r) {
      sent.push_back(values_of(r, count));
      received[r].assign(ranks, Values(count));
    }
    for (int r = 0; r < ranks; ++r) {
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == r) continue;
        world.submit(r, call_of(Collective::send, sent[r], sent[r], peer));
        world.submit(r, call_of(Collective::recv, received[r][peer], received[r][peer], peer));
      }
    }
    ASSERT_NO_FATAL_FAILURE(world.run_until_idle());
    world.expect_no_error();
    for (int r = 0; r < ranks; ++r) {
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == r) continue;
        EXPECT_EQ(sent[peer], received[r][peer]) << peer << " to " << r;
      }
    }
  }
}

TEST(Seams, rank_that_never_calls_makes_the_others_end_by_the_deadline) {
  for (const std::string& algorithm : algorithms_of(Collective::all_reduce)) {
    World world(algorithm);
    std::vector<Values> buffers(ranks, Values(1000));
    for (int r = 0; r < ranks - 1; ++r) {
      world.submit(r, call_of(Collective::all_reduce, buffers[r], buffers[r]));
    }
    ASSERT_NO_FATAL_FAILURE(world.run_until_idle());
    EXPECT_GE(world.elapsed(), world_deadline) << algorithm;
    EXPECT_LE(world.elapsed(), world_deadline + nanos_per_s) << algorithm;
    // A rank that waits for messages of rank 3 names it. A rank that waits for another one in
    // between cannot know better than to name that; so one follows the errors from rank to rank.
    for (int r = 0; r < ranks - 1; ++r) {
      int named = r;
      for (int step = 0; step < ranks && named >= 0 && named < ranks - 1; ++step) {
        const Status& status = world.engine(named).status();
        ASSERT_EQ(Code::timeout, status.code()) << algorithm << ", " << named;
        named = status.culprit();
        EXPECT_NE(std::string::npos, status.message().find("rank " + std::to_string(named)))
            << status.message();
      }
      EXPECT_EQ(ranks - 1, named) << algorithm << ", from the error of rank " << r;
    }
  }
}

TEST(Seams, fault_that_a_host_tells_ends_every_engine_long_before_the_deadline) {
  World world;
  std::vector<Values> buffers(ranks, Values(1000));
  for (int r = 0; r < ranks - 1; ++r) {
    world.submit(r, call_of(Collective::all_reduce, buffers[r], buffers[r]));
  }
  ASSERT_NO_FATAL_FAILURE(world.run_until([&] { return world.elapsed() >= nanos_per_s; }));
  const Status fault(Code::remote_error, "rank 3 was killed by signal 9", 3);
  world.tell_all_but(3, fault);
  ASSERT_NO_FATAL_FAILURE(world.run_until_idle());
  EXPECT_LE(world.elapsed(), 2 * nanos_per_s);
  for (int r = 0; r < ranks - 1; ++r) {
    EXPECT_EQ(fault.message(), world.engine(r).status().message()) << r;
    world.submit(r, Call{});
    EXPECT_TRUE(world.engine(r).idle()) << "nothing begins after an error";
  }
}

}  // namespace
}  // namespace hocket::internal
