// The table, in the form that programs which read the output of nccl-tests expect.
#include "table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

namespace hocket::perf {
namespace {

Measured measured() {
  Measured half;
  half.bytes = 1048576;
  half.count = 262144;
  half.time_us = half.shown_us = 123.456;
  half.algbw_GBps = 8.4935;
  half.busbw_GBps = 8.4935;
  half.algorithm = "staged";
  half.transport = "shm";
  half.each = summarise({1, 2, 3, 4});
  return half;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string line_with(const std::string& text, const std::string& part) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.find(part) != std::string::npos) return line;
  }
  return {};
}

TEST(Table, a_row_has_the_columns_of_nccl_tests) {
  const Options options;
  const Measured half = measured();
  EXPECT_EQ(row_line(options, {half, half}, ""),
            "     1048576        262144     float     sum      -1   123.46    8.49    8.49       0"
            "   123.46    8.49    8.49       0\n");
  EXPECT_NE(row_line(options, {half, {}}, "").find("  0      N/A     N/A     N/A     N/A\n"),
            std::string::npos);
}

TEST(Table, the_header_has_the_lines_of_nccl_tests) {
  Options options;
  options.min_bytes = 8;
  options.step_factor = 2;
  const std::string text = header(options, {{4711, 0, "here"}, {4712, 1, "here"}}, 1);
  EXPECT_TRUE(std::regex_search(text, std::regex("# Collective test starting: all_reduce_perf\n")));
  EXPECT_TRUE(std::regex_search(
      text, std::regex("\n# nThread 1 nGpus 1 minBytes 8 maxBytes 33554432 step: 2\\(factor\\) "
                       "warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0")));
  // nccl-tests itself reads its lines of ranks with this format.
  int rank = 0, group = 0, pid = 0, device = 0;
  char host[1025], hex[129], info[1025];
  ASSERT_EQ(std::sscanf(line_with(text, "Rank  1").c_str(),
                        "#  Rank %d Group %d Pid %d on %1024s device %d [%128[^]]] %1024[^\n]",
                        &rank, &group, &pid, host, &device, hex, info),
            7);
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(pid, 4712);
  EXPECT_EQ(device, 1);
  EXPECT_STREQ(host, "here");
}

TEST(Table, the_header_names_the_method) {
  Options options;
  EXPECT_NE(line_with(header(options, {}, 1), "# Method: ").find("back-to-back"),
            std::string::npos);
  for (const Method method : {Method::barrier, Method::aligned, Method::overlap}) {
    options.method = method;
    EXPECT_NE(line_with(header(options, {}, 1), "# Method: ").find(name_of(method)),
              std::string::npos);
  }
}

TEST(Table, every_column_of_a_row_has_a_name_and_a_unit_is_in_place) {
  for (const Method method :
       {Method::back_to_back, Method::barrier, Method::aligned, Method::overlap}) {
    for (const bool more : {false, true}) {
      Options options;
      options.method = method;
      options.verbose = options.each_iteration = more;
      const std::string text = header(options, {}, 1);
      const auto names = words_of(line_with(text, "redop"));
      const auto values = words_of(row_line(options, {measured(), measured()}, ""));
      EXPECT_EQ(names.size(), values.size() + 1) << text;  // "#"
      EXPECT_EQ(line_with(text, "redop").size(), line_with(text, "(elements)").size());
    }
  }
}

TEST(Table, verbose_rows_have_percentiles_algorithm_and_transport) {
  Options options;
  options.verbose = true;
  const auto names = words_of(line_with(header(options, {}, 1), "redop"));
  const auto values = words_of(row_line(options, {measured(), measured()}, ""));
  const struct {
    const char* name;
    const char* value;
  } cases[] = {{"min", "1.000"}, {"p50", "2.000"},        {"p95", "4.000"},    {"p99", "4.000"},
               {"max", "4.000"}, {"algorithm", "staged"}, {"transport", "shm"}};
  for (const auto& test : cases) {
    const auto at = std::find(names.begin(), names.end(), test.name);
    ASSERT_NE(at, names.end()) << test.name;
    EXPECT_EQ(values[static_cast<std::size_t>(at - names.begin()) - 1], test.value) << test.name;
  }
}

TEST(Table, skew_and_timestamp_have_columns_of_their_own) {
  Options options;
  options.method = Method::aligned;
  options.timestamps = true;
  Measured half = measured();
  half.skew_us = 7.5;
  const std::string line = row_line(options, {half, half}, "2026-11-21 20:40:26");
  EXPECT_EQ(words_of(line)[9], "7.500");
  EXPECT_NE(line.find("  2026-11-21 20:40:26\n"), std::string::npos);
  EXPECT_EQ(words_of(line_with(header(options, {}, 1), "redop"))[10], "skew");
}

TEST(Table, the_footer_has_the_lines_of_nccl_tests) {
  Options options;
  Totals totals;
  Measured half = measured();
  totals.add(half);
  half.wrong = 6;
  totals.add(half);
  EXPECT_EQ(footer(options, totals),
            "# Out of bounds values : 6 FAILED\n# Avg bus bandwidth    : 8.4935\n#\n"
            "# Collective test concluded: all_reduce_perf\n#\n");
  options.min_bus_bandwidth = 9;
  EXPECT_NE(footer(options, totals).find(": 8.4935 OK\n"), std::string::npos);
  EXPECT_TRUE(totals.fast_enough(options));
  options.min_bus_bandwidth = 10;
  EXPECT_NE(footer(options, totals).find(": 8.4935 FAILED\n"), std::string::npos);
  EXPECT_FALSE(totals.fast_enough(options));
  options.checks = 0;
  EXPECT_NE(footer(options, {}).find("# Out of bounds values : 0 OK (nothing was checked)\n"),
            std::string::npos);
}

TEST(Table, both_json_files_carry_the_rows) {
  Options options;
  const std::vector<Row> rows{{measured(), measured()}};
  const auto ours = nlohmann::json::parse(to_json(options, rows, 2, 1));
  ASSERT_EQ(ours.size(), 2u);
  EXPECT_EQ(ours[0]["p50_us"], 2.0);
  EXPECT_EQ(ours[0]["max_us"], 4.0);
  EXPECT_EQ(ours[0]["method"], "back-to-back");
  EXPECT_EQ(ours[0]["algorithm"], "staged");
  RunRecord record;
  record.places = {{1, 0, "here"}};
  const auto theirs = nlohmann::json::parse(to_nccl_json(options, rows, record));
  EXPECT_EQ(theirs["results"][0]["size"], 1048576);
  EXPECT_EQ(theirs["results"][0]["in_place"]["time"], 123.456);
  EXPECT_EQ(theirs["config"]["devices"][0]["hostname"], "here");
  EXPECT_EQ(theirs["out_of_bounds"]["okay"], "true");
  EXPECT_EQ(theirs["average_bus_bandwidth"]["okay"], "unchecked");
}

}  // namespace
}  // namespace hocket::perf
