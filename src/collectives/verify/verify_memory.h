// Memory of symbols: the content of every chunk of every block of every buffer of every rank, and
// the last accesses to it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/plan/plan.h"

namespace hocket::internal::verify_detail {

/// The end of a step: its thread, and how many steps of that thread have ended then.
struct Epoch {
  std::int32_t thread = -1;  // -1: before all steps
  std::uint32_t tick = 0;
  bool operator==(const Epoch&) const = default;
};

/// The numbers of chunks of the items in one run, and what follows from them.
class ChunkCounts {
 public:
  ChunkCounts() = default;
  /// small: for plans with small_bytes, the items whose blocks are small.
  explicit ChunkCounts(std::vector<std::uint32_t> of_items, std::vector<bool> small = {})
      : of_items_(std::move(of_items)), small_(std::move(small)) {}
  /// True if a step of the item, `when`, is not for its blocks.
  bool leaves_out(When when, std::uint64_t item) const {
    return when != When::always && small_[item] != (when == When::small);
  }
  std::uint32_t of(std::uint64_t item) const { return of_items_[item]; }
  /// Of an instance of a lane.
  std::uint32_t of(const Plan& plan, const Lane& lane, std::uint32_t instance) const;

 private:
  std::vector<std::uint32_t> of_items_;
  std::vector<bool> small_;
};

/// Ranks in the order of a fold: from first to last, upwards or downwards.
struct Interval {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

using ValueId = std::uint32_t;
inline constexpr ValueId nothing = 0xffffffff;

/// The content of a chunk: the contributions of ranks to an item of the message, in the order of
/// the fold.
struct Value {
  std::uint64_t item = 0;
  std::uint32_t chunk = 0;
  bool one_by_one = true;  // in all folds, only the first operand was a partial result
  bool finished = false;
  std::uint32_t begin = 0, end = 0;  // its intervals in Values
  Epoch made = {};                   // the fold that made it
  std::uint32_t operands = 0;        // the first of its operands in Values
  std::uint32_t operand_count = 0;   // 0: an input
};

/// All values of a run: first the inputs of the ranks, then the results of folds.
class Values {
 public:
  ValueId add_input(std::uint32_t rank, std::uint64_t item, std::uint32_t chunk);
  const Value& at(ValueId id) const { return values_[id]; }
  std::span<const Interval> ranks(ValueId id) const {
    return {intervals_.data() + values_[id].begin, intervals_.data() + values_[id].end};
  }
  /// True if more than one rank contributed.
  bool is_folded(ValueId id) const {
    const std::span<const Interval> all = ranks(id);
    return all.size() > 1 || all[0].first != all[0].last;
  }
  /// srcs: values of the same item and chunk, none of which is finished. end: of the step.
  ValueId fold(std::span<const ValueId> srcs, bool finish, Epoch end);
  /// True if the fold that ended at `end` added the contribution of `rank`. Then that fold precedes
  /// every step that has the value.
  bool stems_from(ValueId id, std::uint32_t rank, Epoch end) const;
  /// True if each of `ranks` ranks contributed exactly once.
  bool has_all(ValueId id, std::uint32_t ranks) const;
  /// True if `ranks` ranks contributed one by one, in ascending order.
  bool in_rank_order(ValueId id, std::uint32_t ranks) const;
  std::string describe(ValueId id) const;

 private:
  std::vector<Value> values_;
  std::vector<Interval> intervals_;
  std::vector<ValueId> operands_;
};

/// The reads of a cell since it was last written, one for each thread. Most cells have one reader.
struct Readers {
  Epoch first;
  std::vector<Epoch> more;

  void add(Epoch end) {
    if (first.thread < 0 || first.thread == end.thread) {
      first = end;
      return;
    }
    for (Epoch& read : more) {
      if (read.thread == end.thread) {
        read = end;
        return;
      }
    }
    more.push_back(end);
  }
  /// The first read for which fine(read) is false. Thread -1: there is none.
  template <typename Fine>
  Epoch first_not(Fine&& fine) const {
    if (first.thread >= 0 && !fine(first)) return first;
    for (const Epoch& read : more) {
      if (!fine(read)) return read;
    }
    return {};
  }
  void clear() {
    first = {};
    more.clear();
  }
};

/// One chunk of one block of a buffer.
struct Cell {
  ValueId value = nothing;
  bool wide = false;
  std::int32_t sender = -1;      // the last rank whose message brought narrow data; -1: none
  std::uint64_t read_in = 0;     // the last fold that read it
  std::uint64_t written_in = 0;  // the last fold that wrote it
  Epoch last_write;
  Readers reads;
};

/// A block of a buffer of a rank: a range with its indices computed.
struct Spot {
  std::uint32_t rank = 0;  // of the communicator
  Buffer buffer = Buffer::input;
  bool wide = false;
  std::uint32_t block = 0;
};

class Memory {
 public:
  /// in_place: the buffers overlap as the in-place rule says.
  Memory(std::span<const Plan> plans, const ChunkCounts& counts, bool in_place);

  bool in_place() const { return in_place_; }
  Cell& cell(const Spot& spot, std::uint32_t chunk);
  /// All cells of the input and the output of a rank.
  std::vector<Cell>& callers(std::uint32_t rank) { return callers_[rank]; }

 private:
  void lay_out(const Plan& plan, const ChunkCounts& counts);

  std::span<const Plan> plans_;
  bool in_place_;
  // For each rank:
  std::vector<std::vector<std::uint32_t>> inputs_, outputs_;  // the first cell of each block
  std::vector<std::vector<Cell>> callers_;                    // input and output
  std::vector<std::vector<Cell>> library_;  // scratch [slot][block], then the blocks of the line
};

}  // namespace hocket::internal::verify_detail
