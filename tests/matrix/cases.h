// Which cases run on which world.
#pragma once

#include <cstdint>
#include <filesystem>
#include <ostream>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "base/limits.h"
#include "matrix/world.h"
#include "source_root.h"

namespace matrix {

inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ULL;
  return x ^ (x >> 29);
}

struct WorldKind {
  int ranks;
  const char* transport;   // empty: all
  const char* algorithm;   // empty: the selector's
  bool ordered;            // folds in rank order, as far as that algorithm serves
  const char* nodes = "";  // HOCKET_NODES
};

/// Whether builds with a sanitizer run the world: more ranks on one node run the same code.
inline bool suits_sanitizers(const WorldKind& kind) {
  return kind.ranks <= 5 || *kind.nodes != '\0';
}

/// Whether they run it in a test that takes long: of large messages, of operators of the user, or
/// of ranks that are processes. The thread sanitizer, which is the slowest, finds races between the
/// threads of one process, and these are the same in all algorithms.
inline bool suits_sanitizers_for_long(const WorldKind& kind) {
  const bool chosen = *kind.algorithm == '\0' || *kind.nodes != '\0';
  return kind.ranks <= 4 && (chosen || !tests::thread_sanitized);
}

/// The worlds that a test runs in this build. few: the test takes long.
inline std::vector<WorldKind> worlds_of(std::span<const WorldKind> kinds, bool few = false) {
  std::vector<WorldKind> worlds(kinds.begin(), kinds.end());
  if (!tests::sanitized || ranks::long_tests()) return worlds;
  std::erase_if(worlds, [&](const WorldKind& kind) {
    return !suits_sanitizers(kind) || (few && !suits_sanitizers_for_long(kind));
  });
  return worlds;
}

/// The path of an example of a plan.
inline std::string example_plan(const std::string& name) {
  return (::tests::source_root() / "examples" / "plans" / (name + ".json")).string();
}

inline ranks::Env::List settings_of(const WorldKind& kind) {
  const std::string algorithm = kind.algorithm;
  const bool is_loaded = algorithm == "cube" || algorithm == "chain" || algorithm == "rails";
  return {{"HOCKET_TRANSPORT", kind.transport},
          {"HOCKET_ALGORITHM", algorithm},
          {"HOCKET_NODES", kind.nodes},
          {"HOCKET_PLAN_FILES", is_loaded ? example_plan("cube") + ":" + example_plan("chain") +
                                                ":" + example_plan("rails")
                                          : ""}};
}

inline void PrintTo(const WorldKind& kind, std::ostream* out) {
  *out << kind.ranks << " ranks, transport '" << kind.transport << "', algorithm '"
       << kind.algorithm << "'";
}

/// Elements: nothing, one, a few, around what fits in an arrival line, middle sizes on
/// both sides of where algorithms change over, and an odd number of lines.
inline std::vector<std::size_t> counts_for(std::size_t size) {
  const std::size_t line = hocket::internal::line_payload_bytes / size;
  return {0, 1, 7, line - 1, line, line + 1, 1031, 4096 / size * 5 + 3, 65536 / size + 1};
}

/// Where the order of additions is free, only the ranks' results can be compared for any data.
inline Data data_for(const Case& c, const WorldKind& kind, std::uint64_t hash) {
  if (!row_of(c.what).reduces) return Data::any;
  if (kind.ordered && c.op == hocketProd) return Data::any;
  if (c.what == What::all_reduce && (hash >> 25 & 3) == 3) return Data::any;
  const bool loose = c.op != hocketProd && (hash >> 24 & 1);
  return !loose ? Data::exact : kind.ordered ? Data::any : Data::small;
}

/// One of so many, each in one of the four ways that a call can have its memory: plain or the
/// library's, in place or not; all_ways: in each.
inline std::vector<Case> cases_of(const WorldKind& kind, std::size_t keep_one_of, bool all_ways) {
  std::vector<Case> cases;
  const std::uint64_t world =
      mix(static_cast<std::uint64_t>(kind.ranks) * 1000 + std::string(kind.algorithm).size() * 10 +
          std::string(kind.transport).size());
  std::uint64_t number = 0;
  const auto add = [&](Case c) {
    const std::uint64_t hash = mix(world + ++number * 0x9e3779b97f4a7c15ULL);
    // Of each collective two cases are always kept, so that a forced algorithm runs; and one in
    // which that algorithm multiplies by scalars.
    const bool kept =
        (c.type == hocketFloat32 && c.op == hocketSum && (c.count == 1 || c.count == 1031)) ||
        (c.type == hocketBfloat16 && c.op == reference::pre_mul_sum && c.count == 1031);
    if (!kept && hash % keep_one_of != 0) return;
    static constexpr std::size_t offsets[] = {0, 0, 64, 8, 1, 4};
    c.offset = offsets[(hash >> 10) % 6];
    c.root = static_cast<int>((hash >> 16) % static_cast<std::uint64_t>(kind.ranks));
    c.data = data_for(c, kind, hash);
    c.seed = hash >> 32;
    for (std::uint64_t way = 0; way < 4; ++way) {
      if (!all_ways && way != (hash >> 8 & 3)) continue;
      c.in_place = way & 1;
      c.alloc = way >> 1;
      cases.push_back(c);
    }
  };
  for (const hocketDataType_t type : reference::types) {
    for (const Row& row : rows) {
      std::vector<hocketRedOp_t> ops(std::begin(reference::operators),
                                     std::end(reference::operators));
      ops.push_back(reference::pre_mul_sum);
      for (const hocketRedOp_t op : ops) {
        if (row.reduces ? !reference::computes(op, type) : op != hocketSum) continue;
        Case c;
        c.what = row.what;
        c.type = type;
        c.op = op;
        for (std::size_t count : counts_for(c.size())) {
          c.count = count;
          add(c);
        }
      }
    }
    Case barrier;
    barrier.what = What::barrier;
    barrier.seed = static_cast<std::uint64_t>(type);
    cases.push_back(barrier);
  }
  return cases;
}

inline std::string name_of_kind(const testing::TestParamInfo<WorldKind>& info) {
  std::string name = std::to_string(info.param.ranks) + "_ranks";
  for (const char* part : {info.param.transport, info.param.algorithm}) {
    if (*part != '\0') name += std::string("_") + part;
  }
  if (*info.param.nodes != '\0') name += std::string("_nodes_") + info.param.nodes;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == ','; }, '_');
  return name;
}

inline std::size_t most_bytes(const std::vector<Case>& cases, int ranks) {
  std::size_t most = 0;
  for (const Case& c : cases) most = std::max(most, most_bytes(c, static_cast<std::size_t>(ranks)));
  return most;
}

}  // namespace matrix
