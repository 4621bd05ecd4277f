// Streams: order, overlap, events, and communicators whose calls do not block.
#include <atomic>
#include <thread>
#include <vector>

#include "matrix/ranks.h"

namespace {

using ranks::Env;
using ranks::Rank;
using ranks::settle;

// Steps that do not commute, so that the result shows their order. Among three ranks with equal
// values, a sum is x -> 3 x, and a product is x -> x * x * x, modulo 2^64. Odd numbers stay odd, so
// both steps are invertible.
constexpr int three = 3;

/// In no regular order, of which a part or the reverse would be the same.
hocketRedOp_t op_of_step(int step) {
  return 0x9e3779b97f4a7c15ULL >> step & 1 ? hocketProd : hocketSum;
}

std::vector<std::uint64_t> odd_numbers(std::size_t count) {
  std::vector<std::uint64_t> x;
  for (std::size_t i = 0; i < count; ++i) x.push_back(2 * i + 1);
  return x;
}

hocketResult_t run_step(int step, std::vector<std::uint64_t>& x, hocketComm_t comm,
                        hocketStream_t stream) {
  return hocketAllReduce(x.data(), x.data(), x.size(), hocketUint64, op_of_step(step), comm,
                         stream);
}

/// The odd numbers after so many steps, in order.
std::vector<std::uint64_t> after_steps(std::size_t count, int steps) {
  std::vector<std::uint64_t> x = odd_numbers(count);
  for (std::uint64_t& value : x) {
    for (int step = 0; step < steps; ++step) {
      value = op_of_step(step) == hocketSum ? 3 * value : value * value * value;
    }
  }
  return x;
}

/// On two communicators in turn: only the stream holds the steps to their order.
TEST(Streams, run_their_calls_in_order_beside_the_caller) {
  ranks::run_ranks(three, [](Rank& self) {
    hocketComm_t other = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, 0, &other, nullptr));
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    constexpr std::size_t count = 20'000;
    std::vector<std::uint64_t> x = odd_numbers(count);
    for (int step = 0; step < 20; ++step) {  // each takes the result of the one before
      EXPECT_HOCKET(run_step(step, x, step % 2 ? other : self.comm, stream));
    }
    EXPECT_HOCKET(hocketStreamSynchronize(stream));
    EXPECT_HOCKET(hocketStreamQuery(stream));
    EXPECT_TRUE(after_steps(count, 20) == x);
    EXPECT_HOCKET(hocketStreamDestroy(stream));
    EXPECT_HOCKET(hocketCommDestroy(other));
  });
}

TEST(Streams, return_before_the_peers_have_come) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    int x = 1;
    if (self.rank == 0) {
      EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketInt32, hocketSum, self.comm, stream));
      EXPECT_EQ(hocketInProgress, hocketStreamQuery(stream));
      self.meet();  // only now does the other rank call
    } else {
      self.meet();
      EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketInt32, hocketSum, self.comm, stream));
    }
    EXPECT_HOCKET(hocketStreamSynchronize(stream));
    EXPECT_EQ(2, x);
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

TEST(Streams, two_on_one_communicator_run_in_the_order_of_the_calls) {
  ranks::run_ranks(three, [](Rank& self) {
    hocketStream_t streams[2] = {};
    for (auto& stream : streams) {
      ASSERT_HOCKET(hocketStreamCreate(&stream));
    }
    constexpr std::size_t count = 2000;
    std::vector<std::uint64_t> x = odd_numbers(count);
    for (int step = 0; step < 40; ++step) {
      // The ranks use their streams differently; the communicator's order is that of the calls.
      hocketStream_t stream = streams[self.rank == 0 ? step % 2 : (step / 3) % 2];
      EXPECT_HOCKET(run_step(step, x, self.comm, step % 7 == 6 ? nullptr : stream));
    }
    for (auto& stream : streams) {
      EXPECT_HOCKET(hocketStreamSynchronize(stream));
    }
    EXPECT_TRUE(after_steps(count, 40) == x);
    for (auto& stream : streams) {
      EXPECT_HOCKET(hocketStreamDestroy(stream));
    }
  });
}

