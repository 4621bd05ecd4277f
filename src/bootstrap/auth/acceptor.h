// The listening end of the handshake of auth.h, as a state machine on the event loop. It hands out
// authenticated connections only; no other code reads what an unproved connection sends.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "bootstrap/auth/auth.h"
#include "bootstrap/net/event_loop.h"
#include "bootstrap/net/socket.h"

namespace hocket::internal {

/// Accepts connections on one listener. The number of unproved connections in the process and their
/// time are limited, so that a port scan costs only a little time of this thread. When there are
/// too many, the oldest connection that has not sent its hello is closed first. If there is no
/// memory for a connection, the connection is closed. If there is no descriptor for a connection,
/// it waits in the listener's queue, for descriptor_patience; then the owner is told.
class Acceptor : private EventLoop::DescriptorHolder {
 public:
  using Judge = std::function<Verdict(const Claim& claim)>;
  using Accepted = std::function<void(const Claim& claim, UniqueFd fd)>;
  /// Called once; must not destroy the Acceptor, which tries again at once afterwards.
  using OutOfDescriptors = std::function<void(const Status& why)>;

  Acceptor(EventLoop& loop, UniqueFd listener, Credentials credentials, Judge judge,
           Accepted accepted, OutOfDescriptors out_of_descriptors);
  ~Acceptor() override;
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;
  /// "; 3 connections with another job's key were refused, the last from 10.0.0.2:999", or nothing.
  std::string refusals() const;

 private:
  struct Unproved {
    explicit Unproved(EventLoop& loop) : loop(loop) { ++loop.unproved_connections; }
    ~Unproved() { --loop.unproved_connections; }
    Unproved(const Unproved&) = delete;
    Unproved& operator=(const Unproved&) = delete;

    EventLoop& loop;
    UniqueFd fd;
    Watch watch;
    Timer limit;
    Transcript transcript;
    std::uint8_t in[claim_message_bytes];
    std::size_t received = 0;
    bool hello_known = false;
  };
  bool spare_descriptor(bool any) override;
  void accept_some();
  bool wait_for_descriptor(int error);
  void pause();
  bool make_room();
  void admit(UniqueFd fd);
  void advance(std::uint64_t id);
  enum class Step { wait, drop, accept };
  Step answer(Unproved& conn, Claim* claim);
  bool read_more(Unproved& conn, std::size_t wanted, bool* complete);
  bool answer_hello(Unproved& conn);
  bool answer_claim(Unproved& conn, Claim* claim);

  EventLoop& loop_;
  UniqueFd listener_;
  Credentials credentials_;
  Judge judge_;
  Accepted accepted_;
  OutOfDescriptors out_of_descriptors_;  // empty when it has been called
  std::optional<Nanos> waits_since_;     // a connection waits for a descriptor
  Watch watch_;
  Timer resume_;
  std::uint64_t next_id_ = 0;
  std::map<std::uint64_t, Unproved> unproved_;  // oldest first
  int wrong_keys_ = 0;
  std::string last_wrong_key_;
};

}  // namespace hocket::internal
