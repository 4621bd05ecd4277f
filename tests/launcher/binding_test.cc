// hocket-run --bind-to and --map-by: the shares of the cores on described machines, and real ranks
// on this one.
#include "binding.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "launcher/job.h"

namespace hocket::internal::launch_test {
namespace {

using launch::BindingRules;
using launch::Core;
using launch::Cpus;
using launch::Part;
using Words = std::vector<std::string>;

TEST(Binding, lists_of_cpus_are_written_as_the_kernel_does) {
  const struct {
    Cpus cpus;
    const char* text;
  } rows[] = {{{}, ""}, {{0}, "0"}, {{0, 1}, "0-1"}, {{0, 2, 3, 4, 9}, "0,2-4,9"}};
  for (const auto& row : rows) EXPECT_EQ(launch::cpus_text(row.cpus), row.text);
}

/// The cores of a machine that a synthetic topology of hwloc describes, as if it were this one.
std::vector<Core> cores_of(const char* synthetic, const Cpus& allowed) {
  hwloc_topology_t topology = nullptr;
  hwloc_topology_init(&topology);
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM);
  EXPECT_EQ(hwloc_topology_set_synthetic(topology, synthetic), 0) << synthetic;
  EXPECT_EQ(hwloc_topology_load(topology), 0) << synthetic;
  const launch::Cores cores = launch::cores_of(topology, allowed);
  hwloc_topology_destroy(topology);
  EXPECT_TRUE(cores.of_this_host);
  return cores.list;
}

/// CPUs first to last, of which each step-th.
Cpus cpus(int first, int last, int step = 1) {
  Cpus list;
  for (int cpu = first; cpu <= last; cpu += step) list.push_back(cpu);
  return list;
}

Words texts(const std::vector<launch::Binding>& bindings) {
  Words list;
  for (const launch::Binding& binding : bindings) list.push_back(launch::cpus_text(binding.cpus));
  return list;
}

struct Row {
  Cpus allowed;
  BindingRules rules;
  int ranks;
  Words expected;
};

void check(const char* synthetic, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const std::vector<Core> cores = cores_of(synthetic, row.allowed);
    EXPECT_EQ(texts(launch::bindings(cores, row.rules, row.ranks)), row.expected)
        << synthetic << ", allowed " << launch::cpus_text(row.allowed) << ", ranks " << row.ranks;
  }
}

TEST(Binding, shares_are_disjoint_whole_cores_of_one_node_where_possible) {
  // Four cores of two hardware threads on two nodes: CPUs 0,4 and 2,6 on node 0; 1,5 and 3,7 on 1.
  const BindingRules core{Part::core}, numa{Part::numa};
  check("numa:2 core:2 pu:2(indexes=0,4,2,6,1,5,3,7)",
        {
            {cpus(0, 7), {}, 2, {"", ""}},
            {cpus(0, 7), core, 1, {"0-7"}},
            {cpus(0, 7), core, 2, {"0,2,4,6", "1,3,5,7"}},
            {cpus(0, 7), core, 3, {"0,4", "2,6", "1,3,5,7"}},
            {cpus(0, 7), core, 4, {"0,4", "2,6", "1,5", "3,7"}},
            {cpus(0, 7), core, 5, {"", "", "", "", ""}},
            {{1, 3, 7}, core, 2, {"1", "3,7"}},
            {cpus(0, 7), numa, 1, {"0,2,4,6"}},
            {cpus(0, 7), numa, 2, {"0,2,4,6", "1,3,5,7"}},
            {cpus(0, 3), numa, 5, {"0,2", "0,2", "0,2", "1,3", "1,3"}},
            {{3, 7}, numa, 2, {"3,7", "3,7"}},
        });
}

// Two sockets of four NUMA nodes of 16 cores of two hardware threads, 256 CPUs: socket S has CPUs
// 128 S to 128 S + 127, NUMA node N has 32 N to 32 N + 31, core C has 2 C and 2 C + 1.
constexpr const char* large = "package:2 numa:4 core:16 pu:2";

