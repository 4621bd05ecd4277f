#include "console.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hocket::internal::launch {

void Console::put(int fd, std::string_view bytes) {
  if (drops_[fd]) dropped_bytes_ += bytes.size();
  if (bytes.empty() || drops_[fd] || (fd == 1 && output_error_ != 0)) return;
  if (queue_.empty()) blocked_since_ = monotonic_now();
  bytes_ += bytes.size();
  if (!queue_.empty() && queue_.back().first == fd) {
    queue_.back().second += bytes;
  } else {
    queue_.emplace_back(fd, bytes);
  }
}

void Console::write_some() {
  if (queue_.empty()) return;
  auto& [fd, bytes] = queue_.front();
  // A writable pipe takes PIPE_BUF bytes without blocking. The descriptor must stay blocking,
  // because other processes share it.
  const std::size_t size = std::min<std::size_t>(bytes.size() - written_, PIPE_BUF);
  const ssize_t done = ::write(fd, bytes.data() + written_, size);
  if (done < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (done < 0 && fd == 1) output_error_ = errno;
  blocked_since_ = monotonic_now();
  written_ += done < 0 ? bytes.size() - written_ : static_cast<std::size_t>(done);
  if (written_ < bytes.size()) return;
  bytes_ -= bytes.size();
  written_ = 0;
  queue_.pop_front();
}

void Console::drop_blocked() {
  for (const int fd : {1, 2}) {
    pollfd event{fd, POLLOUT, 0};
    drops_[fd] = drops_[fd] || ::poll(&event, 1, 0) == 0;
  }
  if (!queue_.empty() && drops_[queue_.front().first]) {
    queue_.front().second.erase(0, written_);
    bytes_ -= std::exchange(written_, 0);
  }
  for (const auto& [fd, bytes] : queue_) {
    if (!drops_[fd]) continue;
    dropped_bytes_ += bytes.size();
    bytes_ -= bytes.size();
  }
  std::erase_if(queue_, [this](const auto& entry) { return drops_[entry.first]; });
  blocked_since_ = monotonic_now();
}

}  // namespace hocket::internal::launch
