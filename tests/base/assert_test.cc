#include "base/assert.h"

#include <gtest/gtest.h>

namespace hocket::internal {
namespace {

#ifdef HOCKET_ASSERTS

TEST(AssertDeathTest, ends_the_process_with_a_text_where_the_condition_does_not_hold) {
  const int two = 2;
  HOCKET_ASSERT(two == 2, "arithmetic");
  EXPECT_DEATH(HOCKET_ASSERT(two == 3, "arithmetic"), "assert_test.cc:.*arithmetic.*two == 3");
}

TEST(AssertDeathTest, finds_a_second_user_of_what_has_one) {
  Exclusive exclusive;
  { const Exclusive::Scope first(exclusive); }
  const Exclusive::Scope second(exclusive);
  EXPECT_TRUE(exclusive.held());
  EXPECT_DEATH(Exclusive::Scope third(exclusive), "one thread at a time");
}

#else

TEST(Assert, does_not_evaluate_its_condition_in_a_release_build) {
  int calls = 0;
  const auto refuse = [&calls] {
    ++calls;
    return false;
  };
  HOCKET_ASSERT(refuse(), "never looked at");
  EXPECT_EQ(0, calls);
}

#endif

}  // namespace
}  // namespace hocket::internal
