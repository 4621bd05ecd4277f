// pat: parallel aggregated trees, for all-gather and reduce-scatter between many ranks. A rank
// sends ceil(log2 p) messages for up to 32 ranks, and more messages for more ranks, but no message
// has more than 16 blocks. The farther a message goes, the fewer blocks it has. The scratch of a
// rank has O(log p) blocks.
//
// The tree of a block. Let x be the distance of a rank from the owner of a block: rank o + x (mod
// p) has the distance x from rank o. In an all-gather it receives the block from the rank at the
// distance x - b, where b is the lowest bit of x that is set. So each block goes down a binomial
// tree, and the trees of all blocks are alike.
//
// All-gather in rounds, one for each b, the largest b first: each rank sends to rank + b, in one
// message, the blocks of all trees that have an edge from this rank of that length. These are the
// blocks of the owners at the distances 0, 2b, 4b, ...:
//
//                    rank 0      rank 1      rank 2      rank 3
//   b = 2            a > 2       b > 3       c > 0       d > 1
//   b = 1            a c > 1     b d > 2     c a > 3     d b > 0
//
// The round b = 1 would have p / 2 blocks in a message. To have at most 16, the distances are
// written as x = m T + y with y < T, where T is the least power of two for which m has at most 16
// values. A tree then consists of its `roots`, the ranks x = m T, and of a subtree of T ranks for
// each root: the parent of x = m T + y, y > 0, is m T + y', where y' is y without its lowest bit.
// There are two phases:
//
//   roots      rounds as above, for b = T 2^k, down to b = T
//   subtrees   a message for each y = 1 .. T - 1, with a block for each m: at most 16. Message y
//              comes from rank - (y - y'):
//
//   T = 8:     y   1   2   3   4   5   6   7
//              y'  0   0   2   0   4   4   6
//
// Levels. Level j has the numbers y = 2^j (2 i + 1), i = 0, 1, ...: those whose lowest bit is bit
// j. The roots (y = 0) are level log2 T. A level has one row in scratch: a block for each m, with
// what the rank has received for the latest y of the level. From there the rank sends message y +
// 1, y + 2, y + 4, ... y + 2^(j-1): one y of each lower level. When these have been sent, the next
// y of the level may be received into the row. So log2 T + 1 rows are enough. A message of the
// subtrees goes from a row to a row. The blocks of a round between roots are not next to one
// another in the row of the roots, so they are packed first.
//
// Lanes of the all-gather: for each round, `send` and `receive`; for each level, `receive`, with an
// instance for each y; for each level l and each lower level j, `send`, for what goes from the row
// of level l to level j. Instances follow one another (a window of 1). If T does not divide p, the
// last root has no rank for the largest y, and the messages of these y have one block less. Such
// instances are a lane of their own.
//
// No deadlock: let y be the least number of a message that some rank has not received. Its sender
// has received message y', because y' is less than y. The row of the receiver is free: the messages
// that were sent from it have lesser numbers than y, so their receivers have received them.
//
// Reduce-scatter. The messages go the other way, in reverse order: partial results go up the trees,
// in the subtrees first, then between the roots, from the least distance to the largest. For each y
// of a level, the lane `sum` receives the partial results of y + 1, y + 2, y + 4, ... one after
// another, and adds each to the row of the level; then the lane `send` sends the row. A level has a
// second row, into which partial results are received before they are added.
//
// No deadlock: in the order in which a walk through the tree leaves the numbers (T = 8: 1, 3, 2, 5,
// 7, 6, 4), let y be the first number whose partial results some rank has not sent. The numbers
// whose partial results it must add come before y in this order, so it has received them. The
// receiver takes only earlier numbers into the same row before y, so it can receive y.
//
// Partial results of fp16, bf16 and fp8 are sent as fp32; the inputs of leaves are sent as they
// are. The order of a fold depends on the rank of the owner.
//
// Each block has one chunk, so a block must fit in a block of scratch; `ring` is for longer blocks.
// For more than 32 ranks `circulant` sends fewer messages, but its scratch has up to 2 p blocks.
//
// Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale"
// (arXiv 2506.20252, 2025), which chooses the number of blocks in a message by their length.
#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "collectives/algorithms/algorithms.h"
#include "collectives/plan/steps.h"

