// A control connection after its handshake: sends and receives whole messages, with descriptors if
// it is a Unix socket. On the event loop's thread only.
//
// Frame: length of the body (u32), type (u16), number of descriptors (u16), body.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/byte_stream.h"
#include "base/unique_fd.h"
#include "bootstrap/net/control_messages.h"
#include "bootstrap/net/event_loop.h"

namespace hocket::internal {

struct Message {
  MessageType type{};
  std::vector<std::uint8_t> body;
  std::vector<UniqueFd> fds;
  bool lost_fds = false;  // this process had no room for some descriptors: fds is empty
};

/// A descriptor that is sent to several connections.
using SharedFd = std::shared_ptr<const UniqueFd>;

class ControlConnection {
 public:
  using OnMessage = std::function<void(Message& message)>;
  /// error: 0 if the other end closed, an errno, EPROTO if it broke the protocol, or EBADMSG if TLS
  /// has found that bytes were changed on the way.
  using OnClosed = std::function<void(int error)>;

  /// The handlers may destroy the connection.
  static std::unique_ptr<ControlConnection> open(EventLoop& loop, ByteStream stream,
                                                 std::size_t body_cap, OnMessage on_message,
                                                 OnClosed on_closed);
  ControlConnection(const ControlConnection&) = delete;
  ControlConnection& operator=(const ControlConnection&) = delete;
  ~ControlConnection() { close(); }

  void send(MessageType type, std::vector<std::uint8_t> body = {}, std::vector<SharedFd> fds = {});
  /// Replaces the handlers; the rest of a batch that is being delivered goes to the new handlers.
  void hand_over(OnMessage on_message, OnClosed on_closed);
  /// Delivers what has come; if the other end has closed, the connection closes too.
  void drain();
  /// No handler runs afterwards. What was sent and fits the socket's buffer still arrives.
  void close();
  bool is_open() const { return static_cast<bool>(stream_); }
  bool idle() const { return out_.empty(); }  // nothing waits to be sent
  int fd() const { return stream_.fd(); }
  /// When bytes last came.
  Nanos heard() const { return heard_; }

 private:
  struct Outgoing {
    std::vector<std::uint8_t> bytes;
    std::size_t sent = 0;
    std::vector<SharedFd> fds;
  };
  enum class Taken { message, nothing, violation };
  ControlConnection(EventLoop& loop, ByteStream stream, std::size_t body_cap)
      : loop_(loop), stream_(std::move(stream)), body_cap_(body_cap) {}
  void ready(std::uint32_t events);
  void receive();
  std::int64_t receive_bytes(bool from_socket, std::vector<UniqueFd>* fds);
  std::int64_t send_bytes(const Outgoing& message);
  bool deliver();
  Taken take_message(Message* message);
  void flush();
  void fail(int error);

  EventLoop& loop_;
  ByteStream stream_;
  std::size_t body_cap_;
  OnMessage on_message_;
  OnClosed on_closed_;
  Watch watch_;
  Timer retry_;
  Nanos heard_ = 0;
  std::vector<std::uint8_t> in_;
  std::deque<UniqueFd> in_fds_;
  bool lost_fds_ = false;
  std::deque<Outgoing> out_;
  // Is destroyed with the connection: a function that has called a handler looks at it to find out
  // whether the connection still exists.
  std::shared_ptr<const char> life_ = std::make_shared<char>();
};

}  // namespace hocket::internal
