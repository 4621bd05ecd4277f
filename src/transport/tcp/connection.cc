#include "transport/tcp/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/copy.h"

namespace hocket::internal {
namespace {

/// The name of the algorithm that controls the congestion of a socket; empty: unknown.
std::string congestion_control_of(int fd) {
  char name[16] = {};
  socklen_t length = sizeof name - 1;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return {};
  return name;
}

}  // namespace

CallBytes call_bytes_under(std::string_view congestion_control) {
  constexpr std::size_t KiB = 1024;
  if (congestion_control.starts_with("bbr")) return {.write = 96 * KiB, .read = 64 * KiB};
  return {.write = 1024 * KiB, .read = 1024 * KiB};
}

Connection::Connection(ByteStream stream)
    : stream_(std::move(stream)),
      call_bytes_(call_bytes_under(congestion_control_of(stream_.fd()))),
      stage_(new std::byte[stage_bytes]),
      read_ahead_(new std::byte[read_ahead_bytes]) {}

/// Of a call on the socket. The rank itself is the culprit where the socket works, and the process
/// has no memory at the address of a buffer.
Status Connection::failure_of(const char* what, const MessageMatcher& matcher) const {
  if (errno == EBADMSG && stream_.encrypted()) return {Code::remote_error, stream_.tls_error()};
  if (errno != EFAULT) return system_error(what);
  return {Code::system_error,
          "a buffer of this call is at an address at which this process has no memory: it was "
          "freed, it is shorter than the call says, or it is memory of a device. Look at what this "
          "rank gave to the call",
          matcher.rank()};
}

void Connection::fail(Status status) {
  state_ = State::failed;
  status_ = std::move(status);
}

// ---- Output

void Connection::add(const void* data, std::size_t bytes, Transfer* owner) {
  iov_[iov_count_] = {const_cast<void*>(data), bytes};
  owner_[iov_count_] = owner;
  owed_[iov_count_] = static_cast<std::uint32_t>(bytes);
  ++iov_count_;
}

void Connection::stage(const void* data, std::size_t bytes) {
  std::byte* const to = stage_.get() + staged_;
  plain_copy(to, data, bytes);
  staged_ += bytes;
  if (iov_count_ > 0 && owner_[iov_count_ - 1] == nullptr) {
    iovec& last = iov_[iov_count_ - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == to) {
      last.iov_len += bytes;
      return;
    }
  }
  add(to, bytes, nullptr);
}

bool Connection::fill(MessageMatcher& matcher, MessageMatcher::Want want) {
  if (!matcher.has(want)) return has_output();
  OutFrame frame;
  while (iov_count_ + 2 <= max_iov && staged_ + sizeof(FrameHeader) + copied_bytes <= stage_bytes &&
         matcher.next_frame(want, max_frame_bytes, frame)) {
    seal(frame.header);
    stage(&frame.header, sizeof frame.header);
    const std::size_t length = frame.header.length;
    if (length <= copied_bytes) {
      stage(frame.payload, length);
      if (frame.transfer != nullptr) matcher.sent(*frame.transfer, length);
      continue;
    }
    add(frame.payload, length, frame.transfer);
    // Leave the next large frame to the connection that has room first.
    if (length >= (32 << 10)) break;
  }
  return has_output();
}

void Connection::advance(MessageMatcher& matcher, std::size_t bytes) {
  while (iov_first_ < iov_count_) {
    iovec& first = iov_[iov_first_];
    if (bytes < first.iov_len) {
      first.iov_base = static_cast<std::byte*>(first.iov_base) + bytes;
      first.iov_len -= bytes;
      return;
    }
    bytes -= first.iov_len;
    if (Transfer* const owner = owner_[iov_first_]) matcher.sent(*owner, owed_[iov_first_]);
    ++iov_first_;
  }
  iov_first_ = iov_count_ = 0;
  staged_ = 0;
  kept_.reset();
}

/// Offers at most `most` bytes of the output to the socket.
ssize_t Connection::write_some(std::size_t most, std::size_t* offered) {
  std::size_t bytes = 0;
  int end = iov_first_;
  while (end < iov_count_ && bytes < most) bytes += iov_[end++].iov_len;
  *offered = std::min(bytes, most);
  iovec& last = iov_[end - 1];
  const std::size_t left_out = bytes - *offered;
  last.iov_len -= left_out;
  const ssize_t written = stream_.send(&iov_[iov_first_], end - iov_first_);
  last.iov_len += left_out;
  return written;
}

bool Connection::flush(MessageMatcher& matcher, MessageMatcher::Want want) {
  bool moved = false;
  std::size_t budget = call_bytes_.write;
  while (state_ == State::open && budget > 0 && (has_output() || fill(matcher, want))) {
    std::size_t offered = 0;
    const ssize_t written = write_some(budget, &offered);
    if (written < 0) {
      blocked_ = errno == EAGAIN || errno == EWOULDBLOCK;
      if (!blocked_) fail_to_write(matcher, failure_of("writing to the socket failed", matcher));
      return moved;
    }
    moved = true;
    advance(matcher, static_cast<std::size_t>(written));
    blocked_ = static_cast<std::size_t>(written) < offered;
    if (blocked_) return moved;
    budget -= offered;
  }
  blocked_ = false;
  return moved;
}

/// The peer may have ended after it had sent what this rank waits for: that is read first.
void Connection::fail_to_write(MessageMatcher& matcher, Status why) {
  receive_rest(matcher);
  if (state_ == State::open) fail(std::move(why));
}

void Connection::receive_rest(MessageMatcher& matcher) {
  constexpr int most_reads = 64;  // a peer that lives may send for ever
  for (int i = 0; i < most_reads && state_ == State::open && receive(matcher); ++i) {
  }
}

void Connection::append(OutFrame frame) {
  const std::size_t bytes = sizeof frame.header + frame.header.length;
  if (staged_ + bytes > stage_bytes || iov_count_ + 2 > max_iov)
    return;  // loses no more than a goodbye
  seal(frame.header);
  stage(&frame.header, sizeof frame.header);
  stage(frame.payload, frame.header.length);
}

void Connection::release_buffers(MessageMatcher& matcher, bool keep) {
  std::size_t left = 0;
  for (int i = iov_first_; i < iov_count_; ++i) left += iov_[i].iov_len;
  if (keep && left > 0) {
    auto copy = std::make_unique<std::byte[]>(left);
    std::size_t at = 0;
    for (int i = iov_first_; i < iov_count_; ++i) {
      std::memcpy(copy.get() + at, iov_[i].iov_base, iov_[i].iov_len);
      at += iov_[i].iov_len;
    }
    kept_ = std::move(copy);
  }
  for (int i = iov_first_; i < iov_count_; ++i) {
    if (owner_[i] != nullptr) matcher.abandon(*owner_[i]);
  }
  iov_first_ = iov_count_ = 0;
  staged_ = 0;
  if (keep && left > 0) add(kept_.get(), left, nullptr);
  drain_ = true;
}

// ---- Input

// The rest of a payload goes to its destination, and the bytes after it into the read-ahead buffer.
// While a message of several frames arrives, the read-ahead is limited to a header, because payload
// in it must be copied. The same limit while any receive of 16 KiB or more was posted changed
// nothing: 0.95 to 1.10 of the time, from 16 KiB to 1 MiB between two hosts (2026-11-27).
ssize_t Connection::read_some(std::size_t* asked, bool from_socket) {
  if (begin_ > 0) {
    std::memmove(read_ahead_.get(), read_ahead_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const std::size_t room = read_ahead_bytes - end_;
  iovec parts[2] = {{read_ahead_.get() + end_, room}, {}};
  *asked = room;
  if (payload_left_ == 0 || drain_) return stream_.receive(parts, 1, from_socket);
  const bool more_payload = frame_.header.offset + frame_.header.length < frame_.header.total;
  const std::size_t ahead = more_payload ? sizeof(FrameHeader) : room;
  const std::size_t payload = std::min(payload_left_, call_bytes_.read);
  parts[1] = {parts[0].iov_base, ahead};
  parts[0] = {frame_.data + (frame_.header.length - payload_left_), payload};
  const bool all = payload == payload_left_;
  *asked = payload + (all ? ahead : 0);
  return stream_.receive(parts, all ? 2 : 1, from_socket);
}

bool Connection::payload_done(MessageMatcher& matcher) {
  if (Status status = matcher.payload_complete(frame_); !status.ok()) {
    fail(std::move(status));
    return false;
  }
  if (frame_.header.kind == FrameKind::goodbye) peer_goodbye_ = true;
  return !matcher.ended();
}

// Parses the read-ahead buffer. Returns false if the link has ended.
bool Connection::consume(MessageMatcher& matcher) {
  while (begin_ < end_) {
    if (payload_left_ > 0) {
      const std::size_t bytes = std::min(payload_left_, end_ - begin_);
      plain_copy(frame_.data + (frame_.header.length - payload_left_), read_ahead_.get() + begin_,
                 bytes);
      begin_ += bytes;
      payload_left_ -= bytes;
      if (payload_left_ > 0) return true;
      if (!payload_done(matcher)) return false;
      continue;
    }
    if (end_ - begin_ < sizeof(FrameHeader)) return true;
    FrameHeader header;
    std::memcpy(&header, read_ahead_.get() + begin_, sizeof header);
    begin_ += sizeof header;
    if (peer_goodbye_) {
      fail(matcher.violation("a frame after its goodbye"));
      return false;
    }
    if (Status status = matcher.accept(header, frame_); !status.ok()) {
      fail(std::move(status));
      return false;
    }
    if (matcher.ended()) return false;
    payload_left_ = header.length;
    if (payload_left_ == 0 && !payload_done(matcher)) return false;
  }
  return true;
}

bool Connection::receive(MessageMatcher& matcher) {
  bool moved = false;
  std::size_t budget = call_bytes_.read;
  while (state_ == State::open) {
    std::size_t asked = 0;
    const ssize_t got = read_some(&asked, budget > 0);
    if (got < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        fail(failure_of("reading the socket failed", matcher));
      }
      return moved;
    }
    if (got == 0) {
      state_ = State::closed;
      return true;
    }
    moved = heard_ = true;
    std::size_t bytes = static_cast<std::size_t>(got);
    if (drain_) {
      begin_ = end_ = 0;
    } else {
      const std::size_t direct = std::min(payload_left_, bytes);
      payload_left_ -= direct;
      end_ += bytes - direct;
      if (direct > 0 && payload_left_ == 0 && !payload_done(matcher)) return true;
      if (!consume(matcher)) return true;
    }
    // A short read means that the socket is empty; another system call would only confirm that.
    if (bytes < asked) return moved;
    // At the end of the budget the loop still takes what the stream holds, which epoll cannot see.
    budget -= std::min(budget, bytes);
  }
  return moved;
}

}  // namespace hocket::internal
