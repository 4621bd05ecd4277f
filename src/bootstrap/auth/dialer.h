// The connecting end of the handshake of auth.h, as a state machine on the event loop.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "base/byte_stream.h"
#include "bootstrap/auth/auth.h"
#include "bootstrap/net/event_loop.h"
#include "bootstrap/net/socket.h"

namespace hocket::internal {

/// For Dialer::Options::refused_limit: a refused connection is tried again until the deadline.
inline constexpr Nanos never = std::numeric_limits<Nanos>::max();

/// Opens one connection. Tries again until its deadline if another attempt can succeed.
class Dialer {
 public:
  struct Options {
    Endpoint endpoint;
    Credentials credentials;
    Claim claim;
    Nanos deadline = 0;
    /// How long a refused connection is tried again, because the other end may not listen yet.
    Nanos refused_limit = 0;
    /// The other end listens already, but may accept the connection at any later time: there is no
    /// limit to the time until it answers.
    bool accepted_late = false;
    std::string name;  // of the other end, for messages: "the coordinator at 10.0.0.1:4000"
  };
  struct Result {
    Status status;           // Code::system_error: this process cannot make a socket
    bool duplicate = false;  // the other end has this connection, or opens it itself
    bool refused = false;    // no process listens there
    ByteStream stream;       // empty: there is no connection

    /// The error with its culprit.
    Status error(int own_rank, int peer) const {
      const bool own = status.code() == Code::system_error;
      return {status.code(), status.message(), own ? own_rank : peer};
    }
  };
  using Ended = std::function<void(Result result)>;

  /// ended: called once, in a later round of the loop, if the Dialer still exists then. It may
  /// destroy the Dialer.
  static std::unique_ptr<Dialer> start(EventLoop& loop, Options options, Ended ended);
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

 private:
  enum class Stage { idle, connecting, hello, verdict, tls };
  Dialer(EventLoop& loop, Options options, Ended ended)
      : loop_(loop), options_(std::move(options)), ended_(std::move(ended)) {
    options_.claim.tls = options_.credentials.tls && !options_.endpoint.is_unix();
  }
  void attempt();
  void ready();
  void begin_hello();
  void read_hello();
  void read_verdict();
  void start_tls();
  void go_on_with_tls();
  void end_by(Verdict verdict);
  bool read_more(std::size_t wanted);
  bool send_all(const std::uint8_t* data, std::size_t size);
  void attempt_limit_passed();
  void no_socket(int error);
  void again(const std::string& trouble, bool refused = false);
  void give_up(bool refused);
  void finish(Result result);
  void drop_attempt();

  EventLoop& loop_;
  Options options_;
  Ended ended_;
  Stage stage_ = Stage::idle;
  ByteStream stream_;
  Watch watch_;
  Timer timer_;
  Transcript transcript_;
  std::uint8_t in_[hello_bytes];
  std::size_t received_ = 0;
  std::int64_t delay_ms_ = 5;
  std::string trouble_;  // why the last attempt failed; empty: no attempt has failed yet
  std::optional<Nanos> refused_since_;    // all attempts since then were refused
  std::optional<Nanos> no_socket_since_;  // no attempt since then had a socket
};

static_assert(verdict_message_bytes <= hello_bytes);

}  // namespace hocket::internal
