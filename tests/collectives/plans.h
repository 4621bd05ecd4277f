// The plans of all ranks, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <ostream>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/builders.h"

namespace hocket::internal {

/// What the plans of all ranks of a call have in common.
struct Group {
  std::uint32_t ranks = 1;
  bool widened = false;
  std::uint32_t root = 0;  // of a rooted collective; others have none
  bool varying = false;
  const Layout* layout = nullptr;
  bool shares_cores = false;
};

inline std::vector<Plan> plans_of(const Builder& builder, const Group& group) {
  const bool rooted = row_of(builder.collective).rooted;
  std::vector<Plan> plans;
  for (std::uint32_t r = 0; r < group.ranks; ++r) {
    plans.push_back(builder.build({.collective = builder.collective,
                                   .rank = r,
                                   .ranks = group.ranks,
                                   .root = rooted ? static_cast<std::int32_t>(group.root) : -1,
                                   .varying = group.varying,
                                   .widened = group.widened,
                                   .shares_cores = group.shares_cores,
                                   .layout = group.layout}));
  }
  return plans;
}

/// Nodes of such sizes, whose ranks follow one another.
inline Layout layout_of(const std::vector<std::uint32_t>& sizes) {
  std::vector<std::uint32_t> node_of;
  for (std::uint32_t node = 0; node < sizes.size(); ++node) {
    node_of.insert(node_of.end(), sizes[node], node);
  }
  return Layout(node_of);
}

/// Rank `from` of two sends to the other rank.
inline std::vector<Plan> message_plans(std::uint32_t from = 0, bool widened = false) {
  std::vector<Plan> plans;
  for (std::uint32_t r = 0; r < 2; ++r) {
    const Collective collective = r == from ? Collective::send : Collective::recv;
    plans.push_back(find_builder("message", collective, Medium::messages)
                        ->build({.collective = collective,
                                 .rank = r,
                                 .ranks = 2,
                                 .root = static_cast<std::int32_t>(1 - r),
                                 .widened = widened}));
  }
  return plans;
}

inline std::string name_of(const Builder& builder) {
  return std::string(builder.algorithm) + "_" + row_of(builder.collective).name +
         (builder.medium == Medium::node       ? "_load-store"
          : builder.medium == Medium::messages ? "_messages"
                                               : "_both");
}

/// Names the cases of a suite whose parameter is a builder.
struct TestName {
  std::string operator()(const ::testing::TestParamInfo<Builder>& info) const {
    std::string name = name_of(info.param);
    std::erase(name, '-');
    return name;
  }
};

inline void PrintTo(const Builder& builder, std::ostream* out) { *out << name_of(builder); }

/// The builders that plan for all ranks at once, without a layout: all but send and recv.
inline std::vector<Builder> group_builders() {
  std::vector<Builder> found;
  for (const Builder& builder : builders()) {
    if (!is_p2p(builder.collective) && builder.medium != Medium::both) found.push_back(builder);
  }
  return found;
}
/// The builders that need a layout.
inline std::vector<Builder> layout_builders() {
  std::vector<Builder> found;
  for (const Builder& builder : builders()) {
    if (builder.medium == Medium::both) found.push_back(builder);
  }
  return found;
}

inline bool is_one_of(const Builder& builder, std::initializer_list<std::string_view> algorithms) {
  return std::ranges::find(algorithms, builder.algorithm) != algorithms.end();
}

/// True if the messages of a rank, and their bytes, grow with the logarithm of the number of ranks.
inline bool is_logarithmic(const Builder& builder) {
  return is_one_of(builder, {"tree", "k-nomial", "double-tree", "recursive-doubling"});
}

}  // namespace hocket::internal
