#include "levels_floor.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "floor_node.h"
#include "staged_floor.h"
#include "tcp_links.h"

namespace hocket::peers {
namespace {

// Under BBR, longer calls are slower (docs/decisions/016).
constexpr std::size_t longest_write = 96 << 10, longest_read = 64 << 10;
constexpr std::size_t short_bytes = 4096;  // each rank exchanges so short an all-reduce as a whole

/// What goes over the connection in one direction, in the order in which it was added.
class Stream {
 public:
  void clear() { *this = {}; }
  void add(const float* data, std::size_t elements) {
    if (elements == 0) return;
    const std::size_t begin = total_;
    total_ += elements * sizeof(float);
    parts_.push_back({reinterpret_cast<std::byte*>(const_cast<float*>(data)), begin, total_});
  }
  bool idle() const { return moved_ == total_; }
  std::size_t moved() const { return moved_; }
  std::size_t total() const { return total_; }
  /// The rest of the part that moves next.
  std::byte* data() const { return parts_[at_].data + (moved_ - parts_[at_].begin); }
  std::size_t bytes() const { return parts_[at_].end - moved_; }
  void move(std::size_t bytes) {
    moved_ += bytes;
    if (moved_ == parts_[at_].end) ++at_;
  }

 private:
  struct Part {
    std::byte* data;
    std::size_t begin, end;
  };
  std::vector<Part> parts_;
  std::size_t at_ = 0, moved_ = 0, total_ = 0;
};

int connection = -1;
int host = -1, place = -1, per_host = 0, all = 0;
bool sleeps = false, connected = true;
Stream out, in;
// The sums of this host, the sums of the other host, and the inputs of this host added up.
std::vector<float> sums, others, blocks;

bool go_on(ssize_t bytes, Stream* stream, bool* moved) {
  if (bytes > 0) stream->move(static_cast<std::size_t>(bytes));
  *moved |= bytes > 0;
  return bytes > 0 || (bytes < 0 && (errno == EAGAIN || errno == EINTR));
}
bool move_some() {
  bool moved = false;
  if (!out.idle()) {
    const std::size_t most = std::min(out.bytes(), longest_write);
    connected &= go_on(::send(connection, out.data(), most, MSG_NOSIGNAL), &out, &moved);
  }
  if (!in.idle()) {
    const std::size_t most = std::min(in.bytes(), longest_read);
    connected &= go_on(::recv(connection, in.data(), most, 0), &in, &moved);
  }
  return moved;
}
/// Waits until so many bytes of the stream have moved in this call.
void await(const Stream& stream, std::size_t bytes) {
  while (stream.moved() < bytes && connected) {
    if (move_some()) continue;
    if (!sleeps) {
      ::sched_yield();
      continue;
    }
    const int wanted = (in.idle() ? 0 : POLLIN) | (out.idle() ? 0 : POLLOUT);
    pollfd waits{connection, static_cast<short>(wanted), 0};
    ::poll(&waits, 1, -1);
  }
}

void add(const float* one, const float* other, float* to, std::size_t elements) {
  const void* const from[] = {one, other};
  void* into = to;
  fold(from, 2, &into, 1, elements, node.stores);
}

/// Elements of each segment, a whole number of cache lines.
std::size_t segment() { return std::max<std::size_t>(node.piece_bytes / sizeof(float), 32); }

/// A collective among the ranks of this host whose block b begins at first + b * stride.
void run_here(Collective collective, const float* from, float* to, std::size_t first,
              std::size_t stride, std::size_t elements) {
  static Call call;
  call.collective = collective;
  call.in = const_cast<float*>(from);
  call.out = to;
  call.varying = true;
  call.count = call.longest = elements;
  call.blocks.counts.assign(static_cast<std::size_t>(per_host), elements);
  call.blocks.starts.clear();
  for (int b = 0; b < per_host; ++b) {
    call.blocks.starts.push_back(first + static_cast<std::size_t>(b) * stride);
  }
  staged_floor_run(call);
}
void run_here(Collective collective, const float* from, float* to, std::size_t elements) {
  run_here(collective, from, to, 0, elements, elements);
}

/// Each rank adds up `elements` of the inputs of its host, block b of which begins at first + b *
/// stride, and exchanges the sums with the other host in segments. finish(at, count)
/// awaits the other host's sums of a segment and uses them, after the next segment is added up.
void exchange_sums(const Call& call, std::size_t first, std::size_t stride, std::size_t elements,
                   const auto& finish) {
  const std::size_t each = segment();
  const auto finish_segment = [&](std::size_t at) { finish(at, std::min(each, elements - at)); };
  for (std::size_t at = 0; at < elements; at += each) {
    const std::size_t count = std::min(each, elements - at);
    run_here(Collective::reduce_scatter, call.in, sums.data() + at, first + at, stride, count);
    out.add(sums.data() + at, count);
    in.add(others.data() + at, count);
    move_some();
    if (at > 0) finish_segment(at - each);
  }
  if (elements > 0) finish_segment((elements - 1) / each * each);
}

/// The ranks of a host add up a part of a long message each, exchange the sums with the other host
/// and share the results.
void all_reduce(const Call& call) {
  const std::size_t n = call.count, locals = static_cast<std::size_t>(per_host), part = n / locals;
  if (n * sizeof(float) <= short_bytes || n % locals != 0) {
    run_here(Collective::all_reduce, call.in, sums.data(), n);
    out.add(sums.data(), n);
    in.add(others.data(), n);
    await(in, in.total());
    add(sums.data(), others.data(), call.out, n);
    return;
  }
  exchange_sums(call, 0, part, part, [&](std::size_t at, std::size_t count) {
    const std::size_t own = static_cast<std::size_t>(place) * part + at;
    await(in, (at + count) * sizeof(float));
    add(sums.data() + at, others.data() + at, call.out + own, count);
    run_here(Collective::all_gather, call.out + own, call.out, at, part, count);
  });
}

void all_gather(const Call& call) {
  using enum Collective;
  const std::size_t n = call.count, each = segment(), half = static_cast<std::size_t>(per_host) * n;
  const std::size_t here = static_cast<std::size_t>(host) * half;
  const std::size_t there = half - here;
  const std::size_t came = there + static_cast<std::size_t>(place) * n;
  out.add(call.in, n);
  in.add(call.out + came, n);
  move_some();
  run_here(all_gather, call.in, call.out, here, n, n);
  for (std::size_t at = 0; at < n; at += each) {
    const std::size_t count = std::min(each, n - at);
    await(in, (at + count) * sizeof(float));
    run_here(all_gather, call.out + came + at, call.out, there + at, n, count);
  }
}

void reduce_scatter(const Call& call) {
  const std::size_t n = call.count, half = static_cast<std::size_t>(per_host) * n;
  const std::size_t here = static_cast<std::size_t>(host) * half;
  exchange_sums(call, half - here, n, n, [&](std::size_t at, std::size_t count) {
    run_here(Collective::reduce_scatter, call.in, call.out + at, here + at, n, count);
    await(in, (at + count) * sizeof(float));
    add(call.out + at, others.data() + at, call.out + at, count);
  });
}

/// Between the first ranks of the hosts, and from them to the others.
void broadcast(const Call& call) {
  const std::size_t n = call.count, each = segment();
  if (place == 0) (host == 0 ? out : in).add(call.out, n);
  move_some();
  for (std::size_t at = 0; at < n; at += each) {
    const std::size_t count = std::min(each, n - at);
    if (place == 0 && host == 1) await(in, (at + count) * sizeof(float));
    run_here(Collective::broadcast, call.out + at, call.out + at, count);
    move_some();
  }
}

// ---- By the first rank of each host alone

/// Both hosts' first ranks send `mine` and receive `theirs`.
void exchange(const float* mine, float* theirs, std::size_t elements) {
  if (place != 0) return;
  out.add(mine, elements);
  in.add(theirs, elements);
  await(in, in.total());
}

void run_by_leaders(const Call& call) {
  using enum Collective;
  const std::size_t n = call.count, half = static_cast<std::size_t>(per_host) * n;
  const std::size_t here = static_cast<std::size_t>(host) * half;
  switch (call.collective) {
    case all_reduce:
      run_here(reduce, call.in, sums.data(), n);
      exchange(sums.data(), others.data(), n);
      if (place == 0) add(sums.data(), others.data(), call.out, n);
      run_here(broadcast, call.out, call.out, n);
      return;
    case all_gather:
      run_here(gather, call.in, call.out + here, n);
      exchange(call.out + here, call.out + half - here, half);
      run_here(broadcast, call.out, call.out, 2 * half);
      return;
    default:  // reduce-scatter
      run_here(reduce, call.in, blocks.data(), 2 * half);
      exchange(blocks.data() + half - here, others.data(), half);
      if (place == 0) add(blocks.data() + here, others.data(), sums.data(), half);
      run_here(scatter, sums.data(), call.out, n);
  }
}

bool run(const Call& call, bool leaders) {
  switch (call.collective) {
    case Collective::broadcast:
      peers::broadcast(call);
      return true;
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::reduce_scatter:
      if (leaders) {
        run_by_leaders(call);
      } else if (call.collective == Collective::all_reduce) {
        peers::all_reduce(call);
      } else if (call.collective == Collective::all_gather) {
        peers::all_gather(call);
      } else {
        peers::reduce_scatter(call);
      }
      return true;
    default:
      return false;
  }
}

}  // namespace

bool levels_floor_start(int rank, int ranks, const std::string& meeting_file, std::string* error) {
  *error = "it needs an even number of ranks";
  if (ranks < 2 || ranks % 2 != 0) return false;
  const char* const wait = std::getenv("FLOOR_WAIT");
  sleeps = wait != nullptr && std::string_view(wait) == "sleep";
  per_host = ranks / 2;
  all = ranks;
  host = rank / per_host;
  place = rank % per_host;
  std::vector<int> links;
  if (!node_start(place, per_host, meeting_file + ".host" + std::to_string(host), error) ||
      !connect_ranks(rank, ranks, meeting_file, &links, error)) {
    return false;
  }
  node.crowded = true;  // the hosts of the tests share the cores of a machine
  node.progress = [] { move_some(); };
  connection = links[static_cast<std::size_t>((1 - host) * per_host + place)];
  return true;
}

bool levels_floor_run(const Call& call, bool leaders, std::string* error) {
  const std::size_t most = call.count * static_cast<std::size_t>(all);
  if (others.size() < most) {
    sums.resize(most);
    others.resize(most);
    blocks.resize(most);
  }
  out.clear();
  in.clear();
  *error = "it has no such collective";
  if (call.varying || !run(call, leaders)) return false;
  await(out, out.total());
  if (connected) return true;
  *error = std::string("a connection between the hosts: ") + std::strerror(errno);
  return false;
}

}  // namespace hocket::peers