namespace hocket::internal::algorithms {

using namespace steps;

namespace {

constexpr std::uint32_t most_roots = 16;  // of a tree: a message has a block for each, or fewer
constexpr Index only = {.base = 0};

class Pat {
 public:
  Pat(const Shape& shape, Plan& plan)
      : plan_(plan),
        r_(shape.rank),
        rank_(shape.rank),
        ranks_(shape.ranks),
        gathers_(shape.collective == Collective::all_gather),
        widened_(shape.widened) {
    while (roots() > most_roots) ++levels_;
    plan_.single_chunk = true;
  }

  void gather();
  void reduce();

 private:
  /// Instances first .. first + number - 1 of a level. Their messages have the same number of
  /// blocks, so one lane with `number` instances stands for them.
  struct Part {
    std::uint32_t first, number;
    std::uint32_t lane = 0;  // the number of that lane in the plan
  };
  using Parts = std::vector<Part>;

  /// A round between roots: each rank sends one message, over the distance T 2^k. It has a block
  /// for each root m = 2^k (2 t + 1), t = 0, 1, ...: in an all-gather these roots receive, in a
  /// reduce-scatter they send.
  struct Round {
    std::uint32_t step;        // 2^k
    std::uint32_t blocks;      // of the message: the number of values of t
    std::uint32_t packed = 0;  // the first block of scratch for the message that is sent
    std::uint32_t came = 0;    // and for the message that is received
  };

  /// The number of ranks in a subtree: T.
  std::uint32_t tree() const { return 1U << levels_; }
  std::uint32_t roots() const { return (ranks_ - 1) / tree() + 1; }
  /// The number of roots whose subtree has a rank y: all of them, or all but the last one. A
  /// message for y has so many blocks.
  std::uint32_t blocks_of(std::uint32_t y) const {
    return roots() - ((roots() - 1) * tree() + y < ranks_ ? 0 : 1);
  }
  /// The y of instance i of a level; 0 for the roots.
  std::uint32_t y_of(std::uint32_t level, std::uint32_t i) const {
    return level == levels_ ? 0 : (2 * i + 1) << level;
  }
  std::uint32_t instances_of(std::uint32_t level) const {
    return level == levels_ ? 1 : tree() >> (level + 1);
  }
  /// Divides the instances of a level into parts. For each offset, the messages for y + offset have
  /// the same number of blocks in all instances of a part.
  Parts parts(std::uint32_t level, const std::vector<std::uint32_t>& offsets) const {
    Parts found;
    const auto same = [&](std::uint32_t i, std::uint32_t k) {
      return std::ranges::all_of(offsets, [&](std::uint32_t offset) {
        return blocks_of(y_of(level, i) + offset) == blocks_of(y_of(level, k) + offset);
      });
    };
    for (std::uint32_t i = 0; i < instances_of(level); ++i) {
      if (found.empty() || !same(i, i - 1)) found.push_back({i, 0});
      ++found.back().number;
    }
    return found;
  }

  /// The difference between the y of an instance and the y of the next instance of the level.
  std::int32_t by(std::uint32_t level) const {
    return level == levels_ ? 0 : narrowed<std::int32_t>(2U << level);
  }
  /// The blocks in whose trees this rank is the y of root m = 0, 1, ...: the owner of such a block
  /// is m T + y ranks before this one. y is that of the instance of the part.
  Index blocks(std::uint32_t level, const Part& part) const {
    return {.base = narrowed<std::int32_t>(rank_) - narrowed<std::int32_t>(y_of(level, part.first)),
            .by_instance = -by(level),
            .by_source = -narrowed<std::int32_t>(tree()),
            .modulo = ranks_};
  }
  /// The blocks in whose trees this rank is root `first`, `first` + `step`, ... (with step 0 only
  /// `first`).
  Index blocks_of_roots(std::uint32_t first, std::uint32_t step) const {
    const std::int64_t distance = std::int64_t{first} * tree();
    return step == 0 ? rank_at(-distance)
                     : by_source(std::int64_t{rank_} - distance,
                                 -narrowed<std::int32_t>(step * tree()), ranks_);
  }
  /// The rank at a distance from this one; also the number of the block that it owns.
  Index rank_at(std::int64_t distance) const {
    return by_instance(std::int64_t{rank_} + distance, 0, ranks_);
  }
  /// The blocks `first`, `first` + `step`, ... of scratch.
  Range run(std::uint32_t first, bool wide = false, std::uint32_t step = 1) const {
    return r_.scratch(by_source(first, narrowed<std::int32_t>(step)), wide);
  }
  /// Reserves blocks of scratch; returns the first one.
  std::uint32_t room(std::uint32_t blocks) {
    plan_.scratch_blocks += blocks;
    return plan_.scratch_blocks - blocks;
  }
  /// Adds a lane, whose instances follow one another; returns its number in the plan.
  std::uint32_t add(const char* name, Steps steps, std::uint32_t number = 1) {
    plan_.lanes.push_back(instances(
        all_blocks(name, gathers_ ? Buffer::output : Buffer::input, std::move(steps)), number, 1));
    return narrowed<std::uint32_t>(plan_.lanes.size() - 1);
  }
  /// Adds the steps by which an instance i of the level, in the lane of `own`, awaits instance i +
  /// offset of the level, in whichever of the lanes of `parts` has it. A lane that has it for no i
  /// of `own` is not awaited.
  static void await_parts(const Parts& parts, const Part& own, std::int64_t offset, Steps* steps) {
    for (const Part& part : parts) {
      const std::int64_t first = own.first + offset, end = first + own.number;
      if (end <= part.first || first >= std::int64_t{part.first} + part.number) continue;
      steps->push_back(
          await(part.lane, by_instance(std::int64_t{own.first} + offset - part.first, 1)));
    }
  }
  std::vector<Round> rounds();
  Range wide_run(std::uint32_t first) const { return run(first, widened_); }

