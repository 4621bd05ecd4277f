// The memory that the ranks of a host share in the floor, and the operations of a rank on it: it
// waits for the numbers of other ranks, tells them its own, copies data and adds data up.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "backend.h"
#include "reduce/fold.h"

namespace hocket::peers {

/// A number that one rank writes and others poll, and data that fits beside it.
struct alignas(128) Line {
  std::atomic<std::uint64_t> number;
  std::byte data[120];
};
struct alignas(4096) Page {
  Line arrived, read, collected, done;
};
struct Slot {
  Line staged, result;
};

/// The ranks of this host, of which this process is number `me`.
struct Node {
  std::byte* memory = nullptr;
  int me = -1, ranks = 0;
  bool crowded = false;  // ranks share cores
  std::size_t piece_bytes = 64 << 10;
  internal::Stores stores = internal::Stores::together;   // into the caller's buffers
  internal::Stores staging = internal::Stores::together;  // into the shared memory
  std::uint64_t rounds = 0;                               // so far
  void (*progress)() = nullptr;  // what a rank does while it waits; null: nothing
};
extern Node node;

constexpr std::uint64_t node_slots = 4;
constexpr std::size_t arena_bytes = std::size_t{1} << 30;  // of a rank's buffers; untouched: free

/// Maps the file. FLOOR_PIECE and FLOOR_STORES are as floor_backend.cc says. Returns false and
/// sets *error if it cannot.
bool node_start(int me, int ranks, const std::string& file, std::string* error);

Page& page(int rank);
std::byte* arena(int rank);
/// Of a slot of a rank: its lines, its pieces for each rank, its result.
std::byte* slot_at(int rank, std::uint64_t round);
Slot& slot(int rank, std::uint64_t round);

void await(const std::atomic<std::uint64_t>& number, std::uint64_t least);
void tell(std::atomic<std::uint64_t>& number, std::uint64_t value);

void fold(const void* const* from, int count, void* const* to, int destinations,
          std::size_t elements, internal::Stores how);
void copy(const void* from, void* to, std::size_t elements,
          internal::Stores how = internal::Stores::together);

/// Elements of a block of this rank's buffer that has blocks, and where it begins.
std::size_t block_count(const Call& call, int block);
std::size_t block_start(const Call& call, int block);

}  // namespace hocket::peers
