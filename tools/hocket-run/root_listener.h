// The socket at which the ranks of a job meet, made where rank 0 will run.
#pragma once

#include "base/status.h"
#include "base/unique_fd.h"
#include "bootstrap/session.h"
#include "message.h"

namespace hocket::internal::launch {

/// Listens on one address of this host: the interface that was asked for; 127.0.0.1 where all
/// ranks are here; else the first candidate that is this host's own and no loopback; else the
/// address from which the other hosts are reached. Never on what the host's own name resolves to,
/// which is 127.0.1.1 on many machines.
Status listen_for_root(const ListenRequest& request, UniqueFd* listener, Address* address);

/// True if the text is an address of this host, or a name that resolves to one.
bool is_this_host(const std::string& name);

}  // namespace hocket::internal::launch
