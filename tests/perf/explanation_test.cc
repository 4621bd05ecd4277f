// What hocket-perf --explain says about choice and predictions.
#include "explanation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace hocket::perf {
namespace {

Point point(std::size_t bytes, std::vector<Candidate> candidates) {
  Point point;
  point.bytes = bytes;
  point.count = bytes / 4;
  point.candidates = std::move(candidates);
  return point;
}

TEST(Explanation, counts_the_points_whose_choice_is_near_the_best_and_the_errors) {
  const std::vector<Point> points = {
      point(8, {{"ring", "tcp", 5, 10, false}, {"tree", "tcp", 11, 11, true}}),       // 1.1: near
      point(64, {{"ring", "tcp", 30, 10, true}, {"tree", "tcp", 18, 20, false}}),     // the best
      point(512, {{"ring", "tcp", 12, 10, false}, {"tree", "tcp", 20, 11.2, true}}),  // 1.12
  };
  EXPECT_DOUBLE_EQ(10, points[0].best_us());
  EXPECT_EQ("tree", points[0].chosen().algorithm);
  EXPECT_DOUBLE_EQ(-50, points[0].candidates[0].error_percent());
  const Verdict verdict = judge(points);
  EXPECT_EQ(3u, verdict.points);
  EXPECT_EQ(2u, verdict.near_best);
  EXPECT_EQ(6u, verdict.predictions);  // 0, 10, 20, 50, 79, 200: the third
  EXPECT_NEAR(20, verdict.median_error_percent, 1e-9);
  EXPECT_NEAR(200, verdict.most_error_percent, 1e-9);
  EXPECT_EQ("ring at 64 bytes", verdict.most_wrong);
  const std::string text = explain_footer(verdict);
  EXPECT_NE(std::string::npos, text.find("at 2 of 3 points (67 %)")) << text;
  EXPECT_NE(std::string::npos, text.find("median 20 %, at most 200 % (ring at 64 bytes)")) << text;
}

TEST(Explanation, has_a_line_and_an_object_for_each_algorithm_and_size) {
  const Options options;
  const std::vector<Point> points = {
      point(8, {{"ring", "tcp", 5, 10, false}, {"tree", "tcp", 22, 20, true}})};
  EXPECT_EQ(
      "           8             2     float     sum    ring                      tcp         5.00"
      "        10.00      -50    1.00\n"
      "           8             2     float     sum  * tree                      tcp        22.00"
      "        20.00      +10    2.00\n",
      explain_lines(options, points[0]));
  const auto all = nlohmann::json::parse(explain_json(options, points, 4, 2));
  ASSERT_EQ(2u, all.size());
  EXPECT_EQ("all_reduce", all[1]["collective"]);
  EXPECT_EQ("tree", all[1]["algorithm"]);
  EXPECT_EQ(8, all[1]["bytes"]);
  EXPECT_EQ(4, all[1]["ranks"]);
  EXPECT_EQ(2, all[1]["nodes"]);
  EXPECT_EQ(true, all[1]["chosen"]);
  EXPECT_EQ(22.0, all[1]["predicted_us"]);
  EXPECT_EQ(20.0, all[1]["measured_us"]);
  EXPECT_EQ(2.0, all[1]["ratio"]);
  EXPECT_EQ(false, all[0]["chosen"]);
}

}  // namespace
}  // namespace hocket::perf
