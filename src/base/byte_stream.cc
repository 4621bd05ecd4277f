#include "base/byte_stream.h"

#include <sys/socket.h>

#include <cerrno>

namespace hocket::internal {
namespace {

msghdr message_of(const iovec* parts, int count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = static_cast<std::size_t>(count);
  return message;
}

}  // namespace

ssize_t ByteStream::send_plain(const iovec* parts, int count) {
  if (count == 1) return send_now(fd(), parts[0].iov_base, parts[0].iov_len);
  const msghdr message = message_of(parts, count);
  for (;;) {
    const ssize_t sent = ::sendmsg(fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0 || errno != EINTR) return sent;
  }
}

ssize_t ByteStream::receive_plain(const iovec* parts, int count, bool from_socket) {
  if (!from_socket) {
    errno = EAGAIN;
    return -1;
  }
  if (count == 1) return receive_now(fd(), parts[0].iov_base, parts[0].iov_len);
  msghdr message = message_of(parts, count);
  for (;;) {
    const ssize_t got = ::recvmsg(fd(), &message, MSG_DONTWAIT);
    if (got >= 0 || errno != EINTR) return got;
  }
}

}  // namespace hocket::internal
