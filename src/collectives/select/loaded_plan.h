// Plans of users that were verified for the ranks of a communicator: candidates of its selector.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/algorithms/builders.h"
#include "collectives/plan/plan_file.h"

namespace hocket::internal {

struct LoadedPlan {
  PlanFile file;
  Builder builder;  // of `file`: neither is copied
};

class LoadedPlans {
 public:
  /// Verifies the plan for that number of ranks on these nodes, for all roots, for both widths of
  /// partial results, and, if the plan serves them, for different counts of blocks. An error names
  /// the source, the lane and the step. No plan may have the same name.
  Status verify(const PlanFile& file, std::uint32_t ranks, std::shared_ptr<const LoadedPlan>* out,
                const Layout* layout = nullptr) const;
  void add(std::shared_ptr<const LoadedPlan> plan) { plans_.push_back(std::move(plan)); }

  const std::vector<std::shared_ptr<const LoadedPlan>>& all() const { return plans_; }
  /// Equal for equal plans in the same order.
  std::uint64_t hash() const;
  /// "'cube' 00f3d8c1a2b45e67, 'chain' ...": names and hashes; "none".
  std::string text() const;

 private:
  std::vector<std::shared_ptr<const LoadedPlan>> plans_;
};

/// "'cube' 00f3d8c1a2b45e67".
std::string name_and_hash(const std::string& name, std::uint64_t hash);

}  // namespace hocket::internal
