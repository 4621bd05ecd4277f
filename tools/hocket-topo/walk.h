// When the messages of an operation are under way: the plans of all ranks, walked with one chunk
// for each block. Time counts message times: a message is sent at time t and has come at t + 1; all
// else takes no time. So the rows of a picture are the rounds of the algorithm. In a plan that
// tells small blocks from large ones, all blocks are small.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/plan/plan.h"

namespace hocket::topo {

/// What goes from one rank to another: a message, or memory of a peer that a step reads or writes.
struct Arrow {
  std::uint32_t from = 0, to = 0;  // ranks
  std::uint32_t time = 0;          // of a message: when it is sent; else: when the step runs
  bool message = true;
  std::string label;  // its blocks
  bool operator==(const Arrow&) const = default;
};

struct Walk {
  std::vector<Arrow> arrows;  // by time, then by ranks
  std::uint32_t end = 0;      // when the last rank has ended
};

/// plans[r]: the plan of rank r. An error if the plans deadlock.
internal::Status walk(std::span<const internal::Plan> plans, Walk* out);

}  // namespace hocket::topo
