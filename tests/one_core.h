// Ranks that share a core, on a machine with any number of cores.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

namespace tests {

/// As long as it lives, the calling thread and what it starts run on one core.
class OneCore {
 public:
  OneCore() {
    EXPECT_EQ(0, ::sched_getaffinity(0, sizeof before_, &before_));
    int first = 0;
    while (!CPU_ISSET(first, &before_)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    EXPECT_EQ(0, ::sched_setaffinity(0, sizeof one, &one));
  }
  ~OneCore() { EXPECT_EQ(0, ::sched_setaffinity(0, sizeof before_, &before_)); }
  OneCore(const OneCore&) = delete;

 private:
  cpu_set_t before_{};
};

}  // namespace tests
