// Messages and collectives of one communicator on several streams: none waits for another.
#include <array>
#include <random>

#include "matrix/ranks.h"
#include "seed.h"

namespace {

using ranks::Rank;

struct Stream {
  Stream() { EXPECT_HOCKET(hocketStreamCreate(&handle)); }
  ~Stream() { EXPECT_HOCKET(hocketStreamDestroy(handle)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  hocketStream_t handle = nullptr;
};

hocketResult_t add_up(int* x, hocketComm_t comm, hocketStream_t stream) {
  return hocketAllReduce(x, x, 1, hocketInt32, hocketSum, comm, stream);
}
hocketResult_t send(const std::vector<int>& x, int peer, hocketComm_t comm, hocketStream_t stream) {
  return hocketSend(x.data(), x.size(), hocketInt32, peer, comm, stream);
}
hocketResult_t receive(std::vector<int>& x, int peer, hocketComm_t comm, hocketStream_t stream) {
  return hocketRecv(x.data(), x.size(), hocketInt32, peer, comm, stream);
}

// Longer than what a send may leave with the transport: it ends only when the receiver takes it.
constexpr std::size_t long_message = 1 << 18;

/// Rank 1 calls its collective only after messages in both directions.
void exchange_before_a_pending_collective(Rank& self, bool message_on_stream) {
  Stream first, second;
  hocketStream_t const stream = message_on_stream ? second.handle : nullptr;
  std::vector<int> out(long_message, self.rank + 1), in(long_message);
  int x = self.rank + 1;
  if (self.rank == 0) {
    EXPECT_HOCKET(add_up(&x, self.comm, first.handle));
  }
  if (self.rank == 0) {
    EXPECT_HOCKET(receive(in, 1, self.comm, stream));
    EXPECT_HOCKET(send(out, 1, self.comm, stream));
  } else {
    EXPECT_HOCKET(send(out, 0, self.comm, stream));
    EXPECT_HOCKET(receive(in, 0, self.comm, stream));
  }
  EXPECT_HOCKET(hocketStreamSynchronize(stream));
  EXPECT_TRUE(in == std::vector<int>(long_message, 2 - self.rank));
  if (self.rank == 0) {
    EXPECT_EQ(hocketInProgress, hocketStreamQuery(first.handle));
  }
  self.meet();
  if (self.rank == 1) {
    EXPECT_HOCKET(add_up(&x, self.comm, nullptr));
  }
  EXPECT_HOCKET(hocketStreamSynchronize(first.handle));
  EXPECT_EQ(3, x);
}

TEST(Handover, a_message_on_a_stream_does_not_wait_for_a_collective_on_another) {
  ranks::run_ranks(2, [](Rank& self) { exchange_before_a_pending_collective(self, true); });
}

TEST(Handover, a_message_in_the_callers_thread_does_not_wait_for_a_collective_on_a_stream) {
  ranks::run_ranks(2, [](Rank& self) { exchange_before_a_pending_collective(self, false); });
}

TEST(Handover, a_collective_does_not_wait_for_a_message_on_another_stream) {
  ranks::run_ranks(2, [](Rank& self) {
    Stream first;
    std::vector<int> out(long_message, 7), in(long_message);
    if (self.rank == 0) {
      EXPECT_HOCKET(receive(in, 1, self.comm, first.handle));
    }
    for (int i = 0; i < 10; ++i) {
      int x = self.rank + 1;
      EXPECT_HOCKET(add_up(&x, self.comm, nullptr));
      EXPECT_EQ(3, x);
    }
    if (self.rank == 0) {
      EXPECT_EQ(hocketInProgress, hocketStreamQuery(first.handle));
    }
    self.meet();
    if (self.rank == 1) {
      EXPECT_HOCKET(send(out, 0, self.comm, nullptr));
    }
    EXPECT_HOCKET(hocketStreamSynchronize(first.handle));
    EXPECT_TRUE(self.rank == 1 || in == out);
  });
}

TEST(Handover, a_send_does_not_wait_for_a_receive_on_another_stream) {
  ranks::run_ranks(2, [](Rank& self) {
    Stream first, second;
    std::vector<int> out(long_message, self.rank), in(long_message);
    // Both receive first: they would wait for ever for each other.
    EXPECT_HOCKET(receive(in, 1 - self.rank, self.comm, first.handle));
    EXPECT_HOCKET(send(out, 1 - self.rank, self.comm, second.handle));
    EXPECT_HOCKET(hocketStreamSynchronize(first.handle));
    EXPECT_HOCKET(hocketStreamSynchronize(second.handle));
    EXPECT_TRUE(in == std::vector<int>(long_message, 1 - self.rank));
  });
}

TEST(Handover, messages_on_several_streams_arrive_in_the_order_of_the_calls) {
  ranks::run_ranks(2, [](Rank& self) {
    std::array<Stream, 3> streams;
    int x = 1;
    EXPECT_HOCKET(add_up(&x, self.comm, streams[0].handle));
    std::vector<std::vector<int>> messages;
    for (int i = 0; i < 60; ++i) messages.emplace_back(i % 7 == 0 ? 100'000 : 10, i);
    std::vector<std::vector<int>> in;
    for (const auto& message : messages) in.emplace_back(message.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
      hocketStream_t const stream = streams[i * 5 % 3].handle;
      if (self.rank == 0) {
        EXPECT_HOCKET(send(messages[i], 1, self.comm, stream));
      }
      if (self.rank == 1) {
        EXPECT_HOCKET(receive(in[i], 0, self.comm, stream));
      }
    }
    for (const Stream& stream : streams) EXPECT_HOCKET(hocketStreamSynchronize(stream.handle));
    EXPECT_TRUE(self.rank == 0 || in == messages);
  });
}

/// Each of the two groups is on one stream, and has calls on both communicators; each
/// communicator's collective comes later.
TEST(Handover, groups_of_messages_on_several_communicators_run_beside_collectives_of_each) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketComm_t other = nullptr;
    ASSERT_HOCKET(hocketCommDuplicate(self.comm, &other, nullptr));
    {
      std::array<Stream, 4> streams;
      const int peer = 1 - self.rank;
      int x = self.rank, y = self.rank;
      std::array<std::vector<int>, 4> out, in;
      for (int i = 0; i < 4; ++i) {
        out[i].assign(long_message, 10 * self.rank + i);
        in[i].resize(long_message);
      }
      const auto exchange = [&](int first, hocketComm_t one, hocketComm_t two, int stream) {
        EXPECT_HOCKET(hocketGroupStart());
        EXPECT_HOCKET(send(out[first], peer, one, streams[stream].handle));
        EXPECT_HOCKET(receive(in[first], peer, one, streams[stream].handle));
        EXPECT_HOCKET(send(out[first + 1], peer, two, streams[stream].handle));
        EXPECT_HOCKET(receive(in[first + 1], peer, two, streams[stream].handle));
        EXPECT_HOCKET(hocketGroupEnd());
      };
      if (self.rank == 0) {
        EXPECT_HOCKET(add_up(&x, self.comm, streams[0].handle));
        EXPECT_HOCKET(add_up(&y, other, streams[1].handle));
      }
      exchange(0, self.comm, other, 2);
      exchange(2, self.comm, other, 3);
      EXPECT_HOCKET(hocketStreamSynchronize(streams[2].handle));
      EXPECT_HOCKET(hocketStreamSynchronize(streams[3].handle));
      if (self.rank == 1) {
        EXPECT_HOCKET(add_up(&y, other, streams[1].handle));
        EXPECT_HOCKET(add_up(&x, self.comm, streams[0].handle));
      }
      for (const Stream& stream : streams) EXPECT_HOCKET(hocketStreamSynchronize(stream.handle));
      EXPECT_EQ(1, x);
      EXPECT_EQ(1, y);
      for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(in[i] == std::vector<int>(long_message, 10 * peer + i)) << i;
      }
    }
    EXPECT_HOCKET(hocketCommDestroy(other));
  });
}

