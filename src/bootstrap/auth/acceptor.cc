#include "bootstrap/auth/acceptor.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/descriptors.h"

namespace hocket::internal {
namespace {
constexpr std::int64_t handshake_limit_ms = 5000;
constexpr std::int64_t pause_ms = 50;
constexpr int accepts_per_wake = 64;

/// The limit of unproved connections in this process, over all its listeners: a small share of its
/// descriptors.
std::size_t most_unproved() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 8;
  return static_cast<std::size_t>(std::clamp<rlim_t>(limit.rlim_cur / 16, 8, 256));
}
}  // namespace

Acceptor::Acceptor(EventLoop& loop, UniqueFd listener, Credentials credentials, Judge judge,
                   Accepted accepted, OutOfDescriptors out_of_descriptors)
    : loop_(loop),
      listener_(std::move(listener)),
      credentials_(credentials),
      judge_(std::move(judge)),
      accepted_(std::move(accepted)),
      out_of_descriptors_(std::move(out_of_descriptors)) {
  loop_.add(this);
  try {
    watch_ = loop_.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_some(); });
  } catch (const std::bad_alloc&) {
    loop_.remove(this);
    throw;
  }
}

Acceptor::~Acceptor() { loop_.remove(this); }

std::string Acceptor::refusals() const {
  if (wrong_keys_ == 0) return {};
  return fmt::format("; {} connection{} with another job's key {} refused, the last from {}",
                     wrong_keys_, wrong_keys_ == 1 ? "" : "s", wrong_keys_ == 1 ? "was" : "were",
                     last_wrong_key_);
}

void Acceptor::accept_some() {
  for (int i = 0; i < accepts_per_wake; ++i) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      waits_since_.reset();
      // If there is no memory, this connection is closed.
      best_effort([&] { admit(std::move(fd)); });
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return waits_since_.reset();
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      if (wait_for_descriptor(errno)) return;
    }
    // Another error concerns one connection that failed before it was accepted.
  }
}

/// Returns false if there may be a descriptor now. An unproved connection is closed for the waiting
/// one only after a pause, in which it may prove itself: else two connections that come at once
/// could close each other again and again.
bool Acceptor::wait_for_descriptor(int error) {
  if (waits_since_ && make_room()) return false;
  if (!waits_since_) waits_since_ = loop_.now();
  if (!out_of_descriptors_ || loop_.now() - *waits_since_ < descriptor_patience) {
    pause();
    return true;
  }
  const OutOfDescriptors tell = std::exchange(out_of_descriptors_, nullptr);
  best_effort([&] { tell(system_error("cannot accept a connection", error)); });
  return false;
}

void Acceptor::pause() {
  best_effort([this] {
    resume_ = loop_.after_ms(pause_ms, [this] { watch_.modify(EPOLLIN); });
    watch_.modify(0);
  });
}

void Acceptor::admit(UniqueFd fd) {
  if (credentials_.keyless && peer_user(fd.get()) != static_cast<std::int64_t>(::geteuid())) return;
  if (loop_.unproved_connections >= most_unproved()) make_room();
  set_no_delay(fd.get());
  const std::uint64_t id = next_id_++;
  Unproved& conn = unproved_.try_emplace(id, loop_).first->second;
  try {
    conn.watch = loop_.watch(fd.get(), EPOLLIN, [this, id](std::uint32_t) { advance(id); });
    conn.stream = ByteStream(std::move(fd));
    conn.limit = loop_.after_ms(handshake_limit_ms, [this, id] { unproved_.erase(id); });
  } catch (const std::bad_alloc&) {
    unproved_.erase(id);
    throw;
  }
}

/// Closes an unproved connection, of another listener if this one has none that has not sent its
/// hello. Returns false if there is none.
bool Acceptor::make_room() { return spare_descriptor(false) || loop_.spare_descriptor(); }

bool Acceptor::spare_descriptor(bool any) {
  const auto found = std::find_if(unproved_.begin(), unproved_.end(), [any](const auto& entry) {
    return any || entry.second.stage == Stage::hello;
  });
  if (found == unproved_.end()) return false;
  unproved_.erase(found);
  return true;
}

/// Returns false if the connection has ended.
bool Acceptor::read_more(Unproved& conn, std::size_t wanted, bool* complete) {
  const iovec part{conn.in + conn.received, wanted - conn.received};
  const ssize_t got = conn.stream.receive(&part, 1);
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
  if (got == 0) return false;
  conn.received += static_cast<std::size_t>(got);
  *complete = conn.received == wanted;
  return true;
}

