// The dialling end of the handshake of auth.h, as a state machine on the monitor thread.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "bootstrap/auth/auth.h"
#include "bootstrap/net/event_loop.h"
#include "bootstrap/net/socket.h"

namespace hocket::internal {

/// Opens one connection, trying again until its deadline where that can help.
class Dialer : public std::enable_shared_from_this<Dialer> {
 public:
  struct Options {
    Endpoint endpoint;
    Credentials credentials;
    Claim claim;
    Nanos deadline = 0;
    /// Nobody listening there may just mean: not yet. For so long it is asked again.
    Nanos refused_limit = 0;
    std::string name;  // whom it dials, for messages: "the root at 10.0.0.1:4000"
  };
  struct Result {
    Status status;
    bool duplicate = false;  // the other end has, or opens, this connection itself
    bool nobody = false;     // nobody listens there
    UniqueFd fd;
  };
  using Ended = std::function<void(Result result)>;

  static std::shared_ptr<Dialer> start(EventLoop& loop, Options options, Ended ended);
  ~Dialer() { cancel(); }
  void cancel();  // ended will not run

 private:
  enum class Stage { idle, connecting, hello, verdict };
  Dialer(EventLoop& loop, Options options, Ended ended)
      : loop_(loop), options_(std::move(options)), ended_(std::move(ended)) {}
  void attempt();
  void ready();
  void begin_hello();
  void read_hello();
  void read_verdict();
  bool read_more(std::size_t wanted);
  bool send_all(const std::uint8_t* data, std::size_t size);
  void attempt_limit_passed();
  void again(const std::string& trouble, bool nobody = false);
  void give_up(bool nobody);
  void finish(Result result);
  void drop_attempt();

  EventLoop& loop_;
  Options options_;
  Ended ended_;
  Stage stage_ = Stage::idle;
  UniqueFd fd_;
  EventLoop::Token token_ = 0;
  EventLoop::Token timer_ = 0;
  Transcript transcript_;
  std::uint8_t in_[hello_bytes];
  std::size_t received_ = 0;
  std::int64_t delay_ms_ = 5;
  std::string trouble_;      // why the last attempt failed; empty while there was none
  Nanos refused_since_ = 0;  // nobody has listened since then; 0: somebody did
};

static_assert(verdict_message_bytes <= hello_bytes);

}  // namespace hocket::internal
