// The addresses of this host, and the choice of an address to listen on.
#pragma once

#include <string>

#include "base/address.h"
#include "base/status.h"

namespace hocket::internal {

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
/// The first address of this host that other hosts may reach: of an interface that is up, neither
/// loopback nor link-local, IPv4 before IPv6. False if there is none.
bool first_outward_address(Address* out);

}  // namespace hocket::internal
