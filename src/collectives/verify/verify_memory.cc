#include "collectives/verify/verify_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/verify/verify_form.h"

namespace hocket::internal::verify_detail {

std::uint32_t ChunkCounts::of(const Plan& plan, const Lane& lane, std::uint32_t instance) const {
  if (lane.counts == Counts::once) return 1;
  if (lane.counts == Counts::one_block) {
    return of(item_of(plan, lane.extents, static_cast<std::uint32_t>(lane.block.at(instance))));
  }
  std::uint32_t most = 1;
  for (std::uint32_t b = 0; b < message_blocks(plan, lane.extents); ++b) {
    most = std::max(most, of(item_of(plan, lane.extents, b)));
  }
  return most;
}

ValueId Values::add_input(std::uint32_t rank, std::uint64_t item, std::uint32_t chunk) {
  const auto at = static_cast<std::uint32_t>(intervals_.size());
  intervals_.push_back({rank, rank});
  values_.push_back({.item = item, .chunk = chunk, .begin = at, .end = at + 1});
  return static_cast<ValueId>(values_.size() - 1);
}

namespace {

/// Appends `next` to the intervals behind `begin`, and joins it to the last one where the ranks
/// follow one another.
void append(std::vector<Interval>& intervals, std::size_t begin, Interval next) {
  if (intervals.size() > begin) {
    Interval& last = intervals.back();
    const bool up = last.first <= last.last && next.first <= next.last;
    const bool down = last.first >= last.last && next.first >= next.last;
    if ((up && next.first == last.last + 1) || (down && next.first + 1 == last.last)) {
      last.last = next.last;
      return;
    }
  }
  intervals.push_back(next);
}

}  // namespace

ValueId Values::fold(std::span<const ValueId> srcs, bool finish, Epoch end) {
  Value result = values_[srcs[0]];
  result.begin = static_cast<std::uint32_t>(intervals_.size());
  for (std::size_t i = 0; i < srcs.size(); ++i) {
    const Value& more = values_[srcs[i]];
    if (i > 0) result.one_by_one &= !is_folded(srcs[i]);
    for (std::uint32_t k = more.begin; k < more.end; ++k) {
      append(intervals_, result.begin, Interval(intervals_[k]));
    }
  }
  result.end = static_cast<std::uint32_t>(intervals_.size());
  result.finished = finish;
  result.made = end;
  result.operands = static_cast<std::uint32_t>(operands_.size());
  result.operand_count = static_cast<std::uint32_t>(srcs.size());
  operands_.insert(operands_.end(), srcs.begin(), srcs.end());
  values_.push_back(result);
  return static_cast<ValueId>(values_.size() - 1);
}

bool Values::stems_from(ValueId id, std::uint32_t rank, Epoch end) const {
  const auto has = [&](ValueId operand) {
    return std::ranges::any_of(ranks(operand), [&](const Interval& i) {
      return std::min(i.first, i.last) <= rank && rank <= std::max(i.first, i.last);
    });
  };
  while (values_[id].operand_count > 0 && values_[id].made != end) {
    const ValueId* const first = operands_.data() + values_[id].operands;
    const ValueId* const last = first + values_[id].operand_count;
    const ValueId* const next = std::find_if(first, last, has);
    if (next == last) return false;
    id = *next;
  }
  return values_[id].operand_count > 0;
}

bool Values::has_all(ValueId id, std::uint32_t ranks) const {
  std::vector<Interval> sorted;
  for (const Interval& i : Values::ranks(id)) {
    sorted.push_back({std::min(i.first, i.last), std::max(i.first, i.last)});
  }
  std::ranges::sort(sorted, {}, &Interval::first);
  std::uint32_t next = 0;
  for (const Interval& interval : sorted) {
    if (interval.first != next) return false;
    next = interval.last + 1;
  }
  return next == ranks;
}

bool Values::in_rank_order(ValueId id, std::uint32_t ranks) const {
  const std::span<const Interval> all = Values::ranks(id);
  return values_[id].one_by_one && all.size() == 1 && all[0].first == 0 && all[0].last + 1 == ranks;
}

std::string Values::describe(ValueId id) const {
  if (id == nothing) return "nothing";
  std::string text;
  for (const Interval& i : ranks(id)) {
    if (!text.empty()) text += ", ";
    text +=
        i.first == i.last ? fmt::format("{}", i.first) : fmt::format("{} to {}", i.first, i.last);
  }
  const Value& value = at(id);
  return fmt::format("{} {} of item {}, chunk {}",
                     value.finished  ? "the finished fold of ranks"
                     : is_folded(id) ? "the partial fold of ranks"
                                     : "the input of rank",
                     text, value.item, value.chunk);
}

Memory::Memory(std::span<const Plan> plans, const ChunkCounts& counts, bool in_place)
    : plans_(plans), in_place_(in_place) {
  for (const Plan& plan : plans) {
    lay_out(plan, counts);
    library_.emplace_back(std::size_t{plan.slots} * plan.scratch_blocks + plan.line_blocks);
  }
}

void Memory::lay_out(const Plan& plan, const ChunkCounts& counts) {
  std::uint32_t next = 0;
  const auto blocks_behind = [&](Buffer buffer, std::uint32_t blocks) {
    std::vector<std::uint32_t> firsts;
    for (std::uint32_t b = 0; b < blocks; ++b) {
      firsts.push_back(next);
      next += counts.of(item_of(plan, buffer, b));
    }
    return firsts;
  };
  std::vector<std::uint32_t> input = blocks_behind(Buffer::input, blocks_of(plan, Buffer::input));
  std::vector<std::uint32_t> output;
  const std::uint32_t blocks = blocks_of(plan, Buffer::output);
  if (!in_place_ || input.empty() || blocks == 0) {
    output = blocks_behind(Buffer::output, blocks);
  } else if (blocks == input.size()) {
    output = input;
  } else if (blocks == 1) {  // the output is block `rank` of the input
    output = {input[plan.shape.rank]};
  } else {  // the input is block `rank` of the output
    next = 0;
    output = blocks_behind(Buffer::output, blocks);
    input = {output[plan.shape.rank]};
  }
  inputs_.push_back(std::move(input));
  outputs_.push_back(std::move(output));
  callers_.emplace_back(next);
}

Cell& Memory::cell(const Spot& spot, std::uint32_t chunk) {
  const Plan& plan = plans_[spot.rank];
  const std::size_t slots = plan.slots;
  switch (spot.buffer) {
    case Buffer::scratch:
      return library_[spot.rank][chunk % slots * plan.scratch_blocks + spot.block];
    case Buffer::line:
      return library_[spot.rank][slots * plan.scratch_blocks + spot.block];
    case Buffer::input:
      return callers_[spot.rank][inputs_[spot.rank][spot.block] + chunk];
    default:
      return callers_[spot.rank][outputs_[spot.rank][spot.block] + chunk];
  }
}

}  // namespace hocket::internal::verify_detail
