// A plan as a user writes it in a file: the lanes of all ranks, with formulas in place of numbers.
// json.h reads and writes the text; docs/PLANS.md is the manual of the form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/plan/expression.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

// Limits that keep the memory and the time for a file small.
inline constexpr std::uint32_t most_ranks_of_file = 64;  // of a communicator that a file serves
inline constexpr std::size_t most_file_bytes = 1 << 20;
inline constexpr std::size_t most_name_characters = 31;

/// PlanFile::source of a text that a call of the user brought.
inline constexpr const char* given_text = "the given text";

/// How ranks reach one another in a plan.
enum class Medium : std::uint8_t {
  node,      // load and store: all ranks must be on one node
  messages,  // messages, also between ranks of one node
  both       // load and store within each node, messages between nodes
};

struct RangeText {
  Buffer buffer = Buffer::input;
  bool wide = false;
  Expression block;
  std::optional<Expression> rank;    // empty: this rank
  std::optional<Expression> repeat;  // empty: 1. A range that stands for 0 ranges is left out
};

struct StepText {
  std::string place;  // "lanes[1].steps[0]", for errors
  StepKind kind = StepKind::fold;
  When when = When::always;
  bool finish = false, all = false, end = false;
  std::uint16_t flag = 0, lag = 0;
  std::string lane;  // await: its name; empty: lane_number
  std::uint32_t lane_number = 0;
  Expression repeat{1};
  Expression instance, peer, tag;
  std::optional<Expression> block;  // empty: the block of the lane
  std::vector<RangeText> dsts, srcs;
};

struct LaneText {
  std::string place;  // "lanes[1]"
  std::string name;
  std::optional<Condition> when;  // the ranks that have the lane; empty: all
  Counts counts = Counts::once;
  Buffer extents = Buffer::input;
  Expression block;
  Expression instances{1};
  std::optional<Expression> window;  // empty: all instances
  std::int16_t publishes = -1;
  std::vector<StepText> steps;
};

struct PlanFile {
  std::string source;  // for errors: the path of the file, or given_text
  std::string name;
  Collective collective = Collective::barrier;
  Condition ranks;  // the numbers of ranks that it serves
  Medium medium = Medium::messages;
  /// With Medium::both: the node of each rank of the communicators that the file serves. Empty: it
  /// serves nodes of equal size, whose ranks follow one another.
  std::vector<std::uint32_t> layout;
  bool varying = false;
  Expression cut{1}, scratch_blocks, line_blocks, small_bytes;
  std::uint8_t slots = 1;
  bool wide_scratch = false, arrives_first = false, maps_input = false, maps_output = false,
       single_chunk = false;
  std::vector<LaneText> lanes;
  std::uint64_t hash = 0;  // of its content: white space and the order of keys do not matter

  /// True if the file serves that number of ranks on these nodes; null: the nodes are unknown.
  /// False for more than most_ranks_of_file ranks.
  bool serves(std::uint32_t number_of_ranks, const Layout* nodes = nullptr) const;
  /// The plan of one rank. With Medium::both the shape has a layout. It must be verified before it
  /// runs. An error names the place in the file.
  Status build(const Shape& shape, Plan* out) const;
};

/// "FILE: plan 'NAME': what".
Status refused(const PlanFile& file, const std::string& what);

}  // namespace hocket::internal
