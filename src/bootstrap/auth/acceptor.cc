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

namespace hocket::internal {
namespace {
constexpr std::int64_t handshake_limit_ms = 5000;
constexpr std::int64_t pause_ms = 50;
constexpr int accepts_per_wake = 64;

/// Half-open connections that this process may have, of all its listeners: a small share of its
/// descriptors.
std::size_t most_strangers() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 8;
  return static_cast<std::size_t>(std::clamp<rlim_t>(limit.rlim_cur / 16, 8, 256));
}
}  // namespace

Acceptor::Acceptor(EventLoop& loop, UniqueFd listener, Credentials credentials, Judge judge,
                   Accepted accepted)
    : loop_(loop),
      listener_(std::move(listener)),
      credentials_(credentials),
      judge_(std::move(judge)),
      accepted_(std::move(accepted)) {
  loop_.add(this);
  try {
    token_ = loop_.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_some(); });
  } catch (const std::bad_alloc&) {
    loop_.remove(this);
    throw;
  }
}

Acceptor::~Acceptor() {
  loop_.remove(this);
  while (!half_open_.empty()) drop(half_open_.begin()->first);
  loop_.unwatch(token_);
  loop_.cancel(resume_);
}

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
      // Without memory for it, this one connection is dropped.
      best_effort([&] { admit(std::move(fd)); });
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // Out of descriptors: a half-open connection is the cheapest to lose. The one that waits
      // stays in the listener's queue.
      make_room();
      return pause();
    }
    // Anything else concerns the one connection that failed before it was accepted.
  }
}

void Acceptor::pause() {
  best_effort([this] {
    loop_.cancel(resume_);
    resume_ = loop_.after_ms(pause_ms, [this] { loop_.modify(token_, EPOLLIN); });
    loop_.modify(token_, 0);
  });
}

void Acceptor::admit(UniqueFd fd) {
  if (credentials_.keyless && peer_user(fd.get()) != static_cast<std::int64_t>(::geteuid())) return;
  if (loop_.strangers >= most_strangers()) make_room();
  set_no_delay(fd.get());
  const std::uint64_t id = next_id_++;
  HalfOpen& half = *(half_open_[id] = std::make_unique<HalfOpen>());
  ++loop_.strangers;
  try {
    half.token = loop_.watch(fd.get(), EPOLLIN, [this, id](std::uint32_t) { advance(id); });
    half.fd = std::move(fd);
    half.timer = loop_.after_ms(handshake_limit_ms, [this, id] { drop(id); });
  } catch (const std::bad_alloc&) {
    drop(id);
    throw;
  }
}

/// Who has not even said hello goes first: in a flood of strangers our own get through.
void Acceptor::make_room() {
  if (!spare_descriptor(false)) loop_.spare_descriptor();
}

bool Acceptor::spare_descriptor(bool any) {
  for (const auto& [id, half] : half_open_) {
    if (!any && half->hello_known) continue;
    drop(id);
    return true;
  }
  return false;
}

void Acceptor::drop(std::uint64_t id) {
  const auto found = half_open_.find(id);
  if (found == half_open_.end()) return;
  loop_.unwatch(found->second->token);
  loop_.cancel(found->second->timer);
  half_open_.erase(found);
  --loop_.strangers;
}

/// False where the connection is of no use any more.
bool Acceptor::read_more(HalfOpen& half, std::size_t wanted, bool* complete) {
  const ssize_t got =
      ::recv(half.fd.get(), half.in + half.received, wanted - half.received, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (got == 0) return false;
  half.received += static_cast<std::size_t>(got);
  *complete = half.received == wanted;
  return true;
}

void Acceptor::advance(std::uint64_t id) {
  const auto found = half_open_.find(id);
  if (found == half_open_.end()) return;
  HalfOpen& half = *found->second;
  Claim claim;
  Step step = Step::drop;  // also where there is no memory for it
  best_effort([&] { step = answer(half, &claim); });
  if (step == Step::drop) return drop(id);
  if (step == Step::wait) return;
  UniqueFd fd = std::move(half.fd);
  drop(id);
  accepted_(claim, std::move(fd));
}

Acceptor::Step Acceptor::answer(HalfOpen& half, Claim* claim) {
  bool complete = false;
  const std::size_t wanted = half.hello_known ? claim_message_bytes : hello_bytes;
  if (!read_more(half, wanted, &complete)) return Step::drop;
  if (!complete) return Step::wait;
  if (half.hello_known) return answer_claim(half, claim) ? Step::accept : Step::drop;
  if (!answer_hello(half)) return Step::drop;
  half.hello_known = true;
  half.received = 0;
  return Step::wait;
}

bool Acceptor::answer_hello(HalfOpen& half) {
  std::memcpy(half.transcript.client.data(), half.in, hello_bytes);
  std::uint16_t version = 0;
  const HelloKind kind = check_hello(half.transcript.client, &version);
  if (kind == HelloKind::foreign) return false;  // a stranger learns nothing, not even our name
  if (!make_hello(&half.transcript.server).ok()) return false;
  const ssize_t sent = ::send(half.fd.get(), half.transcript.server.data(), hello_bytes,
                              MSG_NOSIGNAL | MSG_DONTWAIT);
  // Another version gets our hello, by which it can tell its user, and no more.
  return sent == static_cast<ssize_t>(hello_bytes) && kind == HelloKind::ours;
}

/// False where it is not accepted.
bool Acceptor::answer_claim(HalfOpen& half, Claim* claim) {
  std::memcpy(half.transcript.claim.data(), half.in, claim_bytes);
  Digest expected{};
  const bool proved = client_proof(credentials_, half.transcript, &expected) &&
                      equal_secret(expected.data(), half.in + claim_bytes, proof_bytes);
  Verdict verdict = Verdict::wrong_key;
  if (proved) {
    verdict = decode(half.transcript.claim, claim) ? judge_(*claim) : Verdict::refused;
  } else {
    ++wrong_keys_;
    last_wrong_key_ = peer_text(half.fd.get());
  }
  std::uint8_t out[verdict_message_bytes] = {};
  out[0] = static_cast<std::uint8_t>(verdict);
  Digest proof{};
  if (proved && !server_proof(credentials_, half.transcript, verdict, &proof)) return false;
  std::memcpy(out + verdict_bytes, proof.data(), proof.size());
  const ssize_t sent = ::send(half.fd.get(), out, sizeof out, MSG_NOSIGNAL | MSG_DONTWAIT);
  return verdict == Verdict::accepted && sent == static_cast<ssize_t>(sizeof out);
}

}  // namespace hocket::internal