/// Two streams, each with a communicator of its own: only the events hold the steps to their order.
TEST(Streams, wait_for_events_of_one_another) {
  ranks::run_ranks(three, [](Rank& self) {
    hocketStream_t streams[2] = {};
    for (auto& stream : streams) {
      ASSERT_HOCKET(hocketStreamCreate(&stream));
    }
    hocketEvent_t event = nullptr;
    ASSERT_HOCKET(hocketEventCreate(&event));
    hocketComm_t other = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, 0, &other, nullptr));
    EXPECT_HOCKET(hocketEventQuery(event));  // never recorded: it counts as happened
    EXPECT_HOCKET(hocketStreamWaitEvent(streams[1], event));
    constexpr std::size_t count = 50'000;
    std::vector<std::uint64_t> x = odd_numbers(count);
    for (int step = 0; step < 20; ++step) {
      EXPECT_HOCKET(run_step(step, x, step % 2 ? other : self.comm, streams[step % 2]));
      EXPECT_HOCKET(hocketEventRecord(event, streams[step % 2]));
      EXPECT_HOCKET(hocketStreamWaitEvent(streams[1 - step % 2], event));
    }
    EXPECT_HOCKET(hocketEventSynchronize(event));
    EXPECT_HOCKET(hocketEventQuery(event));
    EXPECT_TRUE(after_steps(count, 20) == x);
    EXPECT_HOCKET(hocketEventDestroy(event));
    for (auto& stream : streams) {
      EXPECT_HOCKET(hocketStreamDestroy(stream));
    }
    EXPECT_HOCKET(hocketCommDestroy(other));
  });
}

TEST(Streams, tell_an_error_once_and_stay_usable) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    float x[4] = {};
    EXPECT_HOCKET(
        hocketAllReduce(x, x, self.rank == 0 ? 3 : 4, hocketFloat32, hocketSum, self.comm, stream));
    EXPECT_EQ(hocketMismatch, hocketStreamSynchronize(stream));
    EXPECT_HOCKET(hocketStreamSynchronize(stream));
    EXPECT_EQ(hocketMismatch,
              hocketAllReduce(x, x, 4, hocketFloat32, hocketSum, self.comm, stream));
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

/// An event keeps the error of the operations before it on the stream, and its culprit.
TEST(Streams, events_return_the_error_of_what_came_before_them) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    hocketEvent_t before = nullptr, after = nullptr;
    ASSERT_HOCKET(hocketEventCreate(&before));
    ASSERT_HOCKET(hocketEventCreate(&after));
    EXPECT_HOCKET(hocketEventGetResult(before));  // never recorded
    float x[4] = {};
    EXPECT_HOCKET(hocketAllReduce(x, x, 4, hocketFloat32, hocketSum, self.comm, stream));
    EXPECT_HOCKET(hocketEventRecord(before, stream));
    if (self.rank == 1) self.meet();  // rank 0 asks first
    EXPECT_HOCKET(
        hocketAllReduce(x, x, self.rank == 0 ? 3 : 4, hocketFloat32, hocketSum, self.comm, stream));
    EXPECT_HOCKET(hocketEventRecord(after, stream));
    if (self.rank == 0) {
      EXPECT_EQ(hocketInProgress, hocketEventGetResult(after));
      self.meet();
    }
    EXPECT_HOCKET(hocketEventSynchronize(after));
    for (int i = 0; i < 2; ++i) {  // as often as asked for
      int culprit = -2;
      EXPECT_EQ(hocketMismatch, hocketEventGetResult(after));
      EXPECT_HOCKET(hocketGetLastCulprit(&culprit));
      EXPECT_EQ(1 - self.rank, culprit);
    }
    EXPECT_HOCKET(hocketEventGetResult(before));
    EXPECT_EQ(hocketMismatch, hocketStreamSynchronize(stream)) << "the stream returns it too";
    EXPECT_HOCKET(hocketEventRecord(after, stream));
    EXPECT_HOCKET(hocketEventSynchronize(after));
    EXPECT_HOCKET(hocketEventGetResult(after));
    EXPECT_HOCKET(hocketEventDestroy(before));
    EXPECT_HOCKET(hocketEventDestroy(after));
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

/// The operations of one stream may use several communicators: an event has the result of the
/// operation before it, not that of an earlier one.
TEST(Streams, events_return_the_result_of_the_operation_before_them) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketComm_t other = nullptr;
    ASSERT_HOCKET(hocketCommDuplicate(self.comm, &other, nullptr));
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    hocketEvent_t events[4];
    for (hocketEvent_t& event : events) ASSERT_HOCKET(hocketEventCreate(&event));
    float x[4] = {};
    const std::size_t wrong = self.rank == 0 ? 3 : 4;
    EXPECT_HOCKET(hocketAllReduce(x, x, 4, hocketFloat32, hocketSum, other, stream));
    EXPECT_HOCKET(hocketEventRecord(events[0], stream));
    EXPECT_HOCKET(hocketAllReduce(x, x, wrong, hocketFloat32, hocketSum, self.comm, stream));
    EXPECT_HOCKET(hocketEventRecord(events[1], stream));
    EXPECT_HOCKET(hocketStreamWaitEvent(stream, events[0]));
    EXPECT_HOCKET(hocketEventRecord(events[2], stream));  // no operation since
    EXPECT_HOCKET(hocketBarrier(other, stream));
    EXPECT_HOCKET(hocketEventRecord(events[3], stream));
    for (hocketEvent_t event : events) EXPECT_HOCKET(hocketEventSynchronize(event));
    EXPECT_HOCKET(hocketEventGetResult(events[0]));
    EXPECT_EQ(hocketMismatch, hocketEventGetResult(events[1]));
    EXPECT_EQ(hocketMismatch, hocketEventGetResult(events[2]));
    EXPECT_HOCKET(hocketEventGetResult(events[3])) << "the barrier succeeded";
    EXPECT_EQ(hocketMismatch, hocketStreamSynchronize(stream));
    for (hocketEvent_t event : events) EXPECT_HOCKET(hocketEventDestroy(event));
    EXPECT_HOCKET(hocketStreamDestroy(stream));
    EXPECT_HOCKET(hocketCommDestroy(other));
  });
}

