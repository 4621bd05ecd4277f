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

/// 4 ranks on 2 nodes that have a core for each rank.
inline SelectorOptions two_by_two_ranks() {
  SelectorOptions options = two_ranks();
  options.ranks = 4;
  options.one_node = false;
  options.layout = std::make_shared<const Layout>(std::vector<std::uint32_t>{0, 0, 1, 1});
  return options;
}

}  // namespace hocket::internal
