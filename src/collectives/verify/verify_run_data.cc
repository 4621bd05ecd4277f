// The memory accesses of a run: races, widths, and the content of the outputs at the end.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/verify/verify_run.h"

namespace hocket::internal::verify_detail {

namespace {

std::string name_of(const Range& range) {
  static const char* const names[] = {"input", "output", "scratch", "line"};
  std::string text = fmt::format("{} block {}", names[static_cast<int>(range.buffer)], range.block);
  if (range.rank != own) text += fmt::format(" of rank {}", range.rank);
  return text;
}

}  // namespace

/// The blocks of an all-reduce differ in length, so the block that a range names must be the block
/// that the range holds.
bool Run::check_block(int thread, const Range& range, ValueId value) {
  if (plans_[0].shape.collective != Collective::all_reduce) return true;
  const bool message = range.buffer == Buffer::input || range.buffer == Buffer::output;
  const std::uint32_t block = message ? range.block : range.length_block;
  if (block == values_->block_of(value)) return true;
  return fail(thread, nullptr,
              fmt::format("takes {}, which holds block {} of the message, for block {}",
                          name_of(range), values_->block_of(value), block));
}

bool Run::read(Memory& memory, int thread, const Range& range, ValueId* value) {
  const std::uint32_t chunk = threads_[thread].chunk;
  Cell& cell = memory.cell(owner(thread, range), range, chunk);
  if (!order_->before(cell.last_write, thread)) {
    return fail(thread, &memory,
                fmt::format("reads {} while {} may be writing it: no step orders the two",
                            name_of(range), name_of_thread(cell.last_write.thread)));
  }
  if (cell.value == nothing) {
    return fail(thread, &memory,
                fmt::format("reads {}, where nothing has been written", name_of(range)));
  }
  if (values_->chunk_of(cell.value) != chunk) {
    return fail(thread, &memory,
                fmt::format("reads {}, where {} is left over", name_of(range),
                            values_->describe(cell.value)));
  }
  if (cell.wide != is_wide(range)) {
    return fail(thread, &memory,
                fmt::format("reads {} as {}, but it holds {} elements", name_of(range),
                            is_wide(range) ? "wide" : "narrow", cell.wide ? "wide" : "narrow"));
  }
  cell.reads.add(order_->next_end(thread));
  *value = cell.value;
  return check_block(thread, range, cell.value);
}

bool Run::write(Memory& memory, int thread, const Range& range, ValueId value) {
  Cell& cell = memory.cell(owner(thread, range), range, threads_[thread].chunk);
  if (!order_->before(cell.last_write, thread)) {
    return fail(thread, &memory,
                fmt::format("writes {} while {} may be writing it: no step orders the two",
                            name_of(range), name_of_thread(cell.last_write.thread)));
  }
  const Epoch reader =
      cell.reads.first_not([&](const Epoch& read) { return order_->before(read, thread); });
  if (reader.thread >= 0) {
    return fail(thread, &memory,
                fmt::format("writes {} while {} may be reading it: no step orders the two",
                            name_of(range), name_of_thread(reader.thread)));
  }
  cell.reads.clear();
  cell.last_write = order_->next_end(thread);
  cell.value = value;
  cell.wide = is_wide(range);
  return check_block(thread, range, value);
}

bool Run::fold(int thread) {
  std::vector<ValueId> last_srcs;
  ValueId last = nothing;
  for (Memory& memory : memories_) {
    if (!fold_in(memory, thread, last_srcs, last)) return false;
  }
  return true;
}

/// last_srcs, last: operands and result of the same step in the other memory, which are mostly the
/// same here.
bool Run::fold_in(Memory& memory, int thread, std::vector<ValueId>& last_srcs, ValueId& last) {
  const Step& step = current(thread);
  const std::uint32_t chunk = threads_[thread].chunk;
  const auto cell_of = [&](const Range& r) -> Cell& {
    return memory.cell(owner(thread, r), r, chunk);
  };
  const bool plain_copy =
      step.srcs.size() == 1 && !step.finish && is_wide(step.srcs[0]) == is_wide(step.dsts[0]);
  std::vector<const Range*> dsts;
  for (const Range& dst : step.dsts) {
    for (const Range& src : step.srcs) {
      if (&cell_of(src) == &cell_of(dst) && is_wide(src) != is_wide(dst)) {
        return fail(thread, &memory, "folds into a place that it reads, in another width");
      }
    }
    for (const Range* other : dsts) {
      if (&cell_of(*other) == &cell_of(dst)) return fail(thread, &memory, "writes a place twice");
    }
    const bool onto_itself = plain_copy && &cell_of(step.srcs[0]) == &cell_of(dst);
    if (!onto_itself) dsts.push_back(&dst);
  }
  if (dsts.empty()) return true;

  std::vector<ValueId> srcs(step.srcs.size());
  for (std::size_t i = 0; i < srcs.size(); ++i) {
    if (!read(memory, thread, step.srcs[i], &srcs[i])) return false;
    if (values_->is_finished(srcs[i]) && (step.finish || srcs.size() > 1)) {
      return fail(thread, &memory, "folds a result that is finished already");
    }
    if (values_->block_of(srcs[i]) != values_->block_of(srcs[0])) {
      return fail(
          thread, &memory,
          fmt::format("folds {} with {}", values_->describe(srcs[0]), values_->describe(srcs[i])));
    }
    if (values_->contributions(srcs[i]) > 1 && !values_->is_finished(srcs[i]) && srcs.size() == 1 &&
        !step.finish && plans_[0].shape.widened && !is_wide(step.dsts[0])) {
      return fail(thread, &memory, "rounds a partial result");
    }
  }
  if (srcs.size() == 1 && !step.finish) {
    last = srcs[0];
    last_srcs.clear();
  } else if (srcs != last_srcs) {
    last = values_->fold(srcs, step.finish);
    last_srcs = srcs;
  }
  for (const Range* dst : dsts) {
    if (!write(memory, thread, *dst, last)) return false;
  }
  return true;
}

bool Run::transfer(Memory& memory, int sender, int receiver) {
  const Range& src = current(sender).srcs[0];
  const Range& dst = current(receiver).dsts[0];
  if (is_wide(src) != is_wide(dst)) {
    return fail(
        receiver, &memory,
        fmt::format("receives {} elements, but {} sends {} ones", is_wide(dst) ? "wide" : "narrow",
                    name_of_thread(sender), is_wide(src) ? "wide" : "narrow"));
  }
  if (threads_[sender].chunk != threads_[receiver].chunk) {
    return fail(receiver, &memory, "meets a send of another chunk");
  }
  ValueId value = nothing;
  return read(memory, sender, src, &value) && write(memory, receiver, dst, value);
}

/// When a rank ends, its caller has the buffers back: an error if an access to them may still be
/// under way.
bool Run::check_end(int rank) {
  const int main = by_rank_[rank].main;
  const auto is_over = [&](const Epoch& epoch) {
    return epoch.thread < 0 || threads_[epoch.thread].rank == rank || order_->before(epoch, main);
  };
  for (Memory& memory : memories_) {
    for (const Cell& cell : memory.callers(rank)) {
      const bool written = is_over(cell.last_write);
      const Epoch late = written ? cell.reads.first_not(is_over) : cell.last_write;
      if (late.thread < 0) continue;
      status_ = invalid_argument(fmt::format(
          "the plan is wrong: '{}', rank {} returns while {} may still be {} its buffers",
          plans_[rank].algorithm, rank, name_of_thread(late.thread),
          written ? "reading" : "writing"));
      return false;
    }
  }
  return true;
}

Status Run::check_answer(Memory& memory) {
  ValueId known_good = nothing;
  for (int r = 0; r < ranks_; ++r) {
    const Plan& plan = plans_[r];
    const Collective collective = plan.shape.collective;
    const bool reduces =
        collective == Collective::all_reduce || collective == Collective::reduce_scatter;
    for (std::uint32_t block = 0; block < plan.output_blocks; ++block) {
      for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
        const Range range{.buffer = Buffer::output, .block = block};
        const ValueId id = memory.cell(r, range, chunk).value;
        const std::uint32_t source = collective == Collective::reduce_scatter ? r : block;
        bool good = id != nothing;
        if (good && reduces) {
          good = values_->block_of(id) == source && values_->chunk_of(id) == chunk;
          if (good && id != known_good) {
            Value value = values_->at(id);
            rank_order_ &= value.one_by_one && std::ranges::is_sorted(value.ranks);
            std::ranges::sort(value.ranks);
            good = value.finished && static_cast<int>(value.ranks.size()) == ranks_;
            for (int i = 0; good && i < ranks_; ++i) good = value.ranks[i] == i;
            if (good) known_good = id;
          }
        } else if (good) {
          const bool gathers = collective == Collective::all_gather;
          const int from = gathers ? static_cast<int>(block) : plan.shape.root;
          good = id == values_->plain(from, gathers ? 0 : block, chunk);
        }
        if (good) continue;
        return invalid_argument(
            fmt::format("the plan is wrong: '{}', rank {} ends, {}, with {} in output block {} of "
                        "chunk {}",
                        plan.algorithm, r, memory.in_place() ? "in place" : "out of place",
                        values_->describe(id), block, chunk));
      }
    }
  }
  return {};
}

Status Run::check_barrier() const {
  for (const Rank& rank : by_rank_) {
    for (int r = 0; r < ranks_; ++r) {
      if (begun_[rank.main][r / 64] >> (r % 64) & 1) continue;
      return invalid_argument(
          fmt::format("the plan is wrong: '{}', rank {} leaves the barrier though rank {} may not "
                      "have come to it",
                      plans_[0].algorithm, threads_[rank.main].rank, r));
    }
  }
  return {};
}

}  // namespace hocket::internal::verify_detail
