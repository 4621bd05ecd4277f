#include "options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "data.h"

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

TEST(Options, a_collective_whose_buffers_have_parts_has_a_variant_of_unequal_blocks) {
  for (const char* name :
       {"all_gather_v", "reduce_scatter_v", "gather_v", "scatter_v", "alltoall_v"}) {
    const Options by_name = parse({"bin/" + std::string(name) + "_perf"}).options;
    EXPECT_EQ(by_name.program(), std::string(name) + "_perf");
    EXPECT_TRUE(by_name.varying);
    EXPECT_EQ(parse({"hocket-perf", name}).options.name(), name);
  }
  EXPECT_EQ(parse({"alltoallv_perf"}).options.name(), "alltoall_v");  // nccl-tests' name
  EXPECT_EQ(parse({"alltoall_perf"}).options.name(), "alltoall");
  EXPECT_EQ(parse({"hocket-perf", "broadcast_v"}).status, 2);
  EXPECT_TRUE(parse({"gather_v_perf", "-r", "all"}).options.has_in_place());
  EXPECT_FALSE(parse({"alltoall_v_perf"}).options.has_in_place());
}

/// Flags after "all_reduce_perf", and the expected options.
struct Accepted {
  std::vector<std::string> flags;
  bool (*holds)(const Options&);
};
const Accepted accepted[] = {
    {{}, [](const Options& o) { return o.sizes() == std::vector<std::size_t>{32 << 20}; }},
    {{}, [](const Options& o) { return o.blocking == Blocking::stream && o.needs_stream(); }},
    {{}, [](const Options& o) { return o.method == Method::back_to_back; }},
    {{}, [](const Options& o) { return o.iterations == 20 && o.warmup_iterations == 1; }},
    {{"-b", "8", "-e", "64", "-f", "2"},
     [](const Options& o) {
       return o.sizes() == std::vector<std::size_t>{8, 16, 32, 64};
     }},
    {{"--explain", "--seconds", "0.5"},
     [](const Options& o) { return o.explain && o.explain_seconds == 0.5 && !o.needs_stream(); }},
    {{"--minbytes", "8", "--maxbytes", "24", "--stepbytes", "8"},
     [](const Options& o) {
       return o.sizes() == std::vector<std::size_t>{8, 16, 24};
     }},
    {{"-b", "1M", "-e", "2M", "-f", "1"}, [](const Options& o) { return o.sizes().size() == 2; }},
    {{"-b", "1M", "-e", "2M", "-f", "0"}, [](const Options& o) { return o.sizes().size() == 2; }},
    {{"-n", "5"}, [](const Options& o) { return o.iterations == 5; }},
    {{"--iters", "1000"}, [](const Options& o) { return o.iterations == 1000; }},
    {{"-w", "0"}, [](const Options& o) { return o.warmup_iterations == 0; }},
    {{"-m", "4"}, [](const Options& o) { return o.group_of(8) == 4; }},
    {{"-N", "0"}, [](const Options& o) { return o.cycles == 0; }},
    {{"-N", "3"}, [](const Options& o) { return o.cycles == 3; }},
    {{"-c", "0"}, [](const Options& o) { return o.checks == 0; }},
    {{"-d", "all"}, [](const Options& o) { return o.dtypes.size() == 14; }},
    {{"-d", "half"}, [](const Options& o) { return o.dtypes[0] == hocketFloat16; }},
    {{"-o", "mulsum"}, [](const Options& o) { return o.ops[0] == mul_sum; }},
    {{"-o", "all"}, [](const Options& o) { return o.ops.size() == 9; }},
    {{"-d", "uint16"}, [](const Options& o) { return o.dtypes[0] == hocketUint16; }},
    {{"-d", "uint16", "-o", "xor"}, [](const Options& o) { return o.ops[0] == hocketXor; }},
    {{"-o", "avg"}, [](const Options& o) { return o.ops[0] == hocketAvg; }},
    {{"-r", "0"}, [](const Options& o) { return o.root == 0; }},
    {{"-z", "0"}, [](const Options& o) { return o.blocking == Blocking::stream; }},
    {{"-z", "1"}, [](const Options& o) { return o.blocking == Blocking::wait_and_barrier; }},
    {{"-z", "2"}, [](const Options& o) { return o.blocking == Blocking::wait; }},
    {{"-z", "3"},
     [](const Options& o) { return o.blocking == Blocking::wait && o.method == Method::barrier; }},
    {{"-y", "1"}, [](const Options& o) { return !o.needs_stream(); }},
    {{"-y", "1", "-z", "0"}, [](const Options& o) { return o.blocking == Blocking::wait; }},
    {{"-y", "0"}, [](const Options& o) { return o.needs_stream(); }},
    {{"-a", "0"}, [](const Options& o) { return o.average == Average::rank0; }},
    {{"-a", "3"}, [](const Options& o) { return o.average == Average::max; }},
    {{"-C", "1"}, [](const Options& o) { return o.cpu_time; }},
    {{"-C", "0"}, [](const Options& o) { return !o.cpu_time; }},
    {{"-R", "0"}, [](const Options& o) { return !o.registered; }},
    {{"-R", "1"}, [](const Options& o) { return o.registered; }},
    {{"-S", "1"}, [](const Options& o) { return o.timestamps && o.seed == 1; }},
    {{"-J", "a.json"}, [](const Options& o) { return o.nccl_json_path == "a.json"; }},
    {{"--json", "a"}, [](const Options& o) { return o.json_path == "a"; }},
    {{"--seed", "7"}, [](const Options& o) { return o.seed == 7; }},
    {{"-T", "0"}, [](const Options& o) { return o.deadline_s == 0; }},
    {{"-T", "9"}, [](const Options& o) { return o.deadline_s == 9; }},
    {{"-I", "1", "-K", "2"}, [](const Options& o) { return o.times_each() && o.skipped == 2; }},
    {{"-v"}, [](const Options& o) { return o.verbose && o.times_each(); }},
    {{"-u", "3"}, [](const Options& o) { return o.unaligned == 3; }},
    {{"--buffers", "1"}, [](const Options& o) { return o.buffers == 1; }},
    {{"--memory", "alloc"}, [](const Options& o) { return o.alloc_memory; }},
    {{"--memory", "0"}, [](const Options& o) { return !o.alloc_memory; }},
    {{"-t", "1", "-g", "1", "-p", "0", "-G", "0", "-D", "0", "-M", "0"},
     [](const Options&) { return true; }},
    {{"--barrier"},
     [](const Options& o) { return o.method == Method::barrier && !o.needs_stream(); }},
    {{"--barrier", "-z", "0"},
     [](const Options& o) { return o.method == Method::barrier && o.needs_stream(); }},
    {{"--aligned"}, [](const Options& o) { return o.method == Method::aligned; }},
    {{"--overlap"}, [](const Options& o) { return o.needs_stream() && !o.has_in_place(); }},
};