TEST(Binding, ranks_go_to_nodes_or_sockets_in_turn) {
  check(large,
        {
            {cpus(0, 255), {Part::numa, Part::numa}, 3, {"0-31", "32-63", "64-95"}},
            {cpus(0, 255),
             {Part::numa, Part::numa},
             9,
             {"0-31", "32-63", "64-95", "96-127", "128-159", "160-191", "192-223", "224-255",
              "0-31"}},
            {cpus(0, 255), {Part::socket, Part::socket}, 3, {"0-127", "128-255", "0-127"}},
            {cpus(0, 255), {Part::core, Part::socket}, 3, {"0-63", "128-255", "64-127"}},
            {cpus(0, 255), {Part::numa, Part::socket}, 4, {"0-31", "128-159", "64-95", "192-223"}},
            {cpus(0, 255), {Part::socket, Part::numa}, 3, {"0-127", "0-127", "0-127"}},
            {cpus(0, 255), {Part::core, Part::none}, 2, {"0-127", "128-255"}},
            {cpus(0, 255), {Part::socket, Part::none}, 3, {"0-127", "0-127", "128-255"}},
            {cpus(0, 255), {Part::none, Part::numa}, 2, {"", ""}},
            // Only the CPUs on which hocket-run may run: one of node 1, eight of node 6.
            {{34, 35, 192, 193, 194, 195},
             {Part::core, Part::numa},
             3,
             {"34-35", "192-193", "194-195"}},
            {cpus(32, 63, 2),
             {Part::numa, Part::numa},
             2,
             {launch::cpus_text(cpus(32, 63, 2)), launch::cpus_text(cpus(32, 63, 2))}},
        });
}

// A socket of two NUMA nodes of two L3 caches of two cores of two hardware threads, 16 CPUs: L3
// cache L has CPUs 4 L to 4 L + 3.
constexpr const char* with_caches = "package:1 numa:2 l3:2 core:2 pu:2";

TEST(Binding, ranks_go_to_l3_caches_in_turn) {
  const BindingRules l3cache{Part::l3cache, Part::l3cache};
  check(with_caches,
        {
            {cpus(0, 15), l3cache, 5, {"0-3", "4-7", "8-11", "12-15", "0-3"}},
            {cpus(0, 15), {Part::core, Part::l3cache}, 3, {"0-3", "4-7", "8-11"}},
            {cpus(0, 15), {Part::l3cache, Part::numa}, 4, {"0-3", "8-11", "4-7", "12-15"}},
            {cpus(0, 15), {Part::l3cache}, 3, {"0-3", "4-7", "8-11"}},
            // Numbers of the caches that are left.
            {{2, 3, 14}, l3cache, 2, {"2-3", "14"}},
        });
}

TEST(Binding, ranks_fill_each_part_before_the_next) {
  check(with_caches,
        {
            {cpus(0, 15), {Part::numa, Part::numa, 1, 2}, 4, {"0-7", "0-7", "8-15", "8-15"}},
            {cpus(0, 15), {Part::numa, Part::numa, 1, 2}, 3, {"0-7", "0-7", "8-15"}},
            {cpus(0, 15), {Part::core, Part::numa, 1, 2}, 4, {"0-3", "4-7", "8-11", "12-15"}},
            {cpus(0, 15), {Part::core, Part::numa, 2, 2}, 3, {"0-3", "4-7", "8-15"}},
            {cpus(0, 15), {Part::core, Part::numa, 3, 2}, 3, {"", "", ""}},
            {cpus(0, 15), {Part::core, Part::numa, 3, 1}, 2, {"0-7", "8-15"}},
            {cpus(0, 15), {Part::l3cache, Part::l3cache, 1, 2}, 3, {"0-3", "0-3", "4-7"}},
            {cpus(0, 15), {Part::socket, Part::l3cache, 1, 1}, 2, {"0-15", "0-15"}},
            {cpus(0, 15), {Part::l3cache, Part::numa, 1, 2}, 4, {"0-3", "4-7", "8-11", "12-15"}},
            {cpus(0, 15), {Part::none, Part::numa, 1, 2}, 2, {"", ""}},
            // More ranks than there are parts for.
            {cpus(0, 7), {Part::numa, Part::numa, 1, 2}, 3, {"", "", ""}},
        });
}

TEST(Binding, ranks_of_one_core_share_it) {
  check(with_caches, {
                         {cpus(0, 15), {Part::core, Part::core, 1, 2}, 3, {"0-1", "0-1", "2-3"}},
                         {cpus(0, 15), {Part::core, Part::core, 1, 1}, 3, {"0-1", "2-3", "4-5"}},
                         {cpus(3, 15), {Part::core, Part::core, 1, 2}, 3, {"3", "3", "4-5"}},
                         {cpus(0, 15), {Part::numa, Part::core, 1, 2}, 3, {"0-7", "0-7", "0-7"}},
                     });
}

