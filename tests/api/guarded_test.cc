// No exception crosses the C ABI: it becomes a result and a sentence.
#include <gtest/gtest.h>

#include <stdexcept>

#include "api/handle.h"

namespace hocket::internal::api {
namespace {

TEST(Guarded, exceptions_end_as_results_with_a_sentence) {
  EXPECT_EQ(guarded("hocketTest", nullptr, []() -> Status { throw std::bad_alloc(); }),
            hocketSystemError);
  EXPECT_NE(std::string(hocketGetLastError(nullptr)).find("hocketTest: out of memory"),
            std::string::npos);
  EXPECT_EQ(guarded("hocketTest", nullptr, []() -> Status { throw std::out_of_range("far off"); }),
            hocketInternalError);
  EXPECT_NE(std::string(hocketGetLastError(nullptr)).find("far off"), std::string::npos);
  EXPECT_EQ(guarded("hocketTest", nullptr, [] { return Status(); }), hocketSuccess);
}

}  // namespace
}  // namespace hocket::internal::api
