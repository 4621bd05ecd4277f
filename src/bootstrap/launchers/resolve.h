// Host names and TCP connections, for the time before a rank knows the coordinator.
#pragma once

#include <string>
#include <vector>

#include "base/address.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "bootstrap/launchers/join_wait.h"

namespace hocket::internal {

/// All addresses of a host (a name, or an address as text), without port, in the order in which the
/// system prefers them.
Status resolve_all(const std::string& host, std::vector<Address>* out);
/// The first of them, with a port.
Status resolve(const std::string& host, const std::string& port, Address* out);

/// Connects once; does not try again. The socket blocks.
Status connect_to(const Address& address, const JoinWait& wait, const std::string& doing,
                  UniqueFd* out);

}  // namespace hocket::internal
