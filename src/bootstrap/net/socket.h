// Sockets. Each is created close-on-exec and non-blocking, and listens on one interface.
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
/// Listens on an abstract Unix socket. *taken: true if another socket of this network namespace has
/// the name.
Status listen_unix(const std::string& name, UniqueFd* out, bool* taken);

/// The other end of a connection: an abstract Unix socket if `unix_name` is given, else TCP.
struct Endpoint {
  std::string unix_name;
  Address tcp;
  bool is_unix() const { return !unix_name.empty(); }
};
/// Starts to connect. `error`: 0 (connected), EINPROGRESS, or the error.
UniqueFd connect_start(const Endpoint& endpoint, int* error);
/// The result of a connect that was in progress: 0 or the error.
int connect_result(int fd);

/// Sets TCP_NODELAY on a data or control connection. This function and set_silence_limit() do
/// nothing on Unix sockets.
void set_no_delay(int fd);
/// Ends the connection when sent bytes are not acknowledged within silence_ms; sends keepalives
/// too. Unacknowledged bytes are sent again every second at least, if the kernel supports that.
void set_silence_limit(int fd, std::int64_t silence_ms);

/// The user at the other end of a Unix socket; -1: unknown.
std::int64_t peer_user(int fd);
/// The address to which a TCP socket is bound.
Status own_address(int fd, Address* out);

/// Sends what fits now; descriptors go with the first byte. Returns the bytes sent, or -1 with
/// errno.
std::int64_t send_some(int fd, const std::uint8_t* data, std::size_t size,
                       const std::vector<int>& fds);
/// Receives what is there; appends descriptors (close-on-exec). Returns 0 if the other end closed.
/// lost_fds: this process had no room for some of the descriptors.
std::int64_t receive_some(int fd, std::uint8_t* data, std::size_t size, std::vector<UniqueFd>* fds,
                          bool* lost_fds);
inline constexpr std::size_t fds_per_message = 128;

}  // namespace hocket::internal
