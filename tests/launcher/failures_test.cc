// Which of several failures hocket-run names and returns as its exit status.
#include "failures.h"

#include <gtest/gtest.h>

namespace hocket::internal::launch {
namespace {

Failure plain(int rank) {
  return {rank, 1, Origin::exited, true, "rank " + std::to_string(rank), "exited with status 1"};
}
Failure aborted(int rank) {
  return {rank, 134, Origin::aborted, true, "rank " + std::to_string(rank), "aborted"};
}
Failure killed(int rank) {
  return {rank, 137, Origin::cause, true, "rank " + std::to_string(rank), "was killed"};
}

struct Row {
  std::vector<Failure> failures;  // 1 ms apart
  Nanos named_at;                 // after the first
  int status;
  const char* others;
};

TEST(Failures, a_likely_cause_goes_before_its_consequences) {
  const Nanos ms = nanos_per_ms;
  const Row rows[] = {
      {{plain(2)}, Failures::hold, 1, ""},
      {{killed(2)}, 0, 137, ""},
      {{plain(2), plain(0)}, Failures::hold, 1, "rank 0 exited with status 1"},
      {{plain(2), killed(0)}, 1 * ms, 137, "rank 2 exited with status 1"},
      {{plain(2), plain(3), killed(0), killed(1)},
       2 * ms,
       137,
       "ranks 2-3 exited with status 1; rank 1 was killed"},
      {{killed(3), killed(0), killed(1)}, 0, 137, "ranks 0-1 were killed"},
      {{plain(2), aborted(1)}, Failures::hold, 134, "rank 2 exited with status 1"},
      {{aborted(1), aborted(2), plain(3), killed(0)},
       3 * ms,
       137,
       "ranks 1-2 aborted; rank 3 exited with status 1"},
  };
  for (const Row& row : rows) {
    Failures failures;
    for (std::size_t i = 0; i < row.failures.size(); ++i) {
      failures.add(row.failures[i], 1000 + static_cast<Nanos>(i) * ms);
    }
    EXPECT_EQ(failures.name_at(), 1000 + row.named_at) << row.others;
    Console console;
    failures.name_first(false, &console);
    EXPECT_EQ(failures.name_at(), 0);
    EXPECT_EQ(failures.status(), row.status) << row.others;
    EXPECT_EQ(failures.others(), row.others);
  }
}

TEST(Failures, what_comes_after_the_first_was_named_does_not_replace_it) {
  Failures failures;
  failures.add(plain(3), 0);
  Console console;
  failures.name_first(false, &console);
  failures.add(killed(1), Failures::hold + 1);
  EXPECT_EQ(failures.status(), 1);
  EXPECT_EQ(failures.others(), "rank 1 was killed");
}

TEST(Failures, what_the_user_asked_for_is_no_news) {
  Failures failures;
  Failure asked = killed(0);
  asked.status = 130;
  asked.is_news = false;
  failures.add(asked, 0);
  Console console;
  failures.name_first(false, &console);
  EXPECT_TRUE(console.empty());
  EXPECT_FALSE(failures.first_is_news());
  failures.add(asked, 1);
  EXPECT_EQ(failures.others(), "");
  failures.add(plain(1), 2);
  EXPECT_EQ(failures.others(), "rank 1 exited with status 1");
  EXPECT_EQ(failures.status(), 130);
}

}  // namespace
}  // namespace hocket::internal::launch
