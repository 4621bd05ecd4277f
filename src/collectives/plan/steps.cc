#include "collectives/plan/steps.h"

namespace hocket::internal::steps {

Steps arrival_barrier() { return {arrive(), await_arrival()}; }

std::vector<Range> in_rank_order(const Shape& shape, Range mine, Range theirs) {
  std::vector<Range> ranges(shape.ranks, theirs);
  for (int r = 0; r < shape.ranks; ++r) ranges[r].rank = static_cast<std::int16_t>(r);
  ranges[shape.rank] = mine;
  return ranges;
}

}  // namespace hocket::internal::steps
