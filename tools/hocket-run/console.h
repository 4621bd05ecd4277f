// Standard output and error of the launcher: everything goes out in order and without blocking the
// loop where that can be helped.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"

namespace hocket::internal::launch {

class Console {
 public:
  void put(int fd, std::string_view bytes);
  void say(const std::string& text) { put(2, "hocket-run: " + text + "\n"); }

  bool empty() const { return queue_.empty(); }
  bool full() const { return bytes_ > (1u << 20); }
  int next_fd() const { return queue_.empty() ? -1 : queue_.front().first; }
  /// Writes a piece; to be called when next_fd() is writable.
  void write_some();
  /// Standard output cannot be written any more (its reader has gone, the disk is full).
  int output_error() const { return output_error_; }
  /// Since when nothing could be written, while there was something to write.
  Nanos blocked_since() const { return blocked_since_; }
  /// Drops what waits for a descriptor that cannot be written now, and all that comes for it later.
  void drop_blocked();
  std::size_t dropped() const { return dropped_bytes_; }

 private:
  std::deque<std::pair<int, std::string>> queue_;
  std::size_t written_ = 0;  // of the front
  std::size_t bytes_ = 0;
  int output_error_ = 0;
  Nanos blocked_since_ = 0;
  bool drops_[3] = {};  // by descriptor
  std::size_t dropped_bytes_ = 0;
};

}  // namespace hocket::internal::launch
