// The frames of a control connection: whatever arrives in whatever pieces, the messages that are
// delivered are those that were sent, and a frame beyond the limits closes the connection.
#include "bootstrap/net/control_connection.h"

#include <sys/socket.h>

#include "bootstrap/simulated_loop.h"
#include "fuzz/fuzz.h"

namespace hocket::internal {
namespace {

constexpr std::size_t body_limit = 300;

FUZZ_TARGET(control_connection, input) {
  const std::size_t piece = 1 + input.byte();
  const std::vector<std::uint8_t> stream = input.vector();
  int ends[2];
  FUZZ_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  UniqueFd peer(ends[0]);
  Nanos clock = nanos_per_s;
  testing::SimulatedLoop loop(clock);
  std::vector<std::uint8_t> delivered;  // encoded again
  int closed = -1;
  const auto connection = ControlConnection::open(
      loop, UniqueFd(ends[1]), body_limit,
      [&](Message& message) {
        FUZZ_CHECK(message.body.size() <= body_limit && message.fds.empty());
        Writer frame;
        frame.u32(static_cast<std::uint32_t>(message.body.size()));
        frame.u16(static_cast<std::uint16_t>(message.type));
        frame.u16(0);
        frame.raw(message.body.data(), message.body.size());
        delivered.insert(delivered.end(), frame.bytes().begin(), frame.bytes().end());
      },
      [&](int error) { closed = error; });
  for (std::size_t at = 0; at < stream.size() && closed < 0;) {
    const ssize_t sent = ::send(peer.get(), &stream[at], std::min(piece, stream.size() - at),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) at += static_cast<std::size_t>(sent);
    while (loop.step()) continue;
  }
  FUZZ_CHECK(delivered.size() <= stream.size());
  FUZZ_CHECK(std::equal(delivered.begin(), delivered.end(), stream.begin()));
  if (closed < 0) {
    // What is left is the begin of a message.
    Reader rest(stream.data() + delivered.size(), stream.size() - delivered.size());
    FUZZ_CHECK(rest.left() < 8 || rest.u32() + 8 > rest.left() + 4);
    peer.reset();
    while (loop.step()) continue;
    FUZZ_CHECK(closed == 0);
  } else {
    FUZZ_CHECK(closed == EPROTO);
  }
}

}  // namespace
}  // namespace hocket::internal
