// hocket-perf --explain: times every algorithm that can run a call beside its predicted time. An
// algorithm is forced by communicators of its own; the algorithms take turns. Each has several
// communicators, which it uses in turn: the time of a plan over TCP also depends on the connections
// of the communicator, by up to 20 %, and that of a plan in shared memory on the pages of its
// scratch.
#pragma once

#include <string>
#include <vector>

#include "explanation.h"
#include "job.h"
#include "runner.h"

namespace hocket::perf {

class Explainer {
 public:
  Explainer(const Options& options, const Job& job);
  ~Explainer();
  Explainer(const Explainer&) = delete;
  Explainer& operator=(const Explainer&) = delete;

  /// Makes the buffers, and the communicators for each algorithm. Otherwise sets *failure.
  bool prepare(Failure* failure);
  /// Measures all points; rank 0 prints them and the verdict.
  bool run(Failure* failure);
  const std::vector<Point>& points() const { return points_; }

 private:
  struct Forced {
    std::string algorithm;
    std::vector<hocketComm_t> comms;
  };
  /// An algorithm that can run the calls of a row.
  struct Turn {
    Candidate candidate;
    /// For each communicator, then for each root; with no root, one operation.
    std::vector<std::vector<Operation>> operations;
    std::vector<double> times_us;  // of a call on this rank, for each turn
  };

  void print(const std::string& text) const;
  bool measure(const RowSpec& spec, Point* point, Failure* failure);
  bool names(std::vector<std::string>* found, Failure* failure) const;
  bool force(const std::string& algorithm, Failure* failure);
  std::vector<Operation> operations(const RowSpec& spec, hocketComm_t comm);
  bool try_out(const RowSpec& spec, hocketComm_t comm, Turn* turn, Failure* failure);
  bool choose_calls(Turn* chosen, std::size_t* calls, Failure* failure);
  bool take_turns(std::vector<Turn>* turns, std::size_t calls, Failure* failure);
  /// A price is the time until the last rank has ended, if all begin at once. In a rooted
  /// collective some ranks end before the root has begun, so that calls in sequence overlap. A
  /// barrier separates such calls, and the time of the barriers alone is subtracted.
  bool time(Turn* turn, std::size_t calls, Failure* failure);
  bool barrier(Failure* failure);
  bool from_rank_0(void* value, std::size_t bytes, Failure* failure);
  bool conclude(const std::vector<Turn>& turns, Point* point, Failure* failure);

  const Options& options_;
  const Job& job_;
  Runner runner_;
  std::vector<Forced> forced_;
  std::vector<Point> points_;
  // All algorithms rotate through the buffers together: otherwise each would find in the caches
  // what the algorithm before it has used.
  std::size_t buffers_used_ = 0;
};

}  // namespace hocket::perf
