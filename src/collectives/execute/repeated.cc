// Calls that repeat the call before, but for the two buffers: which steps they have, and where
// these copy and fold, is found out once. In a loop of small calls that is a large part of the
// time.
#include <algorithm>
#include <utility>

#include "base/copy.h"
#include "collectives/execute/executor.h"

namespace hocket::internal {

/// True if every fold of the program runs once, at places that no chunk and no peer decides.
bool Execution::can_be_ready() const {
  if (staged_ != nullptr || header_->maps_input || header_->maps_output ||
      sizes_->chunk_elements != 0 || binding_->op >= Op::pre_mul_sum) {
    return false;
  }
  for (std::uint32_t l = 0; l < header_->lanes; ++l) {
    if (lanes_[l].instances != 1) return false;
  }
  for (std::uint32_t i = 0; i < header_->instructions; ++i) {
    const Instruction& step = code_[i];
    if (step.kind != StepKind::fold) continue;
    const bool copies = step.srcs == 1 && !step.finish;
    if (step.repeat != 1 || (copies && step.dsts != 1)) return false;
  }
  return std::none_of(operands_, operands_ + header_->operands,
                      [](const Operand& operand) { return operand.varies; });
}

/// Begins the lanes again, with prepared folds, and only with the steps that the call has: those
/// for its small blocks, or for its large ones.
void Execution::make_ready() {
  readiness_ = Readiness::never;
  is_straight_ = is_message_ = false;
  if (!can_be_ready()) return;
  places_.clear();
  ready_sizes_.clear();
  ready_lanes_.clear();
  ready_code_.assign(code_, code_ + header_->entry);
  ready_.assign(header_->entry, {});
  // If nothing waits for the end of a lane, lanes may lose steps, and become one.
  const bool keeps_lanes =
      header_->awaits || std::any_of(lanes_, lanes_ + header_->lanes,
                                     [](const LaneCode& lane) { return lane.publishes >= 0; });
  bool joins = false;
  for (std::size_t l = 0; l < active_count_; ++l) {
    const Active& active = active_[l];
    LaneCode lane = *active.lane;
    if (joins) {
      lane.first = ready_lanes_.back().first;
      ready_lanes_.pop_back();
    } else {
      lane.first = static_cast<std::uint32_t>(ready_code_.size());
    }
    for (std::uint32_t i = 0; i < active.lane->count; ++i) {
      const Instruction& step = code_[active.lane->first + i];
      if (is_left_out(active, step)) {
        if (keeps_lanes) return;
        continue;
      }
      if (step.kind == StepKind::fold && copies_in_parts(step, elements_of(active, step, 0)))
        return;
      ready_code_.push_back(step);
      ready_.push_back(step.kind == StepKind::fold ? ready_fold(active, step) : ReadyFold{});
    }
    lane.count = static_cast<std::uint32_t>(ready_code_.size()) - lane.first;
    ready_lanes_.push_back(lane);
    joins = !keeps_lanes && ends_at_once(lane);
  }
  if (!ready_lanes_.empty() && ready_lanes_.back().count == 0) ready_lanes_.pop_back();
  code_ = ready_code_.data();
  active_count_ = ready_lanes_.size();
  for (std::size_t l = 0; l < active_count_; ++l) active_[l].lane = &ready_lanes_[l];
  readiness_ = Readiness::ready;
  is_message_ = can_be_message();
  is_straight_ = can_be_straight();
  if (!is_straight_) return;
  const LaneCode& lane = ready_lanes_[0];
  straight_ = {code_ + lane.first, code_ + lane.first + lane.count, ready_.data() + lane.first};
}

/// True if the ready call has one lane, which may wait for arrivals and for nothing else. Then
/// start() runs it without the bookkeeping of lanes.
bool Execution::can_be_straight() const {
  if (!header_->uses_node || header_->entry != 1 || header_->awaits || active_count_ != 1) {
    return false;
  }
  const LaneCode& lane = ready_lanes_[0];
  const Instruction* const first = code_ + lane.first;
  return lane.publishes < 0 && std::all_of(first, first + lane.count, [](const Instruction& step) {
           return step.kind == StepKind::fold || step.kind == StepKind::arrive ||
                  step.kind == StepKind::await_arrival;
         });
}

/// True if the ready call is a message of the user. Then start() posts it again.
bool Execution::can_be_message() {
  if (!binding_->p2p || header_->entry != 0 || active_count_ != 1) return false;
  const LaneCode& lane = ready_lanes_[0];
  if (lane.count != 1 || lane.publishes >= 0 || header_->awaits) return false;
  const Instruction& message = code_[lane.first];
  if (message.dsts + message.srcs != 1) return false;
  const Operand& operand = operands_[message.first_operand];
  const Storage storage = storage_of(operand, elements_of(active_[0], message, 0));
  const std::uint8_t base = base_index(storage);
  message_place_ = {base, operand.wide, address_of(operand, storage, active_[0], 0) - bases_[base]};
  return true;
}

/// True if no step of the lane waits: then the next lane can go on from it.
bool Execution::ends_at_once(const LaneCode& lane) const {
  const Instruction* const first = ready_code_.data() + lane.first;
  return std::all_of(first, first + lane.count, [](const Instruction& step) {
    return step.kind == StepKind::fold || step.kind == StepKind::arrive;
  });
}

/// Sets the address of the storage in `bases_`; returns its index there.
std::uint8_t Execution::base_index(const Storage& storage) {
  if (storage.size == ScratchSize::none) return static_cast<std::uint8_t>(storage.buffer);
  const std::size_t index = first_sized_base + static_cast<std::size_t>(storage.size);
  if (std::ranges::find(ready_sizes_, storage.size) == ready_sizes_.end()) {
    ready_sizes_.push_back(storage.size);
    bases_[index] = links_->board->scratch(storage.size, 0, operation_);
  }
  return static_cast<std::uint8_t>(index);
}

Execution::ReadyFold Execution::ready_fold(const Active& active, const Instruction& instruction) {
  const std::size_t count = elements_of(active, instruction, 0);
  ReadyFold ready;
  ready.fold = fold_of(instruction, count);
  const std::size_t bytes = copied_bytes(instruction, count);
  const bool ordinary_stores = ready.fold.stores != Stores::non_temporal;
  ready.copied = ordinary_stores || bytes <= most_bytes_without_kernel ? bytes : 0;
  ready.first_place = static_cast<std::uint32_t>(places_.size());
  const Operand* const first = operands_ + instruction.first_operand;
  int number = 0;
  for (std::uint32_t o = 0; o < instruction.dsts + instruction.srcs; ++o) {
    if (o == instruction.dsts) ready.fold.dst_count = std::exchange(number, 0);
    const Storage storage = storage_of(first[o], count);
    const std::uint8_t base = base_index(storage);
    for (std::uint32_t j = 0; j < first[o].repeat; ++j, ++number) {
      places_.push_back(
          {base, first[o].wide, address_of(first[o], storage, active, j) - bases_[base]});
    }
  }
  ready.fold.src_count = number;
  return ready;
}

void Execution::fold_ready(const ReadyFold& ready) {
  if (ready.copied > 0) return copy_ready(ready);
  const Place* place = &places_[ready.first_place];
  if (ready.fold.count == 0) return;
  const bool copies = ready.fold.src_count == 1 && !ready.fold.finish;
  if (copies && address_of(place[0]) == address_of(place[1])) return;
  for (int d = 0; d < ready.fold.dst_count; ++d) fold_dsts_[d] = address_of(*place++);
  for (int s = 0; s < ready.fold.src_count; ++s, ++place) {
    fold_srcs_[s] = {address_of(*place), place->wide};
  }
  Fold fold = ready.fold;
  fold.srcs = fold_srcs_.data();
  fold.dsts = fold_dsts_.data();
  hocket::internal::fold(fold);
}

}  // namespace hocket::internal
