#include "base/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <cstring>

namespace hocket::internal {

std::string Address::text() const {
  char buffer[INET6_ADDRSTRLEN] = "?";
  ::inet_ntop(v6 ? AF_INET6 : AF_INET, ip.data(), buffer, sizeof buffer);
  return v6 ? fmt::format("[{}]:{}", buffer, port) : fmt::format("{}:{}", buffer, port);
}

KernelAddress to_kernel(const Address& address) {
  KernelAddress out;
  if (address.v6) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(address.port);
    std::memcpy(&in.sin6_addr, address.ip.data(), 16);
    in.sin6_scope_id = address.scope;
    std::memcpy(&out.storage, &in, sizeof in);
    out.length = sizeof in;
  } else {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(address.port);
    std::memcpy(&in.sin_addr, address.ip.data(), 4);
    std::memcpy(&out.storage, &in, sizeof in);
    out.length = sizeof in;
  }
  return out;
}

bool from_kernel(const KernelAddress& kernel, Address* out) {
  Address address;
  if (kernel.storage.ss_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, &kernel.storage, sizeof in);
    address.v6 = true;
    std::memcpy(address.ip.data(), &in.sin6_addr, 16);
    address.scope = in.sin6_scope_id;
    address.port = ntohs(in.sin6_port);
  } else if (kernel.storage.ss_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &kernel.storage, sizeof in);
    std::memcpy(address.ip.data(), &in.sin_addr, 4);
    address.port = ntohs(in.sin_port);
  } else {
    return false;
  }
  *out = address;
  return true;
}

std::optional<Address> peer_address(int fd) {
  KernelAddress remote;
  remote.length = sizeof remote.storage;
  Address address;
  if (::getpeername(fd, remote.get(), &remote.length) != 0 || !from_kernel(remote, &address)) {
    return std::nullopt;
  }
  return address;
}

}  // namespace hocket::internal
