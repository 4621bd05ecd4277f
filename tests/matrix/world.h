// A world: a communicator on which many cases run, each checked against the reference. The tests
// iterate over some dimensions of the cases. A hash of the number of the case chooses the others,
// such that a run has every pair of values of two dimensions.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "matrix/case.h"
#include "matrix/ranks.h"
#include "matrix/reference.h"

namespace matrix {

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
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes), count});
}

class World {
 public:
  World(ranks::Rank& self, Ledger& ledger, std::size_t most_bytes)
      : self_(self),
        ledger_(ledger),
        plain_in_(most_bytes, false),
        plain_out_(most_bytes, false),
        alloc_in_(most_bytes, true),
        alloc_out_(most_bytes, true) {
    for (const hocketDataType_t type : reference::types) {
      std::uint64_t scalar = 0;
      reference::scalar_of(type, static_cast<std::size_t>(self.rank), &scalar);
      EXPECT_HOCKET(hocketRedOpCreatePreMulSum(&scaling_[type], &scalar, type,
                                               hocketScalarHostImmediate, self.comm));
    }
  }
  ~World() {
    for (const auto& [type, op] : scaling_) EXPECT_HOCKET(hocketRedOpDestroy(op, self_.comm));
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// All ranks, with the same case.
  void run(const Case& c) {
    if (c.what == What::barrier) return run_barrier(c);
    const auto n = static_cast<std::size_t>(self_.ranks), me = static_cast<std::size_t>(self_.rank);
    for (std::size_t rank = 0; rank < n; ++rank) {
      if (rank != me && !ledger_.own_process) continue;
      const std::size_t elements = layout_of(c, n, rank, true).packed();
      ledger_.inputs[rank].resize(elements * c.size());
      reference::fill(c.data, c.type, elements, c.seed * 64 + rank, ledger_.inputs[rank].data());
    }
    Buffers b;
    place(c, &b);
    self_.meet();
    if (row_of(c.what).reduces && (me == c.seed % n || ledger_.own_process)) expect(c);
    EXPECT_EQ(hocketSuccess, call(c, b)) << describe(c) << ": " << hocketGetLastError(self_.comm);
    const std::string algorithm = last_algorithm();
    if (me == 0) {
      ledger_.algorithms.insert(algorithm);
      ledger_.shared.first_output = b.out == nullptr ? 0 : hash_of(b.out, out_bytes(c, b));
    }
    self_.meet();
    if (b.output.elements > 0) check_output(c, b, algorithm);
    if (!ledger_.own_process) self_.meet();  // the check reads the inputs of the others
    const bool kept = b.shared || b.input_before.empty() ||
                      std::memcmp(b.in, b.input_before.data(), b.input_before.size()) == 0;
    const bool whole = (b.in == nullptr || b.in_arena->guards_hold()) &&
                       (b.out == nullptr || b.out_arena->guards_hold());
    EXPECT_TRUE(kept && whole) << describe(c) << " by " << algorithm << " on rank " << me
                               << ": wrote where it must not (input kept: " << kept
                               << ", guards: " << whole << ")";
  }

 private:
  /// The buffers of this rank in one case.
  struct Buffers {
    Layout input, output;
    std::uint8_t *in = nullptr, *out = nullptr;
    Arena *in_arena = nullptr, *out_arena = nullptr;
    bool shared = false;  // in place
    reference::Bytes input_before, output_before;
  };

  static std::size_t out_bytes(const Case& c, const Buffers& b) {
    return b.output.elements * c.size();
  }

  /// Takes memory for the buffers, and fills the input.
  void place(const Case& c, Buffers* b) {
    const Row& row = row_of(c.what);
    const auto n = static_cast<std::size_t>(self_.ranks), me = static_cast<std::size_t>(self_.rank);
    const std::size_t size = c.size();
    b->input = layout_of(c, n, me, true);
    b->output = layout_of(c, n, me, false);
    b->in_arena = c.alloc ? &alloc_in_ : &plain_in_;
    b->out_arena = c.alloc ? &alloc_out_ : &plain_out_;
    // What a NaN's payload becomes could depend on where vectors begin: on each rank elsewhere.
    const std::size_t at = c.offset + (c.data == Data::any ? me * size : 0);
    const bool all_to_all = row.input == Parts::per_rank && row.output == Parts::per_rank;
    b->shared = c.in_place && b->input.exists && b->output.exists && !all_to_all;
    if (b->shared && row.input == Parts::per_rank) {
      b->out_arena = b->in_arena;
      b->in = b->in_arena->take(at, b->input.elements * size);
      b->out = b->in + b->input.offsets[me] * size;
    } else {
      if (b->output.exists) b->out = b->out_arena->take(at, out_bytes(c, *b));
      if (b->shared) {
        b->in_arena = b->out_arena;
        b->in = b->out + (row.output == Parts::per_rank ? b->output.offsets[me] * size : 0);
      } else if (b->input.exists) {
        b->in = b->in_arena->take(at, b->input.elements * size);
      }
    }
    const std::uint8_t* packed = ledger_.inputs[me].data();
    for (std::size_t block = 0; block < b->input.counts.size(); ++block) {
      const std::size_t bytes = b->input.counts[block] * size;
      if (bytes > 0) std::memcpy(b->in + b->input.offsets[block] * size, packed, bytes);
      packed += bytes;
    }
    if (b->in != nullptr) b->input_before.assign(b->in, b->in + b->input.elements * size);
    if (b->out != nullptr) b->output_before.assign(b->out, b->out + out_bytes(c, *b));
  }

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

  hocketResult_t call(const Case& c, const Buffers& b) {
    hocketComm_t comm = self_.comm;
    const hocketRedOp_t op = c.op == reference::pre_mul_sum ? scaling_[c.type] : c.op;
    const void* const in = b.in;
    void* const out = b.out;
    // Arrays are copied by the call: these are gone when a queued call runs.
    const std::vector<std::size_t> sent = b.input.counts, received = b.output.counts;
    const std::size_t* const from = b.input.has_gaps ? b.input.offsets.data() : nullptr;
    const std::size_t* const to = b.output.has_gaps ? b.output.offsets.data() : nullptr;
    switch (c.what) {
      case What::all_reduce:
        return hocketAllReduce(in, out, c.count, c.type, op, comm, nullptr);
      case What::reduce:
        return hocketReduce(in, out, c.count, c.type, op, c.root, comm, nullptr);
      case What::reduce_scatter:
        return hocketReduceScatter(in, out, c.count, c.type, op, comm, nullptr);
      case What::reduce_scatter_v:
        return hocketReduceScatterV(in, out, sent.data(), c.type, op, comm, nullptr);
      case What::broadcast:
        if (c.in_place && c.seed % 2 == 0) {
          return hocketBcast(out, c.count, c.type, c.root, comm, nullptr);
        }
        return hocketBroadcast(in, out, c.count, c.type, c.root, comm, nullptr);
      case What::all_gather:
        return hocketAllGather(in, out, c.count, c.type, comm, nullptr);
      case What::all_gather_v:
        return hocketAllGatherV(in, sent[0], out, received.data(), to, c.type, comm, nullptr);
      case What::gather:
        return hocketGather(in, out, c.count, c.type, c.root, comm, nullptr);
      case What::gather_v:
        return hocketGatherV(in, sent[0], out, received.data(), to, c.type, c.root, comm, nullptr);
      case What::scatter:
        return hocketScatter(in, out, c.count, c.type, c.root, comm, nullptr);
      case What::scatter_v:
        return hocketScatterV(in, sent.data(), from, out, received[0], c.type, c.root, comm,
                              nullptr);
      case What::all_to_all:
        return hocketAlltoAll(in, out, c.count, c.type, comm, nullptr);
      case What::all_to_all_v:
        return hocketAlltoAllV(in, sent.data(), from, out, received.data(), to, c.type, comm,
                               nullptr);
      case What::barrier:
        break;
    }
    return hocketInternalError;
  }

  /// Fills ledger_.expected with the fold of the whole inputs.
  void expect(const Case& c) {
    reference::Bytes& expected = ledger_.expected;
    expected.resize(ledger_.inputs[0].size());
    const std::size_t count = expected.size() / c.size();
    reference::reduce(c.type, c.op, pointers(), count, expected.data());
    if (!has_bounds(c)) return;
    ledger_.low.resize(expected.size());
    ledger_.high.resize(expected.size());
    reference::bounds(c.type, c.op, pointers(), count, ledger_.low.data(), ledger_.high.data());
  }

  /// What block `block` of this rank's output receives: bytes of the ledger.
  const std::uint8_t* source_of(const Case& c, std::size_t block) const {
    const Row& row = row_of(c.what);
    const auto n = static_cast<std::size_t>(self_.ranks), me = static_cast<std::size_t>(self_.rank);
    if (row.reduces) return ledger_.expected.data() + skipped(c);
    const std::size_t sender = row.input_at_root               ? static_cast<std::size_t>(c.root)
                               : row.output == Parts::per_rank ? block
                                                               : me;
    const Layout from = layout_of(c, n, sender, true);
    const std::size_t before = row.input == Parts::per_rank ? from.packed(me) : 0;
    return ledger_.inputs[sender].data() + before * c.size();
  }

  /// Of a reduction: the bytes of the whole result before this rank's part.
  std::size_t skipped(const Case& c) const {
    if (row_of(c.what).input != Parts::per_rank) return 0;
    const auto n = static_cast<std::size_t>(self_.ranks), me = static_cast<std::size_t>(self_.rank);
    return layout_of(c, n, me, true).packed(me) * c.size();
  }

  static bool has_bounds(const Case& c) {
    return c.data == Data::small && !reference::is_integer(c.type) &&
           (c.op == hocketSum || c.op == hocketAvg || c.op == reference::pre_mul_sum);
  }

  reference::Inputs pointers() const {
    reference::Inputs out;
    for (const auto& input : ledger_.inputs) out.push_back(input.data());
    return out;
  }

  void check_output(const Case& c, const Buffers& b, const std::string& algorithm) {
    const std::size_t size = c.size(), bytes = out_bytes(c, b);
    static const std::set<std::string> ordered = {"inline",     "one-shot", "staged", "direct",
                                                  "owner-fold", "pairs",    "chain"};
    const bool in_order = ordered.contains(algorithm) || self_.ranks == 1;
    const bool any_order = !row_of(c.what).reduces || in_order || c.data == Data::exact ||
                           reference::is_integer(c.type) || c.op == hocketMin || c.op == hocketMax;
    if (!any_order) return check_bounds(c, b, algorithm);
    reference::Bytes expected = b.output_before;  // the gaps between blocks stay as they were
    for (std::size_t block = 0; block < b.output.counts.size(); ++block) {
      const std::size_t block_bytes = b.output.counts[block] * size;
      if (block_bytes == 0) continue;
      std::memcpy(expected.data() + b.output.offsets[block] * size, source_of(c, block),
                  block_bytes);
    }
    if (std::memcmp(b.out, expected.data(), bytes) == 0) return;
    std::size_t i = 0;
    while (b.out[i] == expected[i]) ++i;
    i = i / size * size;
    std::string text;
    for (std::size_t byte = size; byte-- > 0;) text += hex(b.out[i + byte]);
    text += " instead of ";
    for (std::size_t byte = size; byte-- > 0;) text += hex(expected[i + byte]);
    ADD_FAILURE() << describe(c) << " by " << algorithm << " on rank " << self_.rank << ": element "
                  << i / size << " is " << text;
  }

  /// Of a reduction whose order is free.
  void check_bounds(const Case& c, const Buffers& b, const std::string& algorithm) {
    const std::size_t size = c.size(), bytes = out_bytes(c, b), before = skipped(c);
    for (std::size_t i = 0; has_bounds(c) && i < bytes; i += size) {
      const auto value = [&](const std::uint8_t* at) { return reference::decode(c.type, at + i); };
      const double low = value(ledger_.low.data() + before),
                   high = value(ledger_.high.data() + before), got = value(b.out);
      if (low <= got && got <= high) continue;
      ADD_FAILURE() << describe(c) << " by " << algorithm << ": element " << i / size << " is "
                    << got << ", not between " << low << " and " << high;
      return;
    }
    if (c.what == What::all_reduce) {
      EXPECT_EQ(ledger_.shared.first_output.load(), hash_of(b.out, bytes))
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
  std::map<hocketDataType_t, hocketRedOp_t> scaling_;  // PreMulSum
};

}  // namespace matrix
