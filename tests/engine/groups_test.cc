// Groups: the messages of a group progress together, in whatever order the ranks call them.
#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "matrix/ranks.h"
#include "seed.h"

namespace {

using ranks::Env;
using ranks::Rank;

std::vector<std::int32_t> values(std::size_t count, int first) {
  std::vector<std::int32_t> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

class Groups : public testing::TestWithParam<const char*> {
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}}};
};

TEST_P(Groups, a_ring_of_messages_of_any_size_does_not_wait_for_an_order) {
  for (int n : {1, 2, 3, 5, 8}) {
    ranks::run_ranks(n, [](Rank& self) {
      const int next = (self.rank + 1) % self.ranks;
      const int previous = (self.rank + self.ranks - 1) % self.ranks;
      for (std::size_t count : {0, 1, 25, 26, 27, 1000, 16383, 16385, 300'001}) {
        const auto mine = values(count, self.rank * 1000),
                   expected = values(count, previous * 1000);
        std::vector<std::int32_t> got(count + 1, -1);
        EXPECT_HOCKET(hocketGroupStart());
        // Half of the ranks receive first.
        if (self.rank % 2) {
          EXPECT_HOCKET(hocketRecv(got.data(), count, hocketInt32, previous, self.comm, nullptr));
        }
        EXPECT_HOCKET(hocketSend(mine.data(), count, hocketInt32, next, self.comm, nullptr));
        if (self.rank % 2 == 0) {
          EXPECT_HOCKET(hocketRecv(got.data(), count, hocketInt32, previous, self.comm, nullptr));
        }
        EXPECT_HOCKET(hocketGroupEnd());
        EXPECT_EQ(-1, got.back()) << "wrote past the end";
        got.pop_back();
        EXPECT_EQ(expected, got) << count << " elements, rank " << self.rank;
      }
    });
  }
}

TEST_P(Groups, all_ranks_exchange_with_all_and_with_themselves) {
  constexpr std::size_t count = 5000;
  ranks::run_ranks(4, [](Rank& self) {
    std::vector<std::vector<std::int32_t>> out, in(4, std::vector<std::int32_t>(count));
    for (int peer = 0; peer < 4; ++peer) out.push_back(values(count, self.rank * 100 + peer * 10));
    EXPECT_HOCKET(hocketGroupStart());
    for (int i = 0; i < 4; ++i) {  // each rank in an order of its own
      const int to = (i + self.rank) % 4, from = (i * 3 + self.rank) % 4;
      EXPECT_HOCKET(hocketSend(out[to].data(), count, hocketInt32, to, self.comm, nullptr));
      EXPECT_HOCKET(hocketRecv(in[from].data(), count, hocketInt32, from, self.comm, nullptr));
    }
    EXPECT_HOCKET(hocketGroupEnd());
    for (int peer = 0; peer < 4; ++peer) {
      EXPECT_EQ(values(count, peer * 100 + self.rank * 10), in[peer]) << "from rank " << peer;
    }
  });
}

TEST_P(Groups, messages_between_two_ranks_keep_their_order) {
  ranks::run_ranks(2, [](Rank& self) {
    std::vector<std::int32_t> in(50, -1);
    const auto out = values(50, 7);
    EXPECT_HOCKET(hocketGroupStart());
    for (int i = 0; i < 50; ++i) {
      if (self.rank == 0) {
        EXPECT_HOCKET(hocketSend(&out[i], 1, hocketInt32, 1, self.comm, nullptr));
      } else {
        EXPECT_HOCKET(hocketRecv(&in[i], 1, hocketInt32, 0, self.comm, nullptr));
      }
    }
    EXPECT_HOCKET(hocketGroupEnd());
    if (self.rank == 1) {
      EXPECT_EQ(out, in);
    }
  });
}

TEST_P(Groups, collectives_and_messages_are_fused_in_any_order) {
  ranks::run_ranks(3, [](Rank& self) {
    std::int32_t sum = self.rank + 1, gathered[3] = {}, got = -1;
    const std::int32_t mine = 10 * self.rank, next = (self.rank + 1) % 3,
                       previous = (self.rank + 2) % 3;
    std::vector<float> large(200'000, 1.0f);
    EXPECT_HOCKET(hocketGroupStart());
    if (self.rank == 0) {
      EXPECT_HOCKET(hocketRecv(&got, 1, hocketInt32, previous, self.comm, nullptr));
    }
    EXPECT_HOCKET(hocketAllReduce(&sum, &sum, 1, hocketInt32, hocketSum, self.comm, nullptr));
    if (self.rank == 1) {
      EXPECT_HOCKET(hocketSend(&mine, 1, hocketInt32, next, self.comm, nullptr));
    }
    EXPECT_HOCKET(hocketGroupStart());  // nested: the outermost counts
    EXPECT_HOCKET(hocketAllReduce(large.data(), large.data(), large.size(), hocketFloat32,
                                  hocketSum, self.comm, nullptr));
    EXPECT_HOCKET(hocketGroupEnd());
    if (self.rank != 0) {
      EXPECT_HOCKET(hocketRecv(&got, 1, hocketInt32, previous, self.comm, nullptr));
    }
    EXPECT_HOCKET(hocketAllGather(&mine, gathered, 1, hocketInt32, self.comm, nullptr));
    if (self.rank != 1) {
      EXPECT_HOCKET(hocketSend(&mine, 1, hocketInt32, next, self.comm, nullptr));
    }
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
    EXPECT_EQ(self.rank + 1, sum) << "a group begins nothing before its end";
    EXPECT_HOCKET(hocketGroupEnd());
    EXPECT_EQ(6, sum);
    EXPECT_EQ(10 * previous, got);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(10 * i, gathered[i]);
    }
    EXPECT_EQ(std::vector<float>(200'000, 3.0f), large);
  });
}

/// Each takes the result of the one before, and the steps do not commute.
TEST_P(Groups, collectives_of_one_communicator_run_in_the_order_of_the_calls) {
  ranks::run_ranks(3, [](Rank& self) {
    std::vector<std::uint64_t> x(2000, 5);
    std::uint64_t expected = 5;
    EXPECT_HOCKET(hocketGroupStart());
    for (int step = 0; step < 20; ++step) {
      const hocketRedOp_t op = 0x9e3779b97f4a7c15ULL >> step & 1 ? hocketProd : hocketSum;
      EXPECT_HOCKET(
          hocketAllReduce(x.data(), x.data(), x.size(), hocketUint64, op, self.comm, nullptr));
      expected = op == hocketSum ? 3 * expected : expected * expected * expected;
    }
    EXPECT_HOCKET(hocketGroupEnd());
    EXPECT_EQ(std::vector<std::uint64_t>(2000, expected), x);
  });
}

/// The root of a small broadcast waits for no rank of that broadcast. It must not overwrite data
/// that a late rank has not read yet.
TEST_P(Groups, a_root_does_not_run_away_from_a_late_rank) {
  hocketConfig_t config = ranks::patient_config();
  config.deadline_ms = 5'000;
  const auto body = [](Rank& self) {
    if (self.rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    for (std::uint64_t step = 0; step < 8; ++step) {
      std::uint64_t x = self.rank == 0 ? step : 99;
      EXPECT_HOCKET(hocketBroadcast(&x, &x, 1, hocketUint64, 0, self.comm, nullptr));
      EXPECT_EQ(step, x);
    }
  };
  ranks::run_ranks(3, body, config);
}

/// Rooted and exchanging collectives in one group, with a stream and without; the arrays of counts
/// are overwritten before the group begins.
TEST_P(Groups, hold_every_collective_and_keep_its_counts) {
  ranks::run_ranks(3, [](Rank& self) {
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    for (hocketStream_t on : {hocketStream_t{}, stream}) {
      const auto own = static_cast<std::size_t>(self.rank);
      // Rank r has r + 1 elements of value r, and 6 elements of its value for all.
      const std::vector<std::int32_t> mine(own + 1, self.rank), six(6, self.rank);
      const std::vector<std::int32_t> all{0, 1, 1, 2, 2, 2};
      std::vector<std::int32_t> sum(6), gathered(18), part(2), turned(6), joined(6), rooted(6),
          back(own + 1), reduced(own + 1), exchanged(3 * (own + 1));
      std::vector<std::size_t> counts{1, 2, 3}, from(3, own + 1);
      hocketComm_t const comm = self.comm;
      constexpr auto type = hocketInt32;
      const int root = 1;
      EXPECT_HOCKET(hocketGroupStart());
      EXPECT_HOCKET(hocketReduce(six.data(), sum.data(), 6, type, hocketSum, root, comm, on));
      EXPECT_HOCKET(hocketBcast(sum.data(), 6, type, root, comm, on));
      EXPECT_HOCKET(hocketGather(six.data(), gathered.data(), 6, type, root, comm, on));
      EXPECT_HOCKET(hocketScatter(six.data(), part.data(), 2, type, 2, comm, on));
      EXPECT_HOCKET(hocketAlltoAll(six.data(), turned.data(), 2, type, comm, on));
      EXPECT_HOCKET(hocketAllGatherV(mine.data(), own + 1, joined.data(), counts.data(), nullptr,
                                     type, comm, on));
      EXPECT_HOCKET(hocketGatherV(mine.data(), own + 1, rooted.data(), counts.data(), nullptr, type,
                                  root, comm, on));
      EXPECT_HOCKET(hocketScatterV(rooted.data(), counts.data(), nullptr, back.data(), own + 1,
                                   type, root, comm, on));
      EXPECT_HOCKET(hocketReduceScatterV(six.data(), reduced.data(), counts.data(), type, hocketSum,
                                         comm, on));
      EXPECT_HOCKET(hocketAlltoAllV(six.data(), counts.data(), nullptr, exchanged.data(),
                                    from.data(), nullptr, type, comm, on));
      counts.assign(3, 1'000'000);
      from.assign(3, 1'000'000);
      EXPECT_HOCKET(hocketGroupEnd());
      EXPECT_HOCKET(hocketStreamSynchronize(on));
      EXPECT_EQ(std::vector<std::int32_t>(6, 3), sum);
      EXPECT_EQ(self.rank == root ? 2 : 0, gathered[17]);
      EXPECT_EQ(std::vector<std::int32_t>(2, 2), part);
      EXPECT_EQ((std::vector<std::int32_t>{0, 0, 1, 1, 2, 2}), turned);
      EXPECT_EQ(all, joined);
      EXPECT_EQ(self.rank == root ? all : std::vector<std::int32_t>(6), rooted);
      EXPECT_EQ(mine, back);
      EXPECT_EQ(std::vector<std::int32_t>(own + 1, 3), reduced);
      EXPECT_EQ(self.rank, exchanged[0] + self.rank);  // of rank 0
      EXPECT_EQ(2, exchanged.back());
    }
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

/// A call of one of five kinds among 3 ranks. The input of a rank counts up from rank * 1000 + add.
struct RandomCall {
  int kind = 0;
  std::size_t count = 3;

  hocketResult_t run(const std::int32_t* in, std::int32_t* out, hocketComm_t comm,
                     hocketStream_t stream) const {
    if (kind == 3) return hocketGather(in, out, count, hocketInt32, 1, comm, stream);
    if (kind == 4) return hocketScatter(in, out, count, hocketInt32, 2, comm, stream);
    const hocketRedOp_t op = kind == 2 ? hocketMax : hocketSum;
    return hocketAllReduce(in, out, count, hocketInt32, op, comm, stream);
  }
  /// What the rank has afterwards in the elements of its output.
  std::vector<std::int32_t> result(int rank, int add) const {
    const auto number = static_cast<int>(count);
    if (kind == 3 && rank != 1) return {};
    if (kind == 4) return values(count, 2000 + add + number * rank);
    std::vector<std::int32_t> out;
    for (int from = 0; kind == 3 && from < 3; ++from) {
      for (int k = 0; k < number; ++k) out.push_back(from * 1000 + add + k);
    }
    for (int k = 0; kind != 3 && k < number; ++k) {
      out.push_back(kind == 2 ? 2000 + add + k : 3000 + 3 * (add + k));
    }
    return out;
  }
};

/// Calls in random order, alone, in groups and on a stream: a call that is like the call before it
/// keeps the program of that call, whatever ran in between.
TEST_P(Groups, and_single_calls_that_repeat_do_what_their_arguments_say) {
  const std::uint64_t seed = tests::seed();
  ranks::run_ranks(3, [seed](Rank& self) {
    std::mt19937_64 random(seed);  // the same on every rank
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    RandomCall call;
    for (int i = 0; i < 600; ++i) {
      if (random() % 3 == 0) call.kind = static_cast<int>(random() % 5);
      call.count = call.kind == 1 ? 40 : 3;
      std::vector<std::int32_t> in = values(120, self.rank * 1000 + i), out(120, -1);
      std::int32_t* const to = random() % 2 == 0 && call.kind <= 2 ? in.data() : out.data();
      switch (random() % 4) {
        case 0:
          EXPECT_HOCKET(hocketGroupStart());
          EXPECT_HOCKET(call.run(in.data(), to, self.comm, nullptr));
          EXPECT_HOCKET(hocketGroupEnd());
          break;
        case 1:
          EXPECT_HOCKET(call.run(in.data(), to, self.comm, stream));
          EXPECT_HOCKET(hocketStreamSynchronize(stream));
          break;
        default:
          EXPECT_HOCKET(call.run(in.data(), to, self.comm, nullptr));
      }
      const std::vector<std::int32_t> result = call.result(self.rank, i);
      ASSERT_TRUE(std::equal(result.begin(), result.end(), to)) << "call " << i;
    }
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

TEST_P(Groups, several_communicators_may_be_in_opposite_orders) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketComm_t other = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, -self.rank, &other, nullptr));
    std::vector<float> a(100'000, 1), b(100'000, 2);
    EXPECT_HOCKET(hocketGroupStart());
    for (int i = 0; i < 2; ++i) {
      const bool first = (i == 0) == (self.rank == 0);
      std::vector<float>& x = first ? a : b;
      EXPECT_HOCKET(hocketAllReduce(x.data(), x.data(), x.size(), hocketFloat32, hocketSum,
                                    first ? self.comm : other, nullptr));
    }
    EXPECT_HOCKET(hocketGroupEnd());
    EXPECT_EQ(std::vector<float>(100'000, 2), a);
    EXPECT_EQ(std::vector<float>(100'000, 4), b);
    EXPECT_HOCKET(hocketCommDestroy(other));
  });
}

/// Every rank makes the same 8 calls on two communicators, in groups of 1, 2, 4 or 8 calls: each
/// combination of the ranks' sizes is a round.
TEST_P(Groups, may_hold_other_calls_on_each_rank) {
  ranks::run_ranks(3, [](Rank& self) {
    hocketComm_t other = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, -self.rank, &other, nullptr));
    const int own = self.rank;
    for (int round = 0; round < 64; round += ranks::sanitized ? 5 : 1) {
      const int size = 1 << (round >> 2 * own & 3);
      const auto message = values(100'000, 7);
      std::vector<std::int32_t> got(message.size()), sum(1000, 1);
      std::int32_t gathered[3] = {}, root = own, relayed = own, most = own;
      // A NULL stream and no group: a send of this size waits for its receive.
      const std::function<hocketResult_t()> calls[] = {
          [&] { return hocketAllGather(&own, gathered, 1, hocketInt32, other, nullptr); },
          [&] {
            return hocketAllReduce(sum.data(), sum.data(), 1000, hocketInt32, hocketSum, self.comm,
                                   nullptr);
          },
          [&] {
            if (own == 0) {
              return hocketSend(message.data(), message.size(), hocketInt32, 1, self.comm, nullptr);
            }
            if (own == 2) return hocketSuccess;
            return hocketRecv(got.data(), got.size(), hocketInt32, 0, self.comm, nullptr);
          },
          [&] { return hocketBroadcast(&root, &root, 1, hocketInt32, 2, self.comm, nullptr); },
          [&] {  // takes the result of the first one
            return hocketAllReduce(sum.data(), sum.data(), 1000, hocketInt32, hocketProd, self.comm,
                                   nullptr);
          },
          [&] {
            if (own == 0) return hocketSuccess;
            return own == 1 ? hocketSend(&own, 1, hocketInt32, 2, self.comm, nullptr)
                            : hocketRecv(&relayed, 1, hocketInt32, 1, self.comm, nullptr);
          },
          [&] { return hocketAllReduce(&most, &most, 1, hocketInt32, hocketMax, other, nullptr); },
          [&] { return hocketBarrier(self.comm, nullptr); },
      };
      for (int i = 0; i < 8; ++i) {
        if (size > 1 && i % size == 0) {
          EXPECT_HOCKET(hocketGroupStart());
        }
        EXPECT_HOCKET(calls[i]());
        if (size > 1 && i % size == size - 1) {
          EXPECT_HOCKET(hocketGroupEnd());
        }
      }
      EXPECT_EQ(std::vector<std::int32_t>(1000, 27), sum) << "round " << round;
      EXPECT_EQ(own == 1 ? message : std::vector<std::int32_t>(message.size()), got);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(2 - i, gathered[i]);
      EXPECT_EQ(2, root);
      EXPECT_EQ(own == 2 ? 1 : own, relayed);
      EXPECT_EQ(2, most);
    }
    EXPECT_HOCKET(hocketCommDestroy(other));
  });
}

TEST_P(Groups, many_calls_fit_in_one_group) {
  for (int n : {1, 2}) {
    const int calls = n == 1 ? 100'000 : 2000;
    ranks::run_ranks(n, [calls](Rank& self) {
      std::int64_t sum = 1;
      EXPECT_HOCKET(hocketGroupStart());
      for (int i = 0; i < calls; ++i) {
        hocketAllReduce(&sum, &sum, 1, hocketInt64, i % 2 ? hocketMin : hocketMax, self.comm,
                        nullptr);
      }
      EXPECT_HOCKET(hocketGroupEnd());
      EXPECT_EQ(1, sum);
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Transports, Groups, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Group, that_fails_is_an_error_of_each_of_its_streams) {
  ranks::run_ranks(2, [](Rank& self) {
    if (self.rank == 1) {
      EXPECT_EQ(hocketMismatch, hocketBarrier(self.comm, nullptr));
      return;
    }
    hocketStream_t streams[3];
    float x[3] = {1, 2, 3};
    EXPECT_HOCKET(hocketGroupStart());
    for (int i = 0; i < 3; ++i) {
      EXPECT_HOCKET(hocketStreamCreate(&streams[i]));
      EXPECT_HOCKET(
          hocketAllReduce(&x[i], &x[i], 1, hocketFloat32, hocketSum, self.comm, streams[i]));
    }
    EXPECT_HOCKET(hocketGroupEnd());
    for (hocketStream_t stream : streams) {
      EXPECT_EQ(hocketMismatch, hocketStreamSynchronize(stream));
      EXPECT_HOCKET(hocketStreamDestroy(stream));
    }
  });
}

TEST(Group, with_half_a_message_to_oneself_begins_nothing) {
  ranks::run_ranks(2, [](Rank& self) {
    int x = 5, y = 0;
    for (const bool sends : {true, false}) {
      EXPECT_HOCKET(hocketGroupStart());
      EXPECT_HOCKET(sends ? hocketSend(&x, 1, hocketInt32, self.rank, self.comm, nullptr)
                          : hocketRecv(&y, 1, hocketInt32, self.rank, self.comm, nullptr));
      EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
      EXPECT_EQ(hocketInvalidUsage, hocketGroupEnd());
    }
    EXPECT_HOCKET(hocketGroupStart());
    EXPECT_EQ(hocketInvalidUsage, hocketCommDestroy(self.comm)) << "not in a group";
    EXPECT_HOCKET(hocketGroupEnd());
    EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketInt32, hocketSum, self.comm, nullptr));
    EXPECT_EQ(10, x);
  });
}

TEST(Group, with_a_wrong_argument_begins_nothing) {
  ranks::run_ranks(2, [](Rank& self) {
    float x = 1;
    EXPECT_HOCKET(hocketGroupStart());
    EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketFloat32, hocketSum, self.comm, nullptr));
    EXPECT_EQ(hocketInvalidArgument,
              hocketAllReduce(nullptr, &x, 1, hocketFloat32, hocketSum, self.comm, nullptr));
    EXPECT_EQ(hocketInvalidArgument, hocketGroupEnd());
    EXPECT_NE(std::string::npos, std::string(hocketGetLastError(nullptr)).find("sendbuff"));
    EXPECT_EQ(1, x);
    // And the communicator is as it was.
    EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketFloat32, hocketSum, self.comm, nullptr));
    EXPECT_EQ(2, x);
  });
}

int depth() {
  int open = -1;
  EXPECT_HOCKET(hocketGroupDepth(&open));
  return open;
}

TEST(Group, that_is_cancelled_begins_nothing_however_deep_it_is) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    int x = 1, discarded = 1;
    for (int nested = 1; nested <= 3; ++nested) {
      for (int i = 1; i <= nested; ++i) {
        EXPECT_HOCKET(hocketGroupStart());
        EXPECT_EQ(i, depth());
        for (hocketStream_t where : {hocketStream_t(), stream}) {
          EXPECT_HOCKET(
              hocketAllReduce(&discarded, &discarded, 1, hocketInt32, hocketSum, self.comm, where));
        }
      }
      EXPECT_HOCKET(hocketGroupCancel());
      EXPECT_EQ(0, depth());
      EXPECT_EQ(hocketInvalidUsage, hocketGroupEnd()) << "no group is open";
    }
    // A refused call is forgotten with its group, and the communicator is as it was.
    EXPECT_HOCKET(hocketGroupStart());
    EXPECT_EQ(hocketInvalidArgument,
              hocketAllReduce(nullptr, &x, 1, hocketInt32, hocketSum, self.comm, nullptr));
    EXPECT_HOCKET(hocketGroupCancel());
    EXPECT_HOCKET(hocketGroupStart());
    EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketInt32, hocketSum, self.comm, nullptr));
    EXPECT_HOCKET(hocketGroupEnd());
    EXPECT_EQ(2, x);
    EXPECT_HOCKET(hocketStreamSynchronize(stream));
    EXPECT_EQ(1, discarded) << "not with a later group either";
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

TEST(Group, cancel_without_a_start_is_refused) {
  EXPECT_EQ(hocketInvalidUsage, hocketGroupCancel());
  const std::string text = hocketGetLastError(nullptr);
  EXPECT_NE(std::string::npos, text.find("hocketGroupCancel")) << text;
  EXPECT_EQ(0, depth());
}

/// The culprit of a call that was refused for its communicator's error is that of the group too.
TEST(Group, on_a_poisoned_communicator_names_the_culprit) {
  ranks::run_ranks(2, [](Rank& self) {
    int x[2] = {}, culprit = -2;
    const auto count = static_cast<std::size_t>(1 + self.rank);
    EXPECT_EQ(hocketMismatch,
              hocketAllReduce(x, x, count, hocketInt32, hocketSum, self.comm, nullptr));
    EXPECT_HOCKET(hocketGroupStart());
    EXPECT_EQ(hocketMismatch, hocketBarrier(self.comm, nullptr));
    EXPECT_EQ(hocketMismatch, hocketGroupEnd());
    EXPECT_HOCKET(hocketGetLastCulprit(&culprit));
    EXPECT_EQ(1 - self.rank, culprit);
  });
}

}  // namespace
