// Joins with HOCKET_TLS: the control connections, and how ranks agree on the setting.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/auth/dialer.h"
#include "bootstrap/job.h"
#include "bootstrap/net/control_connection.h"
#include "bootstrap/simulated_loop.h"

namespace hocket::internal {
namespace {

/// Between the ranks and their coordinator: passes all bytes on, and may change them.
class ChangingRelay {
 public:
  /// to_rank: the direction; at: the number of the first byte in its direction and connection.
  using Change = std::function<void(bool to_rank, std::size_t at, std::vector<char>& bytes)>;

  explicit ChangingRelay(const Address& coordinator, Change change = nullptr)
      : coordinator_(coordinator), change_(std::move(change)), address_(loopback(false)) {
    EXPECT_TRUE(listen_tcp(&address_, &listener_).ok());
    thread_ = std::thread([this] { run(); });
  }
  ~ChangingRelay() {
    stop_ = true;
    thread_.join();
  }
  const Address& address() const { return address_; }
  std::string seen() {
    std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  struct Pair {
    UniqueFd ends[2];  // to the rank, to the coordinator
    std::size_t passed[2] = {0, 0};
  };
  void run() {
    while (!stop_) {
      std::vector<pollfd> waits{{listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        for (const UniqueFd& end : pair.ends) waits.push_back({end.get(), POLLIN, 0});
      }
      ::poll(waits.data(), waits.size(), 5);
      for (Pair& pair : pairs_) {
        for (int from = 0; from < 2; ++from) pass(pair, from);
      }
      UniqueFd rank(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!rank) continue;
      int error = 0;
      Pair& pair = pairs_.emplace_back();
      pair.ends[0] = std::move(rank);
      pair.ends[1] = connect_start({{}, coordinator_}, &error);
    }
  }
  void pass(Pair& pair, int from) {
    std::vector<char> bytes(4096);
    const ssize_t got = ::recv(pair.ends[from].get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) ::shutdown(pair.ends[1 - from].get(), SHUT_WR);
    if (got <= 0) return;
    bytes.resize(static_cast<std::size_t>(got));
    if (change_) change_(from == 1, pair.passed[from], bytes);
    pair.passed[from] += bytes.size();
    ::send(pair.ends[1 - from].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    std::lock_guard lock(mutex_);
    seen_.append(bytes.begin(), bytes.end());
  }

  Address coordinator_;
  Change change_;
  Address address_;
  UniqueFd listener_;
  std::vector<Pair> pairs_;
  std::mutex mutex_;
  std::string seen_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(TlsJoin, connects_all_ranks_and_tells_their_faults) {
  for (const bool share_memory : {true, false}) {
    Job job(4, share_memory);
    job.options.tls = true;
    job.start();
    const auto sessions = join_all(job);
    std::atomic<int> adopted{0}, encrypted{0};
    for (int rank = 0; rank < 4; ++rank) {
      sessions[rank]->listen(9, [&](int, int, const ByteStream& stream, const Status& status) {
        EXPECT_TRUE(status.ok()) << status.message();
        encrypted += stream && stream.encrypted();
        ++adopted;
      });
    }
    for (int rank = 0; rank < 4; ++rank) sessions[rank]->dial((rank + 1) % 4, 9, 0);
    const Nanos deadline = in_ms(60'000);
    while (adopted < 8 && monotonic_now() < deadline) ::usleep(1000);
    EXPECT_EQ(8, adopted);
    EXPECT_EQ(8, encrypted);
    sessions[2]->report({Fault::Kind::failed, 2, 9, 1, Code::timeout, "it was late"});
    for (const auto& session : sessions) {
      EXPECT_TRUE(wait_fault(*session, Fault::Kind::failed, 2));
      session->unlisten(9);
    }
  }
}

/// A join request contains JoinOptions::machine. Its eight bytes do not appear in encrypted bytes
/// by chance, as the few letters of a short host name may.
TEST(TlsJoin, shows_the_network_nothing_of_the_ranks) {
  constexpr std::uint64_t machine = 0x93f1'5ac7'e20b'684d;
  std::string sent(sizeof machine, '\0');
  std::memcpy(sent.data(), &machine, sizeof machine);
  for (const bool tls : {false, true}) {
    Job job(2, false);
    job.options.tls = tls;
    job.options.machine = machine;
    job.start();
    ChangingRelay relay(job.options.coordinator);
    job.options.coordinator = relay.address();
    join_all(job);
    EXPECT_EQ(relay.seen().find(sent) == std::string::npos, tls);
  }
}

TEST(TlsJoin, of_ranks_that_differ_in_the_setting_fails_at_once_and_names_rank_and_setting) {
  for (const bool share_memory : {true, false}) {
    for (const bool most : {false, true}) {
      SCOPED_TRACE(std::string(share_memory ? "shm" : "tcp") + (most ? ", most with TLS" : ""));
      Job job(3, share_memory);
      // The coordinator waits a tenth of this for the ranks that have not come to it.
      job.options.join_deadline_ms = 20'000;
      job.options.tls = most;
      job.start();
      in_threads(3, [&](int rank) {
        JoinOptions options = job.of(rank);
        if (rank == 1) options.tls = !most;
        std::shared_ptr<Session> session;
        const Status status = Session::join(options, &session);
        EXPECT_EQ(status.code(), Code::invalid_usage);
        EXPECT_GE(status.culprit(), 0);
        for (const char* part : {"HOCKET_TLS=0", "HOCKET_TLS=1", "rank 1 "}) {
          EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
        }
      });
    }
  }
}

/// In a job without a key the ranks meet over Unix sockets, and differ in what comes later.
TEST(TlsJoin, without_a_key_compares_the_setting_too) {
  Job job(2);
  job.options.has_key = false;
  job.options.coordinator = Address();
  in_threads(2, [&](int rank) {
    JoinOptions options = job.of(rank);
    options.tls = rank == 0;
    std::shared_ptr<Session> session;
    const std::string text = Session::join(options, &session).message();
    EXPECT_NE(text.find("ranks disagree about HOCKET_TLS"), std::string::npos) << text;
  });
}

TEST(TlsJoin, with_a_byte_that_the_network_changed_is_an_error_that_says_so) {
  Job job(2, false);
  job.options.tls = true;
  job.start();
  std::atomic<int> changed{0};
  // Behind hello, verdict, TLS handshake and the second verdict: the place in the tree of leaders.
  ChangingRelay relay(job.options.coordinator,
                      [&](bool to_rank, std::size_t at, std::vector<char>& bytes) {
                        if (!to_rank || at < 350 || changed != 0) return;
                        bytes[bytes.size() / 2] ^= 1;
                        ++changed;
                      });
  job.options.coordinator = relay.address();
  std::atomic<int> found{0}, told{0};
  in_threads(2, [&](int rank) {
    std::shared_ptr<Session> session;
    const Status status = Session::join(job.of(rank), &session);
    EXPECT_FALSE(status.ok());
    found += status.message().find("TLS has found that bytes were changed") != std::string::npos;
    told += status.message().find("changed on the way, as TLS") != std::string::npos;
  });
  EXPECT_EQ(1, changed);
  EXPECT_EQ(1, found) << "by the rank itself";
  EXPECT_EQ(1, told) << "to the other rank";
}

/// A wake-up of a control connection reads a limited number of bytes from the socket. What the
/// stream has taken from the socket then is no event for epoll, so it must not stay there.
TEST(TlsControl, leaves_nothing_in_the_stream_after_its_last_round) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  ByteStream sender{UniqueFd(ends[0])}, receiver{UniqueFd(ends[1])};
  const int room = 8 << 20;
  if (::setsockopt(sender.fd(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0) {
    GTEST_SKIP() << "a socket with a large buffer needs CAP_NET_ADMIN";
  }
  sender.start_tls(Tls::Role::client, {});
  receiver.start_tls(Tls::Role::server, {});
  for (auto done = Tls::Progress::waits; done == Tls::Progress::waits;) {
    static_cast<void>(sender.shake_hands());
    done = receiver.shake_hands();
  }
  sender.read_ahead();
  receiver.read_ahead();
  Nanos clock = nanos_per_s;
  testing::SimulatedLoop loop(clock);
  int sent = 0, got = 0;
  const auto connection = ControlConnection::open(
      loop, std::move(receiver), 4096, [&](Message&) { ++got; }, nullptr);
  Writer frame;
  frame.u32(1000);
  frame.u16(static_cast<std::uint16_t>(MessageType::heartbeat));
  frame.u16(0);
  frame.raw(std::vector<std::uint8_t>(1000).data(), 1000);
  std::vector<std::uint8_t> bytes = frame.take();
  const iovec part{bytes.data(), bytes.size()};
  // The last round ends 24 KiB before the last byte.
  for (; sent < (16 * 16384 + (24 << 10)) / 1008; ++sent) {
    ASSERT_EQ(sender.send(&part, 1), std::ssize(bytes));
  }
  while (loop.step()) continue;
  EXPECT_EQ(got, sent);
}

void write_all(const UniqueFd& fd, const void* data, std::size_t size) {
  EXPECT_EQ(static_cast<ssize_t>(size), ::send(fd.get(), data, size, MSG_NOSIGNAL));
}

/// Plays a server that knows the key: takes hello and claim, and answers with that verdict, but
/// with no TLS.
void answer_in_plain_bytes(const Job& job, Verdict verdict) {
  pollfd ready{job.listener.get(), POLLIN, 0};
  ::poll(&ready, 1, 60'000);
  const UniqueFd fd(::accept4(job.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  Transcript transcript;
  std::uint8_t in[claim_message_bytes];
  EXPECT_EQ(std::ssize(transcript.client),
            ::recv(fd.get(), transcript.client.data(), hello_bytes, MSG_WAITALL));
  EXPECT_TRUE(make_hello(&transcript.server).ok());
  write_all(fd, transcript.server.data(), hello_bytes);
  EXPECT_EQ(std::ssize(in), ::recv(fd.get(), in, sizeof in, MSG_WAITALL));
  std::copy_n(in, claim_bytes, transcript.claim.begin());
  Digest proof{};
  EXPECT_TRUE(
      server_proof({job.options.key, job.options.job_id, false}, transcript, verdict, &proof));
  std::uint8_t out[verdict_message_bytes] = {static_cast<std::uint8_t>(verdict)};
  std::copy(proof.begin(), proof.end(), out + verdict_bytes);
  write_all(fd, out, sizeof out);
  ::recv(fd.get(), in, 1, 0);
}

TEST(TlsHandshake, is_not_left_out_because_the_server_accepts_without_it) {
  for (const bool tls : {true, false}) {
    Job job(1);
    job.options.tls = tls;
    job.options.join_deadline_ms = 60'000;
    // A rank without TLS does not begin it either because the server wants to.
    std::thread server(
        [&] { answer_in_plain_bytes(job, tls ? Verdict::accepted : Verdict::start_tls); });
    std::shared_ptr<Session> session;
    const std::string text = Session::join(job.of(0), &session).message();
    EXPECT_NE(text.find("could not prove the job key"), std::string::npos) << text;
    server.join();
  }
}

/// Connects to a rank with the right key, with TLS if `tls`: the last verdict. 99: there is none.
int last_verdict(const Job& job, const Address& address, bool tls) {
  const Credentials credentials{job.options.key, job.options.job_id, false};
  int error = 0;
  UniqueFd fd = connect_start({{}, address}, &error);
  pollfd connected{fd.get(), POLLOUT, 0};
  ::poll(&connected, 1, 60'000);
  ::fcntl(fd.get(), F_SETFL, 0);  // blocks
  Transcript transcript;
  EXPECT_TRUE(make_hello(&transcript.client).ok());
  write_all(fd, transcript.client.data(), hello_bytes);
  ::recv(fd.get(), transcript.server.data(), hello_bytes, MSG_WAITALL);
  transcript.claim = encode({Purpose::data, 1, 0, 77, 5, tls});
  Digest proofs[2], secret;
  EXPECT_TRUE(client_proof(credentials, transcript, &proofs[0]) &&
              job_proof(credentials, transcript, &proofs[1]) &&
              tls_secret(credentials, transcript, &secret));
  write_all(fd, transcript.claim.data(), claim_bytes);
  for (const Digest& proof : proofs) write_all(fd, proof.data(), proof_bytes);
  std::uint8_t verdict[verdict_message_bytes] = {99};
  ::recv(fd.get(), verdict, sizeof verdict, MSG_WAITALL);
  if (!tls || verdict[0] != static_cast<std::uint8_t>(Verdict::start_tls)) return verdict[0];
  ByteStream stream(std::move(fd));
  stream.start_tls(Tls::Role::client, secret);
  auto progress = Tls::Progress::waits;
  verdict[0] = 99;
  const iovec part{verdict, sizeof verdict};
  for (ssize_t got = -1; got < 0 && progress != Tls::Progress::failed;) {
    pollfd ready{stream.fd(), POLLIN, 0};
    if (progress == Tls::Progress::waits) progress = stream.shake_hands();
    if (::poll(&ready, 1, 60'000) != 1) break;
    if (progress == Tls::Progress::done) got = stream.receive(&part, 1);
  }
  return verdict[0];
}

TEST(TlsHandshake, of_another_setting_than_the_ranks_is_refused) {
  for (const bool tls : {false, true}) {
    Job job(2);
    job.options.tls = tls;
    job.start();
    const auto sessions = join_all(job);
    const Address address = sessions[0]->members()[0].address;
    EXPECT_EQ(static_cast<int>(Verdict::refused), last_verdict(job, address, !tls));
    EXPECT_EQ(static_cast<int>(Verdict::accepted), last_verdict(job, address, tls));
  }
}

}  // namespace
}  // namespace hocket::internal
