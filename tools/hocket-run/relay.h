// Passes a rank's output on in whole lines, so that the lines of many ranks do not mix.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"

namespace hocket::internal::launch {

/// Without a tag the bytes stay exactly as they are: a line that does not end (a prompt, binary
/// data) is held for a moment only. With a tag every line gets it, and an unfinished one is
/// finished.
class Relay {
 public:
  explicit Relay(std::string tag) : tag_(std::move(tag)) {}

  /// Appends to out what is ready to be passed on.
  void add(std::string_view bytes, Nanos now, std::string* out);
  /// Appends what is held.
  void flush(std::string* out);
  /// When a held piece should be flushed; 0: nothing to do.
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