TEST(Options, every_flag_does_what_it_says) {
  for (const Accepted& test : accepted) {
    std::vector<std::string> words{"all_reduce_perf"};
    words.insert(words.end(), test.flags.begin(), test.flags.end());
    const Parsed parsed = parse(words);
    std::string line;
    for (const std::string& word : words) line += word + " ";
    ASSERT_FALSE(parsed.status) << line << parsed.text;
    EXPECT_TRUE(test.holds(parsed.options)) << line;
  }
}

TEST(Options, a_broadcast_takes_all_roots) {
  EXPECT_EQ(parse({"broadcast_perf", "-r", "all"}).options.root, -1);
  EXPECT_EQ(parse({"broadcast_perf", "-r", "-1"}).options.root, -1);
  EXPECT_EQ(parse({"broadcast_perf", "-r", "2"}).options.root, 2);
}

TEST(Options, messages_and_barriers_have_their_own_defaults) {
  const Parsed latency = parse({"latency_perf"});
  EXPECT_EQ(latency.options.blocking, Blocking::wait);
  EXPECT_EQ(latency.options.group_of(8), 1);
  const Parsed bandwidth = parse({"hocket-perf", "bandwidth"});
  EXPECT_EQ(bandwidth.options.group_of(8), 64);
  EXPECT_EQ(bandwidth.options.group_of(4 << 20), 64);
  EXPECT_EQ(bandwidth.options.group_of(32 << 20), 8);
  EXPECT_EQ(bandwidth.options.group_of(std::size_t{1} << 30), 1);
  EXPECT_EQ(parse({"bibandwidth_perf", "--window", "16"}).options.group_of(8), 16);
  EXPECT_EQ(parse({"barrier_perf"}).options.sizes(), std::vector<std::size_t>{0});
}

