// The seed of random tests: TEST_SEED, else a new one for each process. A test that asks for it
// prints the command that repeats the test, before anything can fail, hang or crash. (A name that
// begins with HOCKET_ would be a setting of the library, and an unknown one.)
#pragma once

#include <errno.h>  // program_invocation_name
#include <gtest/gtest.h>

#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

namespace tests {

inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* const text = std::getenv("TEST_SEED");
    return text != nullptr ? std::stoull(text) : std::random_device{}();
  }();
  static std::atomic<const testing::TestInfo*> told{nullptr};
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  if (test != nullptr && told.exchange(test) != test) {
    std::printf("repeat with: TEST_SEED=%" PRIu64 " %s --gtest_filter=%s.%s\n", value,
                program_invocation_name, test->test_suite_name(), test->name());
    std::fflush(stdout);  // a child of fork() must not print the line again
  }
  return value;
}

}  // namespace tests
