#include "relay.h"

namespace hocket::internal::launch {

void Relay::put_lines(std::string_view lines, std::string* out) const {
  if (tag_.empty()) {
    *out += lines;
    return;
  }
  while (!lines.empty()) {
    const std::size_t size = std::min(lines.find('\n'), lines.size() - 1) + 1;
    *out += tag_;
    *out += lines.substr(0, size);
    lines.remove_prefix(size);
  }
}

void Relay::add(std::string_view bytes, Nanos now, std::string* out) {
  const std::size_t end = bytes.rfind('\n');
  if (end != std::string_view::npos) {
    held_ += bytes.substr(0, end + 1);
    put_lines(held_, out);
    held_.clear();
    bytes.remove_prefix(end + 1);
  }
  if (bytes.empty()) return;
  held_ += bytes;
  flush_at_ = now + patience;
  if (held_.size() > longest_line) flush(out);
}

void Relay::flush(std::string* out) {
  if (held_.empty()) return;
  if (!tag_.empty()) held_ += '\n';
  put_lines(held_, out);
  held_.clear();
}

}  // namespace hocket::internal::launch
