#include "collectives/verify/verify_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/plan/partition.h"

namespace hocket::internal::verify_detail {

Value Values::at(ValueId id) const {
  if (!is_plain(id)) return folded(id);
  Value value;
  value.block = block_of(id);
  value.chunk = chunk_of(id);
  value.ranks = {static_cast<std::int16_t>(id / chunks_ / blocks_)};
  return value;
}

ValueId Values::fold(const std::vector<ValueId>& srcs, bool finish) {
  Value result = at(srcs[0]);
  for (std::size_t i = 1; i < srcs.size(); ++i) {
    if (is_plain(srcs[i])) {
      result.ranks.push_back(static_cast<std::int16_t>(srcs[i] / chunks_ / blocks_));
      continue;
    }
    const Value& more = folded(srcs[i]);
    result.one_by_one &= more.ranks.size() == 1;
    result.ranks.insert(result.ranks.end(), more.ranks.begin(), more.ranks.end());
  }
  result.finished = finish;
  folded_.push_back(std::move(result));
  return plain_count() + static_cast<ValueId>(folded_.size() - 1);
}

std::string Values::describe(ValueId id) const {
  if (id == nothing) return "nothing";
  const Value value = at(id);
  std::string ranks;
  for (int rank : value.ranks) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return fmt::format("{} {} of block {}, chunk {}",
                     value.finished           ? "the finished fold of ranks"
                     : value.ranks.size() > 1 ? "the partial fold of ranks"
                                              : "the input of rank",
                     ranks, value.block, value.chunk);
}

Memory::Memory(const std::vector<const Plan*>& plans, std::uint32_t chunks, bool in_place,
               const Values& values)
    : plans_(plans), chunks_(chunks), in_place_(in_place) {
  data_.resize(plans.size());
  library_.resize(plans.size());
  for (std::size_t r = 0; r < plans.size(); ++r) {
    const Plan& plan = *plans[r];
    const int rank = static_cast<int>(r);
    const std::size_t together = message_blocks(plan);
    const std::size_t apart = plan.input_blocks + plan.output_blocks;
    data_[r].resize((in_place ? together : apart) * chunks);
    const bool has_line = plan.load_store && plan.single_chunk;
    library_[r].resize(std::size_t{plan.slots} * plan.scratch_blocks + (has_line ? together : 0));
    const bool ignored = plan.shape.collective == Collective::broadcast && rank != plan.shape.root;
    if (ignored) continue;
    for (std::uint32_t block = 0; block < plan.input_blocks; ++block) {
      for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
        data_[r][data_index(rank, Buffer::input, block, chunk)].value =
            values.plain(rank, block, chunk);
      }
    }
  }
}

std::size_t Memory::data_index(int rank, Buffer buffer, std::uint32_t block,
                               std::uint32_t chunk) const {
  const Plan& plan = *plans_[rank];
  std::size_t index = block;
  if (in_place_) {
    // The smaller one of the two buffers is block `rank` of the larger one.
    const bool is_input = buffer == Buffer::input;
    const Collective collective = plan.shape.collective;
    if ((collective == Collective::all_gather && is_input) ||
        (collective == Collective::reduce_scatter && !is_input)) {
      index = rank;
    }
  } else if (buffer == Buffer::output) {
    index += plan.input_blocks;
  }
  return index * chunks_ + chunk;
}

Cell& Memory::cell(int rank, const Range& range, std::uint32_t chunk) {
  const Plan& plan = *plans_[rank];
  switch (range.buffer) {
    case Buffer::scratch:
      return library_[rank][std::size_t{chunk % plan.slots} * plan.scratch_blocks + range.block];
    case Buffer::line:
      return library_[rank][std::size_t{plan.slots} * plan.scratch_blocks + range.block];
    default:
      return data_[rank][data_index(rank, range.buffer, range.block, chunk)];
  }
}

void Memory::give(int rank, Epoch begin) {
  for (Cell& cell : data_[rank]) cell.last_write = begin;
}

}  // namespace hocket::internal::verify_detail
