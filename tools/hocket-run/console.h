// Standard output and error of the launcher. All output is written in order, and only when its
// descriptor is writable, so that the launcher does not block.
#pragma once

#include <cstddef>
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
  /// The errno of a failed write to standard output (reader closed, disk full); 0: none.
  int output_error() const { return output_error_; }
  /// The time of the last write, or of the first output after the queue was empty.
  Nanos blocked_since() const { return blocked_since_; }
  /// Drops the output, queued and later, for descriptors that are not writable now.
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
