// The algorithms. Each is a pure function from a shape to one rank's plan, in a file of its own
// (inline.cc, one_shot.cc, ...). The file begins with the idea, a drawing for 4 ranks, and the
// source of the idea.
#pragma once

#include <span>
#include <string_view>

#include "collectives/plan/plan.h"
#include "collectives/plan/plan_file.h"

namespace hocket::internal {

struct Builder {
  const char* algorithm;  // its name: "inline", "ring", ...: registry.cc has all names
  Collective collective;
  Medium medium;
  bool rank_order;  // folds in absolute rank order, as deterministic mode needs, or folds nothing
  bool cuts;        // cuts a whole message into a block for each rank; else it is one block
  bool varying;     // serves blocks of different counts too
  /// All ranks (in a rooted collective: all but the root) do the same at the same time, each with
  /// peers at the same distances from itself: the cost model simulates only one of them.
  bool symmetric;
  /// Adds the lanes, and the scratch that they use, for more than one rank.
  void (*build_lanes)(Plan& plan, const Shape& shape);
  /// For a plan that a user has loaded: the file makes the whole plan; build_lanes and cuts are
  /// not used.
  const PlanFile* file = nullptr;
  bool scales = true;  // PreMulSum can use it (Proof::scalars); only loaded plans may be unable to

  /// The plan of one rank. In a communicator of one rank it is a copy, whatever the algorithm.
  Plan build(const Shape& shape) const;
  /// For names that users give: nothing else depends on the name of an algorithm (tests/rules).
  bool is_named(std::string_view name) const { return name == algorithm; }
};

/// All algorithms, in the order of the documentation. Defined in registry.cc.
std::span<const Builder> builders();
/// The number of a plan in the signature of a call: that of its row in builders(), from 1 on, or
/// bits of the hash of a loaded plan. Not 0.
std::uint16_t number_of(const Builder& builder);
/// True if an algorithm of builders() has this name.
bool is_built_in(std::string_view name);
/// Returns nullptr if there is no such builder.
const Builder* find_builder(const char* algorithm, Collective collective, Medium medium);

}  // namespace hocket::internal
