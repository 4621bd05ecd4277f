// The listening end of the handshake of auth.h, as a state machine on the monitor thread. What
// comes out is an authenticated descriptor; what a stranger sends never gets further than here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "bootstrap/auth/auth.h"
#include "bootstrap/net/event_loop.h"
#include "bootstrap/net/socket.h"

namespace hocket::internal {

/// Accepts on one listener. Half-open connections are few in the whole process (first the oldest
/// goes that has said no hello) and short-lived, so that a scan costs nothing but a little time of
/// this thread. One that has no memory for a connection drops it.
class Acceptor : private EventLoop::Spender {
 public:
  using Judge = std::function<Verdict(const Claim& claim)>;
  using Accepted = std::function<void(const Claim& claim, UniqueFd fd)>;

  Acceptor(EventLoop& loop, UniqueFd listener, Credentials credentials, Judge judge,
           Accepted accepted);
  ~Acceptor() override;
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;
  /// "; 3 connections with another job's key were refused, the last from 10.0.0.2:999", or nothing.
  std::string refusals() const;

 private:
  struct HalfOpen {
    UniqueFd fd;
    EventLoop::Token token = 0;
    EventLoop::Token timer = 0;
    Transcript transcript;
    std::uint8_t in[claim_message_bytes];
    std::size_t received = 0;
    bool hello_known = false;
  };
  bool spare_descriptor(bool any) override;
  void accept_some();
  void pause();
  void make_room();
  void admit(UniqueFd fd);
  void advance(std::uint64_t id);
  enum class Step { wait, drop, accept };
  Step answer(HalfOpen& half, Claim* claim);
  bool read_more(HalfOpen& half, std::size_t wanted, bool* complete);
  bool answer_hello(HalfOpen& half);
  bool answer_claim(HalfOpen& half, Claim* claim);
  void drop(std::uint64_t id);

  EventLoop& loop_;
  UniqueFd listener_;
  Credentials credentials_;
  Judge judge_;
  Accepted accepted_;
  EventLoop::Token token_ = 0;
  EventLoop::Token resume_ = 0;
  std::uint64_t next_id_ = 0;
  std::map<std::uint64_t, std::unique_ptr<HalfOpen>> half_open_;  // oldest first
  int wrong_keys_ = 0;
  std::string last_wrong_key_;
};

/// For waits that something else ends.
inline constexpr Nanos never = std::numeric_limits<Nanos>::max();

}  // namespace hocket::internal
