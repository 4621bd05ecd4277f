// This process among the ranks of hocket-perf. The ranks agree which of them prints a message, so
// that the user sees it once.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "options.h"
#include "table.h"

namespace hocket::perf {

class Job {
 public:
  bool join(const Options& options, Failure* failure);
  bool leave(Failure* failure);

  /// Collective. If parsing ended the run on a rank, the lowest such rank prints its text, and all
  /// ranks return its status.
  std::optional<int> status_of_all(std::optional<int> mine, const std::string& text);
  /// Collective. Returns false on all ranks if a rank is not `ready`; the lowest such rank prints
  /// why.
  bool agree(bool ready, Failure* failure);
  /// Returns the exit status after a failure and prints the failure on a single rank: if the
  /// library returned the error on all ranks, on the lowest rank other than the culprit.
  int complain(const Failure& failure) const;

  hocketComm_t comm() const { return comm_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int nodes() const { return nodes_; }
  const std::vector<Place>& places() const { return places_; }

 private:
  /// The lowest rank whose value is not -1, and this value; nothing if all have -1.
  bool lowest(int mine, std::optional<std::pair<int, int>>* found, Failure* failure);

  hocketComm_t comm_ = nullptr;
  int rank_ = 0;
  int ranks_ = 1;
  int nodes_ = 1;
  std::vector<Place> places_;  // by rank
};

}  // namespace hocket::perf
