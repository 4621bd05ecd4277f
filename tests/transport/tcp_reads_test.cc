// Where TCP puts the bytes that it reads. The test is the peer: it sends frames of eager messages
// that it has made itself, in any order, over any connection and in any pieces.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fabric.h"
#include "sanitized.h"

namespace hocket::internal::testing {
namespace {

constexpr std::size_t sent_sizes[] = {0,      8,      5000,   16'384, 16'385,  16'500,
                                      30'000, 65'535, 65'536, 65'537, 100'000, 262'144};

FrameHeader header_of(FrameKind kind, const MessageKey& key) {
  FrameHeader header;
  header.kind = kind;
  header.comm_id = comm_id;
  header.source = 1;
  header.sequence = key.sequence;
  header.index = key.index;
  header.tag = key.tag;
  return header;
}

/// Rank 0, and what the test sends to it.
class Peer {
 public:
  explicit Peer(std::size_t connections) : streams_(connections), ends_(connections) {
    TcpOptions options;
    options.connections = static_cast<int>(connections);
    if (!TcpTransport::make(0, 2, comm_id, {}, options, &transport_).ok()) std::abort();
    for (std::size_t index = 0; index < connections; ++index) {
      auto [here, there] = tcp_pair();
      transport_->adopt(1, static_cast<int>(index), std::move(here), {});
      ends_[index] = std::move(there);
    }
    if (connections > 1) add_control(1, FrameKind::reading, {});
  }

  TcpTransport& transport() { return *transport_; }
  std::size_t connections() const { return streams_.size(); }

  void add_control(std::size_t connection, FrameKind kind, const MessageKey& key) {
    add(connection, header_of(kind, key), nullptr);
  }
  void add_frame(std::size_t connection, const Message& message, std::size_t offset,
                 std::size_t length) {
    FrameHeader header = header_of(FrameKind::data, message.transfer.key);
    header.flags = frame_flag::eager;
    header.total = message.memory.size();
    header.offset = offset;
    header.length = static_cast<std::uint32_t>(length);
    header.signature = message.signature;
    add(connection, header, message.memory.data() + offset);
  }

  /// Sends at most so many of the bytes that are left.
  void send_some(std::size_t connection, std::size_t most) {
    std::vector<std::byte>& stream = streams_[connection];
    const std::size_t bytes = std::min(most, stream.size());
    if (bytes == 0) return;
    const ssize_t sent =
        ::send(ends_[connection].get(), stream.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) stream.erase(stream.begin(), stream.begin() + sent);
  }
  bool has_sent_all() const {
    return std::ranges::all_of(streams_, [](const auto& stream) { return stream.empty(); });
  }

 private:
  void add(std::size_t connection, FrameHeader header, const std::byte* payload) {
    seal(header);
    std::vector<std::byte>& stream = streams_[connection];
    const auto* const bytes = reinterpret_cast<const std::byte*>(&header);
    stream.insert(stream.end(), bytes, bytes + sizeof header);
    if (header.length > 0) stream.insert(stream.end(), payload, payload + header.length);
  }

