// The listening end of the handshake of auth.h, as a state machine on the event loop. It hands out
// authenticated connections only; no other code reads what an unproved connection sends.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/byte_stream.h"
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
  using Accepted = std::function<void(const Claim& claim, ByteStream stream)>;
  /// A process of this job, which has proved the job id, has another key. It is refused.
  using OtherKey = std::function<void(const Claim& claim, const std::string& address)>;
  /// Called once; must not destroy the Acceptor, which tries again at once afterwards.
  using OutOfDescriptors = std::function<void(const Status& why)>;

  Acceptor(EventLoop& loop, UniqueFd listener, Credentials credentials, Judge judge,
           Accepted accepted, OutOfDescriptors out_of_descriptors);
  ~Acceptor() override;
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;
  void on_other_key(OtherKey other_key) { other_key_ = std::move(other_key); }
  /// "; 3 connections with another job's key were refused, the last from 10.0.0.2:999", or nothing.
  std::string refusals() const;

 private:
  enum class Stage { hello, claim, tls };  // what the client sends next
  struct Unproved {
    explicit Unproved(EventLoop& loop) : loop(loop) { ++loop.unproved_connections; }
    ~Unproved() { --loop.unproved_connections; }
    Unproved(const Unproved&) = delete;
    Unproved& operator=(const Unproved&) = delete;

    EventLoop& loop;
    ByteStream stream;
    Watch watch;
    Timer limit;
    Transcript transcript;
    Claim claim;
    std::uint8_t in[claim_message_bytes];
    std::size_t received = 0;
    Stage stage = Stage::hello;
  };
  bool spare_descriptor(bool any) override;
  void accept_some();
  bool wait_for_descriptor(int error);
  void pause();
  bool make_room();
  void admit(UniqueFd fd);
  void advance(std::uint64_t id);
  enum class Step { wait, drop, accept };
  Step answer(Unproved& conn);
  bool read_more(Unproved& conn, std::size_t wanted, bool* complete);
  bool answer_hello(Unproved& conn);
  Step answer_claim(Unproved& conn);
  void refuse_key(Unproved& conn);
  Step go_on_with_tls(Unproved& conn);
  Step judge(Unproved& conn);
  bool send_verdict(Unproved& conn, Verdict verdict);

  EventLoop& loop_;
  UniqueFd listener_;
  Credentials credentials_;
  Judge judge_;
  Accepted accepted_;
  OutOfDescriptors out_of_descriptors_;  // empty when it has been called
  OtherKey other_key_;
  std::optional<Nanos> waits_since_;  // a connection waits for a descriptor
  Watch watch_;
  Timer resume_;
  std::uint64_t next_id_ = 0;
  std::map<std::uint64_t, Unproved> unproved_;  // oldest first
  int wrong_keys_ = 0;
  std::string last_wrong_key_;
};

}  // namespace hocket::internal
