#include "bootstrap/net/socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>

#include "base/address.h"
#include "base/descriptors.h"

namespace hocket::internal {
namespace {

constexpr int backlog = 4096;  // the kernel cuts it to its own limit

UniqueFd open_socket(int family) {
  return UniqueFd(open_with_room(
      [family] { return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }));
}

KernelAddress abstract_address(const std::string& name) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  const std::size_t size = std::min(name.size(), sizeof un.sun_path - 1);
  std::memcpy(un.sun_path + 1, name.data(), size);  // a leading zero byte: not in the file system
  KernelAddress out;
  std::memcpy(&out.storage, &un, sizeof un);
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return out;
}

}  // namespace

Status listen_tcp(Address* address, UniqueFd* out) {
  UniqueFd fd = open_socket(address->v6 ? AF_INET6 : AF_INET);
  if (!fd) return system_error("cannot make a socket");
  const int on = 1;
  if (address->port != 0) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->v6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  const KernelAddress local = to_kernel(*address);
  if (::bind(fd.get(), local.get(), local.length) != 0) {
    return system_error("cannot listen on " + address->text() +
                        " (set HOCKET_INTERFACE to choose another interface)");
  }
  if (::listen(fd.get(), backlog) != 0) return system_error("listen on " + address->text());
  HOCKET_RETURN_IF_ERROR(own_address(fd.get(), address));
  *out = std::move(fd);
  return {};
}

Status listen_unix(const std::string& name, UniqueFd* out, bool* taken) {
  *taken = false;
  UniqueFd fd = open_socket(AF_UNIX);
  if (!fd) return system_error("cannot make a socket");
  const KernelAddress local = abstract_address(name);
  if (::bind(fd.get(), local.get(), local.length) != 0) {
    *taken = errno == EADDRINUSE;
    return system_error("bind an abstract Unix socket");
  }
  if (::listen(fd.get(), backlog) != 0) return system_error("listen on an abstract Unix socket");
  *out = std::move(fd);
  return {};
}

UniqueFd connect_start(const Endpoint& endpoint, int* error) {
  const int family = endpoint.is_unix() ? AF_UNIX : endpoint.tcp.v6 ? AF_INET6 : AF_INET;
  UniqueFd fd = open_socket(family);
  if (!fd) {
    *error = errno;
    return fd;
  }
  set_no_delay(fd.get());
  const KernelAddress remote =
      endpoint.is_unix() ? abstract_address(endpoint.unix_name) : to_kernel(endpoint.tcp);
  *error = ::connect(fd.get(), remote.get(), remote.length) == 0 ? 0 : errno;
  return fd;
}

int connect_result(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

void set_no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void set_silence_limit(int fd, std::int64_t silence_ms) {
  const auto limit_ms = static_cast<unsigned>(std::clamp<std::int64_t>(silence_ms, 1000, 1 << 30));
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
  const int on = 1;
  // By default the kernel doubles the pause after each retransmission, so that a heartbeat would
  // arrive only seconds after the network works again.
  constexpr int rto_max_option = 44;  // TCP_RTO_MAX_MS, from Linux 6.15
  const int rto_max_ms = 1000;        // the least value that the kernel accepts
  ::setsockopt(fd, IPPROTO_TCP, rto_max_option, &rto_max_ms, sizeof rto_max_ms);
  ::setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
  const int idle_s = static_cast<int>(std::clamp<std::int64_t>(silence_ms / 2000, 1, 3600));
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle_s, sizeof idle_s);
}

std::int64_t peer_user(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return -1;
  return credentials.uid;
}

Status own_address(int fd, Address* out) {
  KernelAddress local;
  local.length = sizeof local.storage;
  if (::getsockname(fd, local.get(), &local.length) != 0) return system_error("getsockname");
  if (!from_kernel(local, out)) return invalid_argument("the socket is not a TCP socket");
  return {};
}

std::int64_t send_some(int fd, const std::uint8_t* data, std::size_t size,
                       const std::vector<int>& fds) {
  iovec part{const_cast<std::uint8_t*>(data), size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * fds_per_message)] = {};
  if (!fds.empty()) {
    const std::size_t bytes = sizeof(int) * std::min(fds.size(), fds_per_message);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), fds.data(), bytes);
  }
  ssize_t sent;
  do sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent;
}

std::int64_t receive_some(int fd, std::uint8_t* data, std::size_t size, std::vector<UniqueFd>* fds,
                          bool* lost_fds) {
  *lost_fds = false;
  iovec part{data, size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * fds_per_message)];
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got;
  do got = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  while (got < 0 && errno == EINTR);
  if (got < 0) return got;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    int numbers[fds_per_message];
    std::memcpy(numbers, CMSG_DATA(header), count * sizeof(int));
    std::size_t taken = 0;
    try {
      for (; taken < count; ++taken) fds->emplace_back(numbers[taken]);
    } catch (const std::bad_alloc&) {
      for (; taken < count; ++taken) ::close(numbers[taken]);
      throw;
    }
  }
  *lost_fds = (message.msg_flags & MSG_CTRUNC) != 0;
  return got;
}

}  // namespace hocket::internal