TEST(Streams, call_a_function_of_the_program_in_their_order_after_an_error_too) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    struct Seen {
      float data[4] = {1, 1, 1, 1};
      std::vector<float> values;
      std::thread::id thread;
    } seen;
    const auto look = [](void* context) {
      auto& mine = *static_cast<Seen*>(context);
      mine.values.push_back(mine.data[3]);
      mine.thread = std::this_thread::get_id();
    };
    const auto reduce = [&](std::size_t count) {
      EXPECT_HOCKET(hocketAllReduce(seen.data, seen.data, count, hocketFloat32, hocketSum,
                                    self.comm, stream));
    };
    EXPECT_HOCKET(hocketLaunchHostFunc(stream, look, &seen));
    reduce(4);
    EXPECT_HOCKET(hocketLaunchHostFunc(stream, look, &seen));
    reduce(4);
    reduce(self.rank == 0 ? 3 : 4);  // an error
    EXPECT_HOCKET(hocketLaunchHostFunc(stream, look, &seen));
    EXPECT_EQ(hocketMismatch, hocketStreamSynchronize(stream));
    EXPECT_EQ((std::vector<float>{1, 2, 4}), seen.values);
    EXPECT_NE(std::this_thread::get_id(), seen.thread);
    EXPECT_HOCKET(hocketLaunchHostFunc(nullptr, look, &seen));
    EXPECT_EQ(4u, seen.values.size());
    EXPECT_EQ(std::this_thread::get_id(), seen.thread);
    EXPECT_EQ(hocketInvalidArgument, hocketLaunchHostFunc(stream, nullptr, &seen));
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

TEST(Streams, and_events_that_were_destroyed_are_refused) {
  ranks::run_ranks(1, [](Rank& self) {
    hocketStream_t stream = nullptr;
    hocketEvent_t event = nullptr, live = nullptr;
    ASSERT_HOCKET(hocketEventCreate(&live));
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    ASSERT_HOCKET(hocketEventCreate(&event));
    EXPECT_HOCKET(hocketBarrier(self.comm, stream));
    EXPECT_HOCKET(hocketStreamDestroy(stream));
    EXPECT_HOCKET(hocketEventDestroy(event));
    const hocketResult_t refused[] = {
        hocketBarrier(self.comm, stream),
        hocketStreamSynchronize(stream),
        hocketStreamQuery(stream),
        hocketStreamWaitEvent(stream, live),
        hocketEventRecord(live, stream),
        hocketStreamDestroy(stream),
        hocketLaunchHostFunc(
            stream, [](void*) {}, nullptr),
        hocketStreamWaitEvent(nullptr, event),
        hocketEventRecord(event, nullptr),
        hocketEventSynchronize(event),
        hocketEventQuery(event),
        hocketEventGetResult(event),
        hocketEventDestroy(event),
    };
    for (const hocketResult_t result : refused) EXPECT_EQ(hocketInvalidArgument, result);
    EXPECT_NE(std::string::npos, std::string(hocketGetLastError(nullptr)).find("destroyed"));
    EXPECT_HOCKET(hocketEventQuery(live));
    EXPECT_HOCKET(hocketEventDestroy(live));
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
  });
}

TEST(Streams, destruction_returns_an_error_that_nobody_has_heard) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    float x[4] = {};
    EXPECT_HOCKET(
        hocketAllReduce(x, x, self.rank == 0 ? 3 : 4, hocketFloat32, hocketSum, self.comm, stream));
    EXPECT_EQ(hocketMismatch, hocketStreamDestroy(stream));
  });
}

