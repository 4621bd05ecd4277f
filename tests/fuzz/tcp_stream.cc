// A socket to a peer that sends frames with wrong fields, cut anywhere: receiving ends with an
// error that names the peer, and writes nothing outside of the memory of the transfers.
#include <sys/socket.h>

#include <deque>

#include "fuzz/peer_frames.h"
#include "transport/tcp/connection.h"

namespace hocket::internal {
namespace {

FUZZ_TARGET(tcp_stream, input) {
  static constexpr std::size_t sizes[] = {0, 100, 300, 900};
  UnexpectedPool pool;
  CollectiveSequenceCheck check;
  MessageMatcher matcher(1, 0, fuzzed_comm, small_matcher, pool, check);
  std::deque<Posted> recvs;
  const std::size_t piece = 1 + input.byte() * 5;
  for (std::uint32_t index = 0; index < 5; ++index) {
    const MessageKey key{.sequence = 1, .index = index};
    matcher.post_recv(recvs.emplace_back(input.pick(sizes), key).transfer);
  }
  std::vector<std::uint8_t> stream;
  while (input.left() > 0 && stream.size() < 20'000) {
    const FrameHeader header = peer_frame(input);
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&header);
    stream.insert(stream.end(), bytes, bytes + sizeof header);
    stream.resize(stream.size() + std::min<std::size_t>(header.length, 2000), input.byte());
  }
  int ends[2];
  FUZZ_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  UniqueFd peer(ends[0]);
  Connection connection{UniqueFd(ends[1])};
  using State = Connection::State;
  for (std::size_t at = 0; at < stream.size() && !matcher.ended();) {
    const ssize_t sent =
        ::send(peer.get(), &stream[at], std::min(piece, stream.size() - at), MSG_NOSIGNAL);
    if (sent > 0) at += static_cast<std::size_t>(sent);
    connection.receive(matcher);
    if (connection.state() == State::failed) matcher.end(connection.status());
  }
  if (connection.state() == State::failed) {
    FUZZ_CHECK(connection.status().culprit() == 0);
  } else if (!matcher.ended()) {
    peer.reset();
    connection.receive_rest(matcher);
    FUZZ_CHECK(connection.state() == State::closed);
  }
  matcher.end({Code::remote_error, "the link ends", 0});
  connection.release_buffers(matcher, false);
  for (const Posted& recv : recvs) recv.check();
}

}  // namespace
}  // namespace hocket::internal