TEST(Binding, only_parts_with_allowed_cores_count) {
  const struct {
    const char* synthetic;
    Cpus allowed;
    std::vector<std::size_t> counts;  // cores, NUMA nodes, sockets, L3 caches
  } rows[] = {
      {with_caches, cpus(0, 15), {8, 2, 1, 4}}, {with_caches, cpus(6, 9), {2, 2, 1, 2}},
      {with_caches, {15}, {1, 1, 1, 1}},        {with_caches, {}, {0, 0, 0, 0}},
      {large, cpus(0, 255), {128, 8, 2, 0}},    {"pu:8", {2, 5}, {2, 1, 1, 0}},
  };
  const Part parts[] = {Part::core, Part::numa, Part::socket, Part::l3cache};
  for (const auto& row : rows) {
    const std::vector<Core> cores = cores_of(row.synthetic, row.allowed);
    for (std::size_t i = 0; i < row.counts.size(); ++i) {
      EXPECT_EQ(launch::count_parts(cores, parts[i]), row.counts[i])
          << row.synthetic << ", allowed " << launch::cpus_text(row.allowed) << ", "
          << launch::name_of(parts[i]);
    }
  }
}

TEST(Binding, cores_without_an_l3_cache_are_left_out_where_one_is_asked_for) {
  std::vector<Core> cores = cores_of(with_caches, cpus(0, 7));
  cores[0].l3cache = launch::no_cache;
  EXPECT_EQ(launch::count_parts(cores, Part::l3cache), 2u);
  EXPECT_EQ(texts(launch::bindings(cores, {Part::l3cache, Part::l3cache}, 2)),
            (Words{"2-3", "4-7"}));
  EXPECT_EQ(texts(launch::bindings(cores, {Part::core, Part::l3cache, 1, 1}, 1)), (Words{"2-3"}));
  EXPECT_EQ(texts(launch::bindings(cores, {Part::core}, 1)), (Words{"0-7"}));
  for (Core& core : cores) core.l3cache = launch::no_cache;
  const BindingRules rules{Part::l3cache};
  EXPECT_EQ(texts(launch::bindings(cores, rules, 2)), (Words{"", ""}));
  EXPECT_EQ(launch::no_room_text(cores, rules, 2),
            "hwloc knows no L3 cache of the cores on which they may run");
}

TEST(Binding, a_rank_has_at_least_the_cores_that_it_needs_or_no_rank_is_bound) {
  check(large, {
                   {cpus(0, 255), {Part::core, Part::none, 64}, 2, {"0-127", "128-255"}},
                   {cpus(0, 255), {Part::core, Part::none, 65}, 2, {"", ""}},
                   {cpus(0, 15), {Part::core, Part::none, 3}, 2, {"0-7", "8-15"}},
                   {cpus(0, 15), {Part::core, Part::none, 5}, 2, {"", ""}},
                   // Node 0 takes one rank of three cores, node 1 two.
                   {cpus(24, 47), {Part::core, Part::numa, 3}, 3, {"24-31", "32-39", "40-47"}},
                   {cpus(24, 47), {Part::core, Part::numa, 3}, 4, {"", "", "", ""}},
               });
  const std::vector<Core> cores = cores_of(large, cpus(0, 15));
  EXPECT_EQ(launch::no_room_text(cores, {Part::core, Part::numa, 5}, 2),
            "2 ranks, but they may run on 8 cores only; --bind-to core needs 5 cores of one NUMA "
            "node for each rank");
  const std::vector<Core> two_nodes = cores_of(large, cpus(0, 41));
  EXPECT_EQ(launch::no_room_text(two_nodes, {Part::core, Part::numa, 3, 2}, 4),
            "NUMA node 1 has 5 cores for 2 ranks; --bind-to core needs 3 cores for each rank");
  EXPECT_EQ(launch::no_room_text(two_nodes, {Part::numa, Part::numa, 1, 2}, 5),
            "5 ranks, 2 for each NUMA node, but they may run on 2 NUMA nodes only");
}

