// A world: a communicator on which many cases run, each checked against the reference. The tests
// iterate over some dimensions of the cases. A hash of the number of the case chooses the others,
// such that a run has every pair of values of two dimensions.
#pragma once

#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "matrix/ranks.h"
#include "matrix/reference.h"

namespace matrix {

using reference::Data;

enum class What { all_reduce, reduce_scatter, all_gather, broadcast, barrier };
inline const char* name_of(What what) {
  static constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                          "barrier"};
  return names[static_cast<int>(what)];
}

struct Case {
  What what = What::all_reduce;
  hocketDataType_t type = hocketInt8;
  hocketRedOp_t op = hocketSum;
  int root = 0;
  std::size_t count = 0;
  bool in_place = false, alloc = false;
  std::size_t offset = 0;  // of the buffers from a page's begin, in bytes
  Data data = Data::exact;
  std::uint64_t seed = 0;
};

inline std::string describe(const Case& c) {
  return std::string(name_of(c.what)) + " of " + std::to_string(c.count) + " " +
         reference::name_of(c.type) + " " + reference::name_of(c.op) + ", root " +
         std::to_string(c.root) + (c.in_place ? ", in place" : "") + (c.alloc ? ", alloc" : "") +
         ", offset " + std::to_string(c.offset) + ", data " +
         std::to_string(static_cast<int>(c.data)) + ", seed " + std::to_string(c.seed);
}

/// Memory for buffers, plain or of hocketMemAlloc, with guard bytes around them.
class Arena {
 public:
  static constexpr std::size_t guard = 64;
  static constexpr std::uint8_t fill = 0xa7;

  Arena(std::size_t bytes, bool alloc) : bytes_(bytes + 4096 + 2 * guard), alloc_(alloc) {
    if (alloc) {
      void* made = nullptr;
      EXPECT_HOCKET(hocketMemAlloc(&made, bytes_));
      base_ = static_cast<std::uint8_t*>(made);
    } else {
      base_ = static_cast<std::uint8_t*>(std::aligned_alloc(4096, (bytes_ + 4095) / 4096 * 4096));
    }
  }
  ~Arena() {
    if (alloc_) {
      EXPECT_HOCKET(hocketMemFree(base_));
    } else {
      std::free(base_);
    }
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::uint8_t* take(std::size_t offset, std::size_t bytes) {
    at_ = base_ + guard + offset;
    taken_ = bytes;
    std::fill(at_ - guard, at_ + bytes + guard, fill);
    return at_;
  }
  bool guards_hold() const {
    const auto holds = [](const std::uint8_t* from) {
      return std::all_of(from, from + guard, [](std::uint8_t byte) { return byte == fill; });
    };
    return holds(at_ - guard) && holds(at_ + taken_);
  }

 private:
  std::size_t bytes_;
  bool alloc_;
  std::uint8_t* base_ = nullptr;
  std::uint8_t* at_ = nullptr;
  std::size_t taken_ = 0;
};

/// What ranks share for checking even where each is a process. Zero bytes are a valid start.
struct SharedLedger {
  std::atomic<int> barriers_begun;          // by all ranks together
  std::atomic<std::uint64_t> first_output;  // a hash of rank 0's output
};

/// What the ranks of a world share for checking, beside the library. Where each rank is a process,
/// each has a ledger of its own, and works out the others' inputs itself.
struct Ledger {
  Ledger(int ranks, SharedLedger& shared, bool own_process)
      : inputs(static_cast<std::size_t>(ranks)), shared(shared), own_process(own_process) {}
  std::vector<reference::Bytes> inputs;
  reference::Bytes expected, low, high;
  std::set<std::string> algorithms;  // that ran; rank 0 writes
  SharedLedger& shared;
  const bool own_process;
};

inline std::uint64_t hash_of(const std::uint8_t* bytes, std::size_t count) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (std::size_t i = 0; i < count; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
  return hash;
}

class World {
 public:
  World(ranks::Rank& self, Ledger& ledger, std::size_t most_bytes)
      : self_(self),
        ledger_(ledger),
        plain_in_(most_bytes, false),
        plain_out_(most_bytes, false),
        alloc_in_(most_bytes, true),
        alloc_out_(most_bytes, true) {}

