// All random tests get their seeds from tests/seed.h, which prints how to repeat a test.
#include <gtest/gtest.h>

#include "rules/tree.h"
#include "seed.h"

namespace rules {
namespace {

TEST(Seed, is_printed_once_with_the_command_that_repeats_the_test) {
  testing::internal::CaptureStdout();
  const std::uint64_t seed = tests::seed();
  EXPECT_EQ(tests::seed(), seed);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(printed, "repeat with: TEST_SEED=" + std::to_string(seed) + " " +
                         program_invocation_name +
                         " --gtest_filter=Seed.is_printed_once_with_the_command_that_repeats_the_"
                         "test\n");
}

TEST(Rules, random_tests_take_their_seed_from_one_place) {
  Complaints complaints;
  for (const File& file : files()) {
    if (!file.path.starts_with("tests/") || !is_source(file.path)) continue;
    if (file.path == "tests/seed.h" || file.path == "tests/rules/seeds_test.cc") continue;
    if (file.path == "tests/rules/includes_test.cc") continue;  // it lists names
    for (const char* word : {"random_device", "TEST_SEED"}) {
      if (file.text.find(word) != std::string::npos) complaints.push_back(file.path + ": " + word);
    }
  }
  EXPECT_TRUE(complaints.empty()) << join(complaints);
}

}  // namespace
}  // namespace rules
