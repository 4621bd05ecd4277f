// hocket-run --bind-to: the shares of the cores on described machines, and real ranks on this one.
#include "binding.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "launcher/job.h"

namespace hocket::internal::launch_test {
namespace {

using launch::BindTo;
using launch::Core;
using launch::Cpus;
using Words = std::vector<std::string>;

TEST(Binding, lists_of_cpus_are_read_and_written_as_the_kernel_does) {
  const struct {
    Cpus cpus;
    const char* text;
  } rows[] = {{{}, ""}, {{0}, "0"}, {{0, 1}, "0-1"}, {{0, 2, 3, 4, 9}, "0,2-4,9"}};
  for (const auto& row : rows) {
    EXPECT_EQ(launch::parse_cpus(row.text), row.cpus) << row.text;
    EXPECT_EQ(launch::cpus_text(row.cpus), row.text);
  }
  for (const char* wrong : {"x", "1-", "-1", "1;2", "0-99999999"})
    EXPECT_EQ(launch::parse_cpus(wrong), Cpus()) << wrong;
}

/// A description of a machine as in /sys/devices/system.
class System {
 public:
  System() {
    char name[] = "/tmp/hocket-test-XXXXXX";
    if (::mkdtemp(name) != nullptr) path_ = name;
  }
  ~System() { std::filesystem::remove_all(path_); }
  void put(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = path_ + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Four cores of two hardware threads on two nodes: CPUs 0,4 and 2,6 on node 0; 1,5 and 3,7 on 1.
void describe(const System& system) {
  for (int cpu = 0; cpu < 8; ++cpu) {
    const int first = cpu % 4;
    system.put("cpu/cpu" + std::to_string(cpu) + "/topology/core_cpus_list",
               std::to_string(first) + "," + std::to_string(first + 4));
  }
  system.put("node/node0/cpulist", "0,2,4,6");
  system.put("node/node1/cpulist", "1,3,5,7");
  system.put("node/possible", "0-1");
}

Words texts(const std::vector<launch::Binding>& bindings) {
  Words list;
  for (const launch::Binding& binding : bindings) list.push_back(launch::cpus_text(binding.cpus));
  return list;
}

TEST(Binding, shares_are_disjoint_whole_cores_of_one_node_where_possible) {
  const System system;
  describe(system);
  const struct {
    Cpus allowed;
    BindTo to;
    int ranks;
    Words expected;
  } rows[] = {
      {{0, 1, 2, 3, 4, 5, 6, 7}, BindTo::none, 2, {"", ""}},
      {{0, 1, 2, 3, 4, 5, 6, 7}, BindTo::core, 1, {"0-7"}},
      {{0, 1, 2, 3, 4, 5, 6, 7}, BindTo::core, 2, {"0,2,4,6", "1,3,5,7"}},
      {{0, 1, 2, 3, 4, 5, 6, 7}, BindTo::core, 3, {"0,4", "2,6", "1,3,5,7"}},
      {{0, 1, 2, 3, 4, 5, 6, 7}, BindTo::core, 4, {"0,4", "2,6", "1,5", "3,7"}},
      {{0, 1, 2, 3, 4, 5, 6, 7}, BindTo::core, 5, {"", "", "", "", ""}},
      {{1, 3, 7}, BindTo::core, 2, {"1", "3,7"}},
      {{0, 1, 2, 3, 4, 5, 6, 7}, BindTo::numa, 1, {"0,2,4,6"}},
      {{0, 1, 2, 3, 4, 5, 6, 7}, BindTo::numa, 2, {"0,2,4,6", "1,3,5,7"}},
      {{0, 1, 2, 3}, BindTo::numa, 5, {"0,2", "0,2", "0,2", "1,3", "1,3"}},
      {{3, 7}, BindTo::numa, 2, {"3,7", "3,7"}},
  };
  for (const auto& row : rows) {
    const std::vector<Core> cores = launch::read_cores(row.allowed, system.path());
    EXPECT_EQ(texts(launch::bindings(cores, row.to, row.ranks)), row.expected)
        << launch::cpus_text(row.allowed) << " ranks " << row.ranks;
  }
}

TEST(Binding, a_machine_without_description_has_a_core_for_each_cpu) {
  const std::vector<Core> cores = launch::read_cores({2, 5, 6}, "/no/such/folder");
  EXPECT_EQ(texts(launch::bindings(cores, BindTo::core, 2)), (Words{"2", "5-6"}));
  EXPECT_EQ(texts(launch::bindings(cores, BindTo::numa, 1)), Words{"2,5-6"});
}

// ---- Real ranks

const std::string prints_cpus = "sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status";

Cpus own_cpus() {
  Cpus cpus;
  EXPECT_TRUE(launch::allowed_cpus(&cpus).ok());
  return cpus;
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
  const std::size_t cores = launch::read_cores(own_cpus(), "/sys/devices/system").size();
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
      for (const int cpu : launch::parse_cpus(cpus)) {
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
