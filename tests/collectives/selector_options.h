// Measurements that tests give to a selector.
#pragma once

#include "collectives/select/selector.h"

namespace hocket::internal {

inline SelectorOptions two_ranks() {
  SelectorOptions options;
  options.ranks = 2;
  options.board_scratch_bytes = 4 << 20;
  options.figures.core_cache_bytes = 1 << 20;
  options.figures.node_cache_bytes = 8 << 20;
  return options;
}

}  // namespace hocket::internal