  /// All ranks, with the same case.
  void run(const Case& c) {
    if (c.what == What::barrier) return run_barrier(c);
    const auto n = static_cast<std::size_t>(self_.ranks), me = static_cast<std::size_t>(self_.rank);
    const std::size_t bytes = c.count * reference::size_of(c.type);
    const std::size_t in_bytes = c.what == What::reduce_scatter ? n * bytes : bytes;
    const std::size_t out_bytes = c.what == What::all_gather ? n * bytes : bytes;
    for (std::size_t rank = 0; rank < n; ++rank) {
      if (rank != me && !ledger_.own_process) continue;
      ledger_.inputs[rank].resize(in_bytes);
      reference::fill(c.data, c.type, in_bytes / reference::size_of(c.type), c.seed * 64 + rank,
                      ledger_.inputs[rank].data());
    }
    const reference::Bytes& mine = ledger_.inputs[me];
    Arena& in_arena = c.alloc ? alloc_in_ : plain_in_;
    Arena& out_arena = c.alloc ? alloc_out_ : plain_out_;
    std::uint8_t *in = nullptr, *out = nullptr;
    // What a NaN's payload becomes could depend on where vectors begin: on each rank elsewhere.
    const std::size_t shift = c.data == Data::any ? me * reference::size_of(c.type) : 0;
    if (c.in_place && c.what == What::reduce_scatter) {
      in = in_arena.take(c.offset + shift, in_bytes);
      out = in + me * bytes;
    } else {
      out = out_arena.take(c.offset + shift, out_bytes);
      if (!c.in_place) {
        in = in_arena.take(c.offset + shift, in_bytes);
      } else {
        in = c.what == What::all_gather ? out + me * bytes : out;
      }
    }
    const bool is_source = c.what != What::broadcast || c.root == self_.rank;
    if (in_bytes > 0 && is_source) std::memcpy(in, mine.data(), in_bytes);
    self_.meet();
    if (me == c.seed % n || ledger_.own_process) expect(c);
    EXPECT_EQ(hocketSuccess, call(c, in, out))
        << describe(c) << ": " << hocketGetLastError(self_.comm);
    const std::string algorithm = last_algorithm();
    if (me == 0) {
      ledger_.algorithms.insert(algorithm);
      ledger_.shared.first_output = hash_of(out, out_bytes);
    }
    self_.meet();
    if (out_bytes > 0) check_output(c, out, out_bytes, algorithm);
    const bool kept =
        !is_source || c.in_place || in_bytes == 0 || std::memcmp(in, mine.data(), in_bytes) == 0;
    const bool whole = (c.in_place && c.what == What::reduce_scatter) || out_arena.guards_hold();
    EXPECT_TRUE(kept && whole && (c.in_place ? true : in_arena.guards_hold()))
        << describe(c) << " by " << algorithm << " on rank " << me
        << ": wrote where it must not (input kept: " << kept << ", output's guards: " << whole
        << ")";
  }

 private:
  /// A rank begins after the others, whose calls must not end before.
  void run_barrier(const Case& c) {
    const int n = self_.ranks;
    self_.meet();
    const int before = ledger_.shared.barriers_begun.load() / n;  // whole barriers
    self_.meet();
    for (int i = 0;
         self_.rank == static_cast<int>(c.seed % static_cast<std::uint64_t>(n)) && i < 50; ++i) {
      std::this_thread::yield();
    }
    ++ledger_.shared.barriers_begun;
    EXPECT_EQ(hocketSuccess, hocketBarrier(self_.comm, nullptr)) << hocketGetLastError(self_.comm);
    EXPECT_EQ(n * (before + 1), ledger_.shared.barriers_begun.load())
        << "by " << last_algorithm() << " on rank " << self_.rank;
    self_.meet();
    if (self_.rank == 0) ledger_.algorithms.insert(last_algorithm());
  }

  std::string last_algorithm() {
    const char *algorithm = "", *transport = "";
    EXPECT_HOCKET(hocketCommLastAlgorithm(self_.comm, &algorithm, &transport));
    return algorithm;
  }

