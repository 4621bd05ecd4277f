// The plans of all ranks, for tests.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "collectives/algorithms/builders.h"

namespace hocket::internal {

/// root: of a broadcast; other collectives have none.
inline std::vector<Plan> plans_of(const Builder& builder, int ranks, bool widened, int root = 0) {
  std::vector<Plan> plans;
  for (int r = 0; r < ranks; ++r) {
    plans.push_back(builder.build({.collective = builder.collective,
                                   .rank = r,
                                   .ranks = ranks,
                                   .root = builder.collective == Collective::broadcast ? root : -1,
                                   .widened = widened}));
  }
  return plans;
}

/// Rank 0 sends to rank 1.
inline std::vector<Plan> message_plans(bool widened = false) {
  const auto build = [&](Collective collective, int rank, int other) {
    return find_builder("message", collective, false)
        ->build({.collective = collective,
                 .rank = rank,
                 .ranks = 2,
                 .root = other,
                 .widened = widened});
  };
  return {build(Collective::send, 0, 1), build(Collective::recv, 1, 0)};
}

inline std::string name_of(const Builder& builder) {
  return std::string(builder.algorithm) + "_" + name_of(builder.collective) +
         (builder.load_store ? "_load-store" : "_messages");
}

/// Names the cases of a suite whose parameter is a builder.
struct TestName {
  std::string operator()(const testing::TestParamInfo<Builder>& info) const {
    std::string name = name_of(info.param);
    std::erase(name, '-');
    return name;
  }
};

inline void PrintTo(const Builder& builder, std::ostream* out) { *out << name_of(builder); }

/// The builders that plan for all ranks at once: all but send and recv.
inline std::vector<Builder> group_builders() {
  std::vector<Builder> found;
  for (const Builder& builder : builders()) {
    if (!is_p2p(builder.collective)) found.push_back(builder);
  }
  return found;
}

}  // namespace hocket::internal
