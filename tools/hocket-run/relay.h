// Passes on the output of a rank in whole lines, so that the lines of several ranks do not mix.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"

namespace hocket::internal::launch {

/// Without a tag the bytes are not changed, and an unfinished line (a prompt, binary data) is held
/// for 100 ms at most. With a tag every line begins with the tag, and unfinished lines get a
/// newline. Lines longer than 64 KiB are passed on in pieces.
class Relay {
 public:
  explicit Relay(std::string tag = {}) : tag_(std::move(tag)) {}

  /// Adds bytes, and appends the lines that are complete to out.
  void add(std::string_view bytes, Nanos now, std::string* out);
  /// Appends the unfinished line to out.
  void flush(std::string* out);
  /// When the unfinished line must be flushed; 0: there is none.
  Nanos flush_at() const { return tag_.empty() && !held_.empty() ? flush_at_ : 0; }

 private:
  static constexpr Nanos patience = 100 * nanos_per_ms;
  static constexpr std::size_t longest_line = 64 << 10;
  void put_lines(std::string_view lines, std::string* out) const;

  std::string tag_;
  std::string held_;  // of a line that has not ended
  Nanos flush_at_ = 0;
};

}  // namespace hocket::internal::launch
