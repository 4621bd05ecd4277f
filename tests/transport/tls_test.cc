// What TLS adds to a connection: secrecy, and an error for every changed byte. The conformance
// suite has what it must not change.
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fabric.h"
#include "seed.h"

namespace hocket::internal::testing {
namespace {

std::pair<UniqueFd, UniqueFd> unix_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

ssize_t send_text(ByteStream& to, std::string text) {
  const iovec part{text.data(), text.size()};
  return to.send(&part, 1);
}

/// What receive() returns, or "error N".
std::string receive_text(ByteStream& from, std::size_t most, bool from_socket = true) {
  std::string text(most, 0);
  const iovec part{text.data(), text.size()};
  const ssize_t got = from.receive(&part, 1, from_socket);
  if (got < 0) return "error " + std::to_string(errno);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

const std::string nothing = "error " + std::to_string(EAGAIN);
const std::string damaged = "error " + std::to_string(EBADMSG);

/// Two streams with TLS, and between them a relay that sees and may change every byte.
struct Wire {
  using Change = std::function<void(int from, std::vector<std::uint8_t>& bytes)>;
  explicit Wire(Change change = nullptr) : change_(std::move(change)) {
    for (int end = 0; end < 2; ++end) {
      auto [stream, relay] = unix_pair();
      streams[end] = ByteStream(std::move(stream));
      relays_[end] = std::move(relay);
    }
  }
  void start_tls(const Tls::Secret& client, const Tls::Secret& server) {
    streams[0].start_tls(Tls::Role::client, client);
    streams[1].start_tls(Tls::Role::server, server);
    for (int i = 0; i < 10; ++i) {
      for (int end = 0; end < 2; ++end) {
        if (progress[end] == Tls::Progress::waits) progress[end] = streams[end].shake_hands();
        pass();
      }
    }
    for (ByteStream& stream : streams) stream.read_ahead();
  }
  bool connected() const {
    return progress[0] == Tls::Progress::done && progress[1] == Tls::Progress::done;
  }
  /// Passes all bytes that are under way.
  void pass() {
    for (int from = 0; from < 2; ++from) {
      for (;;) {
        std::vector<std::uint8_t> bytes(65536);
        const ssize_t got = ::recv(relays_[from].get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got <= 0) break;
        bytes.resize(static_cast<std::size_t>(got));
        if (change_) change_(from, bytes);
        seen.insert(seen.end(), bytes.begin(), bytes.end());
        ::send(relays_[1 - from].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      }
    }
  }
  void cut() {
    for (UniqueFd& relay : relays_) relay.reset();
  }

  ByteStream streams[2];
  Tls::Progress progress[2] = {Tls::Progress::waits, Tls::Progress::waits};
  std::string seen;

 private:
  UniqueFd relays_[2];
  Change change_;
};

constexpr Tls::Secret secret = {1, 2, 3};

TEST(TlsStream, sends_no_byte_that_a_reader_of_the_network_understands) {
  for (const bool encrypted : {false, true}) {
    Wire wire;
    if (encrypted) wire.start_tls(secret, secret);
    ASSERT_EQ(wire.connected(), encrypted);
    const std::string text = "a sentence of thirty-one bytes.";
    ASSERT_EQ(send_text(wire.streams[0], text), std::ssize(text));
    wire.pass();
    EXPECT_EQ(receive_text(wire.streams[1], 100), text);
    EXPECT_EQ(wire.seen.find("sentence") == std::string::npos, encrypted);
  }
}

TEST(TlsStream, needs_the_same_secret_at_both_ends) {
  Tls::Secret other = secret;
  other.back() ^= 1;
  Wire wire;
  wire.start_tls(secret, other);
  EXPECT_EQ(wire.progress[0], Tls::Progress::failed);
  EXPECT_EQ(wire.progress[1], Tls::Progress::failed);
}

TEST(TlsStream, encrypts_the_same_bytes_differently_each_time) {
  std::string seen[2];
  for (std::string& of : seen) {
    Wire wire;
    wire.start_tls(secret, secret);
    ASSERT_TRUE(wire.connected());
    wire.seen.clear();
    send_text(wire.streams[0], std::string(100, 'x'));
    wire.pass();
    of = wire.seen;
  }
  EXPECT_NE(seen[0], seen[1]) << "the keys follow from the secret alone: no forward secrecy";
}

TEST(TlsStream, gives_an_error_at_both_ends_for_any_changed_byte) {
  std::mt19937_64 random(tests::seed());
  for (int round = 0; round < 200; ++round) {
    std::int64_t until_change = -1;
    Wire wire([&](int from, std::vector<std::uint8_t>& bytes) {
      if (from != 0 || until_change < 0) return;
      if (until_change < std::ssize(bytes)) {
        bytes[static_cast<std::size_t>(until_change)] ^= 1 << random() % 8;
      }
      until_change -= std::min(until_change + 1, static_cast<std::int64_t>(bytes.size()));
    });
    wire.start_tls(secret, secret);
    ASSERT_TRUE(wire.connected());
    until_change = static_cast<std::int64_t>(random() % 300);
    for (int i = 0; i < 3; ++i) send_text(wire.streams[0], std::string(100, 'a' + i));
    wire.pass();
    std::string got, all;
    for (int i = 0; i < 4; ++i) {
      got = receive_text(wire.streams[1], 1000);
      if (got.rfind("error", 0) == 0) break;
      all += got;
    }
    // A changed length makes TLS wait for bytes that never come.
    if (got == nothing) continue;
    EXPECT_EQ(got, damaged);
    EXPECT_EQ(all, std::string(300, 'a')
                       .substr(0, all.size())
                       .replace(std::min<std::size_t>(all.size(), 100), std::string::npos,
                                std::string(all.size() > 100 ? all.size() - 100 : 0, 'b')));
    EXPECT_NE(wire.streams[1].tls_error().find("changed on the way"), std::string::npos);
    wire.pass();
    EXPECT_EQ(receive_text(wire.streams[0], 10), damaged) << "its alert has not come";
    EXPECT_NE(wire.streams[0].tls_error().find("the other end has found"), std::string::npos)
        << wire.streams[0].tls_error();
    if (HasFailure()) return;
  }
}

TEST(TlsStream, ends_as_a_plain_stream_does_when_the_network_cuts_it_anywhere) {
  Wire wire;
  wire.start_tls(secret, secret);
  ASSERT_TRUE(wire.connected());
  send_text(wire.streams[0], "hello");
  wire.pass();
  wire.cut();
  EXPECT_EQ(receive_text(wire.streams[1], 5), "hello");
  EXPECT_EQ(receive_text(wire.streams[1], 5), "");
  EXPECT_EQ(receive_text(wire.streams[1], 5), "");
  EXPECT_EQ(send_text(wire.streams[1], "x"), -1) << "and no SIGPIPE";
  EXPECT_EQ(errno, EPIPE);
}

TEST(TlsStream, gives_what_it_has_taken_from_the_socket_without_reading_it_again) {
  Wire wire;
  wire.start_tls(secret, secret);
  ASSERT_TRUE(wire.connected());
  for (const char* text : {"one", "two", "three"}) send_text(wire.streams[0], text);
  wire.pass();
  EXPECT_EQ(receive_text(wire.streams[1], 10, false), nothing) << "nothing is taken yet";
  EXPECT_EQ(receive_text(wire.streams[1], 4), "onet");
  EXPECT_EQ(receive_text(wire.streams[1], 2, false), "wo");
  EXPECT_EQ(receive_text(wire.streams[1], 10, false), "three");
  EXPECT_EQ(receive_text(wire.streams[1], 10, false), nothing);
  send_text(wire.streams[0], "four");
  wire.pass();
  EXPECT_EQ(receive_text(wire.streams[1], 10, false), nothing);
  EXPECT_EQ(receive_text(wire.streams[1], 10), "four");
}

/// The socket takes a part of a record, and the caller gives the rest again at another address.
TEST(TlsStream, goes_on_behind_what_a_full_socket_has_taken) {
  std::mt19937_64 random(tests::seed());
  auto [mine, theirs] = tls_pair(unix_pair());
  std::vector<std::uint8_t> sent(3'000'000), got(sent.size());
  for (std::uint8_t& byte : sent) byte = static_cast<std::uint8_t>(random());
  std::size_t at = 0, arrived = 0;
  int full = 0;
  while (arrived < sent.size()) {
    std::vector<std::uint8_t> rest(sent.begin() + static_cast<std::ptrdiff_t>(at), sent.end());
    if (!rest.empty()) {
      const std::size_t cut = random() % rest.size();
      const iovec parts[] = {{rest.data(), cut}, {rest.data() + cut, rest.size() - cut}};
      const ssize_t taken = mine.send(parts, 2);
      if (taken < 0) {
        ASSERT_EQ(errno, EAGAIN);
      }
      if (taken < std::ssize(rest)) ++full;
      at += taken > 0 ? static_cast<std::size_t>(taken) : 0;
    }
    const iovec part{got.data() + arrived, std::min<std::size_t>(got.size() - arrived, 100'000)};
    const ssize_t more = theirs.receive(&part, 1);
    arrived += more > 0 ? static_cast<std::size_t>(more) : 0;
  }
  EXPECT_GT(full, 3);
  EXPECT_TRUE(sent == got);
}

/// RFC 8446, 5.5: a key protects a limited number of records.
TEST(TlsStream, changes_its_key_after_many_records) {
  auto [first, second] = unix_pair();
  Tls client(Tls::Role::client, first.get(), secret, 10),
      server(Tls::Role::server, second.get(), secret, 10);
  auto done = Tls::Progress::waits;
  while (done == Tls::Progress::waits) {
    static_cast<void>(client.shake_hands());
    done = server.shake_hands();
  }
  ASSERT_EQ(done, Tls::Progress::done);
  for (int i = 0; i < 100; ++i) {
    for (const auto& [from, to] : {std::pair{&client, &server}, {&server, &client}}) {
      char letter = static_cast<char>('a' + i % 26), got = 0;
      const iovec out{&letter, 1}, in{&got, 1};
      ASSERT_EQ(from->send(&out, 1), 1);
      ASSERT_EQ(to->receive(&in, 1, true), 1);
      ASSERT_EQ(got, letter);
    }
  }
  EXPECT_EQ(client.keys_used(), 10u);
}

TEST(TlsStream, leaves_the_errors_of_the_program_in_openssls_queue) {
  ::ERR_clear_error();
  ERR_raise(ERR_LIB_USER, 77);
  const unsigned long of_the_program = ::ERR_peek_last_error();
  Wire wire;
  Tls::Secret other = secret;
  other[0] ^= 1;
  wire.start_tls(secret, secret);
  ASSERT_TRUE(wire.connected());
  ::ERR_clear_error();
  ERR_raise(ERR_LIB_USER, 77);
  send_text(wire.streams[0], "one");
  wire.pass();
  EXPECT_EQ(receive_text(wire.streams[1], 10), "one");
  EXPECT_EQ(receive_text(wire.streams[1], 10), nothing);
  wire.cut();
  EXPECT_EQ(receive_text(wire.streams[1], 10), "");
  EXPECT_EQ(::ERR_get_error(), of_the_program);
  EXPECT_EQ(::ERR_get_error(), 0u);
}

// ---- Messages over TLS

/// Two ranks, whose connection goes through a Wire.
struct TlsLink {
  explicit TlsLink(Wire::Change change = nullptr) : wire(std::move(change)) {
    wire.start_tls(secret, secret);
    EXPECT_TRUE(wire.connected());
    TcpOptions options;
    options.connections = 1;
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(TcpTransport::make(rank, 2, comm_id, {}, options, &at[rank]).ok());
      at[rank]->adopt(1 - rank, 0, std::move(wire.streams[rank]), {});
    }
  }
  void poll() {
    for (const auto& transport : at) transport->poll();
    wire.pass();
  }
  Wire wire;
  std::unique_ptr<TcpTransport> at[2];
};

TEST(TlsLink, hides_payloads_and_headers) {
  TlsLink link;
  Message send(1, {.sequence = 1}, 50'000), recv(0, {.sequence = 1}, 50'000);
  std::fill(send.memory.begin(), send.memory.end(), std::byte{'Q'});
  link.at[0]->post_send(send.transfer);
  link.at[1]->post_recv(recv.transfer);
  for (int i = 0; i < 100'000 && !recv.transfer.done; ++i) link.poll();
  ASSERT_TRUE(recv.transfer.done && recv.transfer.status.ok()) << recv.transfer.status.message();
  EXPECT_TRUE(send.memory == recv.memory);
  EXPECT_GT(link.wire.seen.size(), 50'000u);
  EXPECT_EQ(link.wire.seen.find("QQQQQQQQ"), std::string::npos);
  EXPECT_EQ(link.wire.seen.find("hkt1"), std::string::npos) << "the magic of a frame";
}

TEST(TlsLink, with_a_changed_byte_is_an_error_that_names_the_peer_and_the_link) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{50'000}, std::size_t{300'000}}) {
    bool armed = false;
    TlsLink link([&](int from, std::vector<std::uint8_t>& passed) {
      if (!armed || from != 0 || passed.size() < 100) return;
      passed[passed.size() / 2 + 8] ^= 4;
      armed = false;
    });
    armed = true;
    Message send(1, {.sequence = 1}, bytes), recv(0, {.sequence = 1}, bytes);
    Message late(1, {.sequence = 2}, 8);
    link.at[0]->post_send(send.transfer);
    link.at[1]->post_recv(recv.transfer);
    for (int i = 0; i < 100'000 && !recv.transfer.done; ++i) link.poll();
    ASSERT_TRUE(recv.transfer.done);
    const Status& status = recv.transfer.status;
    EXPECT_EQ(status.code(), Code::remote_error);
    EXPECT_EQ(status.culprit(), 0);
    EXPECT_EQ(status.link().rfind("tcp", 0), 0u);
    for (const char* part : {"rank 0", "changed on the way"}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
    link.at[0]->post_recv(late.transfer);
    for (int i = 0; i < 100'000 && !late.transfer.done; ++i) link.poll();
    ASSERT_TRUE(late.transfer.done);
    EXPECT_EQ(late.transfer.status.culprit(), 1) << late.transfer.status.message();
  }
}

/// A poll reads a limited number of bytes from the socket. What the stream has taken from the
/// socket then is no event for epoll, so it must not stay there.
TEST(TlsLink, leaves_nothing_in_the_stream_when_its_budget_ends) {
  auto [sender, receiver] = unix_pair();  // all bytes are in it before the first is read
  const int room = 8 << 20;
  if (::setsockopt(sender.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0) {
    GTEST_SKIP() << "a socket with a large buffer needs CAP_NET_ADMIN";
  }
  auto [here, there] = tls_pair({std::move(sender), std::move(receiver)});
  std::unique_ptr<TcpTransport> at[2];
  TcpOptions options;
  options.connections = 1;
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(TcpTransport::make(rank, 2, comm_id, {}, options, &at[rank]).ok());
    at[rank]->adopt(1 - rank, 0, std::move(rank == 0 ? here : there), {});
  }
  std::vector<std::unique_ptr<Message>> sends, recvs;
  // Frames of 512 bytes: the budget of 1 MiB ends between two of them, 24 KiB before the last byte.
  for (std::uint64_t i = 0; i < ((1 << 20) + (24 << 10)) / 512; ++i) {
    sends.push_back(std::make_unique<Message>(1, MessageKey{.sequence = 1 + i}, 400));
    recvs.push_back(std::make_unique<Message>(0, MessageKey{.sequence = 1 + i}, 400));
    sends.back()->fill(i);
    at[0]->post_send(sends.back()->transfer);
  }
  poll_until({at[0].get()}, [&] {
    return std::all_of(sends.begin(), sends.end(),
                       [](const auto& send) { return send->transfer.done; });
  });
  settle(*at[0]);
  settle(*at[1]);
  for (std::size_t i = 0; i < recvs.size(); ++i) {
    at[1]->post_recv(recvs[i]->transfer);
    ASSERT_TRUE(recvs[i]->transfer.done) << "message " << i << " is still in the stream";
    EXPECT_TRUE(recvs[i]->memory == sends[i]->memory);
  }
}

}  // namespace
}  // namespace hocket::internal::testing
