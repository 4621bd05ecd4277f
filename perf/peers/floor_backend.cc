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
//
// FLOOR_STORES=past: stores into the caller's buffers bypass the caches. FLOOR_STORES=staged-past:
// stores into the shared memory do. The shared memory is the file PEER_MEETING_FILE.
#include <fcntl.h>
#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "backend.h"
#include "base/copy.h"
#include "reduce/fold.h"
#include "tcp_floor.h"
#include "tcp_messages_floor.h"

namespace hocket::peers {
namespace {

constexpr std::size_t arena_bytes = std::size_t{1} << 30;  // of a rank's buffers; untouched: free
constexpr std::size_t area_bytes = 16 << 20;
constexpr std::size_t one_shot_bytes = 4096;  // up to here every rank folds all inputs
constexpr std::uint64_t slots = 4;

/// A number that one rank writes and others poll, and data that fits beside it.
struct alignas(128) Line {
  std::atomic<std::uint64_t> number;
  std::byte data[120];
};
struct Places {  // of the buffers of a rank
  std::uint64_t in, out;
  std::int64_t process;
};
struct alignas(4096) Page {
  Line arrived, read, collected, done;
};
struct Slot {
  Line staged, result;
};

enum class Way { staged, copy, direct, shared, tcp, tcp_whole, tcp_flat, tcp_tree };

std::byte* memory = nullptr;
int me = -1, ranks = 0;
bool crowded = false;
Way way = Way::staged;
std::size_t piece_bytes = 64 << 10;
internal::Stores stores = internal::Stores::together;   // into the caller's buffers
internal::Stores staging = internal::Stores::together;  // into the shared memory
const float* own_input = nullptr;
std::uint64_t calls = 0, rounds = 0;  // so far
std::size_t allocated = 0;

bool of_messages() { return way == Way::tcp_flat || way == Way::tcp_tree; }
bool is_tcp() { return way == Way::tcp || way == Way::tcp_whole || of_messages(); }

Page& page(int rank) { return reinterpret_cast<Page*>(memory)[rank]; }
std::byte* arena(int rank) {
  return memory + ranks * (sizeof(Page) + area_bytes) +
         static_cast<std::size_t>(rank) * arena_bytes;
}
/// Of a slot of a rank: its lines, its pieces for each rank, its result.
std::byte* slot_at(int rank, std::uint64_t round) {
  const std::size_t bytes = sizeof(Slot) + 2 * piece_bytes + 128 * static_cast<std::size_t>(ranks);
  return memory + ranks * sizeof(Page) + static_cast<std::size_t>(rank) * area_bytes +
         round % slots * ((bytes + 127) / 128 * 128);
}
Slot& slot(int rank, std::uint64_t round) { return *reinterpret_cast<Slot*>(slot_at(rank, round)); }

void await(const std::atomic<std::uint64_t>& number, std::uint64_t least) {
  for (int polls = 0; number.load(std::memory_order_acquire) < least;) {
    if (crowded && ++polls > 50) {
      ::sched_yield();
    } else {
      _mm_pause();
    }
  }
}
void tell(std::atomic<std::uint64_t>& number, std::uint64_t value) {
  number.store(value, std::memory_order_release);
}

void fold(const void* const* from, int count, void* const* to, int destinations,
          std::size_t elements, internal::Stores how) {
  if (elements == 0) return;
  if (count == 1 && destinations == 1 && how == internal::Stores::together) {
    if (from[0] != to[0]) internal::plain_copy(to[0], from[0], elements * sizeof(float));
    return;
  }
  internal::FoldSource sources[64];
  for (int i = 0; i < count; ++i) sources[i] = {from[i], false};
  internal::Fold run;
  run.srcs = sources;
  run.src_count = count;
  run.dsts = to;
  run.dst_count = destinations;
  run.count = elements;
  run.stores = how;
  internal::fold(run);
}
void copy(const void* from, void* to, std::size_t elements,
          internal::Stores how = internal::Stores::together) {
  fold(&from, 1, &to, 1, elements, how);
}

/// Elements of a block of this rank's buffer that has blocks, and where it begins.
std::size_t block_count(const Call& call, int block) {
  return call.varying ? call.blocks.counts[static_cast<std::size_t>(block)] : call.count;
}
std::size_t block_start(const Call& call, int block) {
  const auto number = static_cast<std::size_t>(block);
  return call.varying ? call.blocks.starts[number] : number * call.count;
}

// ---- Staged

/// A call in rounds: in each every rank stages a piece, folds what belongs to it, and collects.
class Staged {
 public:
  explicit Staged(const Call& call) : call_(call) {
    using enum Collective;
    const Collective c = call.collective;
    one_shot_ = (c == all_reduce || c == reduce) && call.count * sizeof(float) <= one_shot_bytes;
    reduces_ = c == all_reduce || c == reduce || c == reduce_scatter;
    to_each_ = c == scatter || c == alltoall || (reduces_ && !one_shot_);
    stages_ = c == broadcast || c == scatter ? me == 0 : c == gather ? me != 0 : true;
    if (c == reduce && one_shot_) stages_ = me != 0;
    folds_ = reduces_ && !(c == reduce && one_shot_ && me != 0);
    cut_ = (c == all_reduce || c == reduce) && !one_shot_;
    block_ = cut_ ? (call.count + ranks - 1) / ranks : call.varying ? call.longest : call.count;
    collects_results_ = cut_ && (c == all_reduce || me == 0);
    results_are_read_ = cut_ && (c == all_reduce || me != 0);
    collects_ = c == gather ? me == 0 : c == broadcast || c == scatter ? me != 0 : !reduces_;
    const std::size_t pieces = to_each_ ? static_cast<std::size_t>(ranks) : 1;
    each_ = std::max<std::size_t>(piece_bytes / pieces / sizeof(float) / 32 * 32, 32);
    rounds_ = std::max<std::uint64_t>(1, (block_ + each_ - 1) / each_);
  }

