// The listening socket at which the ranks of a job join, on the host of rank 0.
#pragma once

#include "base/status.h"
#include "base/unique_fd.h"
#include "bootstrap/session.h"
#include "message.h"

namespace hocket::internal::launch {

/// Listens on an address of this host: that of the requested interface; 127.0.0.1 if all ranks run
/// on this host; else the first candidate that is an address of this host and no loopback; else the
/// address from which this host routes to the others. It does not use the address to which the
/// host's own name resolves, which is 127.0.1.1 on many machines.
Status listen_for_coordinator(const ListenRequest& request, UniqueFd* listener, Address* address);

/// True if the text is an address of this host, or a name that resolves to one.
bool is_this_host(const std::string& name);

}  // namespace hocket::internal::launch