TEST(Binding, shares_are_disjoint_and_complete_on_a_large_machine) {
  const std::vector<Core> cores = cores_of(large, cpus(0, 255));
  for (const Part spread : {Part::none, Part::numa, Part::socket}) {
    for (int ranks = 1; ranks <= 128; ++ranks) {
      Cpus all;
      for (const launch::Binding& binding : launch::bindings(cores, {Part::core, spread}, ranks)) {
        EXPECT_FALSE(binding.cpus.empty());
        all.insert(all.end(), binding.cpus.begin(), binding.cpus.end());
      }
      std::ranges::sort(all);
      // A node or socket without a rank is not used.
      if (ranks >= 8 || spread == Part::none) {
        EXPECT_EQ(all, cpus(0, 255)) << ranks;
      }
      EXPECT_EQ(std::ranges::adjacent_find(all), all.end()) << ranks;
    }
  }
}

TEST(Binding, a_machine_without_description_has_a_core_for_each_cpu) {
  const std::vector<Core> cores = cores_of("pu:8", {2, 5, 6});
  EXPECT_EQ(texts(launch::bindings(cores, {Part::core}, 2)), (Words{"2", "5-6"}));
  EXPECT_EQ(texts(launch::bindings(cores, {Part::numa}, 1)), Words{"2,5-6"});
}

// ---- Real ranks

const std::string prints_cpus = "sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status";

/// "0-3,8": what the kernel writes.
Cpus parse_cpus(const std::string& text) {
  Cpus list;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    const std::size_t dash = range.find('-');
    const int last = std::stoi(dash == std::string::npos ? range : range.substr(dash + 1));
    for (int cpu = std::stoi(range); cpu <= last; ++cpu) list.push_back(cpu);
  }
  return list;
}

Cpus own_cpus() {
  Cpus cpus;
  EXPECT_TRUE(launch::allowed_cpus(&cpus).ok());
  return cpus;
}

/// As many as --bind-to core finds.
std::size_t own_cores() {
  launch::Cores cores;
  EXPECT_TRUE(launch::read_cores(own_cpus(), &cores).ok());
  return cores.list.size();
}

Words with(const Words& options) {
  Words words = options;
  words.insert(words.end(), {"sh", "-c", prints_cpus});
  return words;
}

TEST(Binding, ranks_are_not_bound_by_default) {
  const std::string all = launch::cpus_text(own_cpus());
  for (const Words& options : {Words{"-n", "2"}, Words{"-n", "2", "--bind-to", "none"}}) {
    const Result result = run(with(options));
    EXPECT_EQ(lines_of(result.out), (Words{all, all}));
    EXPECT_EQ(result.err, "");
  }
  const Result reported = run(with({"-n", "1", "--report-bindings"}));
  EXPECT_NE(reported.err.find(": rank 0 is not bound: CPUs " + all + "\n"), std::string::npos)
      << reported.err;
}

TEST(Binding, ranks_run_where_the_report_says) {
  const std::size_t cores = own_cores();
  for (const char* to : {"core", "numa"}) {
    const Result result = run(
        with({"-n", std::to_string(cores), "--bind-to", to, "--report-bindings", "--tag-output"}));
    EXPECT_EQ(result.status, 0) << result.err;
    const Words lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), cores);
    std::set<int> used;
    std::size_t sum = 0;
    for (const std::string& line : lines) {
      const std::string rank = line.substr(1, line.find(']') - 1);
      const std::string cpus = line.substr(line.find(' ') + 1);
      EXPECT_NE(result.err.find("rank " + rank + " is bound to CPUs " + cpus + " ("),
                std::string::npos)
          << line << result.err;
      for (const int cpu : parse_cpus(cpus)) {
        used.insert(cpu);
        ++sum;
      }
    }
    if (std::string(to) == "core") {
      EXPECT_EQ(used.size(), sum) << result.out;  // disjoint
      EXPECT_EQ(Cpus(used.begin(), used.end()), own_cpus());
    }
  }
}