  void run() {
    const std::uint64_t first = first_ = rounds;
    const std::uint64_t lag = collects_results_ ? 2 : 1;
    for (std::uint64_t k = 0; k < rounds_ + lag; ++k) {
      if (k < rounds_ && stages_) {
        at_ = k * each_;
        stage(first + k);
      }
      if (k >= 1 && k - 1 < rounds_) {
        at_ = (k - 1) * each_;
        if (folds_) fold_pieces(first + k - 1);
        if (!reduces_) collect(first + k - 1);
      }
      if (k >= 2 && collects_results_) {
        at_ = (k - 2) * each_;
        collect_results(first + k - 2);
      }
    }
    rounds += rounds_;
    if (!folds_ && !collects_) tell(page(me).read.number, rounds);  // it has read all it needs
  }

 private:
  /// Where the elements of this round begin in block `b` of the message, and how many they are.
  std::size_t start(int b) const {
    return (cut_ ? static_cast<std::size_t>(b) * block_ : block_start(call_, b)) + at_;
  }
  std::size_t elements(int b) const {
    const std::size_t block = static_cast<std::size_t>(b) * block_;
    const std::size_t rest = call_.count - std::min(call_.count, block);
    const std::size_t here = cut_ ? std::min(block_, rest) : block_count(call_, b);
    return at_ < here ? std::min(each_, here - at_) : 0;
  }
  /// The piece that `rank` has staged; to_each_: for rank `b`. A few bytes are beside the number.
  std::byte* piece(int rank, std::uint64_t round, int b) const {
    const bool beside = !to_each_ && block_ * sizeof(float) <= sizeof(Line::data);
    if (beside) return slot(rank, round).staged.data;
    return slot_at(rank, round) + sizeof(Slot) + (to_each_ ? b * each_ * sizeof(float) : 0);
  }
  std::byte* result(int rank, std::uint64_t round) const {
    return slot_at(rank, round) + sizeof(Slot) + piece_bytes +
           128 * static_cast<std::size_t>(ranks);
  }
  /// Waits until the readers of the round's slot have read what an earlier round left there.
  void await_readers(std::uint64_t round, Line Page::*line, bool only_root) const {
    if (round < slots) return;
    for (int r = 0; r < (only_root ? 1 : ranks); ++r) {
      if (r != me) await((page(r).*line).number, round - slots + 1);
    }
  }

  void stage(std::uint64_t round) {
    using enum Collective;
    await_readers(round, &Page::read,
                  call_.collective == gather || (call_.collective == reduce && one_shot_));
    if (to_each_) {
      for (int i = 1; i < ranks; ++i) {
        const int b = (me + i) % ranks;
        copy(call_.in + start(b), piece(me, round, b), elements(b), staging);
      }
      if (!reduces_) copy(call_.in + start(me), call_.out + own_start(), elements(me), stores);
    } else {
      const std::size_t n = one_shot_ ? call_.count : elements(me);
      copy(call_.in + at_, piece(me, round, 0), n, staging);
      if (call_.collective == all_gather) copy(call_.in + at_, call_.out + start(me), n, stores);
    }
    tell(slot(me, round).staged.number, round + 1);
  }
  std::size_t own_start() const {
    return call_.collective == Collective::alltoall ? start(me) : at_;
  }

  void collect(std::uint64_t round) {
    using enum Collective;
    const Collective c = call_.collective;
    if (c == gather && me == 0) copy(call_.in + at_, call_.out + at_, elements(0), stores);
    if (!collects_) return;
    for (int i = 1; i < ranks; ++i) {
      const int q = (me + i) % ranks;
      if ((c == broadcast || c == scatter) && q != 0) continue;
      await(slot(q, round).staged.number, round + 1);
      const bool whole = c == broadcast || c == scatter;
      copy(piece(q, round, me), call_.out + (whole ? at_ : start(q)), elements(whole ? me : q),
           stores);
    }
    tell(page(me).read.number, round + 1);
  }

