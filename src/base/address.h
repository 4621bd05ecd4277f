// IPv4 and IPv6 endpoints: their text, and the kernel's form of them.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace hocket::internal {

struct Address {
  std::array<std::uint8_t, 16> ip{};  // IPv4: the first 4 bytes
  bool v6 = false;
  std::uint32_t scope = 0;  // IPv6 link-local interface index on the dialling side; 0: none
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
  std::string text() const;  // "10.0.0.1:4000", "[fe80::1]:4000"
};

struct KernelAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

KernelAddress to_kernel(const Address& address);
/// Returns false if the kernel's address is neither IPv4 nor IPv6.
bool from_kernel(const KernelAddress& kernel, Address* out);

/// The address of the other end of a connection; empty if it is not a TCP connection, or is no
/// longer connected.
std::optional<Address> peer_address(int fd);

}  // namespace hocket::internal
