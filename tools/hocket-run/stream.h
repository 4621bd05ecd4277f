// Frames over a pair of descriptors that do not block.
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
  /// Nothing is a frame until the other side's greeting has come.
  void expect_greeting() { awaits_greeting_ = true; }

  void send(Type type, std::string_view payload = {});
  /// Writes what can be written now. False: the other side is gone.
  bool flush();
  /// Reads what is there. False: the other side is gone, or talks nonsense; what came whole before
  /// can still be taken.
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