  hocketResult_t call(const Case& c, const void* in, void* out) {
    switch (c.what) {
      case What::all_reduce:
        return hocketAllReduce(in, out, c.count, c.type, c.op, self_.comm, nullptr);
      case What::reduce_scatter:
        return hocketReduceScatter(in, out, c.count, c.type, c.op, self_.comm, nullptr);
      case What::all_gather:
        return hocketAllGather(in, out, c.count, c.type, self_.comm, nullptr);
      default:
        return hocketBroadcast(c.root == self_.rank ? in : nullptr, out, c.count, c.type, c.root,
                               self_.comm, nullptr);
    }
  }

  /// Fills ledger_.expected: for reduce-scatter the whole all-reduce.
  void expect(const Case& c) {
    reference::Bytes& expected = ledger_.expected;
    const std::vector<reference::Bytes>& inputs = ledger_.inputs;
    if (c.what == What::broadcast) {
      expected = inputs[static_cast<std::size_t>(c.root)];
    } else if (c.what == What::all_gather) {
      expected.clear();
      for (const auto& input : inputs) expected.insert(expected.end(), input.begin(), input.end());
    } else {
      expected.resize(inputs[0].size());
      reference::reduce(c.type, c.op, pointers(), expected.size() / reference::size_of(c.type),
                        expected.data());
      if (!has_bounds(c)) return;
      ledger_.low.resize(expected.size());
      ledger_.high.resize(expected.size());
      reference::bounds(c.type, c.op, pointers(), expected.size() / reference::size_of(c.type),
                        ledger_.low.data(), ledger_.high.data());
    }
  }

  static bool has_bounds(const Case& c) {
    return c.data == Data::small && !reference::is_integer(c.type) &&
           (c.op == hocketSum || c.op == hocketAvg);
  }

  reference::Inputs pointers() const {
    reference::Inputs out;
    for (const auto& input : ledger_.inputs) out.push_back(input.data());
    return out;
  }

  void check_output(const Case& c, const std::uint8_t* out, std::size_t bytes,
                    const std::string& algorithm) {
    const std::size_t size = reference::size_of(c.type);
    const std::size_t skipped =
        c.what == What::reduce_scatter ? static_cast<std::size_t>(self_.rank) * bytes : 0;
    const bool reduces = c.what == What::all_reduce || c.what == What::reduce_scatter;
    const bool in_order = algorithm != "ring" && algorithm != "tree";
    const bool any_order = !reduces || in_order || c.data == Data::exact ||
                           reference::is_integer(c.type) || c.op == hocketMin || c.op == hocketMax;
    if (any_order) {
      const std::uint8_t* expected = ledger_.expected.data() + skipped;
      if (std::memcmp(out, expected, bytes) == 0) return;
      std::size_t i = 0;
      while (out[i] == expected[i]) ++i;
      i = i / size * size;
      std::string text;
      for (std::size_t b = size; b-- > 0;) text += hex(out[i + b]);
      text += " instead of ";
      for (std::size_t b = size; b-- > 0;) text += hex(expected[i + b]);
      ADD_FAILURE() << describe(c) << " by " << algorithm << " on rank " << self_.rank
                    << ": element " << i / size << " is " << text;
      return;
    }
    for (std::size_t i = 0; has_bounds(c) && i < bytes; i += size) {
      const auto value = [&](const std::uint8_t* at) { return reference::decode(c.type, at + i); };
      const double low = value(ledger_.low.data() + skipped),
                   high = value(ledger_.high.data() + skipped), got = value(out);
      if (low <= got && got <= high) continue;
      ADD_FAILURE() << describe(c) << " by " << algorithm << ": element " << i / size << " is "
                    << got << ", not between " << low << " and " << high;
      return;
    }
    if (c.what == What::all_reduce) {
      EXPECT_EQ(ledger_.shared.first_output.load(), hash_of(out, bytes))
          << describe(c) << " by " << algorithm << ": ranks 0 and " << self_.rank << " differ";
    }
  }

  static std::string hex(std::uint8_t byte) {
    static constexpr char digits[] = "0123456789abcdef";
    return {digits[byte >> 4], digits[byte & 15]};
  }

  ranks::Rank& self_;
  Ledger& ledger_;
  Arena plain_in_, plain_out_, alloc_in_, alloc_out_;
};

}  // namespace matrix
