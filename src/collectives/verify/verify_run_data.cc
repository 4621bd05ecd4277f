// The memory accesses of a run: races, widths, and the content of the outputs at the end.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/verify/verify_form.h"
#include "collectives/verify/verify_run.h"

namespace hocket::internal::verify_detail {

namespace {

std::string name_of(const Spot& spot, std::uint32_t reader) {
  static const char* const names[] = {"input", "output", "scratch", "line"};
  std::string text = fmt::format("{} block {}", names[static_cast<int>(spot.buffer)], spot.block);
  if (spot.rank != reader) text += fmt::format(" of rank {}", spot.rank);
  return text;
}

bool is_callers(const Spot& spot) {
  return spot.buffer == Buffer::input || spot.buffer == Buffer::output;
}

const char* width_of(bool wide) { return wide ? "wide" : "narrow"; }

}  // namespace

/// The spots of the ranges for block `repetition` of the step. Either the step is repeated, or a
/// range is.
void Run::spots_of(int thread, const std::vector<Range>& ranges, std::uint32_t repetition,
                   std::vector<Spot>& spots) const {
  const Plan& plan = plan_of(thread);
  const std::uint32_t instance = threads_[thread].instance;
  spots.clear();
  for (const Range& range : ranges) {
    for (std::uint32_t j = repetition; j < repetition + range.repeat; ++j) {
      const auto rank = static_cast<std::uint32_t>(range.rank.at(instance, j));
      spots.push_back({plan.uses_node() ? plan.node[rank] : rank, range.buffer, range.wide,
                       static_cast<std::uint32_t>(range.block.at(instance, j))});
    }
  }
}

std::uint64_t Run::item_of_step(int thread, std::uint32_t repetition) const {
  const Plan& plan = plan_of(thread);
  const Lane& lane = lane_of(thread);
  const Step& step = current(thread);
  if (passes_on(plan, lane, step)) return any_item;
  return item_of(plan, lane, step, threads_[thread].instance, repetition);
}

/// True if the rank of `thread` has awaited the arrival of `rank` before the running step.
bool Run::has_met(int thread, std::uint32_t rank) const {
  const Plan& plan = plan_of(thread);
  const auto local = std::ranges::lower_bound(plan.node, rank) - plan.node.begin();
  return std::ranges::any_of(by_rank_[plan.shape.rank].awaited[local],
                             [&](Epoch end) { return order_->before(end, thread); });
}

bool Run::check_access(Memory& memory, int thread, const Spot& spot, bool writes) {
  const std::uint32_t rank = threads_[thread].rank;
  const auto name = [&] { return name_of(spot, rank); };
  if (spot.rank == rank) {
    const bool on_board = plans_[rank].uses_node() && !is_callers(spot);
    if (!writes || !on_board || by_rank_[rank].board_is_free) return true;
    return fail(thread, &memory, fmt::format("writes {} before it has awaited its board", name()));
  }
  if (!has_met(thread, spot.rank)) {
    return fail(thread, &memory,
                fmt::format("{} {} before it has awaited that rank's arrival",
                            writes ? "writes" : "reads", name()));
  }
  if (is_callers(spot) && by_rank_[spot.rank].ended) {
    return fail(thread, &memory,
                fmt::format("{} {}, which may have returned: no step orders the two",
                            writes ? "writes" : "reads", name()));
  }
  return true;
}

/// The cell of a spot that is read; nullptr after an error.
Cell* Run::read(Memory& memory, int thread, const Spot& spot, std::uint64_t item) {
  if (!check_access(memory, thread, spot, false)) return nullptr;
  Cell& cell = memory.cell(spot, threads_[thread].chunk);
  if (!order_->before(cell.last_write, thread)) {
    fail(thread, &memory,
         fmt::format("reads {} while {} may be writing it: no step orders the two",
                     name_of(spot, threads_[thread].rank), name_of_thread(cell.last_write)));
    return nullptr;
  }
  if (!check_content(memory, thread, spot, item, cell)) return nullptr;
  cell.reads.add(order_->next_end(thread));
  return &cell;
}

bool Run::check_content(Memory& memory, int thread, const Spot& spot, std::uint64_t item,
                        const Cell& cell) {
  const auto name = [&] { return name_of(spot, threads_[thread].rank); };
  if (cell.value == nothing) {
    return fail(thread, &memory, fmt::format("reads {}, where nothing has been written", name()));
  }
  const Value& value = values_.at(cell.value);
  if (value.chunk != threads_[thread].chunk || (value.item != item && item != any_item)) {
    return fail(thread, &memory,
                fmt::format("reads {} for {}, but it holds {}", name(),
                            item == any_item ? fmt::format("chunk {}", threads_[thread].chunk)
                                             : fmt::format("item {}", item),
                            values_.describe(cell.value)));
  }
  if (cell.wide != spot.wide) {
    return fail(thread, &memory,
                fmt::format("reads {} as {}, but it holds {} elements", name(), width_of(spot.wide),
                            width_of(cell.wide)));
  }
  return true;
}

/// True if the step that ended at `read` precedes the running step of `thread`, which has `value`.
/// Ranks that fold their input into a partial result, and overwrite it with the result, are ordered
/// by the value only: the clocks of many threads do not show that.
bool Run::is_over(Epoch read, int thread, ValueId value) const {
  return order_->knows(thread, read) ||
         values_.stems_from(value, threads_[read.thread].rank, read) ||
         order_->before(read, thread);
}

bool Run::write(Memory& memory, int thread, const Spot& spot, ValueId value) {
  if (!check_access(memory, thread, spot, true)) return false;
  Cell& cell = memory.cell(spot, threads_[thread].chunk);
  const auto races = [&](Epoch other, const char* does) {
    return fail(thread, &memory,
                fmt::format("writes {} while {} may be {} it: no step orders the two",
                            name_of(spot, threads_[thread].rank), name_of_thread(other), does));
  };
  if (!order_->before(cell.last_write, thread)) return races(cell.last_write, "writing");
  const Epoch reader =
      cell.reads.first_not([&](const Epoch& read) { return is_over(read, thread, value); });
  if (reader.thread >= 0) return races(reader, "reading");
  cell.reads.clear();
  cell.last_write = order_->next_end(thread);
  cell.value = value;
  cell.wide = spot.wide;
  return true;
}

bool Run::fold(int thread) {
  for (std::uint32_t repetition = 0; repetition < current(thread).repeat; ++repetition) {
    if (!fold_block(thread, repetition)) return false;
  }
  return true;
}

bool Run::fold_block(int thread, std::uint32_t repetition) {
  const std::uint64_t item = item_of_step(thread, repetition);
  // A shorter block than the longest one of the lane has no such chunk. The blocks that are passed
  // on are equally long.
  if (item != any_item && threads_[thread].chunk >= counts_.of(item)) return true;
  spots_of(thread, current(thread).srcs, repetition, srcs_);
  spots_of(thread, current(thread).dsts, repetition, dsts_);
  last_operands_.clear();
  for (Memory& memory : memories_) {
    if (!fold_in(memory, thread, item)) return false;
  }
  return true;
}

bool Run::fold_in(Memory& memory, int thread, std::uint64_t item) {
  const Step& step = current(thread);
  const std::uint32_t chunk = threads_[thread].chunk;
  const bool copies = srcs_.size() == 1 && !step.finish;
  const bool plain = copies && srcs_[0].wide == dsts_[0].wide;
  const Cell* const source = plain ? &memory.cell(srcs_[0], chunk) : nullptr;
  const auto onto_itself = [&](const Spot& dst) { return &memory.cell(dst, chunk) == source; };
  if (plain && std::ranges::all_of(dsts_, onto_itself)) return true;

  ++folds_;
  operands_.clear();
  for (const Spot& src : srcs_) {
    Cell* const cell = read(memory, thread, src, item);
    if (cell == nullptr) return false;
    cell->read_in = folds_;
    if (!copies && values_.at(cell->value).finished) {
      return fail(thread, &memory, "folds a result that is finished already");
    }
    operands_.push_back(cell->value);
  }
  if (plans_[0].shape.widened && !plain && scalars_.ok()) check_scalars(memory, thread, copies);
  ValueId result = operands_[0];
  if (!copies) {
    if (operands_ != last_operands_) {
      last_result_ = values_.fold(operands_, step.finish, order_->next_end(thread));
      last_operands_ = operands_;
    }
    result = last_result_;
  } else if (srcs_[0].wide && !dsts_[0].wide && values_.is_folded(result)) {
    return fail(thread, &memory, "rounds a partial result");
  }
  for (const Spot& dst : dsts_) {
    if (onto_itself(dst)) continue;
    Cell& cell = memory.cell(dst, chunk);
    if (cell.written_in == folds_) return fail(thread, &memory, "writes a place twice");
    if (cell.read_in == folds_ && cell.wide != dst.wide) {
      return fail(thread, &memory, "folds into a place that it reads, in another width");
    }
    cell.written_in = folds_;
    if (!write(memory, thread, dst, result)) return false;
  }
  return true;
}

/// Of the fold whose operands are in operands_.
void Run::check_scalars(Memory& memory, int thread, bool copies) {
  const std::uint32_t own = threads_[thread].rank;
  if (copies && srcs_[0].wide && !dsts_[0].wide) {
    scalars_ = wrong(at(thread, &memory),
                     "copies what is wide into a narrow place: PreMulSum would "
                     "multiply it twice");
  }
  for (std::size_t i = 0; i < srcs_.size() && scalars_.ok(); ++i) {
    const Spot& src = srcs_[i];
    if (src.wide) continue;
    const std::int32_t sender = memory.cell(src, threads_[thread].chunk).sender;
    const bool received = src.rank == own && src.buffer == Buffer::scratch && sender >= 0;
    const std::uint32_t giver = received ? static_cast<std::uint32_t>(sender) : src.rank;
    const std::uint32_t source = values_.ranks(operands_[i])[0].first;
    if (source == giver) continue;
    scalars_ = wrong(at(thread, &memory),
                     fmt::format("reads the input of rank {} from {}, where PreMulSum expects that "
                                 "of rank {}",
                                 source, name_of(src, own), giver));
  }
}

bool Run::transfer(Memory& memory, int sender, int receiver) {
  for (std::uint32_t repetition = 0; repetition < current(sender).repeat; ++repetition) {
    if (!transfer_block(memory, sender, receiver, repetition)) return false;
  }
  return true;
}

bool Run::transfer_block(Memory& memory, int sender, int receiver, std::uint32_t repetition) {
  const std::uint64_t item = item_of_step(sender, repetition);
  if (item != any_item && threads_[sender].chunk >= counts_.of(item)) return true;
  spots_of(sender, current(sender).srcs, repetition, srcs_);
  spots_of(receiver, current(receiver).dsts, repetition, dsts_);
  const Spot& src = srcs_[0];
  const Spot& dst = dsts_[0];
  if (src.wide != dst.wide) {
    return fail(receiver, &memory,
                fmt::format("receives {} elements, but rank {} sends {} ones", width_of(dst.wide),
                            threads_[sender].rank, width_of(src.wide)));
  }
  const Cell* const cell = read(memory, sender, src, item);
  if (cell == nullptr || !write(memory, receiver, dst, cell->value)) return false;
  if (!dst.wide) {
    memory.cell(dst, threads_[receiver].chunk).sender =
        static_cast<std::int32_t>(threads_[sender].rank);
  }
  return true;
}

/// When a rank ends, its caller has the buffers back: an error if an access to them may still be
/// under way.
bool Run::check_end(std::uint32_t rank) {
  if (!plans_[rank].maps_input && !plans_[rank].maps_output) return true;
  const int caller = by_rank_[rank].caller;
  const auto is_over = [&](const Epoch& epoch) {
    return epoch.thread < 0 || threads_[epoch.thread].rank == rank || order_->before(epoch, caller);
  };
  for (Memory& memory : memories_) {
    for (const Cell& cell : memory.callers(rank)) {
      const bool written = is_over(cell.last_write);
      const Epoch late = written ? cell.reads.first_not(is_over) : cell.last_write;
      if (late.thread < 0) continue;
      status_ = wrong(name_of_rank(plans_[rank]),
                      fmt::format("returns while {} may still be {} its buffers",
                                  name_of_thread(late), written ? "reading" : "writing"));
      return false;
    }
  }
  return true;
}

/// The rank whose input an item is, in a collective that does not reduce.
std::uint32_t Run::source_of(std::uint64_t item) const {
  const Plan& plan = plans_[0];
  const CollectiveRow& row = row_of(plan.shape.collective);
  if (is_p2p(plan.shape.collective)) return plan.shape.collective == Collective::send ? 0 : 1;
  if (row.input_at_root) return static_cast<std::uint32_t>(plan.shape.root);
  const std::uint64_t source =
      plan.shape.collective == Collective::all_to_all ? item / plan.shape.ranks : item;
  return static_cast<std::uint32_t>(source);  // a rank
}

bool Run::is_right(ValueId id, std::uint64_t item, std::uint32_t chunk) {
  if (id == nothing) return false;
  const Value& value = values_.at(id);
  if (value.item != item || value.chunk != chunk) return false;
  const auto ranks = static_cast<std::uint32_t>(plans_.size());
  if (!row_of(plans_[0].shape.collective).reduces) {
    return !value.finished && !values_.is_folded(id) &&
           values_.ranks(id)[0].first == source_of(item);
  }
  if (id == known_good_) return true;
  if (!value.finished || !values_.has_all(id, ranks)) return false;
  rank_order_ &= values_.in_rank_order(id, ranks);
  known_good_ = id;
  return true;
}

Status Run::check_answer(Memory& memory) {
  for (const Plan& plan : plans_) {
    for (std::uint32_t block = 0; block < blocks_of(plan, Buffer::output); ++block) {
      const std::uint64_t item = item_of(plan, Buffer::output, block);
      const Spot spot{.rank = plan.shape.rank, .buffer = Buffer::output, .block = block};
      for (std::uint32_t chunk = 0; chunk < counts_.of(item); ++chunk) {
        const ValueId id = memory.cell(spot, chunk).value;
        if (is_right(id, item, chunk)) continue;
        return wrong(name_of_rank(plan),
                     fmt::format("ends, {}, with {} in output block {}, chunk {}",
                                 memory.in_place() ? "in place" : "out of place",
                                 values_.describe(id), block, chunk));
      }
    }
  }
  return {};
}

Status Run::check_barrier() const {
  for (const Rank& rank : by_rank_) {
    for (std::uint32_t r = 0; r < plans_.size(); ++r) {
      if (order_->has_begun(r, rank.caller)) continue;
      return wrong(name_of_rank(plans_[threads_[rank.caller].rank]),
                   fmt::format("leaves the barrier though rank {} may not have come to it", r));
    }
  }
  return {};
}

}  // namespace hocket::internal::verify_detail
