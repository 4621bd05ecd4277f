// The behaviour that every transport must have; each test runs for all transports.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fabric.h"
#include "sanitized.h"
#include "seed.h"

namespace hocket::internal::testing {
namespace {

class Conformance : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  std::unique_ptr<Fabric> make(FabricOptions options = {}) {
    options.checksum = std::get<1>(GetParam());
    return make_fabric(std::get<0>(GetParam()), options);
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, Conformance,
                         ::testing::Combine(::testing::Values("shm", "mapped", "read", "refused",
                                                              "tcp", "tls"),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "_checked" : "");
                         });

void drive(Fabric& fabric, const std::vector<Transfer*>& transfers) {
  poll_until_done(fabric.all(), transfers);
}

void poll_idle(Fabric& fabric) {
  for (int idle = 0; idle < 300;) {
    bool moved = false;
    for (int rank = 0; rank < fabric.ranks(); ++rank) moved |= fabric.at(rank).poll();
    idle = moved ? 0 : idle + 1;
  }
}

const std::size_t sizes[] = {0,     1,     7,     64,      512,           513,           4096,
                             65535, 65536, 65537, 300'001, (1 << 20) + 3, (16 << 20) + 1};

TEST_P(Conformance, every_size_arrives_whichever_side_posts_first) {
  auto fabric = make();
  std::uint64_t sequence = 0;
  for (const std::size_t bytes : sizes) {
    for (const bool send_first : {true, false}) {
      const MessageKey key{.sequence = ++sequence, .index = 3, .tag = 1, .p2p = false};
      Message send(1, key, bytes), recv(0, key, bytes);
      send.fill(bytes);
      if (send_first) fabric->at(0).post_send(send.transfer);
      if (send_first) poll_idle(*fabric);
      fabric->at(1).post_recv(recv.transfer);
      if (!send_first) poll_idle(*fabric);
      if (!send_first) fabric->at(0).post_send(send.transfer);
      drive(*fabric, {&send.transfer, &recv.transfer});
      ASSERT_TRUE(send.transfer.status.ok()) << send.transfer.status.message();
      ASSERT_TRUE(recv.transfer.status.ok()) << recv.transfer.status.message();
      ASSERT_EQ(send.memory, recv.memory) << bytes << " bytes";
      ASSERT_EQ(recv.transfer.moved, bytes);
    }
  }
  poll_idle(*fabric);
  for (int rank = 0; rank < 2; ++rank) EXPECT_FALSE(fabric->at(rank).active());
}

TEST_P(Conformance, a_small_send_ends_before_its_receive_and_a_large_one_does_not) {
  auto fabric = make();
  const std::size_t eager = fabric->eager_bytes();
  Message connect(1, {.sequence = 1}, 1), connected(0, {.sequence = 1}, 1);
  fabric->at(0).post_send(connect.transfer);
  fabric->at(1).post_recv(connected.transfer);
  drive(*fabric, {&connect.transfer, &connected.transfer});
  Message small(1, {.sequence = 2}, eager), large(1, {.sequence = 3}, eager + 1);
  fabric->at(0).post_send(large.transfer);
  fabric->at(0).post_send(small.transfer);
  drive(*fabric, {&small.transfer});
  poll_idle(*fabric);
  EXPECT_FALSE(large.transfer.done);
  EXPECT_TRUE(fabric->at(0).active());
  fabric->at(0).cancel({Code::aborted, "enough"});
  EXPECT_TRUE(large.transfer.done);
}

// One rank's part of a random exchange: everything it sends and receives, posted in a random order,
// with some polls between.
struct Exchange {
  std::deque<Message> messages;
  std::vector<std::pair<Message*, bool>> order;  // bool: is a send
  std::vector<std::uint64_t> seeds;
};

std::vector<Exchange> random_exchange(int ranks, int messages, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Exchange> exchanges(ranks);
  for (int i = 0; i < messages; ++i) {
    const int from = static_cast<int>(random() % ranks);
    int to = static_cast<int>(random() % (ranks - 1));
    if (to >= from) ++to;
    const std::size_t most = sizes[random() % 12];
    const std::size_t bytes = random() % 4 == 0 ? most : random() % (most + 1);
    const MessageKey key{.sequence = 1 + static_cast<std::uint64_t>(i) / 8,
                         .index = static_cast<std::uint32_t>(i),
                         .tag = static_cast<std::uint32_t>(random() % 5),
                         .p2p = random() % 2 == 0};
    Message& send = exchanges[from].messages.emplace_back(to, key, bytes);
    send.fill(seed + i);
    exchanges[from].order.push_back({&send, true});
    Message& recv = exchanges[to].messages.emplace_back(from, key, bytes);
    exchanges[to].order.push_back({&recv, false});
    if (key.p2p) send.signature.collective = Collective::send;
    if (key.p2p) recv.signature.collective = Collective::recv;
    if (key.p2p) recv.signature.sequence += 17;  // each rank counts its own calls
    exchanges[from].seeds.push_back(0);
    exchanges[to].seeds.push_back(seed + i);
  }
  for (Exchange& exchange : exchanges) {
    std::shuffle(exchange.order.begin(), exchange.order.end(), random);
  }
  return exchanges;
}

void check(const std::vector<Exchange>& exchanges) {
  for (const Exchange& exchange : exchanges) {
    for (std::size_t i = 0; i < exchange.messages.size(); ++i) {
      const Message& message = exchange.messages[i];
      ASSERT_TRUE(message.transfer.status.ok()) << message.transfer.status.message();
      if (exchange.seeds[i] == 0) continue;
      Message expected(0, {}, message.memory.size());
      expected.fill(exchange.seeds[i]);
      ASSERT_TRUE(expected.memory == message.memory) << message.memory.size() << " bytes";
    }
  }
}

constexpr int exchanged = tests::thread_sanitized ? 50 : 150;

TEST_P(Conformance, any_order_of_posting_completes_when_one_thread_polls_all) {
  const std::uint64_t seed = tests::seed();
  for (int ranks = 2; ranks <= 5; ++ranks) {
    auto fabric = make({.ranks = ranks});
    auto exchanges = random_exchange(ranks, exchanged, seed + ranks);
    std::mt19937_64 random(seed);
    std::vector<Transfer*> all;
    for (int rank = 0; rank < ranks; ++rank) {
      for (auto& [message, is_send] : exchanges[rank].order) {
        Transport& transport = fabric->at(rank);
        is_send ? transport.post_send(message->transfer) : transport.post_recv(message->transfer);
        all.push_back(&message->transfer);
        if (random() % 4 == 0) fabric->at(static_cast<int>(random() % ranks)).poll();
      }
    }
    drive(*fabric, all);
    if (HasFatalFailure()) return;
    check(exchanges);
  }
}

TEST_P(Conformance, any_order_of_posting_completes_with_a_thread_per_rank) {
  const std::uint64_t seed = tests::seed();
  for (int ranks = 2; ranks <= 5; ++ranks) {
    auto fabric = make({.ranks = ranks});
    auto exchanges = random_exchange(ranks, exchanged, seed + ranks);
    std::atomic<int> working{ranks};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        std::mt19937_64 random(seed + rank);
        Transport& transport = fabric->at(rank);
        for (auto& [message, is_send] : exchanges[rank].order) {
          is_send ? transport.post_send(message->transfer) : transport.post_recv(message->transfer);
          if (random() % 4 == 0) transport.poll();
        }
        while (transport.active()) {
          if (!transport.poll()) std::this_thread::yield();
        }
        // Peers may still wait until this rank has read their credits and RTS.
        working.fetch_sub(1);
        while (working.load() > 0) {
          if (!transport.poll()) std::this_thread::yield();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Exchange& exchange : exchanges) {
      for (const Message& message : exchange.messages) ASSERT_TRUE(message.transfer.done);
    }
    check(exchanges);
  }
}

TEST_P(Conformance, a_million_tiny_messages_arrive) {
  auto fabric = make();
  constexpr int rounds = tests::sanitized ? 1 << 8 : 1 << 12, batch = 1 << 8;
  std::vector<std::uint64_t> out(batch), in(batch);
  std::vector<Transfer> sends(batch), recvs(batch);
  Signature signature;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    signature.sequence = round;
    for (std::uint32_t i = 0; i < batch; ++i) {
      out[i] = round << 32 | i;
      sends[i] = Transfer();
      sends[i].key = {.sequence = round, .index = i};
      sends[i].peer = 1;
      sends[i].data = reinterpret_cast<std::byte*>(&out[i]);
      sends[i].bytes = 8;
      sends[i].signature = &signature;
      recvs[i] = sends[i];
      recvs[i].peer = 0;
      recvs[i].data = reinterpret_cast<std::byte*>(&in[i]);
      if (round % 2 == 0) fabric->at(1).post_recv(recvs[i]);
      fabric->at(0).post_send(sends[i]);
      if (round % 2 == 1) fabric->at(1).post_recv(recvs[i]);
    }
    std::vector<Transfer*> all;
    for (int i = 0; i < batch; ++i) all.insert(all.end(), {&sends[i], &recvs[i]});
    drive(*fabric, all);
    ASSERT_EQ(in, out);
  }
}

TEST_P(Conformance, a_flood_that_nobody_awaits_is_held_back_and_still_arrives) {
  auto fabric = make({.window_bytes = 100'000});
  constexpr int count = 3000;
  std::deque<Message> sends, recvs;
  std::vector<Transfer*> all;
  for (std::uint32_t i = 0; i < count; ++i) {
    Message& send = sends.emplace_back(1, MessageKey{.sequence = 1, .index = i}, i % 2000);
    send.fill(i);
    fabric->at(0).post_send(send.transfer);
    all.push_back(&send.transfer);
  }
  poll_idle(*fabric);
  const auto ended = std::count_if(sends.begin(), sends.end(),
                                   [](const Message& send) { return send.transfer.done; });
  EXPECT_LT(ended, 400);  // 100,000 bytes of window at 256 bytes or more each
  for (int i = count - 1; i >= 0; --i) {
    Message& recv = recvs.emplace_back(0, sends[i].transfer.key, sends[i].memory.size());
    fabric->at(1).post_recv(recv.transfer);
    all.push_back(&recv.transfer);
  }
  drive(*fabric, all);
  for (int i = 0; i < count; ++i) ASSERT_EQ(sends[i].memory, recvs[count - 1 - i].memory);
}

TEST_P(Conformance, received_messages_give_the_sender_its_window_back) {
  auto fabric = make({.window_bytes = 100'000});
  // Each charges the window with 1000 bytes and 256: 4 windows in all.
  for (std::uint64_t sequence = 1; sequence <= 320; ++sequence) {
    Message send(1, {.sequence = sequence}, 1000), recv(0, {.sequence = sequence}, 1000);
    fabric->at(0).post_send(send.transfer);
    poll_idle(*fabric);
    // It ends before its receive is posted, which only an eager message does.
    ASSERT_TRUE(send.transfer.done) << "message " << sequence << " was held back";
    fabric->at(1).post_recv(recv.transfer);
    drive(*fabric, {&recv.transfer});
    poll_idle(*fabric);
  }
}

TEST_P(Conformance, both_sides_may_send_first_as_much_as_they_like) {
  auto fabric = make();
  std::deque<Message> messages;
  std::vector<Transfer*> all;
  for (std::uint32_t i = 0; i < 200; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      Message& send = messages.emplace_back(1 - rank, MessageKey{.sequence = 1, .index = i}, 65536);
      fabric->at(rank).post_send(send.transfer);
      all.push_back(&send.transfer);
    }
  }
  poll_idle(*fabric);
  for (std::uint32_t i = 200; i-- > 0;) {
    for (int rank = 0; rank < 2; ++rank) {
      Message& recv = messages.emplace_back(1 - rank, MessageKey{.sequence = 1, .index = i}, 65536);
      fabric->at(rank).post_recv(recv.transfer);
      all.push_back(&recv.transfer);
    }
  }
  drive(*fabric, all);
  for (const Transfer* transfer : all) EXPECT_TRUE(transfer->status.ok());
}

// ---- Errors

struct Disagreement {
  const char* name;
  std::size_t send_bytes, recv_bytes;
  bool p2p;
  bool same_signature;
  bool other_plan = false;
};
const Disagreement disagreements[] = {
    {"small, other signature", 64, 64, false, false},
    {"large, other signature", 1 << 20, 1 << 20, false, false},
    {"small against large", 64, 1 << 20, false, false},
    {"large against small", 1 << 20, 64, false, false},
    {"p2p sizes, small", 64, 128, true, false},
    {"p2p sizes, large", 1 << 20, 2 << 20, true, false},
    {"p2p sizes, small against large", 100, 100'000, true, false},
    {"sizes alone", 100, 200, false, true},
    {"zero against one", 0, 1, false, false},
    {"plans alone", 64, 64, false, true, true},
};

TEST_P(Conformance, ranks_that_disagree_both_learn_what_the_other_called) {
  for (const Disagreement& test : disagreements) {
    for (const bool send_first : {true, false}) {
      SCOPED_TRACE(std::string(test.name) + (send_first ? ", send first" : ", receive first"));
      auto fabric = make();
      const MessageKey key{.sequence = 5, .index = 0, .tag = 0, .p2p = test.p2p};
      Message send(1, key, test.send_bytes), recv(0, key, test.recv_bytes);
      Message later(1, {.sequence = 6}, 8), later_recv(0, {.sequence = 6}, 8);
      send.fill(1);
      recv.signature.dtype = test.same_signature || test.p2p ? Dtype::int8 : Dtype::bfloat16;
      if (test.same_signature) recv.signature.count = send.signature.count;
      if (test.other_plan) send.signature.plan = 12, recv.signature.plan = 47;
      std::fill(recv.memory.begin(), recv.memory.end(), std::byte{0x77});
      if (send_first) fabric->at(0).post_send(send.transfer);
      if (send_first) poll_idle(*fabric);
      fabric->at(1).post_recv(recv.transfer);
      if (!send_first) poll_idle(*fabric);
      if (!send_first) fabric->at(0).post_send(send.transfer);
      drive(*fabric, {&recv.transfer});
      ASSERT_EQ(recv.transfer.status.code(), Code::mismatch) << recv.transfer.status.message();
      EXPECT_EQ(recv.transfer.status.culprit(), 0);
      const std::string text = recv.transfer.status.message();
      EXPECT_NE(text.find(describe(send.signature)), std::string::npos) << text;
      EXPECT_NE(text.find(describe(recv.signature)), std::string::npos) << text;
      if (test.other_plan) {
        EXPECT_NE(text.find("different plans, number 12 and number 47"), std::string::npos) << text;
      }
      ASSERT_TRUE(recv.memory.all_are(std::byte{0x77}));
      // A small send had ended already: then the sender's next transfer has the error.
      poll_idle(*fabric);
      fabric->at(0).post_send(later.transfer);
      drive(*fabric, {&send.transfer, &later.transfer});
      const Status& theirs =
          send.transfer.status.ok() ? later.transfer.status : send.transfer.status;
      ASSERT_EQ(theirs.code(), Code::mismatch) << theirs.message();
      EXPECT_EQ(theirs.culprit(), 1);
      EXPECT_NE(theirs.message().find(describe(send.signature)), std::string::npos);
      EXPECT_NE(theirs.message().find(describe(recv.signature)), std::string::npos);
      fabric->at(1).post_recv(later_recv.transfer);
      EXPECT_TRUE(later_recv.transfer.done);
      EXPECT_EQ(later_recv.transfer.status.code(), Code::mismatch);
    }
  }
}

TEST_P(Conformance, a_mismatch_in_the_middle_of_large_transfers_ends_them_on_both_sides) {
  auto fabric = make();
  std::deque<Message> messages;
  std::vector<Transfer*> all;
  for (std::uint32_t i = 0; i < 12; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      const MessageKey key{.sequence = 1, .index = i};
      Message& send = messages.emplace_back(1 - rank, key, 4 << 20);
      Message& recv = messages.emplace_back(rank, key, 4 << 20);
      fabric->at(rank).post_send(send.transfer);
      fabric->at(1 - rank).post_recv(recv.transfer);
      all.insert(all.end(), {&send.transfer, &recv.transfer});
    }
  }
  drive(*fabric, {all[0], all[1]});
  Message odd(1, {.sequence = 2}, 8), even(0, {.sequence = 2}, 8);
  even.signature.root = 3;
  fabric->at(0).post_send(odd.transfer);
  fabric->at(1).post_recv(even.transfer);
  all.push_back(&even.transfer);
  drive(*fabric, all);
  EXPECT_EQ(even.transfer.status.code(), Code::mismatch);
  int ended[2] = {0, 0};
  for (const Transfer* transfer : all) {
    if (transfer->status.ok()) continue;
    ++ended[transfer->peer];
    EXPECT_EQ(transfer->status.code(), Code::mismatch) << transfer->status.message();
  }
  EXPECT_GT(ended[0], 1);
  EXPECT_GT(ended[1], 1);
}

TEST_P(Conformance, cancel_ends_everything_and_leaves_memory_alone) {
  auto fabric = make();
  Message send(1, {.sequence = 1}, 16 << 20), recv(0, {.sequence = 1}, 16 << 20);
  Message early(1, {.sequence = 2}, 100), waiting(0, {.sequence = 3}, 100);
  send.fill(1);
  fabric->at(0).post_send(send.transfer);
  fabric->at(1).post_recv(recv.transfer);
  fabric->at(1).post_recv(waiting.transfer);
  fabric->at(0).post_send(early.transfer);
  while (recv.transfer.moved == 0) {
    for (int rank = 0; rank < 2; ++rank) fabric->at(rank).poll();
  }
  ASSERT_FALSE(recv.transfer.done);
  const Status why(Code::aborted, "aborted by the test", 0);
  fabric->at(1).cancel(why);
  ASSERT_TRUE(recv.transfer.done && waiting.transfer.done);
  EXPECT_EQ(recv.transfer.status.code(), Code::aborted);
  EXPECT_EQ(recv.transfer.status.message(), why.message());
  EXPECT_FALSE(fabric->at(1).active());
  std::fill(recv.memory.begin(), recv.memory.end(), std::byte{0x55});
  poll_idle(*fabric);
  ASSERT_TRUE(recv.memory.all_are(std::byte{0x55}));
  Message after(0, {.sequence = 4}, 1);
  fabric->at(1).post_recv(after.transfer);
  EXPECT_EQ(after.transfer.status.code(), Code::aborted);
  fabric->at(0).cancel(why);
  EXPECT_TRUE(send.transfer.done);
}

TEST_P(Conformance, a_peer_that_left_is_named_and_what_it_had_sent_still_arrives) {
  auto fabric = make();
  Message last(1, {.sequence = 1}, 100), got(0, {.sequence = 1}, 100);
  Message never(0, {.sequence = 2}, 100), to_none(0, {.sequence = 3}, 1 << 20);
  last.fill(7);
  fabric->at(0).post_send(last.transfer);
  fabric->at(1).post_recv(never.transfer);
  drive(*fabric, {&last.transfer});
  fabric->at(0).close();
  drive(*fabric, {&never.transfer});
  EXPECT_EQ(never.transfer.status.code(), Code::remote_error);
  EXPECT_EQ(never.transfer.status.culprit(), 0);
  EXPECT_NE(never.transfer.status.message().find("rank 0 has left"), std::string::npos);
  const std::string& kind = std::get<0>(GetParam());
  const std::string link = kind == "tcp" || kind == "tls" ? "tcp" : "shm";
  EXPECT_EQ(never.transfer.status.link().rfind(link, 0), 0u);
  fabric->at(1).post_recv(got.transfer);
  drive(*fabric, {&got.transfer});
  EXPECT_TRUE(got.transfer.status.ok()) << got.transfer.status.message();
  EXPECT_EQ(got.memory, last.memory);
  fabric->at(1).post_send(to_none.transfer);
  drive(*fabric, {&to_none.transfer});
  EXPECT_EQ(to_none.transfer.status.code(), Code::remote_error);
}

TEST_P(Conformance, a_rank_out_of_reach_is_an_error_at_once) {
  auto fabric = make({.ranks = 3});
  for (const int peer : {-1, 0, 3, 1 << 20}) {
    Message send(peer, {.sequence = 1}, 8), recv(peer, {.sequence = 1}, 8);
    fabric->at(0).post_send(send.transfer);
    fabric->at(0).post_recv(recv.transfer);
    EXPECT_FALSE(fabric->at(0).reaches(peer));
    ASSERT_TRUE(send.transfer.done && recv.transfer.done);
    EXPECT_EQ(send.transfer.status.code(), Code::invalid_argument);
    EXPECT_EQ(recv.transfer.status.code(), Code::invalid_argument);
  }
}

}  // namespace
}  // namespace hocket::internal::testing