  void fold_pieces(std::uint64_t round) {
    const void* from[64];
    const std::size_t n = one_shot_ ? call_.count : elements(me);
    for (int q = 0; q < ranks; ++q) {
      if (q != me) await(slot(q, round).staged.number, round + 1);
      from[q] = q == me ? static_cast<const void*>(call_.in + (one_shot_ ? 0 : start(me)))
                        : piece(q, round, me);
    }
    void* to[2] = {nullptr, nullptr};
    int destinations = 0;
    if (call_.collective != Collective::reduce || me == 0) {
      const bool own = call_.collective == Collective::reduce_scatter;
      to[destinations++] = call_.out + (own ? at_ : one_shot_ ? 0 : start(me));
    }
    if (results_are_read_) {
      // What was collected in earlier calls has been: every peer has staged in this call.
      if (round - first_ >= slots) {
        await_readers(round, &Page::collected, call_.collective == Collective::reduce);
      }
      to[destinations++] = result(me, round);
    }
    const bool only_output = !results_are_read_;
    const bool near_output = destinations == 2 && staging == internal::Stores::non_temporal;
    fold(from, ranks, to, destinations, n,
         only_output   ? stores
         : near_output ? internal::Stores::first_cached
                       : staging);
    tell(page(me).read.number, round + 1);
    if (results_are_read_) tell(slot(me, round).result.number, round + 1);
  }

  void collect_results(std::uint64_t round) {
    for (int i = 1; i < ranks; ++i) {
      const int q = (me + i) % ranks;
      await(slot(q, round).result.number, round + 1);
      copy(result(q, round), call_.out + start(q), elements(q), stores);
    }
    tell(page(me).collected.number, round + 1);
  }

  const Call& call_;
  bool one_shot_ = false, cut_ = false, to_each_ = false;  // to_each_: a piece for each rank
  bool reduces_, stages_, folds_, collects_, collects_results_, results_are_read_;
  std::size_t block_, each_, at_ = 0;
  std::uint64_t rounds_, first_ = 0;
};

// ---- Direct and by the kernel

Places& places(int rank) { return *reinterpret_cast<Places*>(page(rank).arrived.data); }

const float* input_of(int rank) {
  return reinterpret_cast<const float*>(arena(rank) + places(rank).in);
}
float* output_of(int rank) { return reinterpret_cast<float*>(arena(rank) + places(rank).out); }

/// Copies from element `from` of the input of a rank.
bool fetch(int rank, std::size_t from, float* to, std::size_t elements) {
  if (way != Way::copy || rank == me) {
    copy((rank == me ? own_input : input_of(rank)) + from, to, elements, stores);
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
  fold(from, ranks, into, destinations, elements, stores);
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
        copy(c.in + n - of_root, output_of(q) + n - of_root, of_root, stores);
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
  const auto number = [](const char* name, long otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::atol(text);
  };
  me = static_cast<int>(number("HOCKET_RANK", -1));
  ranks = static_cast<int>(number("HOCKET_RANKS", 0));
  piece_bytes = static_cast<std::size_t>(number("FLOOR_PIECE", 64 << 10));
  const char* const named = std::getenv("FLOOR_WAY");
  const std::string_view name = named == nullptr ? "staged" : named;
  way = name == "direct"      ? Way::direct
        : name == "shared"    ? Way::shared
        : name == "copy"      ? Way::copy
        : name == "tcp"       ? Way::tcp
        : name == "tcp-whole" ? Way::tcp_whole
        : name == "tcp-flat"  ? Way::tcp_flat
        : name == "tcp-tree"  ? Way::tcp_tree
                              : Way::staged;
  if (const char* const past = std::getenv("FLOOR_STORES"); past != nullptr) {
    const bool staged = std::string_view(past) == "staged-past";
    (staged ? staging : stores) = internal::Stores::non_temporal;
  }
  crowded = ranks > static_cast<int>(std::thread::hardware_concurrency());
  const char* const path = std::getenv("PEER_MEETING_FILE");
  const std::string meeting_file = path == nullptr ? "" : path;
  if (of_messages()) {
    const Shape shape = way == Way::tcp_flat ? Shape::flat : Shape::tree;
    return tcp_messages_floor_start(me, ranks, meeting_file, shape, error);
  }
  if (is_tcp()) return tcp_floor_start(me, ranks, meeting_file, error);
  const int fd = ::open(meeting_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const std::size_t bytes =
      static_cast<std::size_t>(ranks) * (sizeof(Page) + area_bytes + arena_bytes);
  if (me < 0 || ranks > 64 || fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    *error = "it needs hocket-run, at most 64 ranks, and PEER_MEETING_FILE";
    return false;
  }
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (mapped == MAP_FAILED) *error = std::strerror(errno);
  memory = static_cast<std::byte*>(mapped);
  return mapped != MAP_FAILED;
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
  if (is_tcp()) return tcp_floor_run(call, way == Way::tcp_whole, error);
  if (call.collective == Collective::barrier) {
    tell(page(me).arrived.number, ++calls);
    await_peers(&Page::arrived);
    return true;
  }
  if (way == Way::staged) {
    Staged(call).run();
    return true;
  }
  if (run_after_arrival(call)) return true;
  *error = "the kernel does not copy from a peer's memory";
  return false;
}

void backend_progress() {}

void backend_stop() {}

}  // namespace hocket::peers