void Acceptor::advance(std::uint64_t id) {
  const auto found = unproved_.find(id);
  if (found == unproved_.end()) return;
  Step step = Step::drop;  // also if there is no memory
  best_effort([&] { step = answer(found->second); });
  if (step == Step::wait) return;
  found->second.watch.reset();
  ByteStream stream = std::move(found->second.stream);
  const Claim claim = found->second.claim;
  unproved_.erase(found);
  if (step == Step::accept) accepted_(claim, std::move(stream));
}

Acceptor::Step Acceptor::answer(Unproved& conn) {
  if (conn.stage == Stage::tls) return go_on_with_tls(conn);
  bool complete = false;
  const bool hello = conn.stage == Stage::hello;
  if (!read_more(conn, hello ? hello_bytes : claim_message_bytes, &complete)) return Step::drop;
  if (!complete) return Step::wait;
  if (!hello) return answer_claim(conn);
  if (!answer_hello(conn)) return Step::drop;
  conn.stage = Stage::claim;
  conn.received = 0;
  return Step::wait;
}

bool Acceptor::answer_hello(Unproved& conn) {
  std::memcpy(conn.transcript.client.data(), conn.in, hello_bytes);
  std::uint16_t version = 0;
  const HelloKind kind = check_hello(conn.transcript.client, &version);
  if (kind == HelloKind::foreign) return false;  // without an answer
  if (!make_hello(&conn.transcript.server).ok()) return false;
  const iovec part{conn.transcript.server.data(), hello_bytes};
  const ssize_t sent = conn.stream.send(&part, 1);
  // A process with another version of the protocol gets only this hello, so that it can tell its
  // user both versions.
  return sent == static_cast<ssize_t>(hello_bytes) && kind == HelloKind::ours;
}

Acceptor::Step Acceptor::answer_claim(Unproved& conn) {
  std::memcpy(conn.transcript.claim.data(), conn.in, claim_bytes);
  Digest expected{};
  const bool proved = client_proof(credentials_, conn.transcript, &expected) &&
                      equal_secret(expected.data(), conn.in + claim_bytes, proof_bytes);
  if (!proved) {
    refuse_key(conn);
    return Step::drop;
  }
  if (!decode(conn.transcript.claim, &conn.claim)) {
    send_verdict(conn, Verdict::refused);
    return Step::drop;
  }
  if (!conn.claim.tls) return judge(conn);
  Digest secret{};
  if (!tls_secret(credentials_, conn.transcript, &secret)) return Step::drop;
  if (!send_verdict(conn, Verdict::start_tls)) return Step::drop;
  conn.stream.start_tls(Tls::Role::server, secret);
  conn.stage = Stage::tls;
  return Step::wait;
}

/// The claim of a process that has not proved the key is read only if it has proved the job id.
void Acceptor::refuse_key(Unproved& conn) {
  ++wrong_keys_;
  const std::optional<Address> peer = peer_address(conn.stream.fd());
  last_wrong_key_ = peer ? peer->text() : "this host";
  send_verdict(conn, Verdict::wrong_key);
  Digest expected{};
  const bool of_this_job =
      job_proof(credentials_, conn.transcript, &expected) &&
      equal_secret(expected.data(), conn.in + claim_bytes + proof_bytes, proof_bytes);
  if (of_this_job && other_key_ && decode(conn.transcript.claim, &conn.claim)) {
    other_key_(conn.claim, last_wrong_key_);
  }
}

Acceptor::Step Acceptor::go_on_with_tls(Unproved& conn) {
  switch (conn.stream.shake_hands()) {
    case Tls::Progress::waits:
      return Step::wait;
    case Tls::Progress::failed:
      return Step::drop;
    case Tls::Progress::done:
      break;
  }
  const Step step = judge(conn);
  conn.stream.read_ahead();
  return step;
}

Acceptor::Step Acceptor::judge(Unproved& conn) {
  const Verdict verdict = judge_(conn.claim);
  const bool sent = send_verdict(conn, verdict);
  return sent && verdict == Verdict::accepted ? Step::accept : Step::drop;
}

/// Returns false if the connection has failed.
bool Acceptor::send_verdict(Unproved& conn, Verdict verdict) {
  std::uint8_t out[verdict_message_bytes] = {};
  out[0] = static_cast<std::uint8_t>(verdict);
  Digest proof{};
  if (verdict != Verdict::wrong_key &&
      !server_proof(credentials_, conn.transcript, verdict, &proof)) {
    return false;
  }
  std::memcpy(out + verdict_bytes, proof.data(), proof.size());
  const iovec part{out, sizeof out};
  return conn.stream.send(&part, 1) == static_cast<ssize_t>(sizeof out);
}

}  // namespace hocket::internal
