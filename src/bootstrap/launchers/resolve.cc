#include "bootstrap/launchers/resolve.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "bootstrap/net/socket.h"

namespace hocket::internal {
namespace {
constexpr std::int64_t connect_limit_ms = 3000;
}

Status resolve_all(const std::string& host, std::vector<Address>* out) {
  out->clear();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (failed != 0) {
    return {Code::system_error,
            "cannot find the host \"" + host + "\": " + std::string(::gai_strerror(failed))};
  }
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    KernelAddress kernel;
    kernel.length = entry->ai_addrlen;
    std::memcpy(&kernel.storage, entry->ai_addr,
                std::min<std::size_t>(entry->ai_addrlen, sizeof kernel.storage));
    Address address;
    if (from_kernel(kernel, &address)) out->push_back(address);
  }
  ::freeaddrinfo(list);
  return out->empty() ? Status(Code::system_error, "the host \"" + host + "\" has no address")
                      : Status();
}

Status resolve(const std::string& host, const std::string& port, Address* out) {
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number == 0) {
    return invalid_argument("\"" + port + "\" is no port");
  }
  std::vector<Address> all;
  HOCKET_RETURN_IF_ERROR(resolve_all(host, &all));
  *out = all.front();
  out->port = number;
  return {};
}

Status connect_to(const Address& address, const JoinWait& wait, const std::string& doing,
                  UniqueFd* out) {
  int error = 0;
  UniqueFd fd = connect_start({{}, address}, &error);
  if (!fd) return system_error("cannot make a socket", error);
  if (error == EINPROGRESS) {
    bool ready = false;
    HOCKET_RETURN_IF_ERROR(wait.until(fd.get(), POLLOUT, connect_limit_ms, &ready, doing));
    error = ready ? connect_result(fd.get()) : ETIMEDOUT;
  }
  if (error != 0) return system_error("cannot connect to " + address.text(), error);
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  *out = std::move(fd);
  return {};
}

}  // namespace hocket::internal
