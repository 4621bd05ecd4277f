#include "tcp_messages_floor.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "tcp_links.h"

namespace hocket::peers {
namespace {

int me = -1, ranks = 0;
Shape shape = Shape::flat;
bool sleeps = false;
std::vector<int> links;             // by rank
std::vector<float> staged, others;  // blocks of other ranks; operands

/// A message that moves to or from a rank.
struct Message {
  int peer;
  std::byte* data;
  std::size_t bytes;
};
Message message(int peer, const float* data, std::size_t elements) {
  return {peer, reinterpret_cast<std::byte*>(const_cast<float*>(data)), elements * sizeof(float)};
}

enum class Way { send, receive };

/// Moves what can move now. Returns false if the connection has ended.
bool move_some(Message* part, Way way, bool* moved) {
  if (part->bytes == 0) return true;
  const int link = links[static_cast<std::size_t>(part->peer)];
  const ssize_t bytes = way == Way::send ? ::send(link, part->data, part->bytes, MSG_NOSIGNAL)
                                         : ::recv(link, part->data, part->bytes, 0);
  if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) return false;
  if (bytes < 0) return true;
  part->data += bytes;
  part->bytes -= static_cast<std::size_t>(bytes);
  *moved = true;
  return true;
}

void wait(std::span<const Message> out, std::span<const Message> in) {
  if (!sleeps) {
    ::sched_yield();
    return;
  }
  std::vector<pollfd> waits;
  for (const Message& part : out) {
    if (part.bytes > 0) waits.push_back({links[static_cast<std::size_t>(part.peer)], POLLOUT, 0});
  }
  for (const Message& part : in) {
    if (part.bytes > 0) waits.push_back({links[static_cast<std::size_t>(part.peer)], POLLIN, 0});
  }
  ::poll(waits.data(), waits.size(), -1);
}

/// Sends and receives all messages.
bool exchange(std::span<Message> out, std::span<Message> in) {
  const auto left = [](const Message& part) { return part.bytes > 0; };
  while (std::ranges::any_of(out, left) || std::ranges::any_of(in, left)) {
    bool moved = false;
    for (Message& part : out) {
      if (!move_some(&part, Way::send, &moved)) return false;
    }
    for (Message& part : in) {
      if (!move_some(&part, Way::receive, &moved)) return false;
    }
    if (!moved) wait(out, in);
  }
  return true;
}
bool exchange(int peer, const float* out, std::size_t sent, float* in, std::size_t received) {
  Message to = message(peer, out, sent), from = message(peer, in, received);
  return exchange({&to, 1}, {&from, 1});
}
bool send(int peer, const float* data, std::size_t elements) {
  return exchange(peer, data, elements, nullptr, 0);
}
bool receive(int peer, float* data, std::size_t elements) {
  return exchange(peer, nullptr, 0, data, elements);
}

void copy(float* to, const float* from, std::size_t elements) {
  if (to != from) std::memcpy(to, from, elements * sizeof(float));
}
void add(float* to, const float* from, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) to[i] += from[i];
}

/// The ranks whose blocks pass through a rank in a tree with the root 0: so many, from the rank on.
int below(int rank) { return rank == 0 ? ranks : rank & -rank; }
int parent_of(int rank) { return shape == Shape::flat ? 0 : rank & (rank - 1); }
/// Those with the most ranks below them first.
std::vector<int> children_of(int rank) {
  std::vector<int> found;
  if (shape == Shape::flat) {
    for (int child = 1; rank == 0 && child < ranks; ++child) found.push_back(child);
    return found;
  }
  for (int step = below(rank) / 2; step > 0; step /= 2) found.push_back(rank + step);
  return found;
}
std::size_t blocks_below(int rank) {
  return shape == Shape::flat ? 1 : static_cast<std::size_t>(below(rank));
}

bool broadcast(float* data, std::size_t n) {
  if (me != 0 && !receive(parent_of(me), data, n)) return false;
  std::vector<Message> out;
  for (const int child : children_of(me)) out.push_back(message(child, data, n));
  return exchange(out, {});
}

bool scatter(const Call& call) {
  const std::size_t n = call.count;
  const float* blocks = call.in;
  if (me != 0) {
    float* const to = blocks_below(me) == 1 ? call.out : staged.data();
    if (!receive(parent_of(me), to, n * blocks_below(me))) return false;
    blocks = to;
  }
  std::vector<Message> out;
  for (const int child : children_of(me)) {
    const auto first = static_cast<std::size_t>(child - me);
    out.push_back(message(child, blocks + first * n, n * blocks_below(child)));
  }
  if (!exchange(out, {})) return false;
  copy(call.out, blocks, n);
  return true;
}

