#include "tcp_floor.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "reduce/fold.h"
#include "tcp_links.h"

namespace hocket::peers {
namespace {

// Under BBR, longer calls are slower (docs/decisions/016).
constexpr std::size_t longest_write = 96 << 10, longest_read = 64 << 10;

int connection = -1;
int me = -1;
std::vector<float> arrived;  // operands of the peer

/// Bytes that go over the connection in one direction.
struct Stream {
  std::byte* data = nullptr;
  std::size_t bytes = 0, moved = 0;
  bool done() const { return moved == bytes; }
};
Stream stream_of(const float* data, std::size_t elements) {
  return {reinterpret_cast<std::byte*>(const_cast<float*>(data)), elements * sizeof(float)};
}

bool go_on(ssize_t moved, Stream* stream) {
  if (moved > 0) stream->moved += static_cast<std::size_t>(moved);
  return moved > 0 || (moved < 0 && (errno == EAGAIN || errno == EINTR));
}
/// Sends at most up to `end` bytes of the stream.
bool send_some(Stream* stream, std::size_t end) {
  if (stream->moved >= end) return true;
  const std::size_t bytes = std::min(end - stream->moved, longest_write);
  return go_on(::send(connection, stream->data + stream->moved, bytes, MSG_NOSIGNAL), stream);
}
bool receive_some(Stream* stream) {
  if (stream->done()) return true;
  const std::size_t bytes = std::min(stream->bytes - stream->moved, longest_read);
  return go_on(::recv(connection, stream->data + stream->moved, bytes, 0), stream);
}

/// to[i] = mine[i] + the i-th operand that has arrived.
void add(const float* mine, float* to, std::size_t first, std::size_t end) {
  if (first == end) return;
  const internal::FoldSource sources[] = {{mine + first, false}, {arrived.data() + first, false}};
  void* destination = to + first;
  internal::Fold run;
  run.srcs = sources;
  run.src_count = 2;
  run.dsts = &destination;
  run.dst_count = 1;
  run.count = end - first;
  internal::fold(run);
}

bool exchange(Stream out, Stream in) {
  while (!out.done() || !in.done()) {
    if (!send_some(&out, out.bytes) || !receive_some(&in)) return false;
  }
  return true;
}

/// Sends `out`, and adds the operands of the peer to those of this rank as they arrive.
bool exchange_and_add(Stream out, const float* mine, float* to, std::size_t elements) {
  Stream in = stream_of(arrived.data(), elements);
  for (std::size_t added = 0; !out.done() || added < elements;) {
    if (!send_some(&out, out.bytes) || !receive_some(&in)) return false;
    const std::size_t here = in.moved / sizeof(float);
    add(mine, to, added, here);
    added = here;
  }
  return true;
}

/// Each rank adds up half of the elements, and sends the sums as they are made.
bool add_halves(const Call& call) {
  const std::size_t half = call.count / 2, other = call.count - half;
  const std::size_t mine = me == 0 ? half : other, theirs = call.count - mine;
  const std::size_t own = me == 0 ? 0 : half, peers = me == 0 ? half : 0;
  Stream operands = stream_of(call.in + peers, theirs), sums = stream_of(call.out + own, mine);
  Stream in = stream_of(arrived.data(), mine), results = stream_of(call.out + peers, theirs);
  for (std::size_t added = 0; !sums.done() || !results.done();) {
    const bool sent = operands.done() ? send_some(&sums, added * sizeof(float))
                                      : send_some(&operands, operands.bytes);
    if (!sent || !receive_some(in.done() ? &results : &in)) return false;
    const std::size_t here = in.moved / sizeof(float);
    add(call.in + own, call.out + own, added, here);
    added = here;
  }
  return true;
}

bool run(const Call& call, bool whole) {
  using enum Collective;
  const std::size_t n = call.count;
  const std::size_t mine = me * n, theirs = (1 - me) * n;
  const Stream nothing;
  if (arrived.size() < n) arrived.resize(n);
  switch (call.collective) {
    case broadcast:
      return me == 0 ? exchange(stream_of(call.out, n), nothing)
                     : exchange(nothing, stream_of(call.out, n));
    case all_gather:
      std::memcpy(call.out + mine, call.in, n * sizeof(float));
      return exchange(stream_of(call.in, n), stream_of(call.out + theirs, n));
    case alltoall:
      std::memcpy(call.out + mine, call.in + mine, n * sizeof(float));
      return exchange(stream_of(call.in + theirs, n), stream_of(call.out + theirs, n));
    case gather:
      if (me != 0) return exchange(stream_of(call.in, n), nothing);
      std::memcpy(call.out, call.in, n * sizeof(float));
      return exchange(nothing, stream_of(call.out + n, n));
    case scatter:
      if (me != 0) return exchange(nothing, stream_of(call.out, n));
      std::memcpy(call.out, call.in, n * sizeof(float));
      return exchange(stream_of(call.in + n, n), nothing);
    case reduce:
      if (me != 0) return exchange(stream_of(call.in, n), nothing);
      return exchange_and_add(nothing, call.in, call.out, n);
    case reduce_scatter:
      return exchange_and_add(stream_of(call.in + theirs, n), call.in + mine, call.out, n);
    case all_reduce:
      return whole ? exchange_and_add(stream_of(call.in, n), call.in, call.out, n)
                   : add_halves(call);
    default: {
      float byte = 0, got = 0;
      return exchange(stream_of(&byte, 1), stream_of(&got, 1));
    }
  }
}

}  // namespace

bool tcp_floor_start(int rank, int ranks, const std::string& meeting_file, std::string* error) {
  std::vector<int> links;
  *error = "over TCP it has two ranks";
  if (ranks != 2 || !connect_ranks(rank, ranks, meeting_file, &links, error)) return false;
  me = rank;
  connection = links[static_cast<std::size_t>(1 - rank)];
  return true;
}

bool tcp_floor_run(const Call& call, bool whole, std::string* error) {
  if (run(call, whole)) return true;
  *error = std::string("the connection: ") + std::strerror(errno);
  return false;
}

}  // namespace hocket::peers
