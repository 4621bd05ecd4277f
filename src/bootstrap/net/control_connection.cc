#include "bootstrap/net/control_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "bootstrap/net/socket.h"

namespace hocket::internal {
namespace {
constexpr std::size_t header_bytes = 8;
constexpr std::size_t most_received = 16384;
constexpr int rounds_per_wake = 16;  // so that one busy peer does not starve the others
}  // namespace

std::unique_ptr<ControlConnection> ControlConnection::open(EventLoop& loop, ByteStream stream,
                                                           std::size_t body_cap,
                                                           OnMessage on_message,
                                                           OnClosed on_closed) {
  std::unique_ptr<ControlConnection> conn(new ControlConnection(loop, std::move(stream), body_cap));
  conn->on_message_ = std::move(on_message);
  conn->on_closed_ = std::move(on_closed);
  conn->heard_ = loop.now();
  conn->watch_ = loop.watch(conn->fd(), EPOLLIN,
                            [self = conn.get()](std::uint32_t events) { self->ready(events); });
  return conn;
}

void ControlConnection::hand_over(OnMessage on_message, OnClosed on_closed) {
  on_message_ = std::move(on_message);
  on_closed_ = std::move(on_closed);
}

void ControlConnection::close() {
  if (!stream_) return;
  // Closing with unread bytes would reset a TCP connection, and the other end could lose the last
  // messages that were sent to it.
  std::uint8_t unread[4096];
  int rounds = 0;
  while (rounds++<rounds_per_wake&& ::recv(fd(), unread, sizeof unread, MSG_DONTWAIT)> 0) {
  }
  watch_.reset();
  retry_.reset();
  stream_.reset();
  out_.clear();
  in_fds_.clear();
}

void ControlConnection::fail(int error) {
  if (!stream_) return;
  const OnClosed on_closed = std::move(on_closed_);
  close();
  if (on_closed) on_closed(error);
}

void ControlConnection::ready(std::uint32_t events) {
  if (events & EPOLLOUT) flush();
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive();
}

void ControlConnection::drain() {
  const std::weak_ptr<const char> life = life_;
  for (int i = 0; i < rounds_per_wake && !life.expired() && stream_; ++i) receive();
}

/// Appends what has come to in_. Descriptors come over Unix sockets only, which have no TLS.
std::int64_t ControlConnection::receive_bytes(bool from_socket, std::vector<UniqueFd>* fds) {
  const std::size_t before = in_.size();
  in_.resize(before + most_received);
  bool lost_fds = false;
  std::int64_t got = -1;
  if (stream_.encrypted()) {
    const iovec part{in_.data() + before, most_received};
    got = stream_.receive(&part, 1, from_socket);
  } else if (from_socket) {
    got = receive_some(fd(), in_.data() + before, most_received, fds, &lost_fds);
  } else {
    errno = EAGAIN;
  }
  const int error = errno;
  in_.resize(before + static_cast<std::size_t>(std::max<std::int64_t>(got, 0)));
  lost_fds_ |= lost_fds;
  errno = error;
  return got;
}

void ControlConnection::receive() {
  const std::weak_ptr<const char> life = life_;
  for (int round = 0; !life.expired() && stream_; ++round) {
    std::vector<UniqueFd> fds;
    // After the last round the loop still takes what the stream holds, which epoll cannot see.
    const std::int64_t got = receive_bytes(round < rounds_per_wake, &fds);
    const int error = errno;
    const bool no_fds = fds.empty();
    for (UniqueFd& fd : fds) in_fds_.push_back(std::move(fd));
    if (got < 0 && (error == EAGAIN || error == EWOULDBLOCK)) return;
    if (got <= 0) return fail(got == 0 ? 0 : error);
    heard_ = loop_.now();
    if (!deliver()) return;
    if (static_cast<std::size_t>(got) < most_received && in_fds_.empty() && no_fds) return;
  }
}

ControlConnection::Taken ControlConnection::take_message(Message* message) {
  if (in_.size() < header_bytes) return Taken::nothing;
  Reader header(in_.data(), header_bytes);
  const std::size_t length = header.u32();
  message->type = static_cast<MessageType>(header.u16());
  const std::size_t fd_count = header.u16();
  if (length > body_cap_ || fd_count > fds_per_message) return Taken::violation;
  if (in_.size() - header_bytes < length) return Taken::nothing;
  const bool has_fds = fd_count <= in_fds_.size();
  if (!has_fds && !lost_fds_) return Taken::violation;
  const auto body = in_.begin() + header_bytes;
  const auto end = body + static_cast<std::ptrdiff_t>(length);
  message->body.assign(body, end);
  message->lost_fds = !has_fds;
  for (std::size_t i = 0; i < fd_count && has_fds; ++i) {
    message->fds.push_back(std::move(in_fds_.front()));
    in_fds_.pop_front();
  }
  in_.erase(in_.begin(), end);
  return Taken::message;
}

/// Returns false if the connection is closed or destroyed.
bool ControlConnection::deliver() {
  const std::weak_ptr<const char> life = life_;
  for (;;) {
    Message message;
    const Taken taken = take_message(&message);
    if (taken == Taken::nothing) break;
    if (taken == Taken::violation) {
      fail(EPROTO);
      return false;
    }
    const OnMessage on_message = on_message_;  // it may be replaced while it runs
    if (on_message) on_message(message);
    if (life.expired() || !stream_) return false;
  }
  if (in_.empty()) in_.shrink_to_fit();
  return true;
}

void ControlConnection::send(MessageType type, std::vector<std::uint8_t> body,
                             std::vector<SharedFd> fds) {
  if (!stream_) return;
  Writer frame;
  frame.u32(static_cast<std::uint32_t>(body.size()));
  frame.u16(static_cast<std::uint16_t>(type));
  frame.u16(static_cast<std::uint16_t>(fds.size()));
  frame.raw(body.data(), body.size());
  out_.push_back({frame.take(), 0, std::move(fds)});
  if (out_.size() == 1) flush();
}

std::int64_t ControlConnection::send_bytes(const Outgoing& message) {
  const std::uint8_t* const data = message.bytes.data() + message.sent;
  const std::size_t size = message.bytes.size() - message.sent;
  if (stream_.encrypted()) {
    const iovec part{const_cast<std::uint8_t*>(data), size};
    return stream_.send(&part, 1);
  }
  std::vector<int> fds;
  for (const SharedFd& fd : message.fds) fds.push_back(fd->get());
  return send_some(fd(), data, size, fds);
}

void ControlConnection::flush() {
  while (!out_.empty()) {
    Outgoing& front = out_.front();
    const std::int64_t sent = send_bytes(front);
    if (sent < 0 && (errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM)) {
      // Too many descriptors of this user's processes are in flight; their receivers take them
      // soon.
      retry_ = loop_.after_ms(2, [this] { flush(); });
      return;
    }
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return watch_.modify(EPOLLIN | EPOLLOUT);
    }
    if (sent < 0) break;  // receive() finds the error, after the last messages of the other end
    front.fds.clear();
    front.sent += static_cast<std::size_t>(sent);
    if (front.sent == front.bytes.size()) out_.pop_front();
  }
  if (!out_.empty()) out_.clear();
  watch_.modify(EPOLLIN);
}

}  // namespace hocket::internal