TEST(Binding, more_ranks_than_cores_are_not_bound_and_told_so) {
  const std::string one = std::to_string(own_cpus().back());
  const Result result =
      run(with({"-n", "2", "-bind-to", "core"}), {}, "taskset -pc " + one + " $$ >/dev/null");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, one + "\n" + one + "\n");
  EXPECT_NE(result.err.find("the ranks are not bound: 2 ranks, but they may run on 1 core only"),
            std::string::npos)
      << result.err;
  const Result enough = run(with({"-n", "1", "--bind-to", "core", "--report-bindings"}), {},
                            "taskset -pc " + one + " $$ >/dev/null");
  EXPECT_NE(enough.err.find("rank 0 is bound to CPUs " + one + " (1 core)"), std::string::npos)
      << enough.err;
}

TEST(Binding, ranks_are_bound_to_what_map_by_names) {
  if (own_cpus().size() < 2) GTEST_SKIP() << "one CPU only";
  // hwloc says that each CPU of this machine is a NUMA node.
  const int last = own_cpus().back() + 1;
  const std::vector<std::string> nodes = {"HWLOC_SYNTHETIC=numa:" + std::to_string(last) + " pu:1",
                                          "HWLOC_THISSYSTEM=1"};
  const Cpus own = own_cpus();
  Words expected = {std::to_string(own[0]), std::to_string(own[1])};
  std::ranges::sort(expected);
  for (const Words& options :
       {Words{"-n", "2", "--map-by", "numa"}, Words{"-n", "2", "--map-by", "NUMA:PE=1"}}) {
    const Result result = run(with(options), nodes);
    EXPECT_EQ(sorted_lines_of(result.out), expected) << result.err;
  }
  const Result free = run(with({"-n", "1", "--map-by", "numa", "--bind-to", "none"}), nodes);
  EXPECT_EQ(lines_of(free.out), Words{launch::cpus_text(own)}) << free.err;
  // One core of all CPUs.
  const Result one = run(with({"-n", "2", "--map-by", "core"}),
                         {"HWLOC_SYNTHETIC=core:1 pu:" + std::to_string(last), nodes[1]});
  EXPECT_NE(one.err.find("they may run on 1 core only"), std::string::npos) << one.err;
}

/// hwloc describes a machine of two sockets with two NUMA nodes of two cores each, or of two L3
/// caches of two cores on one socket.
const Words four_nodes = {"HWLOC_SYNTHETIC=package:2 numa:2 core:2 pu:1"};
const Words two_caches = {"HWLOC_SYNTHETIC=package:1 l3:2 core:2 pu:1"};

TEST(Parts, of_this_host_get_as_many_ranks_as_map_by_says) {
  const struct {
    Words options;
    Words environment;
    std::size_t ranks;
    const char* last;  // where the last rank would run
  } rows[] = {
      {{"--map-by", "ppr:2:numa"}, four_nodes, 8, "7 would be bound to CPUs 6-7 (NUMA node 3)"},
      {{"--map-by", "ppr:1:socket"}, four_nodes, 2, "1 would be bound to CPUs 4-7 (socket 1)"},
      {{"--map-by", "ppr:1:package"}, four_nodes, 2, "1 would be bound to CPUs 4-7 (socket 1)"},
      {{"--map-by", "ppr:1:core"}, four_nodes, 8, "7 would be bound to CPUs 7 (1 core)"},
      {{"--map-by", "ppr:3:l3cache"}, two_caches, 6, "5 would be bound to CPUs 2-3 (L3 cache 1)"},
      {{"--map-by", "ppr:2:numa", "-n", "3"}, four_nodes, 3, "2 would be bound to CPUs 2-3 (NUMA"},
      {{"--map-by", "ppr:1:numa:PE=2"}, four_nodes, 4, "3 would be bound to CPUs 6-7 (2 cores)"},
      {{"--map-by", "ppr:1:numa", "--bind-to", "socket"},
       four_nodes,
       4,
       "3 would be bound to CPUs "
       "4-7 (socket 1)"},
      {{"--map-by", "ppr:2:numa", "--bind-to", "core"},
       four_nodes,
       8,
       "7 would be bound to CPUs 7 "
       "(1 core)"},
      {{"--map-by", "ppr:2:numa", "--bind-to", "none"}, four_nodes, 8, "7 is not bound: CPUs "},
      {{"--map-by", "l3cache", "-n", "3"}, two_caches, 3, "2 would be bound to CPUs 0-1 (L3 cache"},
      {{"--bind-to", "l3cache", "-n", "2"}, two_caches, 2, "1 would be bound to CPUs 2-3 (L3 cach"},
  };
  for (const auto& row : rows) {
    Words words = row.options;
    words.insert(words.end(), {"--report-bindings", "sh", "-c", "echo $HOCKET_RANK/$HOCKET_RANKS"});
    const Result result = run(words, row.environment);
    EXPECT_EQ(result.status, 0) << result.err;
    Words expected;
    for (std::size_t rank = 0; rank < row.ranks; ++rank) {
      expected.push_back(std::to_string(rank) + "/" + std::to_string(row.ranks));
    }
    EXPECT_EQ(sorted_lines_of(result.out), expected) << row.options[1];
    EXPECT_NE(result.err.find(std::string(": rank ") + row.last), std::string::npos) << result.err;
  }
}

