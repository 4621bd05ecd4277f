// Addresses: their text, the kernel's form of them, and the choice of one to listen on.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "bootstrap/types.h"

namespace hocket::internal {

struct KernelAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

KernelAddress to_kernel(const Address& address);
/// Returns false if the kernel's address is neither IPv4 nor IPv6.
bool from_kernel(const KernelAddress& kernel, Address* out);

Address loopback(bool v6);
bool is_loopback(const Address& address);
/// fe80::/10: valid only together with an interface.
bool is_link_local(const Address& address);
/// True if ip is an address of this host.
bool is_own(const Address& address);

/// "10.0.0.1:4000", "[::1]:4000", "10.0.0.1", "::1", "fe80::1%eth0": the port is 0 if there is
/// none.
Status parse_address(const std::string& text, Address* out);

/// The address of this host that an interface's name or an address names. prefer_v6 chooses if the
/// interface has addresses of both families.
Status interface_address(const std::string& interface, bool prefer_v6, Address* out);
/// The address of this host from which packets to `to` leave.
Status address_towards(const Address& to, Address* out);
/// The address of the default route, loopback if there is none.
Address default_address();

/// "3, 5-9 and 12", for messages: at most a few runs, then how many more.
std::string ranks_text(const std::vector<int>& ascending);

}  // namespace hocket::internal
