#include "root_listener.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>

namespace hocket::launch {
namespace {

struct Endpoint {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Endpoint endpoint_of(const sockaddr* address) {
  Endpoint endpoint;
  endpoint.size = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&endpoint.storage, address, endpoint.size);
  return endpoint;
}

void set_port(Endpoint* endpoint, std::uint16_t port) {
  // The port lies at the same place for both families.
  reinterpret_cast<sockaddr_in*>(&endpoint->storage)->sin_port = htons(port);
}

bool is_loopback(const Endpoint& endpoint) {
  if (endpoint.storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&endpoint.storage);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&endpoint.storage);
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

std::vector<Endpoint> resolve(const std::string& name, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  std::vector<Endpoint> endpoints;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return endpoints;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6) {
      endpoints.push_back(endpoint_of(entry->ai_addr));
    }
  }
  ::freeaddrinfo(found);
  return endpoints;
}

bool can_bind(Endpoint endpoint) {
  const UniqueFd fd(::socket(endpoint.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  set_port(&endpoint, 0);
  return fd && ::bind(fd.get(), endpoint.get(), endpoint.size) == 0;
}

/// The address that the kernel would give a packet to there. Nothing is sent.
std::optional<Endpoint> local_address_towards(Endpoint remote) {
  set_port(&remote, 9);
  const UniqueFd fd(::socket(remote.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  Endpoint local;
  local.size = sizeof local.storage;
  if (!fd || ::connect(fd.get(), remote.get(), remote.size) != 0 ||
      ::getsockname(fd.get(), local.get(), &local.size) != 0) {
    return std::nullopt;
  }
  return local;
}

/// How much an interface's address is worth: IPv4, then IPv6 that routes, then link-local.
int preference(const sockaddr* address) {
  if (address == nullptr) return 0;
  if (address->sa_family == AF_INET) return 3;
  if (address->sa_family != AF_INET6) return 0;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr) ? 1 : 2;
}

Status address_of_interface(const std::string& name, Endpoint* endpoint) {
  const std::vector<Endpoint> literal = resolve(name, AI_NUMERICHOST);
  if (!literal.empty()) {
    *endpoint = literal.front();
    if (can_bind(*endpoint)) return {};
    return invalid_argument("the interface " + name + " is not an address of this host");
  }
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return system_error("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  int best = 0;
  std::string names;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const std::string own = entry->ifa_name;
    if ((", " + names + ",").find(", " + own + ",") == std::string::npos) {
      names += (names.empty() ? "" : ", ") + own;
    }
    if (own != name || preference(entry->ifa_addr) <= best) continue;
    best = preference(entry->ifa_addr);
    *endpoint = endpoint_of(entry->ifa_addr);
  }
  if (best != 0) return {};
  return invalid_argument("the interface " + name +
                          " does not exist here or has no address; this host has " + names);
}

Status choose(const ListenRequest& request, Endpoint* endpoint) {
  if (!request.interface.empty()) return address_of_interface(request.interface, endpoint);
  if (request.local_only) {
    *endpoint = resolve("127.0.0.1", AI_NUMERICHOST).front();
    return {};
  }
  for (const std::string& candidate : request.candidates) {
    for (const Endpoint& own : resolve(candidate, AI_NUMERICHOST)) {
      if (is_loopback(own) || !can_bind(own)) continue;
      *endpoint = own;
      return {};
    }
  }
  for (const std::string& host : request.route_to) {
    for (const Endpoint& remote : resolve(host, 0)) {
      const std::optional<Endpoint> own = local_address_towards(remote);
      if (!own || is_loopback(*own)) continue;
      *endpoint = *own;
      return {};
    }
  }
  return invalid_argument(
      "cannot tell which address of this host the other hosts reach; name its interface with "
      "--interface or HOCKET_INTERFACE");
}

Address to_address(const Endpoint& endpoint) {
  Address address;
  if (endpoint.storage.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&endpoint.storage);
    std::memcpy(address.ip.data(), &v6->sin6_addr, 16);
    address.v6 = true;
    address.scope = v6->sin6_scope_id;
    address.port = ntohs(v6->sin6_port);
  } else {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&endpoint.storage);
    std::memcpy(address.ip.data(), &v4->sin_addr, 4);
    address.port = ntohs(v4->sin_port);
  }
  return address;
}

}  // namespace

Status listen_for_root(const ListenRequest& request, UniqueFd* listener, Address* address) {
  Endpoint endpoint;
  HOCKET_RETURN_IF_ERROR(choose(request, &endpoint));
  set_port(&endpoint, 0);
  UniqueFd fd(::socket(endpoint.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("cannot make the root's socket");
  if (::bind(fd.get(), endpoint.get(), endpoint.size) != 0) {
    return system_error("cannot bind the root's socket");
  }
  if (::listen(fd.get(), SOMAXCONN) != 0) return system_error("cannot listen for the ranks");
  if (::getsockname(fd.get(), endpoint.get(), &endpoint.size) != 0) {
    return system_error("cannot learn the root's address");
  }
  *address = to_address(endpoint);
  *listener = std::move(fd);
  return {};
}

bool is_this_host(const std::string& name) {
  if (name == "localhost") return true;
  char own[256] = {};
  if (::gethostname(own, sizeof own - 1) == 0 && name == own) return true;
  for (const Endpoint& endpoint : resolve(name, 0)) {
    if (can_bind(endpoint)) return true;
  }
  return false;
}

}  // namespace hocket::launch
