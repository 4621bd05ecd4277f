// A socket to a peer: writes frames into the byte stream and parses them from it. Non-blocking; the
// transport decides which frames go over which connection.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/byte_stream.h"
#include "base/status.h"
#include "transport/message_matcher.h"

namespace hocket::internal {

/// The bytes of a system call, and of a poll in each direction.
struct CallBytes {
  std::size_t write = 0, read = 0;
};
/// congestion_control: the kernel's name of the algorithm ("cubic"). See
/// docs/decisions/016-short-calls-under-bbr.md.
CallBytes call_bytes_under(std::string_view congestion_control);

class Connection {
 public:
  /// failed: status() is the error of the protocol or of the socket.
  enum class State : std::uint8_t { open, closed, failed };

  explicit Connection(ByteStream stream);

  int fd() const { return stream_.fd(); }
  const Status& status() const { return status_; }
  State state() const { return state_; }
  bool said_goodbye() const { return peer_goodbye_; }
  /// True if bytes have arrived on this connection, which shows that the peer uses it too.
  bool heard() const { return heard_; }

  /// Writes frames until the socket is full, no frame is left, or the bytes of a poll are written.
  /// Returns true if bytes moved.
  bool flush(MessageMatcher& matcher, MessageMatcher::Want want);
  /// Reads the bytes that have arrived, up to those of a poll. Returns true if bytes moved.
  bool receive(MessageMatcher& matcher);
  /// Reads what has arrived, before the link ends for another reason.
  void receive_rest(MessageMatcher& matcher);

  bool has_output() const { return iov_first_ < iov_count_; }
  /// True if the socket was full at the last write.
  bool blocked() const { return blocked_; }

  /// Releases all memory of transfers, after the link has ended. With keep it first copies the
  /// output that is not yet written, so that a last frame can follow; without keep it drops the
  /// output. From now on input is discarded.
  void release_buffers(MessageMatcher& matcher, bool keep);
  /// Adds a frame without a transfer at the end of the output.
  void append(OutFrame frame);

  // The transport uses these:
  std::uint32_t watched = 0;       // the events that epoll watches for; 0: epoll does not watch it
  unsigned received_unwaited = 0;  // receives with bytes since epoll last watched it anew

 private:
  static constexpr std::size_t stage_bytes = 8 << 10;
  // A read takes a whole message of 16 KiB with its header. With 16 KiB it left the last bytes for
  // a second call: all-gathers of 32 KiB between two hosts now take 0.93 to 1.0 of the time.
  static constexpr std::size_t read_ahead_bytes = (16 << 10) + sizeof(FrameHeader);
  static constexpr std::size_t copied_bytes = 512;  // smaller payloads are copied: one send()
  static constexpr int max_iov = 24;

  bool fill(MessageMatcher& matcher, MessageMatcher::Want want);
  void add(const void* data, std::size_t bytes, Transfer* owner);
  void stage(const void* data, std::size_t bytes);
  ssize_t write_some(std::size_t most, std::size_t* offered);
  void advance(MessageMatcher& matcher, std::size_t bytes);
  ssize_t read_some(std::size_t* asked, bool from_socket);
  Status failure_of(const char* what, const MessageMatcher& matcher) const;
  bool consume(MessageMatcher& matcher);
  bool payload_done(MessageMatcher& matcher);
  void fail(Status status);
  void fail_to_write(MessageMatcher& matcher, Status why);

  ByteStream stream_;
  const CallBytes call_bytes_;
  State state_ = State::open;
  Status status_;
  bool blocked_ = false;
  bool drain_ = false;  // discard input
  bool peer_goodbye_ = false;
  bool heard_ = false;

  // Output: iov_[iov_first_..iov_count_) is still to be written.
  std::array<iovec, max_iov> iov_;
  std::array<Transfer*, max_iov> owner_;
  std::array<std::uint32_t, max_iov> owed_;
  int iov_first_ = 0, iov_count_ = 0;
  std::size_t staged_ = 0;
  std::unique_ptr<std::byte[]> stage_;
  std::unique_ptr<std::byte[]> kept_;

  // Input: read_ahead_[begin_..end_) is still to be parsed; payload_left_ bytes of frame_ to come.
  std::unique_ptr<std::byte[]> read_ahead_;
  std::size_t begin_ = 0, end_ = 0;
  InFrame frame_;
  std::size_t payload_left_ = 0;
};

}  // namespace hocket::internal
