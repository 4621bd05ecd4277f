#include "engine/record_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace hocket::internal {
namespace {

double seconds(Nanos time) { return static_cast<double>(time) / nanos_per_s; }
double milliseconds(Nanos time) { return static_cast<double>(time) / nanos_per_ms; }

std::string what_of(const RecordEntry& entry) {
  std::string text = describe(entry.signature);
  const char* const direction = entry.signature.collective == Collective::send ? "to" : "from";
  if (entry.peer >= 0) {
    text +=
        fmt::format(" {} rank {}: message {} of this pair", direction, entry.peer, entry.sequence);
  } else {
    text += fmt::format(": collective {}", entry.sequence);
  }
  // Of a varying call whose ranks know only some of the blocks there is no sum that all ranks
  // share.
  if (!has_count(entry.signature)) return text;
  return text + fmt::format(", {} bytes", entry.signature.count * size_of(entry.signature.dtype));
}

std::string times_of(const RecordEntry& entry, Nanos now) {
  std::string text;
  if (entry.begin == 0) return entry.ended ? "; not timed" : "; has begun just now";
  text = fmt::format("; began {:.3f} s ago", seconds(now - entry.begin));
  if (entry.admitted != 0) {
    text += fmt::format(", admitted after {:.3f} ms", milliseconds(entry.admitted - entry.begin));
  }
  if (entry.end != 0) {
    text += fmt::format(", ended after {:.3f} ms", milliseconds(entry.end - entry.begin));
  }
  return text;
}

std::string waits_of(const RecordEntry& entry, const Membership& membership, Nanos now) {
  if (entry.looked == 0) return "";
  std::string text;
  const std::size_t listed = std::min(entry.waiting, entry.waits_for.size());
  for (std::size_t i = 0; i < listed; ++i) {
    text += (i == 0 ? "" : ", ") + membership.name_of_rank(entry.waits_for[i]);
  }
  if (entry.waiting > listed) text += fmt::format(" and {} more", entry.waiting - listed);
  return fmt::format("; {} for {} (seen {:.3f} s ago)", entry.ended ? "waited" : "waits",
                     text.empty() ? "no other rank" : text, seconds(now - entry.looked));
}

}  // namespace

std::string transports_of(const Program& program, const Engine& engine, int ranks) {
  std::string names = program.header().uses_node && ranks > 1 ? "shm" : "";
  for (const Transport* transport : engine.transports().used_by(program)) {
    names += (names.empty() ? "" : ",") + std::string(transport->name());
  }
  return names.empty() ? "none" : names;
}

std::vector<std::string> record_lines(const RecordOwner& owner, std::size_t most_ended) {
  const Membership& membership = owner.membership;
  std::vector<RecordEntry> entries = owner.engine.record().entries();
  const Nanos now = monotonic_now();
  const auto ended = std::stable_partition(entries.begin(), entries.end(),
                                           [](const RecordEntry& entry) { return !entry.ended; });
  std::reverse(ended, entries.end());
  const auto under_way = static_cast<std::size_t>(ended - entries.begin());
  const std::size_t shown = std::min(entries.size() - under_way, most_ended);
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("record of '{}' (communicator {:016x}), {} of {} ranks, at {:.9f} s: {} under "
                  "way, then the latest {} that have ended",
                  owner.name, membership.comm_id(), membership.name_of_rank(membership.rank()),
                  membership.ranks(), seconds(now), under_way, shown));
  if (!owner.error.ok()) lines.push_back("  error: " + owner.error.message());
  for (std::size_t i = 0; i < under_way + shown; ++i) {
    const RecordEntry& entry = entries[i];
    const Program& program = *entry.program;
    const bool mapped = program.header().maps_input || program.header().maps_output;
    const std::string state = !entry.ended ? "under way"
                              : entry.code == Code::ok
                                  ? "ended"
                                  : fmt::format("failed ({})", code_name(entry.code));
    lines.push_back(fmt::format(
        "  {}: {}, {} over {}{}{}{}", state, what_of(entry), program.algorithm(),
        transports_of(program, owner.engine, membership.ranks()), mapped ? ", buffers mapped" : "",
        times_of(entry, now), waits_of(entry, membership, now)));
  }
  return lines;
}

}  // namespace hocket::internal
