#include "engine/record.h"

#include <algorithm>
#include <bit>

namespace hocket::internal {
namespace {

constexpr int ranks_per_word = 4;
constexpr int rank_bits = 16;

// A reader that finds a slot being written looks again so often.
constexpr int most_looks = 100;

void unpack(std::uint64_t word, RecordEntry* entry) {
  Signature& signature = entry->signature;
  signature.collective = static_cast<Collective>(word & 0xff);
  signature.dtype = static_cast<Dtype>(word >> 8 & 0xff);
  signature.op = static_cast<Op>(word >> 16 & 0xff);
  signature.flags = static_cast<std::uint8_t>(word >> 24 & 0xff);
  const auto rank = static_cast<std::int32_t>(word >> 32);
  (is_p2p(signature.collective) ? entry->peer : signature.root) = rank;
}

}  // namespace

OperationRecord::OperationRecord(std::size_t operations, RecordSink* sink) : sink_(sink) {
  if (operations == 0) return;
  const std::size_t slots = std::bit_ceil(operations);
  slots_ = std::make_unique<Slot[]>(slots);
  mask_ = slots - 1;
}

void OperationRecord::began(Id id, Nanos when) {
  Slot* const slot = find(id);
  if (slot == nullptr || (slot->state.load(std::memory_order_relaxed) & has_begin) != 0) return;
  slot->begin.store(when, std::memory_order_release);
  add_state(*slot, has_begin);
}

void OperationRecord::admitted(Id id, Nanos when) {
  Slot* const slot = find(id);
  if (slot == nullptr || when == 0) return;
  slot->admitted.store(when, std::memory_order_release);
  add_state(*slot, has_admitted);
}

void OperationRecord::waits(Id id, std::span<const int> ranks, Nanos when) {
  Slot* const slot = find(id);
  if (slot == nullptr) return;
  constexpr auto release = std::memory_order_release;
  const std::uint64_t version = slot->version.load(std::memory_order_relaxed);
  slot->version.store(version + 1, std::memory_order_relaxed);
  slot->looked.store(when, release);
  slot->waiting.store(ranks.size(), release);
  for (std::size_t w = 0; w < slot->waits_for.size(); ++w) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < ranks_per_word; ++i) {
      const std::size_t at = w * ranks_per_word + i;
      if (at < ranks.size()) word |= static_cast<std::uint64_t>(ranks[at]) << (i * rank_bits);
    }
    slot->waits_for[w].store(word, release);
  }
  add_state(*slot, has_look);
  slot->version.store(version + 2, release);
}

RecordEntry OperationRecord::copy(const Slot& slot) {
  constexpr auto acquire = std::memory_order_acquire;
  RecordEntry entry;
  // A time is stored before the bit that says so.
  const std::uint64_t state = slot.state.load(acquire);
  entry.id = slot.id.load(acquire);
  entry.sequence = slot.sequence.load(acquire);
  entry.signature.sequence = slot.number.load(acquire);
  entry.signature.count = slot.count.load(acquire);
  unpack(slot.call.load(acquire), &entry);
  entry.program = slot.program.load(acquire);
  if ((state & has_begin) != 0) entry.begin = slot.begin.load(acquire);
  if ((state & has_admitted) != 0) entry.admitted = slot.admitted.load(acquire);
  if ((state & has_end) != 0) entry.end = slot.end.load(acquire);
  entry.ended = (state & has_ended) != 0;
  entry.code = static_cast<Code>(state >> code_shift);
  if ((state & has_look) != 0) {
    entry.looked = slot.looked.load(acquire);
    entry.waiting = slot.waiting.load(acquire);
    for (std::size_t i = 0; i < entry.waits_for.size(); ++i) {
      entry.waits_for[i] = static_cast<std::uint16_t>(
          slot.waits_for[i / ranks_per_word].load(acquire) >> (i % ranks_per_word * rank_bits));
    }
  }
  return entry;
}

bool OperationRecord::read(const Slot& slot, RecordEntry* entry) {
  for (int looks = 0; looks < most_looks; ++looks) {
    const std::uint64_t version = slot.version.load(std::memory_order_acquire);
    if (version == 0) return false;
    if (version % 2 != 0) continue;
    *entry = copy(slot);
    if (slot.version.load(std::memory_order_relaxed) == version) return true;
  }
  return false;
}

std::vector<RecordEntry> OperationRecord::entries() const {
  std::vector<RecordEntry> entries;
  if (slots_ == nullptr) return entries;
  for (std::size_t i = 0; i <= mask_; ++i) {
    RecordEntry entry;
    if (read(slots_[i], &entry)) entries.push_back(entry);
  }
  std::ranges::sort(entries, {}, &RecordEntry::id);
  return entries;
}

}  // namespace hocket::internal
