#include "stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hocket::internal::launch {
namespace {
constexpr std::size_t header_bytes = 5;
constexpr std::size_t longest_banner = 1u << 20;
}  // namespace

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

Stream::Stream(UniqueFd in, UniqueFd out) : in_(std::move(in)), out_(std::move(out)) {
  set_nonblocking(in_.get());
  set_nonblocking(out_.get());
}

void Stream::send(Type type, std::string_view payload) {
  outgoing_ += payload_of(static_cast<std::uint32_t>(payload.size()));
  outgoing_ += static_cast<char>(type);
  outgoing_ += payload;
}

bool Stream::flush() {
  while (pending() != 0) {
    if (!out_) return false;
    const ssize_t written = ::write(out_.get(), outgoing_.data() + sent_, pending());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    sent_ += static_cast<std::size_t>(written);
  }
  outgoing_.clear();
  sent_ = 0;
  return true;
}

bool Stream::fill() {
  if (!in_) return false;
  incoming_.erase(0, taken_);
  taken_ = 0;
  char buffer[64 << 10];
  // At most 4 reads, so that a steady writer does not keep the caller from its other work.
  for (int reads = 0; reads < 4; ++reads) {
    const ssize_t got = ::read(in_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    incoming_.append(buffer, static_cast<std::size_t>(got));
  }
  return true;
}

bool Stream::skip_to_frames() {
  const std::size_t at = incoming_.find(greeting, taken_);
  if (at == std::string::npos) {
    if (incoming_.size() > longest_banner) in_.reset();
    return false;
  }
  taken_ = at + greeting.size();
  awaits_greeting_ = false;
  return true;
}

bool Stream::next(Message* message) {
  if (awaits_greeting_ && !skip_to_frames()) return false;
  const std::string_view rest = std::string_view(incoming_).substr(taken_);
  if (rest.size() < header_bytes) return false;
  Reader header = reader_of(rest);
  const std::uint32_t size = header.u32();
  message->type = static_cast<Type>(header.u8());
  if (size > max_payload) {
    in_.reset();  // the next fill() returns false
    return false;
  }
  if (rest.size() - header_bytes < size) return false;
  message->payload = rest.substr(header_bytes, size);
  taken_ += header_bytes + size;
  return true;
}

}  // namespace hocket::internal::launch
