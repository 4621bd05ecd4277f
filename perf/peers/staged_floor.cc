#include "staged_floor.h"

#include <algorithm>
#include <cstdint>

#include "floor_node.h"

namespace hocket::peers {
namespace {

constexpr std::size_t one_shot_bytes = 4096;  // up to here every rank folds all inputs

/// A call in rounds: in each every rank stages a piece, folds what belongs to it, and collects.
class Staged {
 public:
  explicit Staged(const Call& call) : call_(call) {
    using enum Collective;
    const Collective c = call.collective;
    one_shot_ = (c == all_reduce || c == reduce) && call.count * sizeof(float) <= one_shot_bytes;
    reduces_ = c == all_reduce || c == reduce || c == reduce_scatter;
    to_each_ = c == scatter || c == alltoall || (reduces_ && !one_shot_);
    stages_ = c == broadcast || c == scatter ? node.me == 0 : c == gather ? node.me != 0 : true;
    if (c == reduce && one_shot_) stages_ = node.me != 0;
    folds_ = reduces_ && !(c == reduce && one_shot_ && node.me != 0);
    cut_ = (c == all_reduce || c == reduce) && !one_shot_;
    block_ = cut_           ? (call.count + node.ranks - 1) / node.ranks
             : call.varying ? call.longest
                            : call.count;
    collects_results_ = cut_ && (c == all_reduce || node.me == 0);
    results_are_read_ = cut_ && (c == all_reduce || node.me != 0);
    collects_ = c == gather                      ? node.me == 0
                : c == broadcast || c == scatter ? node.me != 0
                                                 : !reduces_;
    const std::size_t pieces = to_each_ ? static_cast<std::size_t>(node.ranks) : 1;
    each_ = std::max<std::size_t>(node.piece_bytes / pieces / sizeof(float) / 32 * 32, 32);
    rounds_ = std::max<std::uint64_t>(1, (block_ + each_ - 1) / each_);
  }

  void run() {
    const std::uint64_t first = first_ = node.rounds;
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
    node.rounds += rounds_;
    if (!folds_ && !collects_)
      tell(page(node.me).read.number, node.rounds);  // it has read all it needs
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
    return slot_at(rank, round) + sizeof(Slot) + node.piece_bytes +
           128 * static_cast<std::size_t>(node.ranks);
  }
  /// Waits until the readers of the round's slot have read what an earlier round left there.
  void await_readers(std::uint64_t round, Line Page::*line, bool only_root) const {
    if (round < node_slots) return;
    for (int r = 0; r < (only_root ? 1 : node.ranks); ++r) {
      if (r != node.me) await((page(r).*line).number, round - node_slots + 1);
    }
  }

  void stage(std::uint64_t round) {
    using enum Collective;
    await_readers(round, &Page::read,
                  call_.collective == gather || (call_.collective == reduce && one_shot_));
    if (to_each_) {
      for (int i = 1; i < node.ranks; ++i) {
        const int b = (node.me + i) % node.ranks;
        copy(call_.in + start(b), piece(node.me, round, b), elements(b), node.staging);
      }
      if (!reduces_)
        copy(call_.in + start(node.me), call_.out + own_start(), elements(node.me), node.stores);
    } else {
      const std::size_t n = one_shot_ ? call_.count : elements(node.me);
      copy(call_.in + at_, piece(node.me, round, 0), n, node.staging);
      if (call_.collective == all_gather)
        copy(call_.in + at_, call_.out + start(node.me), n, node.stores);
    }
    tell(slot(node.me, round).staged.number, round + 1);
  }
  std::size_t own_start() const {
    return call_.collective == Collective::alltoall ? start(node.me) : at_;
  }

  void collect(std::uint64_t round) {
    using enum Collective;
    const Collective c = call_.collective;
    if (c == gather && node.me == 0)
      copy(call_.in + at_, call_.out + at_, elements(0), node.stores);
    if (!collects_) return;
    for (int i = 1; i < node.ranks; ++i) {
      const int q = (node.me + i) % node.ranks;
      if ((c == broadcast || c == scatter) && q != 0) continue;
      await(slot(q, round).staged.number, round + 1);
      const bool whole = c == broadcast || c == scatter;
      copy(piece(q, round, node.me), call_.out + (whole ? at_ : start(q)),
           elements(whole ? node.me : q), node.stores);
    }
    tell(page(node.me).read.number, round + 1);
  }

  void fold_pieces(std::uint64_t round) {
    const void* from[64];
    const std::size_t n = one_shot_ ? call_.count : elements(node.me);
    for (int q = 0; q < node.ranks; ++q) {
      if (q != node.me) await(slot(q, round).staged.number, round + 1);
      from[q] = q == node.me ? static_cast<const void*>(call_.in + (one_shot_ ? 0 : start(node.me)))
                             : piece(q, round, node.me);
    }
    void* to[2] = {nullptr, nullptr};
    int destinations = 0;
    if (call_.collective != Collective::reduce || node.me == 0) {
      const bool own = call_.collective == Collective::reduce_scatter;
      to[destinations++] = call_.out + (own ? at_ : one_shot_ ? 0 : start(node.me));
    }
    if (results_are_read_) {
      // What was collected in earlier calls has been: every peer has staged in this call.
      if (round - first_ >= node_slots) {
        await_readers(round, &Page::collected, call_.collective == Collective::reduce);
      }
      to[destinations++] = result(node.me, round);
    }
    const bool only_output = !results_are_read_;
    const bool near_output = destinations == 2 && node.staging == internal::Stores::non_temporal;
    fold(from, node.ranks, to, destinations, n,
         only_output   ? node.stores
         : near_output ? internal::Stores::first_cached
                       : node.staging);
    tell(page(node.me).read.number, round + 1);
    if (results_are_read_) tell(slot(node.me, round).result.number, round + 1);
  }

  void collect_results(std::uint64_t round) {
    for (int i = 1; i < node.ranks; ++i) {
      const int q = (node.me + i) % node.ranks;
      await(slot(q, round).result.number, round + 1);
      copy(result(q, round), call_.out + start(q), elements(q), node.stores);
    }
    tell(page(node.me).collected.number, round + 1);
  }

  const Call& call_;
  bool one_shot_ = false, cut_ = false, to_each_ = false;  // to_each_: a piece for each rank
  bool reduces_, stages_, folds_, collects_, collects_results_, results_are_read_;
  std::size_t block_, each_, at_ = 0;
  std::uint64_t rounds_, first_ = 0;
};

}  // namespace

void staged_floor_run(const Call& call) { Staged(call).run(); }

}  // namespace hocket::peers
