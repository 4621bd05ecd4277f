#include "bootstrap/auth/dialer.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/descriptors.h"

namespace hocket::internal {
namespace {
constexpr std::int64_t attempt_limit_ms = 10'000;  // longer than the acceptor's limit
constexpr std::int64_t longest_delay_ms = 250;

std::string error_text(int error) { return std::generic_category().message(error); }
}  // namespace

std::unique_ptr<Dialer> Dialer::start(EventLoop& loop, Options options, Ended ended) {
  std::unique_ptr<Dialer> dialer(new Dialer(loop, std::move(options), std::move(ended)));
  // The first attempt runs in a later round, because the caller has to store the Dialer before
  // `ended` may destroy it.
  dialer->timer_ = loop.at(loop.now(), [self = dialer.get()] { self->attempt(); });
  return dialer;
}

void Dialer::drop_attempt() {
  timer_.reset();
  watch_.reset();
  stream_.reset();
  stage_ = Stage::idle;
}

void Dialer::finish(Result result) {
  const Ended ended = std::move(ended_);
  ended_ = nullptr;
  drop_attempt();
  if (ended) ended(std::move(result));
}

void Dialer::again(const std::string& trouble, bool refused) {
  trouble_ = trouble;
  drop_attempt();
  const Nanos now = loop_.now();
  if (!refused) refused_since_.reset();
  if (refused && !refused_since_) refused_since_ = now;
  if (refused && now - *refused_since_ >= options_.refused_limit) return give_up(true);
  if (now >= options_.deadline) return give_up(false);
  const Nanos next = std::min(now + delay_ms_ * nanos_per_ms, options_.deadline);
  delay_ms_ = std::min(delay_ms_ * 2, longest_delay_ms);
  timer_ = loop_.at(next, [this] { attempt(); });
}

void Dialer::give_up(bool refused) {
  Result result;
  result.status = Status(refused ? Code::remote_error : Code::timeout,
                         fmt::format("cannot reach {}: {}", options_.name, trouble_));
  result.refused = refused;
  finish(std::move(result));
}

void Dialer::attempt() {
  // An attempt at the deadline cannot succeed, so the error of the attempt before is reported.
  if (!trouble_.empty() && !no_socket_since_ && loop_.now() >= options_.deadline) {
    return give_up(false);
  }
  int error = 0;
  stream_ = connect_start(options_.endpoint, &error);
  if (!stream_) return no_socket(error);
  no_socket_since_.reset();
  if (error != 0 && error != EINPROGRESS) return again(error_text(error), error == ECONNREFUSED);
  stage_ = Stage::connecting;
  watch_ = loop_.watch(stream_.fd(), EPOLLOUT, [this](std::uint32_t) { ready(); });
  const Nanos limit = std::min(options_.deadline, loop_.now() + attempt_limit_ms * nanos_per_ms);
  timer_ = loop_.at(limit, [this] { attempt_limit_passed(); });
  if (error == 0) ready();
}

/// Waits for a descriptor, but not long: the other end has no part in this error.
void Dialer::no_socket(int error) {
  const Nanos now = loop_.now();
  if (!no_socket_since_) no_socket_since_ = now;
  if (now < std::min(*no_socket_since_ + descriptor_patience, options_.deadline)) {
    return again(error_text(error));
  }
  Result result;
  result.status = system_error("cannot make a socket", error);
  finish(std::move(result));
}

void Dialer::attempt_limit_passed() {
  const bool cut_short = loop_.now() >= options_.deadline;
  if (cut_short && !trouble_.empty()) return again(trouble_);
  again(stage_ == Stage::connecting ? "no answer to the connection request"
                                    : "it accepted and then said nothing");
}

void Dialer::ready() {
  switch (stage_) {
    case Stage::idle:
      return;
    case Stage::connecting:
      return begin_hello();
    case Stage::hello:
      return read_hello();
    case Stage::verdict:
      return read_verdict();
    case Stage::tls:
      return go_on_with_tls();
  }
}

bool Dialer::send_all(const std::uint8_t* data, std::size_t size) {
  // A fresh connection's send buffer holds the whole handshake.
  const iovec part{const_cast<std::uint8_t*>(data), size};
  return stream_.send(&part, 1) == static_cast<ssize_t>(size);
}

void Dialer::begin_hello() {
  if (const int error = connect_result(stream_.fd()); error != 0) {
    return again(error_text(error), error == ECONNREFUSED);
  }
  if (options_.credentials.keyless &&
      peer_user(stream_.fd()) != static_cast<std::int64_t>(::geteuid())) {
    Result result;
    result.status = {Code::remote_error,
                     options_.name +
                         " belongs to another user, and this job has no key: start the ranks with "
                         "hocket-run"};
    return finish(std::move(result));
  }
  if (const Status status = make_hello(&transcript_.client); !status.ok()) {
    return again(status.message());
  }
  if (!send_all(transcript_.client.data(), hello_bytes)) return again(error_text(errno));
  received_ = 0;
  stage_ = Stage::hello;
  if (options_.accepted_late) timer_.reset();
  watch_.modify(EPOLLIN);
}

/// Returns true when all wanted bytes have arrived. Otherwise the dialer waits for them; or, if the
/// connection has failed, it has called again().
bool Dialer::read_more(std::size_t wanted) {
  const iovec part{in_ + received_, wanted - received_};
  const ssize_t got = stream_.receive(&part, 1);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (got <= 0) {
    again(got == 0 ? "it closed the connection during the handshake" : error_text(errno));
    return false;
  }
  received_ += static_cast<std::size_t>(got);
  return received_ == wanted;
}

void Dialer::read_hello() {
  if (!read_more(hello_bytes)) return;
  std::memcpy(transcript_.server.data(), in_, hello_bytes);
  std::uint16_t version = 0;
  const HelloKind kind = check_hello(transcript_.server, &version);
  Result result;
  if (kind == HelloKind::foreign) {
    result.status = {
        Code::remote_error,
        fmt::format("what listens as {} is not hocket: check the address", options_.name)};
    return finish(std::move(result));
  }
  if (kind == HelloKind::other_version) {
    result.status = {Code::remote_error,
                     fmt::format("{} speaks version {} of hocket's protocol, this process {}: use "
                                 "the same library for all ranks",
                                 options_.name, version, protocol_version)};
    return finish(std::move(result));
  }
  transcript_.claim = encode(options_.claim);
  Digest proof{}, of_job{};
  if (!client_proof(options_.credentials, transcript_, &proof) ||
      !job_proof(options_.credentials, transcript_, &of_job)) {
    result.status = internal_error("HMAC-SHA256 is not available from OpenSSL");
    return finish(std::move(result));
  }
  std::uint8_t out[claim_message_bytes];
  std::memcpy(out, transcript_.claim.data(), claim_bytes);
  std::memcpy(out + claim_bytes, proof.data(), proof_bytes);
  std::memcpy(out + claim_bytes + proof_bytes, of_job.data(), proof_bytes);
  if (!send_all(out, sizeof out)) return again(error_text(errno));
  received_ = 0;
  stage_ = Stage::verdict;
}

void Dialer::read_verdict() {
  if (!read_more(verdict_message_bytes)) return;
  Result result;
  const auto verdict = static_cast<Verdict>(in_[0]);
  Digest expected{};
  // A verdict in plain bytes cannot accept a connection that is to use TLS.
  const bool expected_here = options_.claim.tls && !stream_.encrypted()
                                 ? verdict == Verdict::start_tls || verdict == Verdict::refused
                                 : verdict <= Verdict::refused;
  const bool proved = expected_here &&
                      server_proof(options_.credentials, transcript_, verdict, &expected) &&
                      equal_secret(expected.data(), in_ + verdict_bytes, proof_bytes);
  if (!proved) {
    result.status = {
        Code::remote_error,
        fmt::format("{} {}: it belongs to another job, or the ranks were given different keys "
                    "(all need the same unique id, one hocket-run, or the same "
                    "HOCKET_JOB_KEY_FILE)",
                    options_.name,
                    verdict == Verdict::wrong_key ? "refused this rank's job key"
                                                  : "could not prove the job key")};
    return finish(std::move(result));
  }
  verdict == Verdict::start_tls ? start_tls() : end_by(verdict);
}

void Dialer::start_tls() {
  Digest secret{};
  if (!tls_secret(options_.credentials, transcript_, &secret)) {
    return again("HMAC-SHA256 is not available from OpenSSL");
  }
  stream_.start_tls(Tls::Role::client, secret);
  stage_ = Stage::tls;
  go_on_with_tls();
}

void Dialer::go_on_with_tls() {
  switch (stream_.shake_hands()) {
    case Tls::Progress::waits:
      return;
    case Tls::Progress::failed:
      return again(std::string(stream_.tls_error()));
    case Tls::Progress::done:
      received_ = 0;
      stage_ = Stage::verdict;
  }
}

void Dialer::end_by(Verdict verdict) {
  Result result;
  if (verdict == Verdict::accepted) {
    watch_.reset();
    stream_.read_ahead();
    result.stream = std::move(stream_);
  } else {
    result.duplicate = verdict == Verdict::duplicate;
    result.status = {Code::remote_error,
                     fmt::format("{} refused the connection: {}", options_.name,
                                 result.duplicate ? "it has one like it already"
                                                  : "it does not expect it (or not any more)")};
  }
  finish(std::move(result));
}

}  // namespace hocket::internal
