// Collects the failures of a job, and chooses the failure that hocket-run names and whose status is
// the exit status of the job.
//
// When a rank is killed, the kernel closes its connections before its agent can reap it. So other
// ranks often fail and end before the agent reports the killed rank. A failure that may be the
// consequence of another failure therefore waits for Failures::hold; a failure that cannot be a
// consequence (a death by signal, a lost host) is named first.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"
#include "console.h"

namespace hocket::internal::launch {

/// How sure it is that a failure is not the consequence of another, in ascending order: an exit
/// with a status; an abort(), by which many programs end at an error that they do not handle; all
/// others.
enum class Origin { exited, aborted, cause };

struct Failure {
  int rank = -1;   // -1: not the failure of a single rank
  int status = 0;  // exit status of the job if this failure is named
  Origin origin = Origin::exited;
  bool is_news = true;  // false: a signal of the user caused it
  std::string subject;  // "rank 3 on b (pid 12)"; may be empty
  std::string how;      // "exited with status 3"
};

class Failures {
 public:
  /// How long the first failure waits for its cause.
  static constexpr Nanos hold = 200 * nanos_per_ms;

  void add(Failure failure, Nanos now);
  bool any() const { return !list_.empty(); }
  /// When the first failure must be named; 0: there is none, or it is named already.
  Nanos name_at() const { return named_ ? 0 : name_at_; }
  /// Chooses the first failure and prints it. all: prints the other failures too.
  void name_first(bool all, Console* console);
  /// Prints the last failure, which came after the first was named.
  void say_last(Console* console) const;
  /// "ranks 1-2 exited with status 1; rank 4 was killed by ..."; empty: there are no others.
  std::string others() const;
  /// True if the first failure was printed.
  bool first_is_news() const { return list_[first_].is_news; }
  int status() const { return list_.empty() ? 0 : list_[first_].status; }

 private:
  std::vector<Failure> list_;  // in order of arrival
  std::size_t first_ = 0;
  bool named_ = false;
  Nanos name_at_ = 0;
};

}  // namespace hocket::internal::launch
