#include "floor_node.h"

#include <fcntl.h>
#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/copy.h"

namespace hocket::peers {
namespace {

constexpr std::size_t area_bytes = 16 << 20;
constexpr int most_ranks = 64;

}  // namespace

Node node;

bool node_start(int me, int ranks, const std::string& file, std::string* error) {
  node.me = me;
  node.ranks = ranks;
  node.crowded = ranks > static_cast<int>(std::thread::hardware_concurrency());
  if (const char* const piece = std::getenv("FLOOR_PIECE"); piece != nullptr) {
    node.piece_bytes = static_cast<std::size_t>(std::atol(piece));
  }
  if (const char* const past = std::getenv("FLOOR_STORES"); past != nullptr) {
    const bool staged = std::string_view(past) == "staged-past";
    (staged ? node.staging : node.stores) = internal::Stores::non_temporal;
  }
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const std::size_t bytes =
      static_cast<std::size_t>(ranks) * (sizeof(Page) + area_bytes + arena_bytes);
  if (me < 0 || ranks > most_ranks || fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    *error = "it needs hocket-run, at most 64 ranks, and PEER_MEETING_FILE";
    return false;
  }
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (mapped == MAP_FAILED) *error = std::strerror(errno);
  node.memory = static_cast<std::byte*>(mapped);
  return mapped != MAP_FAILED;
}

Page& page(int rank) { return reinterpret_cast<Page*>(node.memory)[rank]; }
std::byte* arena(int rank) {
  return node.memory + node.ranks * (sizeof(Page) + area_bytes) +
         static_cast<std::size_t>(rank) * arena_bytes;
}
std::byte* slot_at(int rank, std::uint64_t round) {
  const std::size_t bytes =
      sizeof(Slot) + 2 * node.piece_bytes + 128 * static_cast<std::size_t>(node.ranks);
  return node.memory + node.ranks * sizeof(Page) + static_cast<std::size_t>(rank) * area_bytes +
         round % node_slots * ((bytes + 127) / 128 * 128);
}
Slot& slot(int rank, std::uint64_t round) { return *reinterpret_cast<Slot*>(slot_at(rank, round)); }

void await(const std::atomic<std::uint64_t>& number, std::uint64_t least) {
  for (int polls = 1; number.load(std::memory_order_acquire) < least; ++polls) {
    if (node.progress != nullptr && polls % 16 == 0) node.progress();
    if (node.crowded && polls > 50) {
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
  internal::FoldSource sources[most_ranks];
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
void copy(const void* from, void* to, std::size_t elements, internal::Stores how) {
  fold(&from, 1, &to, 1, elements, how);
}

std::size_t block_count(const Call& call, int block) {
  return call.varying ? call.blocks.counts[static_cast<std::size_t>(block)] : call.count;
}
std::size_t block_start(const Call& call, int block) {
  const auto number = static_cast<std::size_t>(block);
  return call.varying ? call.blocks.starts[number] : number * call.count;
}

}  // namespace hocket::peers
