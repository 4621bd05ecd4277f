#include "engine/record.h"

#include <algorithm>
#include <bit>
#include <thread>

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
  times_ = std::make_unique<Times[]>(slots);
  mask_ = slots - 1;
}

void OperationRecord::began(Id id, Nanos when) {
  Slot* const slot = find(id);
  if (slot == nullptr || (slot->state.load(std::memory_order_relaxed) & has_begin) != 0) return;
  times_[id & mask_].begin.store(when, std::memory_order_release);
  add_state(*slot, has_begin);
}

void OperationRecord::admitted(Id id, Nanos when) {
  Slot* const slot = find(id);
  if (slot == nullptr || when == 0) return;
  times_[id & mask_].admitted.store(when, std::memory_order_release);
  add_state(*slot, has_admitted);
}

void OperationRecord::waits(Id id, std::span<const int> ranks, Nanos when) {
  Slot* const slot = find(id);
  if (slot == nullptr) return;
  constexpr auto release = std::memory_order_release;
  Times& times = times_[id & mask_];
  const std::uint64_t version = times.version.load(std::memory_order_relaxed);
  times.version.store(version + 1, std::memory_order_relaxed);
  times.looked.store(when, release);
  times.waiting.store(ranks.size(), release);
  for (std::size_t w = 0; w < times.waits_for.size(); ++w) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < ranks_per_word; ++i) {
      const std::size_t at = w * ranks_per_word + i;
      if (at < ranks.size()) word |= static_cast<std::uint64_t>(ranks[at]) << (i * rank_bits);
    }
    times.waits_for[w].store(word, release);
  }
  times.version.store(version + 2, release);
  add_state(*slot, has_look);
}

RecordEntry OperationRecord::copy(std::size_t place) const {
  constexpr auto acquire = std::memory_order_acquire;
  const Slot& slot = slots_[place];
  const Times& times = times_[place];
  RecordEntry entry;
  // A time is stored before the bit that says so.
  const std::uint64_t state = slot.state.load(acquire);
  entry.id = slot.id.load(acquire);
  entry.sequence = slot.sequence.load(acquire);
  entry.signature.sequence = slot.number.load(acquire);
  entry.signature.count = slot.count.load(acquire);
  unpack(slot.call.load(acquire), &entry);
  entry.program = slot.program.load(acquire);
  if ((state & has_begin) != 0) entry.begin = times.begin.load(acquire);
  if ((state & has_admitted) != 0) entry.admitted = times.admitted.load(acquire);
  if ((state & has_end) != 0) entry.end = times.end.load(acquire);
  entry.ended = (state & has_ended) != 0;
  entry.code = static_cast<Code>(state >> code_shift);
  if ((state & has_look) != 0) {
    entry.looked = times.looked.load(acquire);
    entry.waiting = times.waiting.load(acquire);
    for (std::size_t i = 0; i < entry.waits_for.size(); ++i) {
      entry.waits_for[i] = static_cast<std::uint16_t>(
          times.waits_for[i / ranks_per_word].load(acquire) >> (i % ranks_per_word * rank_bits));
    }
  }
  return entry;
}

/// False where the slot is empty, or its writer was found at work, and stopped there, each time.
bool OperationRecord::read(std::size_t place, RecordEntry* entry) const {
  const std::atomic<Id>& id = slots_[place].id;
  const std::atomic<std::uint64_t>& version = times_[place].version;
  if (slots_[place].program.load(std::memory_order_acquire) == nullptr) return false;
  for (int looks = 0; looks < most_looks; ++looks) {
    if (looks > 0) std::this_thread::yield();
    const Id before = id.load(std::memory_order_acquire);
    const std::uint64_t version_before = version.load(std::memory_order_acquire);
    if (before == 0 || version_before % 2 != 0) continue;
    *entry = copy(place);
    if (id.load(std::memory_order_relaxed) == before &&
        version.load(std::memory_order_relaxed) == version_before) {
      return true;
    }
  }
  return false;
}

std::vector<RecordEntry> OperationRecord::entries() const {
  std::vector<RecordEntry> entries;
  if (slots_ == nullptr) return entries;
  for (std::size_t i = 0; i <= mask_; ++i) {
    RecordEntry entry;
    if (read(i, &entry)) entries.push_back(entry);
  }
  std::ranges::sort(entries, {}, &RecordEntry::id);
  return entries;
}

}  // namespace hocket::internal
