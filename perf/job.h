// This process among the ranks of hocket-perf, and what all of them have to agree on before a
// message to the user is printed once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "call.h"
#include "options.h"
#include "table.h"

namespace hocket::perf {

class Job {
 public:
  bool join(const Options& options, Failure* failure);
  bool leave(Failure* failure);

  /// Collective. Did parsing end the run on any rank? Then the lowest such rank prints its text,
  /// and all get its status.
  std::optional<int> status_of_all(std::optional<int> mine, const std::string& text);
  /// Collective. False on all ranks where one is not `ready`; the lowest such rank says why.
  bool agree(bool ready, Failure* failure);
  /// Prints a failure on one rank, and returns the exit status. Of what the library told all
  /// ranks, the lowest one but the culprit speaks.
  int complain(const Failure& failure) const;

  hocketComm_t comm() const { return comm_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int nodes() const { return nodes_; }
  const std::vector<Place>& places() const { return places_; }

 private:
  /// The lowest rank with a value that is not -1, and this value; nothing where all have -1.
  bool lowest(int mine, std::optional<std::pair<int, int>>* found, Failure* failure);

  hocketComm_t comm_ = nullptr;
  int rank_ = 0;
  int ranks_ = 1;
  int nodes_ = 1;
  std::vector<Place> places_;  // by rank
};

}  // namespace hocket::perf
