// Memory of symbols: the content of every block of every buffer of every rank, and the last
// accesses to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"

namespace hocket::internal::verify_detail {

/// The end of a step: the value of the clock of its thread after that step.
struct Epoch {
  std::int32_t thread = -1;  // -1: before all steps
  std::uint32_t tick = 0;
};

using ValueId = std::uint32_t;
inline constexpr ValueId nothing = 0xffffffff;

/// The content of a block: the contributions of `ranks` to block `block`, chunk `chunk` of the
/// message, folded in this order.
struct Value {
  std::uint32_t block = 0;
  std::uint32_t chunk = 0;
  std::vector<std::int16_t> ranks;
  bool one_by_one = true;  // partial results were only the first operands of folds
  bool finished = false;
};

/// All values of a run. The inputs of the ranks have fixed numbers; the results of folds are
/// numbered behind them.
class Values {
 public:
  Values(int ranks, std::uint32_t input_blocks, std::uint32_t chunks)
      : ranks_(ranks), blocks_(input_blocks), chunks_(chunks) {}

  ValueId plain(int rank, std::uint32_t block, std::uint32_t chunk) const {
    return (static_cast<ValueId>(rank) * blocks_ + block) * chunks_ + chunk;
  }
  bool is_plain(ValueId id) const { return id < plain_count(); }
  Value at(ValueId id) const;
  std::size_t contributions(ValueId id) const { return is_plain(id) ? 1 : folded(id).ranks.size(); }
  std::uint32_t block_of(ValueId id) const {
    return is_plain(id) ? id / chunks_ % blocks_ : folded(id).block;
  }
  std::uint32_t chunk_of(ValueId id) const {
    return is_plain(id) ? id % chunks_ : folded(id).chunk;
  }
  bool is_finished(ValueId id) const { return !is_plain(id) && folded(id).finished; }
  /// srcs: values of the same block and chunk, none of which is finished.
  ValueId fold(const std::vector<ValueId>& srcs, bool finish);
  std::string describe(ValueId id) const;

 private:
  ValueId plain_count() const { return static_cast<ValueId>(ranks_) * blocks_ * chunks_; }
  const Value& folded(ValueId id) const { return folded_[id - plain_count()]; }

  int ranks_;
  std::uint32_t blocks_, chunks_;
  std::vector<Value> folded_;
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
  Epoch last_write;
  Readers reads;
};

class Memory {
 public:
  /// in_place: the buffers overlap as the in-place rule of the collective says.
  Memory(const std::vector<const Plan*>& plans, std::uint32_t chunks, bool in_place,
         const Values& values);

  bool in_place() const { return in_place_; }
  Cell& cell(int rank, const Range& range, std::uint32_t chunk);
  /// All cells of the input and the output of a rank.
  std::vector<Cell>& callers(int rank) { return data_[rank]; }
  /// Records `begin` as the last write of the caller to the buffers of `rank`.
  void give(int rank, Epoch begin);

 private:
  std::size_t data_index(int rank, Buffer buffer, std::uint32_t block, std::uint32_t chunk) const;

  const std::vector<const Plan*>& plans_;
  std::uint32_t chunks_;
  bool in_place_;
  // For each rank:
  std::vector<std::vector<Cell>> data_;     // input and output, [block][chunk]
  std::vector<std::vector<Cell>> library_;  // scratch [slot][block], then the blocks of the line
};

}  // namespace hocket::internal::verify_detail
