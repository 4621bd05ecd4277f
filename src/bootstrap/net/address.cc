#include "bootstrap/net/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>

#include "base/unique_fd.h"

namespace hocket::internal {
namespace {

bool same_ip(const Address& a, const Address& b) { return a.v6 == b.v6 && a.ip == b.ip; }

Address make_v4(std::uint32_t host_order) {
  Address out;
  const std::uint32_t network = htonl(host_order);
  std::memcpy(out.ip.data(), &network, 4);
  return out;
}

/// Calls visit(name, address, flags) for each address of this host until it returns true.
template <typename Visit>
bool any_interface(Visit visit) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* entry = list; entry != nullptr && !found; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    KernelAddress kernel;
    kernel.length = entry->ifa_addr->sa_family == AF_INET6  ? sizeof(sockaddr_in6)
                    : entry->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in)
                                                            : 0;
    if (kernel.length == 0) continue;
    std::memcpy(&kernel.storage, entry->ifa_addr, kernel.length);
    Address address;
    if (from_kernel(kernel, &address)) found = visit(entry->ifa_name, address, entry->ifa_flags);
  }
  ::freeifaddrs(list);
  return found;
}

bool parse_port(std::string_view text, std::uint16_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool parse_ip(std::string text, Address* out) {
  std::uint32_t scope = 0;
  if (const std::size_t percent = text.find('%'); percent != std::string::npos) {
    const std::string zone = text.substr(percent + 1);
    scope = ::if_nametoindex(zone.c_str());
    if (scope == 0) {
      const auto [end, error] = std::from_chars(zone.data(), zone.data() + zone.size(), scope);
      if (error != std::errc() || end != zone.data() + zone.size()) return false;
    }
    text.resize(percent);
  }
  Address address;
  address.scope = scope;
  if (::inet_pton(AF_INET, text.c_str(), address.ip.data()) == 1) {
    *out = address;
    return scope == 0;
  }
  address.ip = {};
  address.v6 = true;
  if (::inet_pton(AF_INET6, text.c_str(), address.ip.data()) != 1) return false;
  *out = address;
  return true;
}

}  // namespace

Address loopback(bool v6) {
  if (!v6) return make_v4(INADDR_LOOPBACK);
  Address out;
  out.v6 = true;
  out.ip[15] = 1;
  return out;
}

bool is_loopback(const Address& address) {
  return address.v6 ? same_ip(address, loopback(true)) : address.ip[0] == 127;
}

bool is_link_local(const Address& address) {
  return address.v6 && address.ip[0] == 0xfe && (address.ip[1] & 0xc0) == 0x80;
}

bool is_own(const Address& address) {
  return is_loopback(address) || any_interface([&](const char*, const Address& own, unsigned) {
           return same_ip(own, address);
         });
}

Status parse_address(const std::string& text, Address* out) {
  const Status bad = invalid_argument(
      fmt::format("\"{}\" is not an address: write 10.0.0.1:4000 or [fe80::1]:4000", text));
  std::string ip = text;
  std::uint16_t port = 0;
  if (!text.empty() && text[0] == '[') {
    const std::size_t close = text.find(']');
    if (close == std::string::npos) return bad;
    ip = text.substr(1, close - 1);
    const std::string rest = text.substr(close + 1);
    if (!rest.empty() && (rest[0] != ':' || !parse_port(rest.substr(1), &port))) return bad;
  } else if (const std::size_t colon = text.find(':');
             colon != std::string::npos && text.find(':', colon + 1) == std::string::npos) {
    ip = text.substr(0, colon);
    if (!parse_port(text.substr(colon + 1), &port)) return bad;
  }
  if (!parse_ip(ip, out)) return bad;
  out->port = port;
  return {};
}

Status interface_address(const std::string& interface, bool prefer_v6, Address* out) {
  if (Address literal; parse_ip(interface, &literal)) {
    if (!is_own(literal)) {
      return invalid_argument(
          fmt::format("interface \"{}\": no interface of this host has that address", interface));
    }
    *out = literal;
    return {};
  }
  bool exists = false;
  int best = 0;
  any_interface([&](const char* name, const Address& address, unsigned) {
    if (interface != name) return false;
    exists = true;
    const int worth = is_link_local(address) ? 1 : address.v6 == prefer_v6 ? 3 : 2;
    if (worth > best) {
      best = worth;
      *out = address;
    }
    return false;
  });
  if (best > 0) {
    out->port = 0;
    return {};
  }
  std::string known;
  any_interface([&](const char* name, const Address&, unsigned) {
    if (known.find(name) == std::string::npos)
      known += (known.empty() ? "" : ", ") + std::string(name);
    return false;
  });
  return invalid_argument(exists || ::if_nametoindex(interface.c_str()) != 0
                              ? fmt::format("interface \"{}\" has no IP address", interface)
                              : fmt::format("interface \"{}\" does not exist on this host; those "
                                            "with an address are: {}",
                                            interface, known));
}

Status address_towards(const Address& to, Address* out) {
  // Connecting a datagram socket asks the routing table and sends nothing.
  UniqueFd fd(::socket(to.v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("socket");
  Address target = to;
  if (target.port == 0) target.port = 9;
  const KernelAddress remote = to_kernel(target);
  if (::connect(fd.get(), remote.get(), remote.length) != 0) {
    return system_error("no route to " + to.text());
  }
  KernelAddress local;
  local.length = sizeof local.storage;
  if (::getsockname(fd.get(), local.get(), &local.length) != 0) return system_error("getsockname");
  if (!from_kernel(local, out)) return internal_error("getsockname gave no IP address");
  out->port = 0;
  return {};
}

Address default_address() {
  Address far = make_v4(0xc0000201);  // 192.0.2.1, reserved for documentation: the default route's
  Address out;
  if (address_towards(far, &out).ok()) return out;
  far = {};
  far.v6 = true;
  far.ip = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  if (address_towards(far, &out).ok()) return out;
  return loopback(false);
}

bool first_outward_address(Address* out) {
  for (const bool v6 : {false, true}) {
    const bool found = any_interface([&](const char*, const Address& address, unsigned flags) {
      if (address.v6 != v6 || (flags & IFF_UP) == 0 || is_loopback(address) ||
          is_link_local(address)) {
        return false;
      }
      *out = address;
      return true;
    });
    if (found) return true;
  }
  return false;
}

}  // namespace hocket::internal