  void gather_roots();
  void send_down(std::uint32_t level, const Parts& received);
  void reduce_tree(std::uint32_t level);
  void add_children(std::uint32_t level, const Part& part, Steps* steps);
  void reduce_roots();
  std::vector<Range> operands(std::uint32_t root, std::uint32_t step, std::size_t earlier) const;

  Plan& plan_;
  const Ranges r_;
  const std::uint32_t rank_, ranks_;
  const bool gathers_, widened_;
  std::uint32_t levels_ = 0;  // of the subtrees, without the roots: log2 T
  // The first block of the row of each level, that of the roots at the end; and of the second row,
  // into which a reduce-scatter receives.
  std::vector<std::uint32_t> rows_, came_rows_;
  std::vector<Round> rounds_;     // between roots, the least distance first
  std::uint32_t roots_lane_ = 0;  // when this lane has ended, the row of the roots is complete
  std::vector<std::vector<Parts>> sends_;  // of an all-gather: by the level that sends
};

/// The rounds between roots, with scratch for their messages.
std::vector<Pat::Round> Pat::rounds() {
  std::vector<Round> found;
  for (std::uint32_t step = 1; step < roots(); step *= 2) {
    Round round = {.step = step, .blocks = (roots() + step - 1) / (2 * step)};
    round.packed = room(round.blocks);
    round.came = room(round.blocks);
    found.push_back(round);
  }
  return found;
}

// ------------------------------------------------------------------------------------------
// all-gather

/// Adds the lanes of the roots, then those of the levels, the highest first: a level receives from
/// higher levels only.
void Pat::gather() {
  for (std::uint32_t level = 0; level <= levels_; ++level) rows_.push_back(room(roots()));
  rounds_ = rounds();
  gather_roots();
  sends_.resize(levels_ + 1);
  send_down(levels_, {{.first = 0, .number = 1, .lane = roots_lane_}});
  for (std::uint32_t level = levels_; level-- > 0;) {
    const std::int64_t distance = std::int64_t{1} << level;
    const auto first_send = narrowed<std::uint32_t>(plan_.lanes.size());
    Parts received = parts(level, {0});
    for (std::uint32_t n = 0; n < received.size(); ++n) received[n].lane = first_send + n;
    // The lanes `receive` await lanes `send` of the level, which are added after them.
    std::uint32_t next = first_send + narrowed<std::uint32_t>(received.size());
    for (std::uint32_t below = level; below-- > 0;) {
      Parts& sent = sends_[level].emplace_back(parts(level, {1U << below}));
      for (Part& part : sent) part.lane = next++;
    }
    for (const Part& part : received) {
      const std::uint32_t number = blocks_of(y_of(level, part.first));
      const Index all = blocks(level, part);
      Steps steps;
      for (const Parts& sent : sends_[level]) await_parts(sent, part, -1, &steps);
      if (part.first > 0) await_parts(received, part, -1, &steps);
      steps.push_back(for_blocks(
          recv(rank_at(-distance), by_instance(part.first, 1), all, run(rows_[level])), number));
      steps.push_back(for_blocks(copy(all, run(rows_[level]), {r_.output(all)}), number));
      add("receive", std::move(steps), part.number);
    }
    send_down(level, received);
  }
}

/// Adds lanes that send the row of a level to each lower level. received: the lanes that receive
/// into the row.
void Pat::send_down(std::uint32_t level, const Parts& received) {
  for (std::uint32_t below = level; below-- > 0;) {
    const std::uint32_t distance = 1U << below;
    for (const Part& part : parts(level, {distance})) {
      const std::uint32_t y = y_of(level, part.first) + distance;
      // This y is instance `first` of the level `below`. A tag is the number of the instance that
      // receives.
      const std::uint32_t first = (y >> (below + 1));
      const Index tag = by_instance(first, by(level) >> (below + 1));
      Steps steps;
      await_parts(received, part, 0, &steps);
      steps.push_back(for_blocks(
          send(rank_at(distance), tag, blocks(level, part), run(rows_[level])), blocks_of(y)));
      add("send", std::move(steps), part.number);
    }
  }
}

/// Adds the lanes of the rounds between roots, the largest distance first.
void Pat::gather_roots() {
  const std::uint32_t row = rows_.back();
  const Index own = fixed(rank_);
  roots_lane_ = add("own", {copy(own, r_.input(only), {r_.output(own)}),
                            copy(own, r_.input(only), {r_.scratch(fixed(row))})});
  for (std::size_t k = rounds_.size(); k-- > 0;) {
    const Round& round = rounds_[k];
    const std::int64_t distance = std::int64_t{round.step} * tree();
    const Index old = blocks_of_roots(0, 2 * round.step),
                fresh = blocks_of_roots(round.step, 2 * round.step);
    const Range packed = run(round.blocks == 1 ? row : round.packed);
    Steps steps = {await(roots_lane_, only)};
    if (round.blocks > 1) {
      steps.push_back(
          for_blocks(copy(old, run(row, false, 2 * round.step), {packed}), round.blocks));
    }
    steps.push_back(for_blocks(send(rank_at(distance), only, old, packed), round.blocks));
    add("send", std::move(steps));
    std::vector<Range> to = {r_.output(fresh)};
    const bool sent_on = levels_ > 0 || k > 0;  // in a later round, or to a subtree
    if (sent_on) to.push_back(run(row + round.step, false, 2 * round.step));
    roots_lane_ =
        add("receive",
            {for_blocks(recv(rank_at(-distance), only, fresh, run(round.came)), round.blocks),
             for_blocks(copy(fresh, run(round.came), std::move(to)), round.blocks),
             await(roots_lane_, only)});
  }
}

// ------------------------------------------------------------------------------------------
// reduce-scatter

/// Adds the lanes of the levels, the lowest first, then those of the rounds between roots. Without
/// subtrees (T = 1) there are only rounds.
void Pat::reduce() {
  for (std::uint32_t level = 0; level <= levels_ && levels_ > 0; ++level) {
    rows_.push_back(room(roots()));
    came_rows_.push_back(level == 0 ? 0 : room(roots()));
  }
  rounds_ = rounds();
  plan_.wide_scratch = widened_ && ranks_ > 2;
  for (std::uint32_t level = 0; level <= levels_ && levels_ > 0; ++level) reduce_tree(level);
  reduce_roots();
}

/// Adds the lanes of a level: `sum` adds the partial results of the lower levels to the row of the
/// level, and `send` sends the row. Level 0 has no `sum`: its y are leaves, which send their
/// inputs. The level of the roots has no `send`: the rounds follow.
void Pat::reduce_tree(std::uint32_t level) {
  std::vector<std::uint32_t> offsets = {0};
  for (std::uint32_t below = 0; below < level; ++below) offsets.push_back(1U << below);
  Parts sums = parts(level, offsets);
  const auto first_lane = narrowed<std::uint32_t>(plan_.lanes.size());
  const std::uint32_t lanes = level == 0 ? 1 : 2;  // for each part; the last one is `send`
  for (std::uint32_t n = 0; n < sums.size(); ++n) sums[n].lane = first_lane + lanes * n + lanes - 1;
  for (const Part& part : sums) {
    const std::uint32_t number = blocks_of(y_of(level, part.first));
    const Index all = blocks(level, part);
    Steps sum, pass;
    await_parts(sums, part, -1, &sum);
    if (level == 0) {
      sum.push_back(for_blocks(copy(all, r_.input(all), {run(rows_[0])}), number));
      pass = std::move(sum);
    } else {
      add_children(level, part, &sum);
      const std::uint32_t summed = add("sum", std::move(sum), part.number);
      if (level == levels_) {
        roots_lane_ = summed;
        return;
      }
      pass = {await(summed, by_instance(0, 1))};
    }
    const Range row = level == 0 ? run(rows_[0]) : wide_run(rows_[level]);
    pass.push_back(for_blocks(
        send(rank_at(-(std::int64_t{1} << level)), by_instance(part.first, 1), all, row), number));
    add("send", std::move(pass), part.number);
  }
}

/// Adds the steps that receive the partial results of the children y + 1, y + 2, y + 4, ... of a y,
/// one child after another, and add them to the own inputs.
void Pat::add_children(std::uint32_t level, const Part& part, Steps* steps) {
  const std::uint32_t y = y_of(level, part.first), number = blocks_of(y);
  const Index all = blocks(level, part);
  const Range row = wide_run(rows_[level]);
  for (std::uint32_t below = 0; below < level; ++below) {
    const std::uint32_t child = y + (1U << below), come = blocks_of(child);
    const Range came = below == 0 ? run(came_rows_[level]) : wide_run(came_rows_[level]);
    const Index tag = by_instance(child >> (below + 1), by(level) >> (below + 1));
    steps->push_back(for_blocks(recv(rank_at(1U << below), tag, all, came), come));
    const Range before = below == 0 ? r_.input(all) : row;
    steps->push_back(for_blocks(fold(all, {before, came}, row), come));
    if (below > 0 || come == number) continue;
    // The y of the last root has no children: in the row its block is the own input.
    Index last = all;
    last.base += last.by_source * narrowed<std::int32_t>(come);
    steps->push_back(
        fold(last, {r_.input(last)}, r_.scratch(fixed(rows_[level] + come), widened_)));
  }
}

/// What this rank folds for the block in whose tree it is root `root` (and `root` + `step`, ...):
/// the sum of its subtree, and what the rounds before round `earlier` have received for the block.
std::vector<Range> Pat::operands(std::uint32_t root, std::uint32_t step,
                                 std::size_t earlier) const {
  std::vector<Range> found = {levels_ > 0 ? run(rows_.back() + root, widened_, step)
                                          : r_.input(blocks_of_roots(root, step))};
  for (std::size_t k = 0; k < earlier; ++k) {
    const Round& round = rounds_[k];
    // In this round no root sends to `root`.
    if (root + round.step >= roots()) continue;
    found.push_back(run(round.came + root / (2 * round.step), widened_ && (levels_ > 0 || k > 0),
                        step / (2 * round.step)));
  }
  return found;
}

/// Adds the lanes of the rounds between roots, the least distance first, and the fold of the own
/// block.
void Pat::reduce_roots() {
  Steps there;  // await what has come before the round
  if (levels_ > 0) there = {await(roots_lane_, only)};
  for (std::size_t k = 0; k < rounds_.size(); ++k) {
    const Round& round = rounds_[k];
    const std::int64_t distance = std::int64_t{round.step} * tree();
    const bool wide = widened_ && (levels_ > 0 || k > 0);
    const Index all = blocks_of_roots(round.step, 2 * round.step);
    const std::uint32_t last = round.blocks - 1, last_root = (2 * last + 1) * round.step;
    Steps steps = there;
    // The last root of the message may have fewer operands, so it has a fold of its own.
    if (last > 0) {
      steps.push_back(for_blocks(
          fold(all, operands(round.step, 2 * round.step, k), run(round.packed, wide)), last));
    }
    steps.push_back(fold(blocks_of_roots(last_root, 0), operands(last_root, 0, k),
                         r_.scratch(fixed(round.packed + last), wide)));
    steps.push_back(
        for_blocks(send(rank_at(-distance), only, all, run(round.packed, wide)), round.blocks));
    add("send", std::move(steps));
    Steps receive = {for_blocks(
        recv(rank_at(distance), only, blocks_of_roots(0, 2 * round.step), run(round.came, wide)),
        round.blocks)};
    receive.insert(receive.end(), there.begin(), there.end());
    there = {await(add("receive", std::move(receive)), only)};
  }
  Steps steps = there;
  steps.push_back(finish(fixed(rank_), operands(0, 0, rounds_.size()), {r_.output(only)}));
  add("fold", std::move(steps));
}

}  // namespace

void pat(Plan& plan, const Shape& shape) {
  Pat builder(shape, plan);
  if (shape.collective == Collective::all_gather) {
    builder.gather();
  } else {
    builder.reduce();
  }
}

}  // namespace hocket::internal::algorithms
