#include "options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "table.h"

namespace hocket::perf {
namespace {

struct Parsed {
  Options options;
  std::optional<int> status;
  std::string text;
};

Parsed parse(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  Parsed parsed;
  parsed.status =
      parse_options(static_cast<int>(argv.size()), argv.data(), &parsed.options, &parsed.text);
  return parsed;
}

TEST(Options, sizes_take_suffixes) {
  const struct {
    const char* text;
    std::optional<std::size_t> bytes;
  } cases[] = {{"8", 8},          {"0", 0},          {"4K", 4096},        {"4k", 4096},
               {"1.5M", 1572864}, {"2G", 1ul << 31}, {"64MiB", 64 << 20}, {"64MB", 64 << 20},
               {"", {}},          {"M", {}},         {"-8", {}},          {"3X", {}},
               {"1.3", {}},       {"8 K", {}},       {"9999999T", {}}};
  for (const auto& test : cases) EXPECT_EQ(parse_size(test.text), test.bytes) << test.text;
}

TEST(Options, the_name_it_is_called_by_chooses_the_collective) {
  EXPECT_EQ(parse({"bin/broadcast_perf"}).options.collective, Collective::broadcast);
  EXPECT_EQ(parse({"bin/hocket-perf", "sendrecv"}).options.collective, Collective::sendrecv);
}

TEST(Options, nccl_tests_flags_mean_what_they_mean_there) {
  const Parsed parsed = parse({"all_reduce_perf",
                               "-b",
                               "8",
                               "-e",
                               "64",
                               "-f",
                               "2",
                               "-n",
                               "5",
                               "-w",
                               "0",
                               "-c",
                               "0",
                               "-d",
                               "all",
                               "-o",
                               "all",
                               "-z",
                               "0",
                               "-t",
                               "1"});
  ASSERT_FALSE(parsed.status) << parsed.text;
  EXPECT_EQ(parsed.options.sizes(), (std::vector<std::size_t>{8, 16, 32, 64}));
  EXPECT_EQ(parsed.options.dtypes.size(), 12u);
  EXPECT_EQ(parsed.options.ops.size(), 5u);
  EXPECT_TRUE(parsed.options.host_stream);
  EXPECT_EQ(parsed.options.checks, 0);
}

TEST(Options, mistakes_name_the_culprit) {
  const struct {
    std::vector<std::string> words;
    const char* said;
  } cases[] = {
      {{"hocket-perf"}, "collective"},
      {{"hocket-perf", "all_scatter"}, "all_scatter"},
      {{"all_reduce_perf", "--bogus"}, "--bogus"},
      {{"all_reduce_perf", "-G", "1"}, "CUDA graphs"},
      {{"all_reduce_perf", "-t", "2"}, "hocket-run"},
      {{"all_reduce_perf", "-b", "3X"}, "-b: '3X'"},
      {{"all_reduce_perf", "-b", "4M", "-e", "2M"}, "-b 4194304 is above -e 2097152"},
      {{"all_reduce_perf", "-d", "floot"}, "-d: 'floot'"},
      {{"all_reduce_perf", "-o", "xor"}, "-o: 'xor'"},
      {{"all_reduce_perf", "-n", "0"}, "iters"},
      {{"all_reduce_perf", "-z", "3"}, "-z"},
      {{"all_reduce_perf", "-f", "2", "-i", "8"}, "stepfactor"},
      {{"all_gather_perf", "-r", "1"}, "has no root"},
      {{"all_reduce_perf", "--memory", "pinned"}, "pinned"},
  };
  for (const auto& test : cases) {
    const Parsed parsed = parse(test.words);
    EXPECT_EQ(parsed.status, 2) << parsed.text;
    EXPECT_NE(parsed.text.find(test.said), std::string::npos) << test.said << "\n" << parsed.text;
  }
}

TEST(Table, a_row_has_the_columns_of_nccl_tests) {
  Options options;
  Measured half;
  half.bytes = 1048576;
  half.count = 262144;
  half.time_us = 123.456;
  half.algbw_GBps = 8.4935;
  half.busbw_GBps = 8.4935;
  EXPECT_EQ(row_line(options, half, &half),
            "     1048576        262144     float     sum      -1   123.46    8.49    8.49      0"
            "   123.46    8.49    8.49      0\n");
  half.wrong = 3;
  EXPECT_NE(row_line(options, half, nullptr).find("  3      N/A     N/A     N/A    N/A\n"),
            std::string::npos);
  EXPECT_EQ(footer(options, {half, half}),
            "# Out of bounds values : 6 FAILED\n# Avg bus bandwidth    : 8.4935\n#\n");
}

}  // namespace
}  // namespace hocket::perf
