// A peer that sends random bytes or wrong fields, or ends: the error names the peer, and no memory
// is damaged.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fabric.h"
#include "sanitized.h"
#include "seed.h"
#include "transport/frame.h"

namespace hocket::internal::testing {
namespace {

/// A random frame of the hostile peer (rank 0) to rank 1, mostly well formed.
struct Script {
  explicit Script(std::uint64_t seed) : random(seed) {}

  std::uint64_t pick(std::initializer_list<std::uint64_t> values) {
    return values.begin()[random() % values.size()];
  }

  FrameHeader header() {
    FrameHeader made;
    made.comm_id = comm_id;
    made.kind = static_cast<FrameKind>(random() % 8 < 5 ? 1 : random() % 10);
    made.sequence = 1;
    made.index = static_cast<std::uint32_t>(random() % 6);  // some are posted, some never
    made.total = pick({0, 100, 100, 70'000, 70'000, 200'000, ~0ull});
    made.signature.sequence = 1;
    made.signature.collective = Collective::all_gather;
    made.signature.count = made.total;
    made.length = static_cast<std::uint32_t>(pick({0, 32, 100, 100, 35'000, 70'000}));
    made.offset = pick({0, 0, 0, 35'000, 68, ~0ull - 10, ~0ull});
    made.flags = static_cast<std::uint16_t>(pick({0, 0, 2, 2, 4, 6, 8, random() % 32}));
    if (random() % 4 == 0) made.payload_check = static_cast<std::uint32_t>(random());
    return made;
  }

  std::vector<std::byte> bytes(int frames) {
    std::vector<std::byte> stream;
    for (int i = 0; i < frames; ++i) {
      FrameHeader next = header();
      if (random() % 8 == 0) reinterpret_cast<unsigned char*>(&next)[random() % 84] ^= random();
      if (random() % 16 != 0) seal(next);
      const auto* at = reinterpret_cast<const std::byte*>(&next);
      stream.insert(stream.end(), at, at + sizeof next);
      const std::size_t payload = random() % 16 == 0 ? random() % 200 : next.length;
      stream.resize(stream.size() + std::min<std::size_t>(payload, 1 << 20),
                    static_cast<std::byte>(random()));
    }
    if (random() % 4 == 0) stream.resize(random() % (stream.size() + 1));
    return stream;
  }

  std::mt19937_64 random;
};

/// Transfers of rank 1, each in memory of its own (the address sanitizer sees any byte beyond).
struct Victim {
  Victim(Transport& transport, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::size_t sizes[] = {0, 100, 70'000, 200'000};
    for (std::uint32_t index = 0; index < 4; ++index) {
      const MessageKey key{.sequence = 1, .index = index};
      Message& recv = messages.emplace_back(0, key, sizes[random() % 4]);
      if (random() % 4 != 0)
        transport.post_recv(recv.transfer);
      else
        recv.transfer.done = true;
      Message& send = messages.emplace_back(0, key, sizes[random() % 4]);
      if (random() % 4 != 0)
        transport.post_send(send.transfer);
      else
        send.transfer.done = true;
    }
  }
  void check(const std::string& link) {
    for (const Message& message : messages) {
      ASSERT_TRUE(message.transfer.done);
      const Status& status = message.transfer.status;
      if (status.ok()) continue;
      EXPECT_EQ(status.culprit(), 0) << status.message();
      EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
      if (status.code() != Code::mismatch) {
        EXPECT_EQ(status.link().rfind(link, 0), 0u) << status.link();
      }
    }
  }
  std::deque<Message> messages;
};

TEST(Hostile, rubbish_on_a_socket_ends_the_link_and_nothing_else) {
  const std::uint64_t seed = tests::seed();
  for (std::uint64_t round = 0; round < (tests::sanitized ? 400 : 1500); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    Script script(seed + round);
    std::unique_ptr<TcpTransport> transport;
    ASSERT_TRUE(TcpTransport::make(1, 2, comm_id, {}, {}, &transport).ok());
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    UniqueFd attacker(ends[0]);
    transport->adopt(0, 0, UniqueFd(ends[1]), {});
    transport->poll();
    Victim victim(*transport, seed + round);
    const std::vector<std::byte> stream = script.bytes(1 + static_cast<int>(round % 12));
    std::size_t at = 0;
    std::byte sink[4096];
    for (int stuck = 0; at < stream.size() && stuck < 100; ++stuck) {
      const std::size_t piece =
          std::min<std::size_t>(stream.size() - at, 1 + script.random() % 9000);
      const ssize_t sent = ::send(attacker.get(), &stream[at], piece, MSG_NOSIGNAL);
      if (sent > 0) at += static_cast<std::size_t>(sent), stuck = 0;
      if (sent < 0 && errno == EPIPE) break;
      transport->poll();
      while (::recv(attacker.get(), sink, sizeof sink, 0) > 0) {
      }
    }
    attacker.reset();
    while (transport->active()) transport->poll();
    for (int i = 0; i < 70; ++i) transport->poll();
    victim.check("tcp");
    if (HasFailure()) return;
  }
}

TEST(Hostile, rubbish_in_a_fifo_ends_the_link_and_nothing_else) {
  const std::uint64_t seed = tests::seed();
  for (std::uint64_t round = 0; round < (tests::sanitized ? 400 : 1500); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    Script script(seed + round);
    ShmFabric fabric({});
    Transport& transport = fabric.at(1);
    Victim victim(transport, seed + round);
    FifoWriter fifo(fabric.fifo(0, 1), fabric.fifo_bytes());
    const std::vector<std::byte> stream = script.bytes(1 + static_cast<int>(round % 12));
    // Records of any length, cut without regard to frames half of the time.
    std::size_t at = 0;
    while (at < stream.size()) {
      FrameHeader header;
      std::size_t piece = 1 + script.random() % 9000;
      if (round % 2 == 0 && stream.size() - at >= sizeof header) {
        std::memcpy(&header, &stream[at], sizeof header);
        piece = sizeof header + std::min<std::size_t>(header.length, 100'000);
      }
      piece = std::min(piece, stream.size() - at);
      if (fifo.room(piece + 64) < piece + 64) break;
      fifo.put(&stream[at], piece);
      std::memcpy(fifo.lead(), &stream[at], std::min(piece, Fifo::lead_bytes));
      fifo.publish(static_cast<std::uint8_t>(script.pick({0, 0, 0, 0, 0, 1, 1, 2})));
      at += piece;
      transport.poll();
    }
    auto* const cells = reinterpret_cast<std::atomic<std::uint64_t>*>(fabric.fifo(0, 1) + 256);
    auto* const read = reinterpret_cast<std::atomic<std::uint64_t>*>(fabric.fifo(1, 0) + 128);
    const std::uint64_t number = script.pick({0, 1, 64, 1ull << 32 | 1, 1ull << 40 | 1, ~0ull});
    for (std::size_t cell = 0; round % 3 == 0 && cell < Fifo::cells_of(fabric.fifo_bytes());
         ++cell) {
      cells[8 * cell].store(number);
    }
    if (round % 3 == 1) read[round / 3 % 2].store(number);
    for (int i = 0; i < 10; ++i) transport.poll();
    transport.cancel({Code::remote_error, "rank 0 died", 0});
    for (const Message& message : victim.messages) {
      ASSERT_TRUE(message.transfer.done);
      if (!message.transfer.status.ok()) {
        EXPECT_EQ(message.transfer.status.culprit(), 0);
      }
    }
    if (HasFailure()) return;
  }
}

TEST(Hostile, a_fifo_in_no_valid_state_is_an_error_that_names_the_peer) {
  // A record without a header, one that repeats no header, one of no kind, one longer than the
  // ring, and no record at all.
  for (const std::uint64_t value : {1ull, 1ull << 32 | 1, 2ull << 32 | 1, 1 | ~0ull << 40, ~0ull}) {
    ShmFabric fabric({});
    Message recv(0, {.sequence = 1}, 8);
    fabric.at(1).post_recv(recv.transfer);
    reinterpret_cast<std::atomic<std::uint64_t>*>(fabric.fifo(0, 1) + 256)->store(value);
    fabric.at(1).poll();
    ASSERT_TRUE(recv.transfer.done);
    EXPECT_EQ(recv.transfer.status.code(), Code::remote_error);
    EXPECT_EQ(recv.transfer.status.culprit(), 0);
    EXPECT_EQ(recv.transfer.status.link(), "shm");
    const std::string& text = recv.transfer.status.message();
    EXPECT_EQ(value == (1ull << 32 | 1), text.find("repeats none") != std::string::npos) << text;
  }
}

/// A record with a header and 128 bytes of payload, and then a record that has `bytes` in the ring.
void expect_half_a_frame(std::uint8_t kind, std::uint32_t length, std::size_t bytes) {
  SCOPED_TRACE(std::to_string(length) + " of " + std::to_string(bytes));
  ShmFabric fabric({});
  std::deque<Message> recvs;
  for (const std::uint64_t sequence : {1, 2}) {
    fabric.at(1).post_recv(recvs.emplace_back(0, MessageKey{.sequence = sequence}, 128).transfer);
  }
  FifoWriter fifo(fabric.fifo(0, 1), fabric.fifo_bytes());
  FrameHeader header;
  header.comm_id = comm_id;
  header.total = 128;
  header.flags = frame_flag::eager;
  const std::byte payload[128] = {};
  for (const std::uint64_t sequence : {1, 2}) {
    header.sequence = sequence;
    header.signature = recvs[sequence - 1].signature;
    header.length = sequence == 1 ? 128 : length;
    seal(header);
    ASSERT_GT(fifo.room(1000), 1000u);
    if (sequence == 2 && kind == 1) {
      const std::uint64_t numbers[] = {sequence, header.signature.sequence};
      std::memcpy(fifo.lead(), numbers, sizeof numbers);
    } else {
      fifo.put(header);
    }
    fifo.put(payload, sequence == 1 ? 128 : bytes);
    fifo.publish(sequence == 1 ? 0 : kind);
  }
  fabric.at(1).poll();
  ASSERT_TRUE(recvs[0].transfer.done && recvs[1].transfer.done);
  EXPECT_TRUE(recvs[0].transfer.status.ok()) << recvs[0].transfer.status.message();
  EXPECT_NE(recvs[1].transfer.status.message().find("half a frame"), std::string::npos)
      << recvs[1].transfer.status.message();
}

TEST(Hostile, a_record_that_is_shorter_than_its_frame_is_an_error) {
  for (const std::uint32_t length : {1, 40, 128}) expect_half_a_frame(0, length, length - 1);
  for (const std::size_t bytes : {0, 1, 127}) expect_half_a_frame(1, 128, bytes);
}

// Between the two ranks sits a relay that cuts the stream anywhere, and may flip one bit of it.
struct Relay {
  Relay(std::uint64_t seed, bool checksum) : random(seed) {
    TcpOptions options;
    options.matcher.checksum = checksum;
    options.connections = 1;
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(TcpTransport::make(rank, 2, comm_id, {}, options, &transports[rank]).ok());
      auto [far, near] = tcp_pair();
      transports[rank]->adopt(1 - rank, 0, std::move(far), {});
      ends[rank] = std::move(near);
    }
  }
  /// Forwards one piece in one direction. flip: that bit of the stream from rank 0 to 1.
  void forward(int from, std::int64_t flip) {
    std::vector<std::byte>& queue = waiting[from];
    if (queue.empty()) {
      queue.resize(1 + random() % 3000);
      const ssize_t got = ::recv(ends[from].get(), queue.data(), queue.size(), 0);
      queue.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
      const std::int64_t at = flip / 8 - passed[from];
      if (from == 0 && flip >= 0 && at >= 0 && at < static_cast<std::int64_t>(queue.size())) {
        queue[static_cast<std::size_t>(at)] ^= std::byte{1} << flip % 8;
      }
      passed[from] += static_cast<std::int64_t>(queue.size());
    }
    if (queue.empty()) return;
    const std::size_t piece = 1 + random() % queue.size();
    const ssize_t sent = ::send(ends[1 - from].get(), queue.data(), piece, MSG_NOSIGNAL);
    if (sent > 0) queue.erase(queue.begin(), queue.begin() + sent);
  }
  std::mt19937_64 random;
  std::unique_ptr<TcpTransport> transports[2];
  UniqueFd ends[2];
  std::vector<std::byte> waiting[2];
  std::int64_t passed[2] = {0, 0};
};

TEST(Hostile, a_stream_cut_anywhere_is_put_together_again) {
  const std::uint64_t seed = tests::seed();
  std::deque<Message> sends, recvs;
  Relay relay(seed, true);
  for (std::uint32_t i = 0; i < 60; ++i) {
    const std::size_t bytes = i % 10 == 9 ? 70'000 : relay.random() % 3000;
    sends.emplace_back(1, MessageKey{.sequence = 1, .index = i}, bytes).fill(i);
    recvs.emplace_back(0, MessageKey{.sequence = 1, .index = i}, bytes);
    relay.transports[0]->post_send(sends.back().transfer);
    relay.transports[1]->post_recv(recvs.back().transfer);
  }
  while (relay.transports[0]->active() || relay.transports[1]->active()) {
    for (int rank = 0; rank < 2; ++rank) {
      relay.transports[rank]->poll();
      relay.forward(rank, -1);
    }
  }
  for (std::uint32_t i = 0; i < 60; ++i) {
    ASSERT_TRUE(recvs[i].transfer.status.ok()) << recvs[i].transfer.status.message();
    ASSERT_EQ(sends[i].memory, recvs[i].memory);
  }
}

/// Sends a message from rank 0 to rank 1 with this bit of its stream flipped.
void expect_caught(std::uint64_t seed, std::size_t bytes, std::int64_t bit) {
  // The receive can fail while the send is in flight, so the messages outlive the transports.
  Message send(1, {.sequence = 1}, bytes), recv(0, {.sequence = 1}, bytes);
  Relay relay(seed, true);
  send.fill(1);
  relay.transports[0]->post_send(send.transfer);
  relay.transports[1]->post_recv(recv.transfer);
  while (!recv.transfer.done) {
    for (int rank = 0; rank < 2; ++rank) {
      relay.transports[rank]->poll();
      relay.forward(rank, bit);
    }
  }
  ASSERT_EQ(recv.transfer.status.code(), Code::remote_error) << "bit " << bit << " of " << bytes;
  EXPECT_EQ(recv.transfer.status.culprit(), 0);
  EXPECT_EQ(recv.transfer.status.link().rfind("tcp 127.0.0.1:", 0), 0u);
}

TEST(Hostile, with_checksums_every_flipped_bit_is_caught) {
  const std::uint64_t seed = tests::seed();
  constexpr std::size_t small = 40;
  for (std::int64_t bit = 0; bit < 8 * static_cast<int>(sizeof(FrameHeader) + small); ++bit) {
    ASSERT_NO_FATAL_FAILURE(expect_caught(seed, small, bit));
  }
  std::mt19937_64 random(seed);  // of large ones any
  for (std::uint64_t round = 0; round < 60; ++round) {
    const std::size_t bytes = round % 2 == 0 ? 1000 : 100'000;
    const auto bit = static_cast<std::int64_t>(random() % (8 * (sizeof(FrameHeader) + bytes)));
    ASSERT_NO_FATAL_FAILURE(expect_caught(seed + round, bytes, bit));
  }
}

}  // namespace
}  // namespace hocket::internal::testing
