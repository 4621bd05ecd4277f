// The floor: the time of a collective between the ranks of one host that consists of loads, stores
// and one flag for each step, and of nothing else. No argument is checked, ranks that disagree are
// not found, a rank that dies is not noticed. measure.py starts it beside the libraries, once with
// each of these ways, and the report takes the fastest for each size:
//
//   staged   through shared memory in pieces of FLOOR_PIECE bytes, of which 4 are under way
//   copy     the kernel copies from the memory of the peer (cross-memory attach); no reductions
//   direct   peers read and write the buffers themselves: only with --memory alloc
//   shared   direct, but in a broadcast the root writes its part of each output
//   tcp      over one TCP connection between two ranks, tcp-whole: the same, but in an all-reduce
//            each rank sends its whole input (tcp_floor.h)
//   tcp-flat, tcp-tree  small messages over TCP between a power of two of ranks
//            (tcp_messages_floor.h)
//   levels, leaders  over TCP between two hosts with the same number of ranks, through shared
//            memory within each (levels_floor.h)
//
// FLOOR_STORES=past: stores into the caller's buffers bypass the caches. FLOOR_STORES=staged-past:
// stores into the shared memory do. The shared memory is the file PEER_MEETING_FILE.
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "backend.h"
#include "floor_node.h"
#include "levels_floor.h"
#include "staged_floor.h"
#include "tcp_floor.h"
#include "tcp_messages_floor.h"

