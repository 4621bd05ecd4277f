// Sends and receives frames over two non-blocking descriptors.
#pragma once

#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "message.h"

namespace hocket::internal::launch {

struct Message {
  Type type{};
  std::string payload;
};

class Stream {
 public:
  Stream() = default;
  /// Makes both descriptors non-blocking.
  Stream(UniqueFd in, UniqueFd out);

  int in() const { return in_.get(); }
  int out() const { return out_.get(); }
  std::size_t pending() const { return outgoing_.size() - sent_; }  // bytes not yet written

  void write_greeting() { outgoing_.append(greeting); }
  /// Skips all bytes before the greeting of the other side.
  void expect_greeting() { awaits_greeting_ = true; }

  void send(Type type, std::string_view payload = {});
  /// Writes as much as possible without blocking. False: the other side has closed the stream.
  bool flush();
  /// Reads the bytes that have arrived. False: the other side has closed the stream, or sent an
  /// invalid frame; next() still returns the messages that arrived completely before.
  bool fill();
  bool next(Message* message);
  void close() {
    in_.reset();
    out_.reset();
  }

 private:
  bool skip_to_frames();

  UniqueFd in_, out_;
  std::string incoming_, outgoing_;
  std::size_t taken_ = 0;  // of incoming_
  std::size_t sent_ = 0;   // of outgoing_
  bool awaits_greeting_ = false;
};

void set_nonblocking(int fd);

}  // namespace hocket::internal::launch
