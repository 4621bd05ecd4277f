// Every algorithm: a pure function from a shape to one rank's plan. One file each (inline.cc,
// one_shot.cc, ...), which opens with the idea and a 4-rank drawing, and names its source where it
// has one.
#pragma once

#include <span>

#include "collectives/plan/plan.h"

namespace hocket::internal {

struct Builder {
  const char* algorithm;  // "inline", "one-shot", "staged", "direct", "ring", "tree", "owner-fold",
                          // "message"
  Collective collective;
  bool load_store;  // needs all ranks on one node; else it runs over messages
  bool rank_order;  // folds in absolute rank order: fit for deterministic mode. True where nothing
                    // is folded
  bool cuts;        // all-reduce: the message has a block for each rank, else it is one block
  void (*lay)(Plan& plan, const Shape& shape);  // for more than one rank: lanes, and all they need

  Plan build(const Shape& shape) const;  // with one rank: a copy, whatever the algorithm
};

/// All of them, in the order in which docs list them. (registry.cc)
std::span<const Builder> builders();
/// nullptr where there is none.
const Builder* find_builder(const char* algorithm, Collective collective, bool load_store);

}  // namespace hocket::internal