namespace hocket::peers {
namespace {

struct Places {  // of the buffers of a rank
  std::uint64_t in, out;
  std::int64_t process;
};

enum class Way {
  staged,
  copy,
  direct,
  shared,
  tcp,
  tcp_whole,
  tcp_flat,
  tcp_tree,
  levels,
  leaders
};

int me = -1, ranks = 0;
Way way = Way::staged;
const float* own_input = nullptr;
std::uint64_t calls = 0;  // so far
std::size_t allocated = 0;

bool of_messages() { return way == Way::tcp_flat || way == Way::tcp_tree; }
bool of_levels() { return way == Way::levels || way == Way::leaders; }
bool is_tcp() { return way == Way::tcp || way == Way::tcp_whole || of_messages() || of_levels(); }

// ---- Direct and by the kernel

Places& places(int rank) { return *reinterpret_cast<Places*>(page(rank).arrived.data); }

const float* input_of(int rank) {
  return reinterpret_cast<const float*>(arena(rank) + places(rank).in);
}
float* output_of(int rank) { return reinterpret_cast<float*>(arena(rank) + places(rank).out); }

/// Copies from element `from` of the input of a rank.
bool fetch(int rank, std::size_t from, float* to, std::size_t elements) {
  if (way != Way::copy || rank == me) {
    copy((rank == me ? own_input : input_of(rank)) + from, to, elements, node.stores);
    return true;
  }
  const std::size_t bytes = elements * sizeof(float);
  const iovec here{to, bytes};
  const iovec there{reinterpret_cast<void*>(places(rank).in + from * sizeof(float)), bytes};
  return ::syscall(SYS_process_vm_readv, places(rank).process, &here, 1, &there, 1, 0) ==
         static_cast<ssize_t>(bytes);
}

void await_peers(Line Page::*line, bool only_root = false) {
  for (int r = 0; r < (only_root ? 1 : ranks); ++r) {
    if (r != me) await((page(r).*line).number, calls);
  }
}

void fold_inputs(std::size_t begin, std::size_t elements, float* const* to, int destinations) {
  const void* from[64];
  void* into[64];
  for (int q = 0; q < ranks; ++q) from[q] = input_of(q) + begin;
  for (int d = 0; d < destinations; ++d) into[d] = to[d];
  fold(from, ranks, into, destinations, elements, node.stores);
}

/// What this rank does once all have arrived.
bool run_unstaged(const Call& c) {
  using enum Collective;
  const std::size_t n = c.count, block = (n + ranks - 1) / ranks;
  const std::size_t begin = std::min(n, me * block), mine = std::min(block, n - begin);
  bool done = true;
  switch (c.collective) {
    case broadcast: {
      if (way != Way::shared) return me == 0 || fetch(0, 0, c.out, n);
      // Every rank copies as much: the root copies the last part to all others.
      const std::size_t of_root = n / ranks;
      if (me != 0) return fetch(0, 0, c.out, n - of_root);
      for (int q = 1; q < ranks; ++q)
        copy(c.in + n - of_root, output_of(q) + n - of_root, of_root, node.stores);
      return true;
    }
    case all_gather:
      for (int i = 0; i < ranks; ++i) {
        const int q = (me + i) % ranks;
        done &= fetch(q, 0, c.out + block_start(c, q), block_count(c, q));
      }
      return done;
    case gather:
      for (int q = 0; q < ranks && me == 0; ++q) {
        done &= fetch(q, 0, c.out + block_start(c, q), block_count(c, q));
      }
      return done;
    case scatter:
      return fetch(0, block_start(c, me), c.out, block_count(c, me));
    case alltoall:
      for (int i = 0; i < ranks; ++i) {
        const int q = (me + i) % ranks;
        const std::size_t from = c.varying ? c.input_starts[static_cast<std::size_t>(q)] : me * n;
        done &= fetch(q, from, c.out + block_start(c, q), block_count(c, q));
      }
      return done;
    case all_reduce: {
      float* to[64];
      for (int i = 0; i < ranks; ++i) to[i] = output_of((me + i) % ranks) + begin;
      fold_inputs(begin, mine, to, ranks);
      return true;
    }
    case reduce: {
      float* const to = output_of(0) + begin;
      fold_inputs(begin, mine, &to, 1);
      return true;
    }
    case reduce_scatter:
      fold_inputs(block_start(c, me), block_count(c, me), &c.out, 1);
      return true;
    default:
      return true;
  }
}

bool run_after_arrival(const Call& c) {
  const auto place_of = [](const float* buffer) {
    const auto address = reinterpret_cast<std::uint64_t>(buffer);
    return way == Way::copy ? address : address - reinterpret_cast<std::uint64_t>(arena(me));
  };
  ++calls;
  own_input = c.in;
  places(me) = {place_of(c.in), place_of(c.out), ::getpid()};
  tell(page(me).arrived.number, calls);
  const bool from_root =
      c.collective == Collective::broadcast || c.collective == Collective::scatter;
  const bool to_root = c.collective == Collective::gather;
  // Only the ranks whose buffers are used need to have arrived, and only they wait for the end.
  const bool one_sided = (from_root || to_root) && way != Way::shared;
  const bool is_used = from_root == (me == 0);
  if (!one_sided || !is_used) await_peers(&Page::arrived, one_sided && from_root);
  const bool done = run_unstaged(c);
  tell(page(me).done.number, calls);
  if (!one_sided || is_used) await_peers(&Page::done, one_sided && to_root);
  return done;
}

}  // namespace

const char* backend_name() { return "floor"; }

bool backend_start(std::string* error) {
  const auto number = [](const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
  };
  me = number("HOCKET_RANK", -1);
  ranks = number("HOCKET_RANKS", 0);
  const char* const named = std::getenv("FLOOR_WAY");
  const std::string_view name = named == nullptr ? "staged" : named;
  way = name == "direct"      ? Way::direct
        : name == "shared"    ? Way::shared
        : name == "copy"      ? Way::copy
        : name == "tcp"       ? Way::tcp
        : name == "tcp-whole" ? Way::tcp_whole
        : name == "tcp-flat"  ? Way::tcp_flat
        : name == "tcp-tree"  ? Way::tcp_tree
        : name == "levels"    ? Way::levels
        : name == "leaders"   ? Way::leaders
                              : Way::staged;
  const char* const path = std::getenv("PEER_MEETING_FILE");
  const std::string meeting_file = path == nullptr ? "" : path;
  if (of_messages()) {
    const Shape shape = way == Way::tcp_flat ? Shape::flat : Shape::tree;
    return tcp_messages_floor_start(me, ranks, meeting_file, shape, error);
  }
  if (of_levels()) return levels_floor_start(me, ranks, meeting_file, error);
  if (is_tcp()) return tcp_floor_start(me, ranks, meeting_file, error);
  return node_start(me, ranks, meeting_file, error);
}

std::string backend_version() { return "floor"; }
int backend_rank() { return me; }
int backend_ranks() { return ranks; }

void* backend_allocate(std::size_t bytes, bool shared) {
  bytes = (bytes + 4095) / 4096 * 4096;
  if (!shared || is_tcp()) return std::aligned_alloc(4096, bytes);
  if (allocated + bytes > arena_bytes) return nullptr;
  return arena(me) + std::exchange(allocated, allocated + bytes);
}

bool backend_in_place(Collective collective) { return collective == Collective::broadcast; }

bool backend_run(const Call& call, std::string* error) {
  if (of_messages()) return tcp_messages_floor_run(call, error);
  if (of_levels()) return levels_floor_run(call, way == Way::leaders, error);
  if (is_tcp()) return tcp_floor_run(call, way == Way::tcp_whole, error);
  if (call.collective == Collective::barrier) {
    tell(page(me).arrived.number, ++calls);
    await_peers(&Page::arrived);
    return true;
  }
  if (way == Way::staged) {
    staged_floor_run(call);
    return true;
  }
  if (run_after_arrival(call)) return true;
  *error = "the kernel does not copy from a peer's memory";
  return false;
}

void backend_progress() {}

void backend_stop() {}

}  // namespace hocket::peers
