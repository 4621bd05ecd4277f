// Processes without the job key connect to the listeners. Whatever they send, the job goes on, and
// nothing of it leaks.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/descriptors.h"
#include "bootstrap/auth/acceptor.h"
#include "bootstrap/auth/auth.h"
#include "bootstrap/auth/dialer.h"
#include "bootstrap/job.h"
#include "bootstrap/net/control_messages.h"
#include "bootstrap/simulated_loop.h"
#include "memory/shared_memory.h"
#include "sanitized.h"
#include "seed.h"

namespace hocket::internal {
namespace {

UniqueFd connect_to(const Address& address) {
  int error = 0;
  UniqueFd fd = connect_start({"", address}, &error);
  pollfd ready{fd.get(), POLLOUT, 0};
  ::poll(&ready, 1, 10'000);
  return connect_result(fd.get()) == 0 ? std::move(fd) : UniqueFd();
}

void say(const UniqueFd& fd, const void* data, std::size_t size) {
  [[maybe_unused]] const ssize_t sent = ::send(fd.get(), data, size, MSG_NOSIGNAL);
}

/// Reads until the other side closes; false if it does not close within its own limit.
bool hear_out(const UniqueFd& fd, std::vector<std::uint8_t>* out) {
  const Nanos deadline = in_ms(60'000);
  std::uint8_t buffer[256];
  while (monotonic_now() < deadline) {
    pollfd ready{fd.get(), POLLIN, 0};
    ::poll(&ready, 1, 1000);
    const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) out->insert(out->end(), buffer, buffer + got);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) return true;
  }
  return false;
}

int open_fds() {
  int count = 0;
  for (int fd = 0; fd < 8192; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
  return count;
}

/// What a scanner does to a door, `rounds` times.
void scan(const Address& address, int rounds, std::mt19937_64& random) {
  std::vector<UniqueFd> idle;
  for (int i = 0; i < rounds; ++i) {
    UniqueFd fd = connect_to(address);
    if (!fd) continue;
    std::vector<std::uint8_t> bytes(8 + random() % 200);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    switch (i % 6) {
      case 0:  // connects and closes
        break;
      case 1:  // 1 to 7 bytes
        say(fd, bytes.data(), 1 + random() % 7);
        break;
      case 2:  // garbage
        say(fd, bytes.data(), bytes.size());
        break;
      case 3: {  // a good hello, and then garbage
        Hello hello;
        EXPECT_TRUE(make_hello(&hello).ok());
        say(fd, hello.data(), hello.size());
        say(fd, bytes.data(), bytes.size());
        break;
      }
      case 4: {  // half a hello, and then nothing
        say(fd, "hocket\1\0abcdefgh", 16);
        idle.push_back(std::move(fd));
        break;
      }
      case 5: {  // resets
        const linger hard{1, 0};
        ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        say(fd, bytes.data(), bytes.size());
        break;
      }
    }
  }
}

TEST(Scan, while_joining_and_afterwards_disturbs_nothing) {
  const std::uint64_t seed = tests::seed();
  for (const bool share_memory : {true, false}) {
    Job job(4, share_memory);
    job.start();
    std::atomic<bool> stop{false};
    std::thread scanner([&] {
      std::mt19937_64 random(seed);
      while (!stop) scan(job.options.coordinator, 60, random);
    });
    const auto sessions = join_all(job);
    stop = true;
    scanner.join();
    ASSERT_TRUE(sessions[3]);
    std::mt19937_64 random(seed + 1);
    for (const Member& member : sessions[0]->members()) scan(member.address, 300, random);
    // The control plane still works, and so do new connections.
    sessions[1]->report({Fault::Kind::failed, 1, 0, 1, Code::timeout, "after the scan"});
    for (const auto& session : sessions) {
      EXPECT_TRUE(wait_fault(*session, Fault::Kind::failed, 1));
      EXPECT_EQ(session->faults().size(), 1u);
    }
  }
}

TEST(Scan, leaves_no_descriptor_open) {
  Job job(1);
  job.start();
  const auto sessions = join_all(job);
  const int before = open_fds();
  std::mt19937_64 random(1);
  scan(sessions[0]->members()[0].address, 600, random);
  const Nanos deadline = in_ms(60'000);  // far beyond the limit of a handshake
  while (open_fds() > before && monotonic_now() < deadline) ::usleep(10'000);
  EXPECT_LE(open_fds(), before);
}

TEST(Scan, more_idle_strangers_than_there_is_room_for_keep_nobody_out) {
  Job job(2);
  job.start();
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(connect_to(job.options.coordinator));
  const auto sessions = join_all(job);
  ASSERT_TRUE(sessions[0]);
  ASSERT_TRUE(sessions[1]);
  idle.clear();
}

void limit_descriptors(rlim_t most) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = most;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// The undefined behaviour sanitizer opens a pipe to check the type of an object, and reports a
/// wrong type where it cannot.
constexpr bool sanitizer_needs_descriptors = tests::sanitized && !tests::thread_sanitized;

/// Leaves this process no descriptor.
std::vector<UniqueFd> all_descriptors() {
  std::vector<UniqueFd> used;
  for (int fd; (fd = ::dup(STDERR_FILENO)) >= 0;) used.emplace_back(fd);
  return used;
}

std::ptrdiff_t closed_by_peer(const std::vector<UniqueFd>& connections) {
  return std::ranges::count_if(connections, [](const UniqueFd& connection) {
    pollfd look{connection.get(), POLLRDHUP, 0};
    return ::poll(&look, 1, 0) == 1;
  });
}

/// A sixteenth of the descriptors that the process may have, whatever it listens on; and where the
/// process has none left, hocket closes a connection that has not proved itself.
TEST(Scan, strangers_hold_a_small_share_of_the_descriptors_and_give_it_back) {
  Processes processes;
  processes.start([] {
    Job job(2, false);
    job.start();
    const auto sessions = join_all(job);
    limit_descriptors(512);
    const int before = open_fds();
    std::vector<UniqueFd> idle;
    for (int i = 0; i < 120; ++i) {
      idle.push_back(
          connect_to(sessions[static_cast<std::size_t>(i % 2)]->members()[i % 2].address));
    }
    // In this process both ends count; the other ends of those that were dropped stay ours.
    const auto accepted = [&] { return open_fds() - before - static_cast<int>(idle.size()); };
    // A new connection is accepted before an older one is closed for it.
    const Nanos deadline = in_ms(3000);
    while (closed_by_peer(idle) < 120 - 32 && monotonic_now() < deadline) ::usleep(1000);
    EXPECT_GE(32, accepted());
    EXPECT_LT(8, accepted());
    if (sanitizer_needs_descriptors) return 0;
    std::vector<UniqueFd> used = all_descriptors();
    UniqueFd memory;
    const Status status = make_memfd("test", 4096, &memory);
    EXPECT_TRUE(status.ok()) << status.message();
    return 0;
  });
  EXPECT_EQ(0, processes.wait(0));
}

/// Two ranks connect to an acceptor whose process has one descriptor: the first rank proves itself
/// and keeps the descriptor, though the second one waits.
TEST(Acceptor, that_has_no_descriptor_for_a_connection_tells_its_owner_after_a_second) {
  if (sanitizer_needs_descriptors) GTEST_SKIP() << "the sanitizer needs descriptors";
  Processes processes;
  processes.start([] {
    testing::Simulation simulation;
    const auto loop = simulation.make_loop();
    simulation.schedule(*loop);
    Job job(2);
    const Credentials credentials{job.options.key, job.options.job_id, false};
    std::vector<std::unique_ptr<Dialer>> dialers;
    std::vector<Dialer::Result> connected;
    for (int rank = 0; rank < 2; ++rank) {
      Dialer::Options options;
      options.endpoint.tcp = job.options.coordinator;
      options.credentials = credentials;
      options.claim = {Purpose::coordinator, rank, -1, 0, 0};
      options.deadline = simulation.now() + 60 * nanos_per_s;
      dialers.push_back(Dialer::start(*loop, std::move(options), [&](Dialer::Result result) {
        connected.push_back(std::move(result));
      }));
    }
    simulation.settle();
    std::vector<UniqueFd> used = all_descriptors();
    used.pop_back();
    const Nanos begin = simulation.now();
    std::vector<ByteStream> accepted;
    Status told;
    const Acceptor acceptor(
        *loop, std::move(job.listener), credentials, [](const Claim&) { return Verdict::accepted; },
        [&](const Claim&, ByteStream fd) { accepted.push_back(std::move(fd)); },
        [&](const Status& why) {
          told = why;
          used.pop_back();
        });
    const auto has_told = [&] { return !told.ok(); };
    EXPECT_FALSE(simulation.run_until(has_told, begin + descriptor_patience * 9 / 10));
    EXPECT_EQ(1u, accepted.size());
    EXPECT_TRUE(simulation.run_until(has_told, begin + descriptor_patience * 2));
    EXPECT_NE(told.message().find("Too many open files"), std::string::npos) << told.message();
    simulation.settle();
    EXPECT_EQ(2u, connected.size()) << "its owner has closed a descriptor";
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(0, processes.wait(0));
}

TEST(Dialer, that_can_make_no_socket_fails_after_a_second_and_names_its_own_rank) {
  if (sanitizer_needs_descriptors) GTEST_SKIP() << "the sanitizer needs descriptors";
  Processes processes;
  processes.start([] {
    testing::Simulation simulation;
    const auto loop = simulation.make_loop();
    simulation.schedule(*loop);
    Job job(2);
    std::vector<UniqueFd> used = all_descriptors();
    const Nanos begin = simulation.now();
    std::optional<Dialer::Result> ended;
    Dialer::Options options;
    options.endpoint.tcp = job.options.coordinator;
    options.deadline = begin + 600 * nanos_per_s;
    const auto dialer = Dialer::start(*loop, std::move(options),
                                      [&](Dialer::Result result) { ended = std::move(result); });
    EXPECT_TRUE(simulation.run_until([&] { return ended.has_value(); }, begin + 2 * nanos_per_s));
    EXPECT_GE(simulation.now() - begin, descriptor_patience);
    EXPECT_EQ(Code::system_error, ended->status.code());
    EXPECT_EQ(1, ended->error(1, 0).culprit()) << "rank 1 dials rank 0";
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(0, processes.wait(0));
}

TEST(Scan, a_slow_talker_is_dropped_at_the_limit) {
  Job job(1);
  job.start();
  const auto sessions = join_all(job);
  UniqueFd fd = connect_to(sessions[0]->members()[0].address);
  ASSERT_TRUE(fd);
  Hello hello;
  ASSERT_TRUE(make_hello(&hello).ok());
  bool dropped = false;
  for (std::size_t i = 0; i < hello.size() - 1 && !dropped; ++i) {
    say(fd, hello.data() + i, 1);
    pollfd ready{fd.get(), POLLIN, 0};
    dropped = ::poll(&ready, 1, 1000) == 1;
  }
  EXPECT_TRUE(dropped);
}

/// Answers a server by hand, with a key, and returns all that it sends after its hello.
std::vector<std::uint8_t> talk(const UniqueFd& fd, const Credentials& credentials, Claim claim,
                               const Transcript* replayed, Transcript* used) {
  EXPECT_TRUE(fd);
  Transcript transcript;
  EXPECT_TRUE(make_hello(&transcript.client).ok());
  if (replayed != nullptr) transcript.client = replayed->client;
  say(fd, transcript.client.data(), hello_bytes);
  std::size_t got = 0;
  while (got < hello_bytes) {
    pollfd ready{fd.get(), POLLIN, 0};
    if (::poll(&ready, 1, 60'000) != 1) break;
    const ssize_t more =
        ::recv(fd.get(), transcript.server.data() + got, hello_bytes - got, MSG_DONTWAIT);
    if (more <= 0) break;
    got += static_cast<std::size_t>(more);
  }
  EXPECT_EQ(got, hello_bytes);
  transcript.claim = encode(claim);
  Digest proof{}, of_job{};
  const Transcript& proved = replayed != nullptr ? *replayed : transcript;
  EXPECT_TRUE(client_proof(credentials, proved, &proof) && job_proof(credentials, proved, &of_job));
  say(fd, transcript.claim.data(), claim_bytes);
  say(fd, proof.data(), proof_bytes);
  say(fd, of_job.data(), proof_bytes);
  if (used != nullptr) *used = transcript;
  std::vector<std::uint8_t> out(verdict_message_bytes);
  got = 0;
  while (got < out.size()) {
    pollfd ready{fd.get(), POLLIN, 0};
    if (::poll(&ready, 1, 60'000) != 1) break;
    const ssize_t more = ::recv(fd.get(), out.data() + got, out.size() - got, MSG_DONTWAIT);
    if (more <= 0) break;
    got += static_cast<std::size_t>(more);
  }
  EXPECT_EQ(got, verdict_message_bytes);
  return out;
}

TEST(Handshake, accepts_only_a_fresh_proof_of_the_right_key_and_claim) {
  Job job(2);
  job.start();
  const auto sessions = join_all(job);
  const Address address = sessions[0]->members()[0].address;
  const Credentials good{job.options.key, job.options.job_id, false};
  Credentials other_key = good, other_job = good;
  other_key.key[0] ^= 1;
  other_job.job_id[0] ^= 1;
  const Claim claim{Purpose::data, 1, 0, 77, 5};
  const auto verdict = [&](const Credentials& credentials, const Claim& of,
                           const Transcript* replayed = nullptr, Transcript* used = nullptr) {
    return static_cast<Verdict>(talk(connect_to(address), credentials, of, replayed, used)[0]);
  };
  EXPECT_EQ(verdict(other_key, claim), Verdict::wrong_key);
  EXPECT_EQ(verdict(other_job, claim), Verdict::wrong_key);
  Transcript used;
  EXPECT_EQ(verdict(good, claim, nullptr, &used), Verdict::accepted);
  EXPECT_EQ(verdict(good, claim, &used), Verdict::wrong_key);  // a replay of an earlier proof
  EXPECT_EQ(verdict(good, claim), Verdict::duplicate);
  EXPECT_EQ(verdict(good, {Purpose::data, 1, 1, 77, 5}), Verdict::refused);  // another target
  EXPECT_EQ(verdict(good, {Purpose::data, 2, 0, 77, 5}), Verdict::refused);  // no such rank
  EXPECT_EQ(verdict(good, {Purpose::data, -1, 0, 77, 5}), Verdict::refused);
  EXPECT_EQ(verdict(good, {Purpose::data, 0, 0, 77, 5}), Verdict::refused);  // itself
  EXPECT_EQ(verdict(good, {Purpose::data, 1, 0, 77, 1u << 20}), Verdict::refused);
  EXPECT_EQ(verdict(good, {Purpose::coordinator, 1, -1, 0, 0}), Verdict::refused);
  EXPECT_EQ(verdict(good, {Purpose::tree, 1, 0, 0, 1}), Verdict::refused);  // too late
  EXPECT_EQ(sessions[0]->faults().size(), 0u);
}

TEST(Handshake, a_proof_holds_for_one_key_one_exchange_and_one_verdict) {
  const Credentials good{{1, 2, 3}, {4, 5, 6}, false};
  Transcript transcript;
  ASSERT_TRUE(make_hello(&transcript.client).ok() && make_hello(&transcript.server).ok());
  EXPECT_NE(transcript.client, transcript.server) << "a nonce was used twice";
  transcript.claim = encode({Purpose::data, 1, 0, 77, 5});
  const auto proofs = [](const Credentials& credentials, const Transcript& of) {
    std::array<Digest, 4> out;
    EXPECT_TRUE(client_proof(credentials, of, &out[0]) &&
                server_proof(credentials, of, Verdict::accepted, &out[1]) &&
                server_proof(credentials, of, Verdict::refused, &out[2]) &&
                tls_secret(credentials, of, &out[3]));
    return out;
  };
  const auto expected = proofs(good, transcript);
  EXPECT_NE(expected[0], expected[1]);
  EXPECT_NE(expected[1], expected[2]) << "the verdict is not proved";
  const auto expect_others = [&](const char* what, const Credentials& credentials,
                                 const Transcript& of) {
    const auto got = proofs(credentials, of);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NE(expected[i], got[i]) << what;
  };
  Credentials other = good;
  other.key.back() ^= 1;
  expect_others("key", other, transcript);
  other = good;
  other.job_id.back() ^= 1;
  expect_others("job", other, transcript);
  for (const auto part : {&Transcript::client, &Transcript::server}) {
    Transcript changed = transcript;
    (changed.*part).back() ^= 1;
    expect_others("nonce", good, changed);
  }
  Transcript changed = transcript;
  changed.claim[4] ^= 1;
  expect_others("claim", good, changed);
  for (std::size_t byte = 0; byte < expected[0].size(); ++byte) {
    Digest almost = expected[0];
    almost[byte] ^= 1;
    EXPECT_FALSE(equal_secret(almost.data(), expected[0].data(), almost.size())) << byte;
  }
}

TEST(Handshake, a_coordinator_that_cannot_prove_the_key_is_refused) {
  Job job(1);
  std::thread impostor([&] {
    pollfd ready{job.listener.get(), POLLIN, 0};
    ::poll(&ready, 1, 60'000);
    const UniqueFd fd(::accept4(job.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::uint8_t in[claim_message_bytes];
    Hello hello;
    EXPECT_TRUE(make_hello(&hello).ok());
    EXPECT_EQ(std::ssize(hello), ::recv(fd.get(), in, hello.size(), MSG_WAITALL));
    say(fd, hello.data(), hello.size());
    EXPECT_EQ(std::ssize(in), ::recv(fd.get(), in, sizeof in, MSG_WAITALL));
    std::uint8_t verdict[verdict_message_bytes] = {};
    verdict[0] = static_cast<std::uint8_t>(Verdict::accepted);
    say(fd, verdict, sizeof verdict);
    ::recv(fd.get(), in, 1, 0);
  });
  JoinOptions options = job.of(0);
  options.join_deadline_ms = 5000;
  std::shared_ptr<Session> session;
  const Status status = Session::join(options, &session);
  EXPECT_NE(status.message().find("could not prove the job key"), std::string::npos)
      << status.message();
  impostor.join();
}

TEST(Handshake, another_version_is_told_ours_and_gets_no_further) {
  Job job(1);
  job.start();
  const auto sessions = join_all(job);
  UniqueFd fd = connect_to(sessions[0]->members()[0].address);
  Hello hello;
  ASSERT_TRUE(make_hello(&hello).ok());
  hello[6] = protocol_version + 1;
  say(fd, hello.data(), hello.size());
  std::vector<std::uint8_t> answer;
  ASSERT_TRUE(hear_out(fd, &answer));
  ASSERT_EQ(answer.size(), hello_bytes);
  EXPECT_EQ(answer[6], protocol_version);
}

TEST(Handshake, a_process_of_an_older_version_is_named_with_both_versions) {
  Job job(1);
  std::thread older([&] {
    pollfd ready{job.listener.get(), POLLIN, 0};
    ::poll(&ready, 1, 60'000);
    const UniqueFd fd(::accept4(job.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello;
    EXPECT_TRUE(make_hello(&hello).ok());
    hello[6] = protocol_version - 1;
    say(fd, hello.data(), hello.size());
    std::uint8_t in[1];
    ::recv(fd.get(), in, sizeof in, 0);
  });
  JoinOptions options = job.of(0);
  options.join_deadline_ms = 5000;
  std::shared_ptr<Session> session;
  const std::string text = Session::join(options, &session).message();
  EXPECT_NE(text.find("speaks version " + std::to_string(protocol_version - 1) +
                      " of hocket's protocol, this process " + std::to_string(protocol_version) +
                      ": use the same library for all ranks"),
            std::string::npos)
      << text;
  older.join();
}

TEST(Wire, no_cut_or_changed_message_is_read_beyond_its_end) {
  std::mt19937_64 random(tests::seed());
  Table table;
  for (int rank = 0; rank < 6; ++rank)
    table.members.push_back({rank / 3, 0, rank, "host", {}, 9, CoreSet(5)});
  table.leaders = {1, 4};
  using Bytes = std::vector<std::uint8_t>;
  const auto plain = [](auto message) {
    return [message](const Bytes& bytes) mutable { return decode(bytes, &message); };
  };
  const auto of_six = [](auto message) {
    return [message](const Bytes& bytes) mutable { return decode(bytes, 6, &message); };
  };
  const std::pair<Bytes, std::function<bool(const Bytes&)>> messages[] = {
      {encode(JoinRequest{1, 2, 3, 4, 5, "host", loopback(true), 6, CoreSet(7)}),
       plain(JoinRequest{})},
      {encode(Failure{Code::mismatch, 3, "text"}), plain(Failure{})},
      {encode(TreePosition{1, 2, 6, 0, loopback(false)}), plain(TreePosition{})},
      {encode(table), of_six(Table{})},
      {encode(Fault{Fault::Kind::silent, 3, 1, 2, Code::timeout, "text"}), of_six(Fault{})}};
  for (const auto& [bytes, decodes] : messages) {
    EXPECT_TRUE(decodes(bytes));
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decodes(Bytes(bytes.begin(), bytes.begin() + static_cast<long>(size)))) << size;
    }
    Bytes longer = bytes;
    longer.push_back(0);
    EXPECT_FALSE(decodes(longer));
    for (int i = 0; i < 2000; ++i) {
      Bytes changed = bytes;
      changed[random() % changed.size()] = static_cast<std::uint8_t>(random());
      decodes(changed);  // true or false: the sanitizers watch
    }
  }
}

TEST(Wire, bounds_are_held_to_the_last_byte) {
  const auto text = [](std::size_t says, std::size_t has, std::size_t cap) {
    Writer writer;
    writer.u16(static_cast<std::uint16_t>(says));
    writer.raw(std::vector<std::uint8_t>(has).data(), has);
    const std::vector<std::uint8_t> bytes = writer.take();
    Reader reader(bytes);
    const bool whole = reader.text(cap).size() == says;
    EXPECT_EQ(whole, reader.complete());
    return whole;
  };
  EXPECT_TRUE(text(5, 5, 5));
  EXPECT_FALSE(text(6, 6, 5)) << "longer than its cap";
  EXPECT_FALSE(text(6, 5, 10)) << "longer than its message";
  const auto fault_of_rank = [](int rank) {
    Fault fault{Fault::Kind::silent, rank, 1, 2, Code::timeout, "text"}, out;
    return decode(encode(fault), 6, &out);
  };
  EXPECT_TRUE(fault_of_rank(5) && fault_of_rank(-1));
  EXPECT_FALSE(fault_of_rank(6) || fault_of_rank(-2));
}

TEST(Wire, a_message_that_says_to_be_too_long_ends_its_connection) {
  Job job(2);
  job.start();
  const auto sessions = join_all(job);
  const Credentials good{job.options.key, job.options.job_id, false};
  const auto closes = [&](std::uint32_t length, std::uint16_t descriptors) {
    int error = 0;
    const UniqueFd fd = connect_start({socket_name(good, "descriptors", 0), {}}, &error);
    EXPECT_EQ(static_cast<std::uint8_t>(Verdict::accepted),
              talk(fd, good, {Purpose::fetch, 1, 0, 0, 0}, nullptr, nullptr)[0]);
    Writer header;
    header.u32(length);
    header.u16(static_cast<std::uint16_t>(MessageType::fetch));
    header.u16(descriptors);
    say(fd, header.bytes().data(), header.bytes().size());
    std::vector<std::uint8_t> answer;
    return hear_out(fd, &answer) && answer.empty();
  };
  ASSERT_TRUE(closes(65, 0)) << "a question for a descriptor has 24 bytes, at most 64";
  ASSERT_TRUE(closes(~0u, 0));
  ASSERT_TRUE(closes(24, 0xffff)) << "more descriptors than a message can carry";
}

TEST(Wire, a_table_that_does_not_fit_together_is_refused) {
  const auto accepts = [](auto change) {
    Table table, out;
    for (int rank = 0; rank < 6; ++rank)
      table.members.push_back({rank / 3, 0, rank, "host", {}, 9, CoreSet(5)});
    table.leaders = {1, 4};
    change(table);
    return decode(encode(table), 6, &out);
  };
  EXPECT_TRUE(accepts([](Table&) {}));
  EXPECT_FALSE(accepts([](Table& t) { t.members.pop_back(); }));
  EXPECT_FALSE(accepts([](Table& t) { t.members[0].node = 1; }));  // not by lowest rank
  EXPECT_FALSE(accepts([](Table& t) { t.members[5].node = 2; }));  // no such node
  EXPECT_FALSE(accepts([](Table& t) { t.members[5].node = -1; }));
  EXPECT_FALSE(accepts([](Table& t) { t.leaders[1] = 0; }));        // leads another node
  EXPECT_FALSE(accepts([](Table& t) { t.leaders.push_back(5); }));  // a node without ranks
}

}  // namespace
}  // namespace hocket::internal
