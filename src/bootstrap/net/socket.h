// Sockets: close-on-exec and non-blocking from birth, one interface each.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "bootstrap/types.h"

namespace hocket::internal {

/// Listens on address (port 0: any) and fills in the port.
Status listen_tcp(Address* address, UniqueFd* out);
/// Listens on an abstract Unix socket; `taken` where another socket of this network namespace has
/// the name.
Status listen_unix(const std::string& name, UniqueFd* out, bool* taken);

/// Where a connection goes: an abstract Unix socket where `unix_name` is given, else TCP.
struct Endpoint {
  std::string unix_name;
  Address tcp;
  bool is_unix() const { return !unix_name.empty(); }
};
/// Starts to connect. `error`: 0 connected, EINPROGRESS, or why not.
UniqueFd connect_start(const Endpoint& endpoint, int* error);
/// How a connect that was in progress has ended: 0 or the error.
int connect_result(int fd);

/// For a data or control connection: no delay; both fail silently on Unix sockets.
void set_no_delay(int fd);
/// Ends the connection when sent bytes stay unanswered so long; sends keepalives too. While they
/// stay unanswered they are sent again every second at least, where the kernel can do that.
void set_silence_limit(int fd, std::int64_t silence_ms);

/// The user at the other end of a Unix socket; -1 where unknown.
std::int64_t peer_user(int fd);
/// The other end's address as text, for messages.
std::string peer_text(int fd);
Status own_address(int fd, Address* out);

/// Sends what fits now; descriptors go with the first byte. Bytes sent, or -1 with errno.
std::int64_t send_some(int fd, const std::uint8_t* data, std::size_t size,
                       const std::vector<int>& fds);
/// Receives what is there; descriptors (close-on-exec) are appended. 0: the other end closed.
/// lost_fds: there came descriptors for which this process has no room.
std::int64_t receive_some(int fd, std::uint8_t* data, std::size_t size, std::vector<UniqueFd>* fds,
                          bool* lost_fds);
inline constexpr std::size_t fds_per_message = 128;

}  // namespace hocket::internal
