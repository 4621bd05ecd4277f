// Tables of calls that are refused, and what is expected of each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "matrix/ranks.h"

namespace wrong_calls {

struct Wrong {
  const char* what;
  hocketResult_t expected;
  const char* named;  // a word of the sentence
  std::function<hocketResult_t(hocketComm_t)> call;
};

using Wrongs = std::vector<Wrong>;
inline constexpr hocketResult_t argument = hocketInvalidArgument;

inline int rank_of(hocketComm_t comm) {
  int rank = -1;
  EXPECT_HOCKET(hocketCommUserRank(comm, &rank));
  return rank;
}

/// Of 2 ranks: each call is refused, its sentence has the word, and the communicator is as before.
inline void expect_refused(ranks::Rank& self, const Wrongs& wrongs) {
  for (const Wrong& wrong : wrongs) {
    EXPECT_EQ(wrong.expected, wrong.call(self.comm)) << wrong.what;
    const std::string text = hocketGetLastError(nullptr);
    EXPECT_NE("", text) << wrong.what;
    EXPECT_NE(std::string::npos, text.find(wrong.named)) << wrong.what << ": " << text;
    int sum = 1;
    EXPECT_HOCKET(hocketAllReduce(&sum, &sum, 1, hocketInt32, hocketSum, self.comm, nullptr));
    EXPECT_EQ(2, sum) << "after " << wrong.what;
  }
}

}  // namespace wrong_calls
