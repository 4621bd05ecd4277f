// Behaviour of tcp that other transports do not have.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fabric.h"

namespace hocket::internal::testing {
namespace {

void poll_both(TcpFabric& fabric) {
  for (int rank = 0; rank < fabric.ranks(); ++rank) fabric.at(rank).poll();
}

void finish(TcpFabric& fabric, const std::vector<Transfer*>& transfers) {
  poll_until_done(fabric.all(), transfers);
}

bool readable(int fd) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, 0) == 1;
}

TEST(Tcp, small_messages_use_one_connection_and_large_ones_open_the_others) {
  TcpFabric fabric({.connections = 3});
  Message send(1, {.sequence = 1}, 65536), recv(0, {.sequence = 1}, 65536);
  fabric.at(0).post_send(send.transfer);
  fabric.at(1).post_recv(recv.transfer);
  finish(fabric, {&send.transfer, &recv.transfer});
  EXPECT_EQ(fabric.dialled(), 1u);
  Message large(1, {.sequence = 2}, 64 << 20), large_recv(0, {.sequence = 2}, 64 << 20);
  large.fill(3);
  fabric.at(0).post_send(large.transfer);
  fabric.at(1).post_recv(large_recv.transfer);
  finish(fabric, {&large.transfer, &large_recv.transfer});
  EXPECT_EQ(fabric.dialled(), 3u);
  EXPECT_TRUE(large.memory == large_recv.memory);
}

TEST(Tcp, nothing_is_dialled_before_it_is_needed) {
  TcpFabric fabric({.ranks = 4});
  EXPECT_EQ(fabric.dialled(), 0u);
  Message recv(3, {.sequence = 1}, 8);
  fabric.at(2).post_recv(recv.transfer);
  EXPECT_EQ(fabric.dialled(), 1u);
  fabric.at(2).cancel({Code::aborted, "enough"});
}