TEST(Parts, without_cores_on_which_ranks_may_run_do_not_count) {
  // hwloc says that each CPU of this machine is a NUMA node.
  const Cpus own = own_cpus();
  const Words nodes = {"HWLOC_SYNTHETIC=numa:" + std::to_string(own.back() + 1) + " pu:1",
                       "HWLOC_THISSYSTEM=1"};
  Words expected;
  for (const int cpu : own) expected.push_back(std::to_string(cpu));
  std::ranges::sort(expected);
  const Result all = run(with({"--map-by", "ppr:1:numa"}), nodes);
  EXPECT_EQ(sorted_lines_of(all.out), expected) << all.err;
  const std::string one = std::to_string(own.back());
  const Result some =
      run(with({"--map-by", "ppr:2:numa"}), nodes, "taskset -pc " + one + " $$ >/dev/null");
  EXPECT_EQ(lines_of(some.out), (Words{one, one})) << some.err;
}

TEST(Parts, have_room_for_no_more_ranks_than_map_by_says) {
  const struct {
    Words arguments;
    Words environment;
    const char* said;
  } rows[] = {
      {{"--map-by", "ppr:2:numa", "-n", "9", "echo"},
       four_nodes,
       "hocket-run: -n 9 asks for more ranks than --map-by ppr:2:numa has room for (8): this host "
       "has 4 NUMA nodes; use fewer ranks"},
      {{"--map-by", "ppr:1:socket", "-n", "2", "echo", ":", "-n", "1", "echo"},
       four_nodes,
       "-n 3 asks for more ranks than --map-by ppr:1:socket has room for (2): this host has 2 "
       "sock"},
      {{"--map-by", "ppr:2:numa", "--hosts", "localhost:7", "echo"},
       four_nodes,
       "localhost has 4 NUMA nodes, so 8 ranks, but room for 7 only in --hosts; leave out"},
      {{"--map-by", "ppr:1:l3cache", "echo"},
       four_nodes,
       "cannot place ranks by L3 cache: hwloc knows no L3 cache of the CPUs on which ranks may "
       "run; "
       "write ppr:N:node with the number of ranks of a host"},
      {{"--map-by", "ppr:1:numa", "echo"},
       {"HWLOC_COMPONENTS=stop"},
       "cannot place ranks by NUMA node: hwloc cannot read the topology of this host"},
  };
  for (const auto& row : rows) {
    const Result result = run(row.arguments, row.environment);
    EXPECT_EQ(result.status, 125) << row.said;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(row.said), std::string::npos) << result.err;
  }
}

TEST(Parts, take_the_ranks_of_several_programs_in_their_order) {
  const Result result =
      run({"--map-by", "ppr:1:numa", "--report-bindings", "-n", "1", "sh", "-c",
           "echo a $HOCKET_RANK", ":", "-n", "2", "sh", "-c", "echo b $HOCKET_RANK/$HOCKET_RANKS"},
          four_nodes);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines_of(result.out), (Words{"a 0", "b 1/3", "b 2/3"}));
  EXPECT_NE(result.err.find("rank 2 would be bound to CPUs 4-5 (NUMA node 2)"), std::string::npos);
}

TEST(Parts, that_have_too_few_cores_are_named_and_no_rank_is_bound) {
  const Result few = run(with({"--map-by", "ppr:1:numa:PE=3"}), four_nodes);
  EXPECT_EQ(few.status, 0);
  EXPECT_NE(few.err.find("the ranks are not bound: NUMA node 0 has 2 cores for 1 rank; --bind-to "
                         "core needs 3 cores for each rank"),
            std::string::npos)
      << few.err;
  const Result none = run(with({"--map-by", "l3cache", "-n", "1"}), four_nodes);
  EXPECT_EQ(none.status, 0);
  EXPECT_NE(none.err.find("the ranks are not bound: hwloc knows no L3 cache of the cores"),
            std::string::npos)
      << none.err;
}

