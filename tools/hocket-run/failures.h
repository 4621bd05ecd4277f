// What failed in a job, and which failure the job's exit status and hocket-run's line name.
//
// The survivors of a killed rank often report it and end before the killed process is reaped: the
// kernel closes its connections first. So a failure that may be the consequence of another one is
// held for a moment, and a failure that cannot be one (a death by signal, a lost host) goes first.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "console.h"

namespace hocket::internal::launch {

/// How surely a failure is not the consequence of another one, in ascending order: a plain exit; an
/// abort(), which is how many programs end at an error that they do not handle; anything else.
enum class Origin { exited, aborted, cause };

struct Failure {
  int rank = -1;   // -1: not of a single rank
  int status = 0;  // the exit status that stands for it
  Origin origin = Origin::exited;
  bool is_news = true;  // false: the user asked for it
  std::string subject;  // "rank 3 on b (pid 12)"; may be empty
  std::string how;      // "exited with status 3"
};

class Failures {
 public:
  /// How long the first failure waits for its cause.
  static constexpr Nanos hold = 200 * nanos_per_ms;

  void add(Failure failure, Nanos now);
  bool any() const { return !list_.empty(); }
  /// When the first failure is to be named; 0: there is none, or it is named already.
  Nanos name_at() const { return named_ ? 0 : name_at_; }
  /// Chooses the first failure and says which it is. all: says the others too, and from now on each
  /// as it comes.
  void name_first(bool all, Console* console);
  /// Says a failure that came after the first was named.
  void say_last(Console* console) const;
  /// "ranks 1-2 exited with status 1, rank 4 was killed by ..."; empty: there is no news.
  std::string others() const;
  /// Whether the first failure was said.
  bool first_is_news() const { return list_[first_].is_news; }
  int status() const { return list_.empty() ? 0 : list_[first_].status; }

 private:
  std::vector<Failure> list_;  // in order of arrival
  std::size_t first_ = 0;
  bool named_ = false;
  Nanos name_at_ = 0;
};

}  // namespace hocket::internal::launch