TEST(Tcp, a_connection_lost_in_mid_message_is_an_error_that_names_rank_and_address) {
  for (const bool large : {false, true}) {
    std::unique_ptr<TcpTransport> transport;
    ASSERT_TRUE(TcpTransport::make(0, 3, comm_id, {}, {}, &transport).ok());
    auto [mine, theirs] = tcp_pair();
    transport->adopt(2, 0, std::move(mine), {});
    const std::size_t bytes = large ? 1 << 20 : 1000;
    Message recv(2, {.sequence = 4}, bytes), send(2, {.sequence = 4}, 16 << 20);
    transport->post_recv(recv.transfer);
    transport->post_send(send.transfer);
    while (transport->poll()) {
    }
    FrameHeader header;
    header.comm_id = comm_id;
    header.source = 2;
    header.sequence = 4;
    header.total = bytes;
    header.length = 1000;
    header.signature = recv.signature;
    header.flags = large ? 0 : frame_flag::eager;
    seal(header);
    ASSERT_EQ(::send(theirs.get(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
    ASSERT_EQ(::send(theirs.get(), &header, 50, 0), 50);  // a part of the payload
    transport->poll();
    EXPECT_FALSE(recv.transfer.done);
    theirs.reset();
    poll_until({transport.get()}, [&] { return !transport->active(); });
    for (const Message* message : {&recv, &send}) {
      ASSERT_TRUE(message->transfer.done);
      const Status& status = message->transfer.status;
      EXPECT_EQ(status.code(), Code::remote_error);
      EXPECT_EQ(status.culprit(), 2);
      EXPECT_EQ(status.sequence(), 4u);
      EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
      EXPECT_EQ(status.link().rfind("tcp 127.0.0.1:", 0), 0u) << status.link();
    }
  }
}

TEST(Tcp, a_failed_dial_ends_the_transfers_only_where_it_was_the_first_connection) {
  Message unharmed(1, {.sequence = 1}, 8), recv(1, {.sequence = 1}, 8);
  TcpFabric fabric({});
  fabric.tcp(0).adopt(1, 1, {}, {Code::system_error, "no route"});
  fabric.at(0).post_recv(unharmed.transfer);
  fabric.at(0).poll();
  EXPECT_FALSE(unharmed.transfer.done);
  TcpFabric other({});
  other.tcp(0).adopt(1, 0, {}, {Code::remote_error, "refused by rank 1", 1});
  other.at(0).post_recv(recv.transfer);
  other.at(0).poll();
  ASSERT_TRUE(recv.transfer.done);
  EXPECT_EQ(recv.transfer.status.message(), "refused by rank 1");
  EXPECT_EQ(recv.transfer.status.link(), "tcp 127.0.0.1:1");
}

TEST(Tcp, the_wait_descriptor_tells_of_data_of_connections_and_of_room) {
  TcpFabric fabric({.connections = 1});
  const int at_zero = fabric.at(0).wait_descriptor(), at_one = fabric.at(1).wait_descriptor();
  EXPECT_FALSE(readable(at_one));
  Message first(1, {.sequence = 3}, 8), first_recv(0, {.sequence = 3}, 8);
  fabric.at(1).post_recv(first_recv.transfer);
  EXPECT_TRUE(readable(at_one));  // a connection
  fabric.at(0).post_send(first.transfer);
  finish(fabric, {&first.transfer, &first_recv.transfer});
  settle(fabric.at(0));
  settle(fabric.at(1));
  fabric.at(0).prepare_to_sleep();
  fabric.at(1).prepare_to_sleep();
  EXPECT_FALSE(readable(at_zero));
  EXPECT_FALSE(readable(at_one));
  Message send(1, {.sequence = 1}, 8), recv(0, {.sequence = 1}, 8);
  fabric.at(1).post_recv(recv.transfer);
  settle(fabric.at(1));
  EXPECT_FALSE(readable(at_one));
  fabric.at(0).post_send(send.transfer);
  EXPECT_TRUE(readable(at_one));  // data
  finish(fabric, {&send.transfer, &recv.transfer});

  Message large(1, {.sequence = 2}, 64 << 20), large_recv(0, {.sequence = 2}, 64 << 20);
  fabric.at(1).post_recv(large_recv.transfer);
  fabric.at(0).post_send(large.transfer);
  settle(fabric.at(0));  // until the socket is full: the receiver does not poll
  EXPECT_FALSE(large.transfer.done);
  fabric.at(0).prepare_to_sleep();
  EXPECT_FALSE(readable(at_zero));
  settle(fabric.at(1));
  EXPECT_TRUE(readable(at_zero));  // room
  finish(fabric, {&large.transfer, &large_recv.transfer});
  settle(fabric.at(0));
  EXPECT_FALSE(readable(at_zero));
}

// Two ranks whose connections the test controls.
struct TcpPair {
  explicit TcpPair(int dial_from = 0) {
    for (int rank = 0; rank < 2; ++rank) {
      TcpDialer dialer;
      dialer.dial = [this, dial_from](int, int index) {
        if (index >= dial_from && !connected.at(index)) connect(index);
      };
      if (!TcpTransport::make(rank, 2, comm_id, dialer, {}, &at[rank]).ok()) std::abort();
    }
  }
  void connect(int index) {
    connected.at(index) = true;
    auto [here, there] = tcp_pair();
    fds[0][index] = here.get();
    fds[1][index] = there.get();
    at[0]->adopt(1, index, std::move(here), {});
    at[1]->adopt(0, index, std::move(there), {});
  }
  void settle_both() {
    for (int idle = 0; idle < 200;) {
      const bool first = at[0]->poll(), second = at[1]->poll();
      idle = first || second ? 0 : idle + 1;
    }
  }
  // A small message each way, posted on both sides before either looks.
  void exchange(std::uint64_t sequence, const std::function<void()>& look) {
    const MessageKey key{.sequence = sequence};
    Message sends[] = {{1, key, 8}, {0, key, 8}}, recvs[] = {{1, key, 8}, {0, key, 8}};
    for (int rank = 0; rank < 2; ++rank) at[rank]->post_recv(recvs[rank].transfer);
    for (int rank = 0; rank < 2; ++rank) {
      sends[rank].fill(2 * sequence + rank);
      at[rank]->post_send(sends[rank].transfer);
    }
    if (look) look();
    for (int rank = 0; rank < 2; ++rank) {
      poll_until_done({at[0].get(), at[1].get()}, {&sends[rank].transfer, &recvs[rank].transfer});
      ASSERT_TRUE(recvs[rank].transfer.status.ok()) << recvs[rank].transfer.status.message();
      ASSERT_EQ(recvs[rank].memory, sends[1 - rank].memory);
    }
  }
  // The connection on which something waits to be read by rank.
  int arrived(int rank) const {
    int found = -1;
    poll_until({}, [&] {
      for (int index = 0; index < 2; ++index) {
        int bytes = 0;
        if (::ioctl(fds[rank][index], FIONREAD, &bytes) == 0 && bytes > 0) found = index;
      }
      return found >= 0;
    });
    return found;
  }

  std::unique_ptr<TcpTransport> at[2];
  std::array<bool, 2> connected{};
  std::array<std::array<int, 2>, 2> fds{};
};

TEST(Tcp, small_messages_that_cross_take_turns_between_two_connections) {
  TcpPair pair;
  std::uint64_t sequence = 1;
  for (; sequence < 50; ++sequence) pair.exchange(sequence, {});
  EXPECT_FALSE(pair.connected[1]) << "a few messages need no second connection";
  for (; sequence < 200; ++sequence) pair.exchange(sequence, {});
  ASSERT_TRUE(pair.connected[1]);
  int before = -1;
  for (; sequence < 220; ++sequence) {
    pair.exchange(sequence, [&] {
      const int at_zero = pair.arrived(0), at_one = pair.arrived(1);
      EXPECT_NE(at_zero, at_one) << "both ranks wrote to one socket";
      EXPECT_NE(at_zero, before);
      before = at_zero;
    });
  }
}

// A rank that only sends in its collectives does not poll between them.
TEST(Tcp, each_collective_sends_its_first_message_at_once_for_some_calls_without_a_poll) {
  TcpPair pair;
  pair.exchange(1, {});
  pair.settle_both();
  std::deque<Message> sends;
  const auto is_sent_at_once = [&](const MessageKey& key) {
    sends.emplace_back(1, key, 8);
    pair.at[0]->post_send(sends.back().transfer);
    return sends.back().transfer.done;
  };
  EXPECT_TRUE(is_sent_at_once({.sequence = 2}));
  EXPECT_FALSE(is_sent_at_once({.sequence = 2, .index = 1})) << "it shares a later system call";
  pair.at[0]->poll();
  EXPECT_TRUE(sends.back().transfer.done);
  std::uint64_t sequence = 3;
  while (sequence < 30 && is_sent_at_once({.sequence = sequence})) ++sequence;
  EXPECT_GE(sequence, 6U) << "a poll for nearly each message";
  EXPECT_LT(sequence, 30U) << "what the peer says is never read";
  pair.at[0]->poll();
  EXPECT_TRUE(sends.back().transfer.done);
  EXPECT_TRUE(is_sent_at_once({.sequence = sequence + 1}));
  for (std::size_t i = 0; i < sends.size(); ++i) {
    Message recv(0, sends[i].transfer.key, 8);
    pair.at[1]->post_recv(recv.transfer);
    poll_until_done({pair.at[1].get()}, {&recv.transfer});
    EXPECT_TRUE(recv.transfer.status.ok());
  }
}

TEST(Tcp, a_rank_that_sends_to_another_peer_in_each_collective_polls_as_often) {
  TcpFabric fabric({.ranks = 4});
  std::deque<Message> sends;
  int at_once = 0;
  for (std::uint64_t sequence = 1; sequence <= 40; ++sequence) {
    const int peer = 1 + static_cast<int>(sequence % 3);
    if (sequence == 4) settle(fabric.at(0));  // all three are connected
    sends.emplace_back(peer, MessageKey{.sequence = sequence}, 8);
    fabric.at(0).post_send(sends.back().transfer);
    if (sequence >= 4 && sends.back().transfer.done) ++at_once;
  }
  EXPECT_GE(at_once, 4);
  EXPECT_LE(at_once, 8) << "all peers together";
  settle(fabric.at(0));
  for (const Message& send : sends) EXPECT_TRUE(send.transfer.done);
}

TEST(Tcp, messages_of_the_user_share_a_system_call_until_the_next_poll) {
  TcpPair pair;
  pair.exchange(1, {});
  pair.settle_both();
  std::deque<Message> sends;
  for (std::uint64_t sequence = 2; sequence < 6; ++sequence) {
    sends.emplace_back(1, MessageKey{.sequence = sequence, .p2p = true}, 8);
    pair.at[0]->post_send(sends.back().transfer);
    EXPECT_EQ(sends.back().transfer.done, sequence == 2) << sequence;
  }
  pair.at[0]->poll();
  for (const Message& send : sends) EXPECT_TRUE(send.transfer.done);
}

TEST(Tcp, a_second_connection_that_the_peer_never_took_is_no_error) {
  for (const bool closed_before : {false, true}) {
    TcpPair pair(2);
    pair.connect(0);
    auto [mine, theirs] = tcp_pair();
    pair.at[0]->adopt(1, 1, std::move(mine), {});
    const MessageKey key{.sequence = 3};
    Message send(0, key, 8), recv(1, key, 8), next(1, {.sequence = 4}, 8);
    pair.at[0]->post_recv(recv.transfer);
    if (closed_before) theirs.reset();
    for (const std::uint64_t sequence : {1, 2}) {  // nothing may be sent on it either
      const std::size_t bytes = sequence == 1 ? 8 : 4 << 20;
      Message there(1, {.sequence = sequence}, bytes), here(0, {.sequence = sequence}, bytes);
      pair.at[1]->post_recv(here.transfer);
      pair.at[0]->post_send(there.transfer);
      pair.settle_both();
      ASSERT_TRUE(here.transfer.done && here.transfer.status.ok());
    }
    pair.at[1]->post_send(send.transfer);
    pair.at[1]->close();
    theirs.reset();
    poll_until_done({pair.at[0].get()}, {&recv.transfer});
    EXPECT_TRUE(recv.transfer.status.ok()) << recv.transfer.status.message();
    pair.at[0]->post_recv(next.transfer);
    poll_until_done({pair.at[0].get()}, {&next.transfer});
    EXPECT_NE(next.transfer.status.message().find("has left"), std::string::npos)
        << next.transfer.status.message();
  }
}

// Rank 0 with two connections to the test, which acts as rank 1.
struct Played {
  Played() {
    if (!TcpTransport::make(0, 2, comm_id, {}, {}, &transport).ok()) std::abort();
    for (int index = 0; index < 2; ++index) {
      auto [here, there] = tcp_pair();
      transport->adopt(1, index, std::move(here), {});
      theirs[index] = std::move(there);
    }
    transport->post_recv(recv.transfer);
    settle(*transport);
  }
  void signal(int index, FrameKind kind) {
    FrameHeader header;
    header.kind = kind;
    header.comm_id = comm_id;
    header.source = 1;
    seal(header);
    ASSERT_EQ(::send(theirs[index].get(), &header, sizeof header, 0),
              static_cast<ssize_t>(sizeof header));
    settle(*transport);
  }
  void send_message(int index, std::uint64_t sequence = 1) {
    write_message(index, sequence);
    settle(*transport);
  }
  void write_message(int index, std::uint64_t sequence = 1) {
    FrameHeader header;
    header.comm_id = comm_id;
    header.source = 1;
    header.sequence = sequence;
    header.total = header.length = 8;
    header.signature = recv.signature;
    header.flags = frame_flag::eager;
    seal(header);
    std::vector<std::byte> bytes(sizeof header + 8, std::byte{7});
    std::memcpy(bytes.data(), &header, sizeof header);
    ASSERT_EQ(::send(theirs[index].get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  void expect_received() {
    poll_until_done({transport.get()}, {&recv.transfer});
    EXPECT_TRUE(recv.transfer.status.ok()) << recv.transfer.status.message();
    EXPECT_EQ(recv.memory, std::vector<std::byte>(8, std::byte{7}));
  }

  std::unique_ptr<TcpTransport> transport;
  std::array<UniqueFd, 2> theirs;
  Message recv{1, {.sequence = 1}, 8};
};

TEST(Tcp, a_goodbye_on_one_connection_does_not_overtake_messages_on_the_other) {
  for (const bool reading_first : {false, true}) {
    Played peer;
    if (reading_first) peer.signal(1, FrameKind::reading);
    peer.signal(0, FrameKind::goodbye);
    EXPECT_FALSE(peer.recv.transfer.done) << peer.recv.transfer.status.message();
    if (!reading_first) peer.signal(1, FrameKind::reading);
    peer.send_message(1);
    peer.signal(1, FrameKind::goodbye);
    peer.expect_received();
    Message next(1, {.sequence = 2}, 8);
    peer.transport->post_recv(next.transfer);
    poll_until_done({peer.transport.get()}, {&next.transfer});
    EXPECT_NE(next.transfer.status.message().find("has left"), std::string::npos)
        << next.transfer.status.message();
  }
}

TEST(Tcp, a_connection_reset_behind_its_goodbye_harms_no_message_on_the_other) {
  Played peer;
  peer.signal(1, FrameKind::reading);
  peer.signal(1, FrameKind::goodbye);
  peer.theirs[1].reset();  // with a reading frame in it that was not read: a reset
  settle(*peer.transport);
  EXPECT_FALSE(peer.recv.transfer.done) << peer.recv.transfer.status.message();
  peer.send_message(0);
  peer.expect_received();
}

TEST(Tcp, a_connection_that_broke_first_harms_no_message_that_has_arrived_on_the_other) {
  for (const int index : {0, 1}) {
    Played peer;
    peer.signal(1, FrameKind::reading);
    peer.write_message(index);
    peer.theirs[1 - index].reset();  // the process of the peer has ended
    peer.theirs[index].reset();
    peer.expect_received();
  }
}

TEST(Tcp, a_frame_after_the_goodbye_is_a_violation) {
  Played peer;
  peer.signal(1, FrameKind::reading);
  peer.signal(0, FrameKind::goodbye);
  peer.send_message(0);
  ASSERT_TRUE(peer.recv.transfer.done);
  EXPECT_NE(peer.recv.transfer.status.message().find("a frame after its goodbye"),
            std::string::npos)
      << peer.recv.transfer.status.message();
}

TEST(Tcp, what_had_arrived_before_the_connection_was_lost_stays_valid) {
  Played peer;
  peer.send_message(0, 2);
  peer.theirs[0].reset();
  poll_until_done({peer.transport.get()}, {&peer.recv.transfer});
  EXPECT_NE(peer.recv.transfer.status.message().find("lost the connection"), std::string::npos)
      << peer.recv.transfer.status.message();
  Message next(1, {.sequence = 2}, 8);
  peer.transport->post_recv(next.transfer);
  ASSERT_TRUE(next.transfer.done);
  EXPECT_TRUE(next.transfer.status.ok()) << next.transfer.status.message();
  EXPECT_EQ(next.memory, std::vector<std::byte>(8, std::byte{7}));
}

TEST(Tcp, close_delivers_what_was_sent_even_if_the_peer_has_sent_what_nobody_read) {
  for (int round = 0; round < 5; ++round) {  // a close at once loses bytes in most rounds
    TcpFabric fabric({});
    std::deque<Message> sends, recvs;
    Message noise(0, {.sequence = 9}, 50'000);
    fabric.at(1).post_send(noise.transfer);
    for (int i = 0; i < 10; ++i) poll_both(fabric);
    for (std::uint32_t i = 0; i < 100; ++i) {
      sends.emplace_back(1, MessageKey{.sequence = 1, .index = i}, 60'000).fill(i);
      fabric.at(0).post_send(sends.back().transfer);
    }
    std::thread closer([&] {
      poll_until({&fabric.at(0)}, [&] { return !fabric.at(0).active(); });
      fabric.at(0).close();
    });
    for (std::uint32_t i = 0; i < 100; ++i) {
      Message& recv = recvs.emplace_back(0, MessageKey{.sequence = 1, .index = i}, 60'000);
      fabric.at(1).post_recv(recv.transfer);
      poll_until_done({&fabric.at(1)}, {&recv.transfer});
      EXPECT_TRUE(recv.transfer.status.ok()) << recv.transfer.status.message();
      EXPECT_EQ(recv.memory, sends[i].memory);
      if (HasFailure()) break;
    }
    closer.join();
    if (HasFailure()) return;
  }
}

TEST(Tcp, sixteen_peers_are_served_through_epoll) {
  TcpFabric fabric({.ranks = 17});
  std::deque<Message> messages;
  std::vector<Transfer*> all;
  for (int peer = 1; peer < 17; ++peer) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::size_t bytes = i == 3 ? 300'000 : 100 * i;
      const MessageKey key{.sequence = 1, .index = i};
      Message& recv = messages.emplace_back(peer, key, bytes);
      Message& send = messages.emplace_back(0, key, bytes);
      send.fill(100 * peer + i);
      fabric.at(0).post_recv(recv.transfer);
      fabric.at(peer).post_send(send.transfer);
      all.insert(all.end(), {&recv.transfer, &send.transfer});
    }
  }
  finish(fabric, all);
  for (std::size_t i = 0; i < messages.size(); i += 2) {
    ASSERT_TRUE(messages[i].transfer.status.ok());
    ASSERT_EQ(messages[i].memory, messages[i + 1].memory);
  }
}

TEST(Tcp, connections_may_come_from_another_thread_while_the_transport_is_polled) {
  std::unique_ptr<TcpTransport> transports[2];
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(TcpTransport::make(rank, 2, comm_id, {}, {}, &transports[rank]).ok());
  }
  Message send(1, {.sequence = 1}, 1 << 20), recv(0, {.sequence = 1}, 1 << 20);
  transports[0]->post_send(send.transfer);
  transports[1]->post_recv(recv.transfer);
  std::thread monitor([&] {
    for (int index = 1; index >= 0; --index) {
      auto [here, there] = tcp_pair();
      transports[0]->adopt(1, index, std::move(here), {});
      transports[1]->adopt(0, index, std::move(there), {});
    }
  });
  poll_until_done({transports[0].get(), transports[1].get()}, {&send.transfer, &recv.transfer});
  monitor.join();
  EXPECT_TRUE(recv.transfer.status.ok());
}

TEST(Tcp, calls_of_a_connection_are_short_under_bbr_only) {
  for (const char* bbr : {"bbr", "bbr2", "bbr3"}) {
    EXPECT_EQ(call_bytes_under(bbr).write, 96U << 10) << bbr;
    EXPECT_EQ(call_bytes_under(bbr).read, 64U << 10) << bbr;
  }
  for (const char* other : {"cubic", "reno", "dctcp", ""}) {
    EXPECT_EQ(call_bytes_under(other).write, 1U << 20) << other;
    EXPECT_EQ(call_bytes_under(other).read, 1U << 20) << other;
  }
}

/// The kernel allows any process "reno" and its default; others only if it has them.
TEST(Tcp, large_messages_arrive_whole_under_each_congestion_control) {
  for (const std::string control : {"reno", "cubic", "bbr"}) {
    std::unique_ptr<TcpTransport> transports[2];
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(TcpTransport::make(rank, 2, comm_id, {}, {}, &transports[rank]).ok());
    }
    bool set = true;
    for (int index = 0; index < 2; ++index) {
      auto [here, there] = tcp_pair();
      for (const UniqueFd* end : {&here, &there}) {
        set &= ::setsockopt(end->get(), IPPROTO_TCP, TCP_CONGESTION, control.data(),
                            static_cast<socklen_t>(control.size())) == 0;
      }
      transports[0]->adopt(1, index, std::move(here), {});
      transports[1]->adopt(0, index, std::move(there), {});
    }
    EXPECT_TRUE(set || control != "reno");
    if (!set) continue;
    std::deque<Message> messages;
    std::vector<Transfer*> all;
    std::uint64_t sequence = 0;
    for (const std::size_t bytes : {(64U << 10) + 1, (96U << 10) - 112, 5U << 20}) {
      for (int from = 0; from < 2; ++from) {
        ++sequence;
        for (int rank = 0; rank < 2; ++rank) {
          Message& message =
              messages.emplace_back(1 - rank, MessageKey{.sequence = sequence}, bytes);
          if (rank == from)
            std::ranges::generate(message.memory, [n = sequence]() mutable {
              return static_cast<std::byte>((n = n * 6364136223846793005U + 1) >> 56);
            });
          all.push_back(&message.transfer);
          rank == from ? transports[rank]->post_send(message.transfer)
                       : transports[rank]->post_recv(message.transfer);
        }
      }
    }
    poll_until_done({transports[0].get(), transports[1].get()}, all);
    for (std::size_t i = 0; i < messages.size(); i += 2) {
      ASSERT_TRUE(messages[i].transfer.status.ok() && messages[i + 1].transfer.status.ok());
      ASSERT_EQ(messages[i].memory, messages[i + 1].memory) << control;
    }
  }
}

}  // namespace
}  // namespace hocket::internal::testing
