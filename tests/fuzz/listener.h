// Sockets for the targets of the handshake.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <string>

#include "base/unique_fd.h"
#include "fuzz/fuzz.h"

namespace hocket::internal {

/// An abstract Unix socket that listens, with a name of the kernel's choice.
struct Listener {
  Listener() : fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    address.sun_family = AF_UNIX;
    FUZZ_CHECK(::bind(fd.get(), generic(), sizeof(sa_family_t)) == 0 && ::listen(fd.get(), 4) == 0);
    FUZZ_CHECK(::getsockname(fd.get(), generic(), &length) == 0);
  }
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&address); }
  UniqueFd connect() {
    UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    FUZZ_CHECK(::connect(client.get(), generic(), length) == 0);
    return client;
  }
  UniqueFd accept() const {
    return UniqueFd(::accept4(fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  }
  std::string name() const {
    return {address.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1};
  }
  sockaddr_un address{};
  socklen_t length = sizeof address;
  UniqueFd fd;
};

/// The server may have closed the connection.
inline void send(const UniqueFd& to, const void* data, std::size_t size) {
  if (size > 0) static_cast<void>(!::send(to.get(), data, size, MSG_NOSIGNAL));
}

}  // namespace hocket::internal