/// A call that is wrong on one stream ends what all streams wait for, and each of them is told.
TEST(Handover, an_error_ends_the_calls_of_all_streams) {
  ranks::run_ranks(2, [](Rank& self) {
    Stream first, second, third;
    std::vector<int> in(10), more(10);
    int x = 0;
    if (self.rank == 0) {
      EXPECT_HOCKET(receive(in, 1, self.comm, first.handle));
      EXPECT_HOCKET(receive(more, 1, self.comm, second.handle));
      EXPECT_HOCKET(add_up(&x, self.comm, third.handle));
    }
    self.meet();
    if (self.rank == 1) {
      EXPECT_EQ(hocketMismatch, hocketBarrier(self.comm, nullptr)) << hocketGetLastError(nullptr);
      return;
    }
    for (const Stream* stream : {&first, &second, &third}) {
      EXPECT_EQ(hocketMismatch, hocketStreamSynchronize(stream->handle))
          << hocketGetLastError(nullptr);
    }
  });
}

/// A random program: on each of two communicators collectives, which must keep their order, and
/// messages round a ring, on streams that each call picks at random. Every rank makes the same
/// calls, and puts each on a stream of its own selection.
TEST(Handover, random_programs_on_random_streams_give_what_one_thread_gives) {
  const std::uint64_t seed = tests::seed();
  ranks::run_ranks(3, [seed](Rank& self) {
    hocketComm_t other = nullptr;
    ASSERT_HOCKET(hocketCommDuplicate(self.comm, &other, nullptr));
    {
      std::array<Stream, 4> streams;
      std::mt19937_64 shared(seed), own(seed + 1 + static_cast<std::uint64_t>(self.rank));
      const int steps = ranks::sanitized ? 60 : 300;
      std::array<std::uint64_t, 2> x{1, 3}, expected = x;
      std::vector<std::vector<int>> out, in;
      out.reserve(static_cast<std::size_t>(steps));
      in.reserve(static_cast<std::size_t>(steps));
      for (int step = 0; step < steps; ++step) {
        const std::uint64_t draw = shared();
        const std::size_t which = draw & 1;
        hocketComm_t const comm = which == 0 ? self.comm : other;
        const std::uint64_t pick = own() % 5;
        hocketStream_t const stream = pick < 4 ? streams[pick].handle : nullptr;
        if ((draw >> 1) % 3 == 0) {
          const bool sum = (draw >> 8) & 1;
          // All ranks have equal values: a sum is 3 x, a product x * x * x.
          std::uint64_t& value = expected[which];
          value = sum ? 3 * value : value * value * value;
          EXPECT_HOCKET(hocketAllReduce(&x[which], &x[which], 1, hocketUint64,
                                        sum ? hocketSum : hocketProd, comm, stream));
          continue;
        }
        const std::size_t count = (draw >> 16) % 10 == 0 ? 50'000 : 1 + (draw >> 20) % 100;
        out.emplace_back(count, step * 3 + self.rank);
        in.emplace_back(count);
        EXPECT_HOCKET(hocketGroupStart());
        EXPECT_HOCKET(send(out.back(), (self.rank + 1) % 3, comm, stream));
        EXPECT_HOCKET(receive(in.back(), (self.rank + 2) % 3, comm, stream));
        EXPECT_HOCKET(hocketGroupEnd());
      }
      for (const Stream& stream : streams) EXPECT_HOCKET(hocketStreamSynchronize(stream.handle));
      EXPECT_EQ(expected, x);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const int sent = out[i][0] - self.rank + (self.rank + 2) % 3;
        EXPECT_TRUE(in[i] == std::vector<int>(in[i].size(), sent)) << "message " << i;
      }
    }
    EXPECT_HOCKET(hocketCommDestroy(other));
  });
}

}  // namespace