/// Two streams that share two communicators in one group: neither may wait for the other's half.
TEST(Streams, of_one_group_may_share_communicators_crosswise) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketComm_t other = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, 0, &other, nullptr));
    hocketStream_t streams[2] = {};
    for (auto& stream : streams) {
      ASSERT_HOCKET(hocketStreamCreate(&stream));
    }
    for (int round = 0; round < 20; ++round) {
      int x[4] = {1, 2, 3, 4};
      hocketComm_t comms[4] = {self.comm, other, other, self.comm};
      // The order of each communicator's calls is the same on both ranks, that of all is not.
      const int orders[2][4] = {{0, 1, 2, 3}, {1, 2, 0, 3}};
      EXPECT_HOCKET(hocketGroupStart());
      for (const int i : orders[self.rank]) {
        EXPECT_HOCKET(
            hocketAllReduce(&x[i], &x[i], 1, hocketInt32, hocketSum, comms[i], streams[i % 2]));
      }
      EXPECT_HOCKET(hocketGroupEnd());
      for (auto& stream : streams) {
        EXPECT_HOCKET(hocketStreamSynchronize(stream));
      }
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(2 * (i + 1), x[i]);
      }
    }
    for (auto& stream : streams) {
      EXPECT_HOCKET(hocketStreamDestroy(stream));
    }
    EXPECT_HOCKET(hocketCommDestroy(other));
  });
}

TEST(NotBlocking, calls_return_at_once_and_are_asked_for) {
  hocketUniqueId id;
  ASSERT_HOCKET(hocketGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      hocketConfig_t config = ranks::patient_config();
      config.blocking = 0;
      hocketComm_t comm = nullptr;
      ASSERT_EQ(hocketInProgress, hocketCommInitRankConfig(&comm, 2, id, rank, &config));
      ASSERT_NE(nullptr, comm);
      ASSERT_EQ(hocketSuccess, settle(comm)) << hocketGetLastError(comm);
      int count = 0;
      EXPECT_HOCKET(hocketCommCount(comm, &count));
      EXPECT_EQ(2, count);
      float x = 1;
      for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(hocketInProgress,
                  hocketAllReduce(&x, &x, 1, hocketFloat32, hocketSum, comm, nullptr));
      }
      EXPECT_EQ(hocketSuccess, settle(comm));
      EXPECT_EQ(1024, x);
      EXPECT_HOCKET(hocketCommDestroy(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// One of two ranks that wait for a third gives up: neither waits for the deadline.
void abort_a_join(int who, std::chrono::milliseconds pause) {
  SCOPED_TRACE("rank " + std::to_string(who) + " aborts after a pause of " +
               std::to_string(pause.count()) + " ms");
  hocketUniqueId id;
  ASSERT_HOCKET(hocketGetUniqueId(&id));
  hocketConfig_t config = ranks::patient_config();
  config.blocking = 0;
  config.join_deadline_ms = 3'600'000;
  hocketComm_t comms[2] = {};
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(hocketInProgress, hocketCommInitRankConfig(&comms[rank], 3, id, rank, &config));
    std::this_thread::sleep_for(pause);  // with a pause, rank 0 leads the node
  }
  EXPECT_EQ(hocketSuccess, hocketCommAbort(comms[who]));
  EXPECT_EQ(hocketSuccess, hocketCommAbort(comms[who]));
  hocketResult_t state = hocketSuccess;
  EXPECT_HOCKET(hocketCommGetAsyncError(comms[who], &state));
  EXPECT_EQ(hocketAborted, state) << "known at once";
  EXPECT_EQ(hocketAborted, settle(comms[1 - who]));
  const std::string text = hocketGetLastError(comms[1 - who]);
  EXPECT_NE(std::string::npos, text.find("rank " + std::to_string(who))) << text;
  for (hocketComm_t comm : comms) EXPECT_HOCKET(hocketCommDestroy(comm));
}

TEST(NotBlocking, abort_ends_a_join_on_every_rank) {
  for (const auto pause : {std::chrono::milliseconds(0), std::chrono::milliseconds(50)}) {
    abort_a_join(0, pause);
    abort_a_join(1, pause);
  }
}

TEST(NotBlocking, a_join_that_fails_is_asked_for_too) {
  hocketUniqueId id;
  ASSERT_HOCKET(hocketGetUniqueId(&id));
  hocketConfig_t config = ranks::patient_config();
  config.blocking = 0;
  config.join_deadline_ms = 200;
  hocketComm_t comm = nullptr;
  ASSERT_EQ(hocketInProgress, hocketCommInitRankConfig(&comm, 2, id, 0, &config));
  EXPECT_EQ(hocketTimeout, settle(comm));
  int culprit = -1;
  EXPECT_HOCKET(hocketCommGetCulprit(comm, &culprit));
  EXPECT_EQ(1, culprit);
  const std::string text = hocketGetLastError(comm);
  EXPECT_NE(std::string::npos, text.find("1")) << "the missing rank is named: " << text;
  EXPECT_HOCKET(hocketCommDestroy(comm));
}

}  // namespace