TEST(Options, mistakes_name_the_culprit) {
  const struct {
    std::vector<std::string> words;
    const char* said;
  } cases[] = {
      {{"hocket-perf"}, "collective"},
      {{"hocket-perf", "all_scatter"}, "all_scatter"},
      {{"all_reduce_perf", "--bogus"}, "--bogus"},
      {{"all_reduce_perf", "-p", "1"}, "one rank"},
      {{"all_reduce_perf", "-G", "1"}, "CUDA graphs"},
      {{"all_reduce_perf", "-x", "0"}, "CTAs"},
      {{"all_reduce_perf", "-D", "1"}, "device code"},
      {{"all_reduce_perf", "-V", "16"}, "CTAs"},
      {{"all_reduce_perf", "-M", "1"}, "GPU memory"},
      {{"all_reduce_perf", "--memory", "1"}, "GPU memory"},
      {{"all_reduce_perf", "-R", "2"}, "symmetric"},
      {{"all_reduce_perf", "-t", "2"}, "hocket-run"},
      {{"all_reduce_perf", "-g", "8"}, "hocket-run"},
      {{"all_reduce_perf", "-b", "3X"}, "-b: '3X'"},
      {{"all_reduce_perf", "-i", "3X"}, "-i: '3X'"},
      {{"all_reduce_perf", "-b", "4M", "-e", "2M"}, "-b 4194304 is above -e 2097152"},
      {{"all_reduce_perf", "-d", "floot"}, "-d: 'floot'"},
      {{"all_reduce_perf", "-o", "nand"}, "-o: 'nand'"},
      {{"all_reduce_perf", "-n", "0"}, "iters"},
      {{"all_reduce_perf", "-m", "0"}, "agg_iters"},
      {{"all_reduce_perf", "-z", "4"}, "-z: '4'"},
      {{"all_reduce_perf", "-y", "2"}, "-y: '2'"},
      {{"all_reduce_perf", "-a", "4"}, "-a: '4'"},
      {{"all_reduce_perf", "-C", "2"}, "-C: '2'"},
      {{"all_reduce_perf", "-S", "42"}, "-S: '42'"},
      {{"all_reduce_perf", "-I", "2"}, "-I: '2'"},
      {{"all_reduce_perf", "-J", "table.csv"}, ".json"},
      {{"all_reduce_perf", "-f", "2", "-i", "8"}, "stepfactor"},
      {{"all_reduce_perf", "-n", "3", "-K", "3"}, "-K 3"},
      {{"all_gather_perf", "-r", "1"}, "has none"},
      {{"broadcast_perf", "-r", "-2"}, "'-2' is no rank"},
      {{"all_reduce_perf", "--memory", "pinned"}, "pinned"},
      {{"all_reduce_perf", "--barrier", "--aligned"}, "exclude"},
      {{"all_reduce_perf", "-d", "half", "-o", "xor"}, "xor is bitwise"},
      {{"all_reduce_perf", "--overlap", "-z", "3"}, "exclude"},
      {{"all_reduce_perf", "--overlap", "-z", "2"}, "host stream"},
      {{"all_reduce_perf", "--overlap", "-y", "1"}, "host stream"},
      {{"all_reduce_perf", "--barrier", "-z", "1"}, "-z 1"},
      {{"all_reduce_perf", "--aligned", "-a", "1"}, "-a"},
      {{"all_reduce_perf", "--barrier", "-C", "1"}, "-C"},
      {{"all_reduce_perf", "-N", "0", "--json", "x"}, "-N 0"},
      {{"latency_perf", "--barrier"}, "method of its own"},
      {{"latency_perf", "--explain"}, "latency has no choice"},
      {{"gather_v_perf", "--explain"}, "gather_v has none, because"},
      {{"scatter_v_perf", "--explain"}, "scatter_v has none, because"},
      {{"alltoall_v_perf", "--explain"}, "alltoall_v has none, because"},
      {{"bandwidth_perf", "-m", "2"}, "--window"},
  };
  for (const auto& test : cases) {
    const Parsed parsed = parse(test.words);
    EXPECT_EQ(parsed.status, 2) << test.said << "\n" << parsed.text;
    EXPECT_NE(parsed.text.find(test.said), std::string::npos) << test.said << "\n" << parsed.text;
  }
}

TEST(Options, the_environment_of_nccl_tests_counts) {
  ::setenv("NCCL_TESTS_MIN_BW", "2.5", 1);
  EXPECT_EQ(parse({"all_reduce_perf"}).options.min_bus_bandwidth, 2.5);
  ::setenv("NCCL_TESTS_MIN_BW", "fast", 1);
  EXPECT_NE(parse({"all_reduce_perf"}).text.find("'fast'"), std::string::npos);
  ::unsetenv("NCCL_TESTS_MIN_BW");
  ::setenv("NCCL_TESTS_SPLIT", "MOD2", 1);
  EXPECT_NE(parse({"all_reduce_perf"}).text.find("NCCL_TESTS_SPLIT"), std::string::npos);
  ::unsetenv("NCCL_TESTS_SPLIT");
}

}  // namespace
}  // namespace hocket::perf
