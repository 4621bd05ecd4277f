// One socket to a peer: cuts the byte stream into frames and back. Non-blocking; all policy is the
// transport's.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/message_matcher.h"

namespace hocket::internal {

class Connection {
 public:
  /// What a call found. An error of the protocol or of the socket is in status().
  enum class State : std::uint8_t { open, closed, failed };

  explicit Connection(UniqueFd fd);

  int fd() const { return fd_.get(); }
  const Status& status() const { return status_; }
  State state() const { return state_; }
  bool said_bye() const { return peer_goodbye_; }
  /// Anything came over it: the peer has it too.
  bool heard() const { return heard_; }

  /// Writes frames until the socket is full, nothing is left, or enough was done for one poll.
  /// True where bytes moved.
  bool flush(MessageMatcher& matcher, MessageMatcher::Want want);
  /// Reads what is there, up to enough for one poll. True where bytes moved.
  bool receive(MessageMatcher& matcher);

  bool has_output() const { return iov_first_ < iov_count_; }
  /// The socket took less than it was given.
  bool blocked() const { return blocked_; }

  /// The link has ended: lets go of all memory of transfers. With keep, what is already half
  /// written is copied first, so that a last frame can follow it; without, output is dropped.
  /// Input is read and thrown away from now on.
  void release_buffers(MessageMatcher& matcher, bool keep);
  /// Adds a frame without a transfer behind everything else.
  void append(const OutFrame& frame);

  // The transport's notes:
  std::uint32_t watched = 0;       // for these events by epoll; 0: not at all
  unsigned received_unwaited = 0;  // times that bytes were received since a rank last slept

 private:
  static constexpr std::size_t stage_bytes = 8 << 10;
  static constexpr std::size_t read_ahead_bytes = 16 << 10;
  static constexpr std::size_t copied_bytes = 512;     // smaller payloads are copied: one send()
  static constexpr std::size_t poll_budget = 1 << 20;  // bytes per direction and poll
  static constexpr int max_iov = 24;

  bool fill(MessageMatcher& matcher, MessageMatcher::Want want);
  void add(const void* data, std::size_t bytes, Transfer* owner);
  void stage(const void* data, std::size_t bytes);
  ssize_t write_some();
  void advance(MessageMatcher& matcher, std::size_t bytes);
  ssize_t read_some(std::size_t* asked);
  bool consume(MessageMatcher& matcher);
  bool payload_done(MessageMatcher& matcher);
  void fail(Status status);

  UniqueFd fd_;
  State state_ = State::open;
  Status status_;
  bool blocked_ = false;
  bool drain_ = false;  // throw input away
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
