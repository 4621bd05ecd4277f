#include "coordinator_listener.h"

#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "bootstrap/net/address.h"
#include "bootstrap/net/socket.h"

namespace hocket::internal::launch {
namespace {

std::vector<Address> resolve(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<Address> addresses;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    KernelAddress kernel;
    kernel.length = entry->ai_addrlen;
    std::memcpy(&kernel.storage, entry->ai_addr, entry->ai_addrlen);
    if (Address address; from_kernel(kernel, &address)) addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return addresses;
}

Status choose(const ListenRequest& request, Address* address) {
  if (!request.interface.empty()) return interface_address(request.interface, false, address);
  *address = loopback(false);
  if (request.local_only) return {};
  for (const std::string& candidate : request.candidates) {
    if (!parse_address(candidate, address).ok()) continue;
    if (!is_loopback(*address) && is_own(*address)) return {};
  }
  for (const std::string& host : request.route_to) {
    for (const Address& remote : resolve(host)) {
      if (address_towards(remote, address).ok() && !is_loopback(*address)) return {};
    }
  }
  return invalid_argument(
      "cannot find an address of this host that the other hosts can reach; name its interface with "
      "--interface or HOCKET_INTERFACE");
}

}  // namespace

Status listen_for_coordinator(const ListenRequest& request, UniqueFd* listener, Address* address) {
  HOCKET_RETURN_IF_ERROR(choose(request, address));
  address->port = 0;
  return listen_tcp(address, listener);
}

bool is_this_host(const std::string& name) {
  if (name == "localhost") return true;
  char own[256] = {};
  if (::gethostname(own, sizeof own - 1) == 0 && name == own) return true;
  return std::ranges::any_of(resolve(name), is_own);
}

}  // namespace hocket::internal::launch