bool gather(const Call& call) {
  const std::size_t n = call.count;
  float* const blocks = me == 0 ? call.out : staged.data();
  std::vector<Message> in;
  for (const int child : children_of(me)) {
    const auto first = static_cast<std::size_t>(child - me);
    in.push_back(message(child, blocks + first * n, n * blocks_below(child)));
  }
  if (me == 0 || !in.empty()) copy(blocks, call.in, n);
  if (!exchange({}, in)) return false;
  return me == 0 || send(parent_of(me), in.empty() ? call.in : blocks, n * blocks_below(me));
}

bool reduce(const Call& call) {
  const std::size_t n = call.count;
  std::vector<Message> in;
  for (const int child : children_of(me)) {
    in.push_back(message(child, others.data() + in.size() * n, n));
  }
  if (!exchange({}, in)) return false;
  if (me != 0 && in.empty()) return send(parent_of(me), call.in, n);
  float* const sum = me == 0 ? call.out : staged.data();
  copy(sum, call.in, n);
  for (std::size_t i = 0; i < in.size(); ++i) add(sum, others.data() + i * n, n);
  return me == 0 || send(parent_of(me), sum, n);
}

bool all_reduce(const Call& call) {
  copy(call.out, call.in, call.count);
  for (int step = 1; step < ranks; step *= 2) {
    if (!exchange(me ^ step, call.out, call.count, others.data(), call.count)) return false;
    add(call.out, others.data(), call.count);
  }
  return true;
}

bool all_gather(const Call& call) {
  const std::size_t n = call.count;
  copy(call.out + static_cast<std::size_t>(me) * n, call.in, n);
  for (int step = 1; step < ranks; step *= 2) {
    const int mine = me & -step, theirs = (me ^ step) & -step;
    if (!exchange(me ^ step, call.out + static_cast<std::size_t>(mine) * n,
                  static_cast<std::size_t>(step) * n,
                  call.out + static_cast<std::size_t>(theirs) * n,
                  static_cast<std::size_t>(step) * n)) {
      return false;
    }
  }
  return true;
}

bool reduce_scatter(const Call& call) {
  const std::size_t n = call.count;
  copy(staged.data(), call.in, n * static_cast<std::size_t>(ranks));
  for (int step = ranks / 2; step > 0; step /= 2) {
    const auto mine = static_cast<std::size_t>(me & -step);
    const auto theirs = static_cast<std::size_t>((me ^ step) & -step);
    const std::size_t elements = static_cast<std::size_t>(step) * n;
    if (!exchange(me ^ step, staged.data() + theirs * n, elements, others.data(), elements)) {
      return false;
    }
    add(staged.data() + mine * n, others.data(), elements);
  }
  copy(call.out, staged.data() + static_cast<std::size_t>(me) * n, n);
  return true;
}

bool alltoall(const Call& call) {
  const std::size_t n = call.count;
  std::vector<Message> out, in;
  for (int i = 1; i < ranks; ++i) {
    const int to = (me + i) % ranks, from = (me - i + ranks) % ranks;
    out.push_back(message(to, call.in + static_cast<std::size_t>(to) * n, n));
    in.push_back(message(from, call.out + static_cast<std::size_t>(from) * n, n));
  }
  const std::size_t own = static_cast<std::size_t>(me) * n;
  copy(call.out + own, call.in + own, n);
  return exchange(out, in);
}

bool barrier() {
  for (int step = 1; step < ranks; step *= 2) {
    float byte = 0, got = 0;
    if (!exchange(me ^ step, &byte, 1, &got, 1)) return false;
  }
  return true;
}

bool run(const Call& call) {
  switch (call.collective) {
    case Collective::broadcast:
      return peers::broadcast(call.out, call.count);
    case Collective::scatter:
      return peers::scatter(call);
    case Collective::gather:
      return peers::gather(call);
    case Collective::reduce:
      return peers::reduce(call);
    case Collective::all_reduce:
      return peers::all_reduce(call);
    case Collective::all_gather:
      return peers::all_gather(call);
    case Collective::reduce_scatter:
      return peers::reduce_scatter(call);
    case Collective::alltoall:
      return peers::alltoall(call);
    default:
      return peers::barrier();
  }
}

}  // namespace

bool tcp_messages_floor_start(int rank, int rank_count, const std::string& meeting_file,
                              Shape rooted, std::string* error) {
  me = rank;
  ranks = rank_count;
  shape = rooted;
  const char* const wait = std::getenv("FLOOR_WAIT");
  sleeps = wait != nullptr && std::string_view(wait) == "sleep";
  *error = "it needs a power of two of ranks";
  return std::has_single_bit(static_cast<unsigned>(ranks)) &&
         connect_ranks(rank, ranks, meeting_file, &links, error);
}

bool tcp_messages_floor_run(const Call& call, std::string* error) {
  const std::size_t most = call.count * static_cast<std::size_t>(ranks);
  if (staged.size() < most) {
    staged.resize(most);
    others.resize(most);
  }
  if (run(call)) return true;
  *error = std::string("a connection between the ranks: ") + std::strerror(errno);
  return false;
}

}  // namespace hocket::peers