TEST(Binding, without_hwloc_or_with_the_topology_of_another_machine_no_rank_is_bound) {
  const std::string all = launch::cpus_text(own_cpus());
  const struct {
    const char* variable;
    const char* said;
  } rows[] = {
      {"HWLOC_SYNTHETIC=package:2 core:4 pu:2",
       ": the ranks are not bound: hwloc describes another machine"},
      {"HWLOC_SYNTHETIC=package:2 core:4 pu:2", ": rank 1 would be bound to CPUs 8-15 (4 cores)\n"},
      {"HWLOC_COMPONENTS=stop", ": the ranks are not bound: hwloc cannot read the topology"},
  };
  for (const auto& row : rows) {
    const Result result =
        run(with({"-n", "2", "--bind-to", "core", "--report-bindings"}), {row.variable});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.err.find(row.said), std::string::npos) << result.err;
    EXPECT_EQ(lines_of(result.out), (Words{all, all}));
  }
}

TEST(ShowPlacement, says_where_each_rank_would_run_and_starts_none) {
  const std::string all = launch::cpus_text(own_cpus());
  const std::size_t cores = own_cores();
  const struct {
    Words options;
    Words environment;
    std::size_t ranks;
    std::string said;  // of a rank
  } rows[] = {
      {{"-n", "2"}, {}, 2, "1 would not be bound: CPUs " + all},
      {{"-n", std::to_string(cores), "--bind-to", "core"}, {}, cores, "0 would be bound to CPUs "},
      {{"-n", "6", "--map-by", "numa"},
       four_nodes,
       6,
       "5 would be bound to CPUs 2-3 (NUMA node 1)"},
      {{"--map-by", "ppr:2:numa"}, four_nodes, 8, "7 would be bound to CPUs 6-7 (NUMA node 3)"},
  };
  for (const auto& row : rows) {
    Words words = row.options;
    words.insert(words.end(), {"--show-placement", "sh", "-c", "echo started"});
    const Result result = run(words, row.environment);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "");
    const Words lines = lines_of(result.err);
    const auto is_of_a_rank = [](const std::string& line) {
      return line.find(": rank ") != std::string::npos;
    };
    EXPECT_EQ(static_cast<std::size_t>(std::ranges::count_if(lines, is_of_a_rank)), row.ranks);
    EXPECT_NE(result.err.find(": rank " + row.said), std::string::npos) << result.err;
  }
}

TEST(ShowPlacement, reads_no_input_and_makes_no_files) {
  const TemporaryFile file;
  const std::string directory = file.path() + "-output";
  Job job({"-n", "1", "sh", "-c",
           hocket_run() + " --show-placement --output-dir " + directory + " -n 1 true; cat"});
  job.write_input("left\n");
  job.finish();
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(job.out, "left\n");
  EXPECT_NE(::access(directory.c_str(), F_OK), 0);
}

TEST(ShowPlacement, refuses_what_could_not_start) {
  const Result room =
      run({"--show-placement", "-n", "9", "--map-by", "ppr:2:numa", "true"}, four_nodes);
  EXPECT_EQ(room.status, 125);
  EXPECT_NE(room.err.find("-n 9 asks for more ranks"), std::string::npos) << room.err;
  const Result directory = run({"--show-placement", "-n", "1", "--wdir", "/no/such", "true"});
  EXPECT_EQ(directory.status, 125);
  EXPECT_NE(directory.err.find("cannot change to the working directory /no/such"),
            std::string::npos)
      << directory.err;
}

TEST(Binding, every_host_binds_its_own_ranks) {
  const Result result = run(with({"--interface", "lo", "--hosts", "localhost,127.0.0.1",
                                  "--bind-to", "core", "--report-bindings"}));
  const std::string all = launch::cpus_text(own_cpus());
  EXPECT_EQ(lines_of(result.out), (Words{all, all})) << result.err;
  for (const char* text : {"localhost: rank 0 is bound", "127.0.0.1: rank 1 is bound"})
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
}

}  // namespace
}  // namespace hocket::internal::launch_test
