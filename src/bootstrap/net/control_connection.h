// A control connection after its handshake: whole messages in and out, descriptors with them where
// it is a Unix socket. On the monitor thread only.
//
// Frame: length of the body (u32), type (u16), number of descriptors (u16), body.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/net/control_messages.h"
#include "bootstrap/net/event_loop.h"

namespace hocket::internal {

struct Message {
  MessageType type{};
  std::vector<std::uint8_t> body;
  std::vector<UniqueFd> fds;
  bool lost_fds = false;  // this process had no room for some: the message has none
};

/// Sent to many, it is open once.
using SharedFd = std::shared_ptr<const UniqueFd>;

class ControlConnection : public std::enable_shared_from_this<ControlConnection> {
 public:
  using OnMessage = std::function<void(Message& message)>;
  /// error: 0 where the other end closed, an errno, or EPROTO where it broke the protocol.
  using OnClosed = std::function<void(int error)>;

  static std::shared_ptr<ControlConnection> open(EventLoop& loop, UniqueFd fd, std::size_t body_cap,
                                                 OnMessage on_message, OnClosed on_closed);
  ~ControlConnection() { close(); }

  void send(MessageType type, std::vector<std::uint8_t> body = {}, std::vector<SharedFd> fds = {});
  /// Changes who listens; the rest of a batch that is being delivered goes to the new one.
  void hand_over(OnMessage on_message, OnClosed on_closed);
  /// Takes what has come; where the other end has closed, this one ends too.
  void drain();
  /// No handler runs afterwards. What was sent and fits the socket's buffer still arrives.
  void close();
  bool is_open() const { return static_cast<bool>(fd_); }
  bool idle() const { return out_.empty(); }  // nothing waits to be sent
  int fd() const { return fd_.get(); }
  /// When bytes last came.
  Nanos heard() const { return heard_; }

 private:
  struct Outgoing {
    std::vector<std::uint8_t> bytes;
    std::size_t sent = 0;
    std::vector<SharedFd> fds;
  };
  ControlConnection(EventLoop& loop, UniqueFd fd, std::size_t body_cap)
      : loop_(loop), fd_(std::move(fd)), body_cap_(body_cap) {}
  void ready(std::uint32_t events);
  void receive();
  bool deliver();                       // false: closed, or the protocol was broken
  bool take_message(Message* message);  // false: not whole yet
  void flush();
  void fail(int error);

  EventLoop& loop_;
  UniqueFd fd_;
  std::size_t body_cap_;
  OnMessage on_message_;
  OnClosed on_closed_;
  EventLoop::Token token_ = 0;
  EventLoop::Token retry_ = 0;
  Nanos heard_ = 0;
  std::vector<std::uint8_t> in_;
  std::deque<UniqueFd> in_fds_;
  bool lost_fds_ = false;
  std::deque<Outgoing> out_;
};

}  // namespace hocket::internal
