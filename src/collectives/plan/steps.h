// Functions with short names that make indices, ranges, steps and lanes. Builders use them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "collectives/plan/plan.h"

namespace hocket::internal::steps {

// ------------------------------------------------------------------------------------------
// indices
inline Index fixed(std::int64_t value) { return {.base = narrowed<std::int32_t>(value)}; }
/// base + i * by_instance, modulo `modulo` (0: none).
inline Index by_instance(std::int64_t base, std::int32_t by, std::uint32_t modulo = 0) {
  if (by == 0) return fixed(Index{.base = narrowed<std::int32_t>(base), .modulo = modulo}.at(0));
  return {.base = narrowed<std::int32_t>(base), .by_instance = by, .modulo = modulo};
}
/// base + j * by_source, modulo `modulo` (0: none).
inline Index by_source(std::int64_t base, std::int32_t by = 1, std::uint32_t modulo = 0) {
  return {.base = narrowed<std::int32_t>(base), .by_source = by, .modulo = modulo};
}

// -------------------------------------------------------------------------------------------
// ranges
/// Makes the ranges of one rank's plan. own: the number of this rank in ranges; in a plan that uses
/// the node it is a local rank.
class Ranges {
 public:
  explicit Ranges(std::uint32_t own_rank) : own_(fixed(own_rank)) {}

  Range input(Index block) const { return {.buffer = Buffer::input, .rank = own_, .block = block}; }
  Range output(Index block) const {
    return {.buffer = Buffer::output, .rank = own_, .block = block};
  }
  /// wide: the elements have the accumulator's type.
  Range scratch(Index block, bool wide = false) const {
    return {.buffer = Buffer::scratch, .wide = wide, .rank = own_, .block = block};
  }
  Range line(Index block) const { return {.buffer = Buffer::line, .rank = own_, .block = block}; }

 private:
  Index own_;
};

/// The same range of a local peer.
inline Range at(Range range, Index rank) {
  range.rank = rank;
  return range;
}
/// The same range `repeat` times, j = 0, 1, ...
inline Range times(Range range, std::uint32_t repeat) {
  range.repeat = repeat;
  return range;
}

/// The contributions of `ranks` ranks in ascending order: `mine` for rank `own`, and `theirs` for
/// every other rank, with the number of that rank as j.
std::vector<Range> in_rank_order(std::uint32_t own, std::uint32_t ranks, const Range& mine,
                                 const Range& theirs);

// --------------------------------------------------------------------------------------------
// steps
Step copy(Index block, Range src, std::vector<Range> dsts);
/// A fold into a partial result, which a later step folds further.
Step fold(Index block, std::vector<Range> srcs, Range dst);
/// The step stands for `blocks` blocks of the message, j = 0, 1, ..., in a lane of all blocks.
Step for_blocks(Step step, std::uint32_t blocks);
/// The step is for small blocks only, or for large ones only (Plan::small_bytes).
Step when_small(Step step);
Step when_large(Step step);
/// The last fold of a value: it rounds the result, and divides it for avg.
Step finish(Index block, std::vector<Range> srcs, std::vector<Range> dsts);
Step send(Index peer, Index tag, Index block, Range src);
Step recv(Index peer, Index tag, Index block, Range dst);
Step send_empty(Index peer, Index tag);
Step recv_empty(Index peer, Index tag);
Step await_board();
Step arrive();
Step await_arrival();            // waits for all local peers
Step await_arrival(Index peer);  // waits for a local rank
Step wait_all(int flag, int lag = 0);
Step wait(Index peer, int flag, int lag = 0);
/// Waits until instance `instance` of lane `lane` has completed the same chunk, or the chunk that
/// is `lag` chunks before it.
Step await(std::uint32_t lane, Index instance, int lag = 0);
/// Waits until each of `repeat` instances (j = 0, 1, ...) has completed that chunk.
Step await_each(std::uint32_t lane, Index instance, std::uint32_t repeat, int lag = 0);
/// Waits until instance `instance` has ended; with repeat, until each of `repeat` instances has.
Step await_end(std::uint32_t lane, Index instance, std::uint32_t repeat = 1);

// --------------------------------------------------------------------------------------------
// runs
/// Blocks whose numbers are an arithmetic progression, so one index names them and one message can
/// carry them.
struct Run {
  std::uint32_t first = 0;
  std::uint32_t distance = 1;
  std::uint32_t length = 1;

  Index blocks() const {
    return length == 1 ? fixed(first) : by_source(first, narrowed<std::int32_t>(distance));
  }
  /// As many blocks of scratch that follow one another.
  Index places(std::uint32_t first_place) const {
    return length == 1 ? fixed(first_place) : by_source(first_place);
  }
};
/// The runs of an ascending list, one after another.
std::vector<Run> runs_of(const std::vector<std::uint32_t>& blocks);

// --------------------------------------------------------------------------------------------
// lanes
Lane once(std::string name, Steps steps);
Lane all_blocks(std::string name, Buffer extents, Steps steps);
Lane one_block(std::string name, Buffer extents, Index block, Steps steps);
inline Lane publishing(Lane lane, int flag) {
  lane.publishes = narrowed<std::int16_t>(flag);
  return lane;
}
inline Lane instances(Lane lane, std::uint32_t number, std::uint32_t window) {
  lane.instances = number;
  lane.window = window;
  return lane;
}

}  // namespace hocket::internal::steps