  std::unique_ptr<TcpTransport> transport_;
  std::vector<std::vector<std::byte>> streams_;
  std::vector<UniqueFd> ends_;
};

struct Sent {
  std::deque<Message> sends, recvs;  // equal keys at equal places
};

/// Adds messages to the streams of the peer, each in a few frames, and frames without payload.
void add_messages(Peer& peer, std::mt19937_64& random, Sent* sent) {
  const std::size_t count = 1 + random() % 12;
  for (std::uint32_t i = 0; i < count; ++i) {
    const MessageKey key{.sequence = 1 + i / 3, .index = i % 3};
    const std::size_t bytes = sent_sizes[random() % std::size(sent_sizes)];
    sent->recvs.emplace_back(1, key, bytes);
    std::ranges::generate(sent->sends.emplace_back(0, key, bytes).memory,
                          [&random] { return static_cast<std::byte>(random()); });
  }
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  if (random() % 2 == 0) std::ranges::shuffle(order, random);
  for (const std::size_t i : order) {
    const Message& message = sent->sends[i];
    const std::size_t bytes = message.memory.size();
    const std::size_t usual = random() % peer.connections();
    const std::size_t longest = random() % 3 == 0 ? 1 + random() % (bytes + 1) : bytes;
    for (std::size_t at = 0; at < bytes || (at == 0 && bytes == 0);) {
      const std::size_t other = random() % peer.connections();
      const std::size_t length = std::min(bytes - at, longest);
      peer.add_frame(random() % 4 == 0 ? other : usual, message, at, length);
      at += std::max<std::size_t>(length, 1);
    }
    if (random() % 3 == 0) peer.add_control(usual, FrameKind::credit, {});
  }
}

TEST(TcpReads, every_message_arrives_whole_in_any_order_and_in_any_pieces) {
  constexpr std::uint64_t rounds = tests::sanitized ? 20 : 60;
  for (std::uint64_t seed = 1; seed <= rounds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Peer peer(1 + random() % 2);
    Sent sent;
    add_messages(peer, random, &sent);
    std::vector<Transfer*> posts, all;
    for (Message& recv : sent.recvs) posts.push_back(&recv.transfer);
    all = posts;
    if (random() % 2 == 0) std::ranges::shuffle(posts, random);
    const std::uint64_t haste = 1 + random() % 6;  // how soon receives are posted
    const std::size_t longest = random() % 2 == 0 ? 300 : 200'000;
    while (!posts.empty() || !peer.has_sent_all()) {
      if (!posts.empty() && random() % haste == 0) {
        peer.transport().post_recv(*posts.front());
        posts.erase(posts.begin());
      }
      const std::size_t most = random() % 2 == 0 ? longest : 1 + random() % longest;
      peer.send_some(random() % peer.connections(), most);
      if (random() % 3 != 0) peer.transport().poll();
    }
    poll_until_done({&peer.transport()}, all);
    for (std::size_t i = 0; i < sent.recvs.size(); ++i) {
      const Transfer& recv = sent.recvs[i].transfer;
      ASSERT_TRUE(recv.status.ok()) << recv.status.message();
      ASSERT_TRUE(sent.recvs[i].memory == sent.sends[i].memory) << "message " << i;
    }
  }
}

/// A plan may still read there: in a ring in place, a result overwrites an input that the rank has
/// yet to send, and its peer cannot send that result before it has the input.
TEST(TcpReads, memory_of_a_receive_gets_no_byte_of_another_message) {
  for (const std::size_t bytes : {100, 5000, 16'500, 100'000}) {
    for (const bool after_control : {false, true}) {
      Peer peer(1);
      Message awaited(1, {.sequence = 2}, bytes), later(1, {.sequence = 3}, bytes);
      Message other(0, {.sequence = 1}, bytes), sent(0, {.sequence = 2}, bytes);
      std::ranges::fill(awaited.memory, std::byte{0x55});
      std::ranges::fill(later.memory, std::byte{0x66});
      const std::vector<std::byte> untouched(bytes, std::byte{0x55});
      peer.transport().post_recv(awaited.transfer);
      peer.transport().post_recv(later.transfer);
      if (after_control) peer.add_control(0, FrameKind::credit, {});
      peer.add_frame(0, other, 0, bytes);
      while (!peer.has_sent_all()) {
        peer.send_some(0, bytes);
        settle(peer.transport());
        ASSERT_TRUE(std::ranges::equal(awaited.memory, untouched)) << bytes;
      }
      peer.add_frame(0, sent, 0, bytes);
      while (!peer.has_sent_all()) peer.send_some(0, bytes);
      poll_until_done({&peer.transport()}, {&awaited.transfer});
      EXPECT_TRUE(awaited.memory == sent.memory);
      EXPECT_EQ(std::ranges::count(later.memory, std::byte{0x66}),
                static_cast<std::ptrdiff_t>(bytes));
      peer.transport().cancel({Code::aborted, "enough"});
    }
  }
}

}  // namespace
}  // namespace hocket::internal::testing
