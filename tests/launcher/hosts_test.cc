// The hosts of hocket-run: --hosts as mpirun spells it, and host files. Every host that has ranks
// is this machine.
#include "hosts.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "launcher/job.h"

namespace hocket::internal::launch_test {
namespace {

using Words = std::vector<std::string>;

/// Numbers of the ranks: rank of ranks, local rank of local ranks.
Result numbers(const Words& options) {
  Words words = {"--interface", "lo"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"sh", "-c",
                             "echo $HOCKET_RANK $HOCKET_RANKS $HOCKET_LOCAL_RANK "
                             "$HOCKET_LOCAL_RANKS"});
  return run(words);
}

/// "a:2,b", or the error.
std::string text_of(const Status& status, const std::vector<launch::HostSlots>& hosts) {
  if (!status.ok()) return status.message();
  std::string text;
  for (const launch::HostSlots& host : hosts) {
    text += (text.empty() ? "" : ",") + host.name;
    if (host.slots != 0) text += ":" + std::to_string(host.slots);
  }
  return text;
}

std::string of_option(const std::string& text) {
  std::vector<launch::HostSlots> hosts;
  const Status status = launch::parse_hosts(text, &hosts);
  return text_of(status, hosts);
}

std::string of_file(const std::string& text) {
  std::istringstream file(text);
  std::vector<launch::HostSlots> hosts;
  const Status status = launch::parse_host_file(file, "FILE", &hosts);
  return text_of(status, hosts);
}

const Words three_and_one = {"0 4 0 3", "1 4 1 3", "2 4 2 3", "3 4 0 1"};

TEST(Hosts, have_the_names_that_mpirun_gives_their_option) {
  for (const char* option : {"-H", "--host", "-host", "-hosts", "--hosts"}) {
    const Result result = numbers({option, "localhost:3,127.0.0.1"});
    EXPECT_EQ(result.status, 0) << option << result.err;
    EXPECT_EQ(sorted_lines_of(result.out), three_and_one) << option;
  }
  EXPECT_EQ(sorted_lines_of(numbers({"--host=localhost:3,127.0.0.1"}).out), three_and_one);
  EXPECT_EQ(sorted_lines_of(numbers({"-host=localhost:3,127.0.0.1"}).out), three_and_one);
}

TEST(Hosts, that_are_named_several_times_have_the_sum_of_their_ranks) {
  EXPECT_EQ(sorted_lines_of(numbers({"-H", "localhost,localhost,127.0.0.1,localhost"}).out),
            three_and_one);
  EXPECT_EQ(sorted_lines_of(numbers({"-H", "localhost:2,127.0.0.1,localhost"}).out), three_and_one);
}

TEST(Hosts, get_their_ranks_as_map_by_says) {
  const struct {
    Words options;
    Words expected;
  } rows[] = {
      {{"--map-by", "slot", "-H", "localhost:3,127.0.0.1"}, three_and_one},
      {{"--map-by", "node", "-H", "localhost:3,127.0.0.1"},
       {"0 4 0 3", "1 4 0 1", "2 4 1 3", "3 4 2 3"}},
      {{"-map-by", "ppr:2:node", "-H", "localhost,127.0.0.1", "-n", "3"},
       {"0 3 0 2", "1 3 1 2", "2 3 0 1"}},
      {{"--map-by=ppr:2:node"}, {"0 2 0 2", "1 2 1 2"}},
  };
  for (const auto& row : rows) {
    const Result result = numbers(row.options);
    EXPECT_EQ(sorted_lines_of(result.out), row.expected) << result.err;
  }
}

TEST(Hosts, come_from_a_file_of_any_launcher) {
  const char* const texts[] = {
      // Open MPI
      "# nodes\n\nlocalhost slots=3 max_slots=4  # the first\n127.0.0.1 slots=1\n",
      "localhost slots = 3 max_slots= 4\r\n127.0.0.1\tslots\t=1\n",
      // MPICH
      "localhost:3\r\n127.0.0.1:1\r\n",
      // Slurm: a line for each rank
      "localhost\nlocalhost\nlocalhost\n127.0.0.1",
      "\tlocalhost:2 max-slots=2\n127.0.0.1\n localhost\n",
  };
  for (const char* text : texts) {
    const TemporaryFile file;
    std::ofstream(file.path()) << text;
    for (const char* option : {"--hostfile", "-hostfile", "--machinefile", "-f"}) {
      const Result result = numbers({option, file.path()});
      EXPECT_EQ(result.status, 0) << text << result.err;
      EXPECT_EQ(sorted_lines_of(result.out), three_and_one) << text;
    }
  }
}

TEST(Hosts, of_a_file_are_filled_in_order_up_to_n) {
  const TemporaryFile file;
  std::ofstream(file.path()) << "localhost slots=2\nnever-contacted.invalid slots=9\n";
  EXPECT_EQ(sorted_lines_of(numbers({"-n", "2", "--hostfile", file.path()}).out),
            (Words{"0 2 0 2", "1 2 1 2"}));
  const Result many = numbers({"-n", "12", "--hostfile", file.path()});
  EXPECT_EQ(many.status, 125);
  EXPECT_NE(many.err.find("more ranks than " + file.path() + " has room for (11)"),
            std::string::npos)
      << many.err;
}

TEST(Hosts, of_a_list_of_slurm_are_expanded) {
  EXPECT_EQ(of_option("h[1-2]:2"), "h1:2,h2:2");
  EXPECT_EQ(of_option("a,h[1-2,05],h2:3"), "a,h1,h2:4,h05");
  EXPECT_EQ(of_option("r[1-2]n[0-1]:2,[fd77::1]:3"), "r1n0:2,r1n1:2,r2n0:2,r2n1:2,fd77::1:3");
  EXPECT_EQ(of_option("[1-2]n:2"), "1n:2,2n:2");
  EXPECT_EQ(of_file("h[1-2]:2\nlogin\n"), "h1:2,h2:2,login");
  EXPECT_EQ(of_file("h[1-2] slots=3 max_slots=4\nh1\n"), "h1:4,h2:3");
}

TEST(Hosts, of_a_wrong_list_of_slurm_are_refused_with_the_item) {
  const std::string no_list = " is no list of hosts as Slurm writes it (h[1-3,05]), or has more ";
  for (const char* item : {"h[2-1]:2", "h[1", "h]1", "h[a]", "[a]:2", "h[1:2]", "h[1-65536]"}) {
    const std::string said = "'" + std::string(item) + "'" + no_list + "than 65535; write HOST";
    EXPECT_TRUE(of_option(item).starts_with("--hosts: " + said)) << of_option(item);
    EXPECT_TRUE(of_file(item).starts_with("FILE:1: " + said)) << of_file(item);
  }
  EXPECT_TRUE(of_option("a,h[1-],b").starts_with("--hosts: 'h[1-]'" + no_list));
  EXPECT_TRUE(of_file("h[1-2]\nh[1-2],b\n").starts_with("FILE:2: 'h[1-2],b' is not a host name"));
}

TEST(Hosts, are_at_most_as_many_as_the_ranks_of_a_job) {
  const std::string said = "'i' is one host too many: a job has at most 65535; write HOST";
  EXPECT_TRUE(of_option("h[1-65535],h1,i").starts_with("--hosts: " + said));
  EXPECT_TRUE(of_file("h[1-65535]\nh1\ni\n").starts_with("FILE:3: " + said));
}

TEST(Hosts, of_a_wrong_file_are_refused_with_file_and_line) {
  const struct {
    const char* text;
    const char* said;  // after the path
  } rows[] = {
      {"a\nb slot=2\n", ":2: 'slot=2' is not known; write HOST, HOST:RANKS or HOST slots=RANKS"},
      {"a b\n", ":1: 'b' is not known"},
      {"a slots=0\n", ":1: 'slots=0' has no valid number of ranks (1 to 65535)"},
      {"a slots=2x\n", ":1: 'slots=2x' has no valid number"},
      {"a slots=\n", ":1: 'slots=' has no valid number"},
      {"a slots = \n", ":1: 'slots=' has no valid number"},
      {"a slots = x\n", ":1: 'slots=x' has no valid number"},
      {"a = 2\n", ":1: 'a=2' is not a host name"},
      {"= 2\n", ":1: '=2' is not a host name"},
      {"+n0 slots=2\n",
       ":1: '+n0' refers to a host of an allocation as Open MPI does, and hocket-run needs its "
       "name; write HOST"},
      {"a\n^b\n",
       ":2: '^b' excludes a host, and hocket-run uses no host that is not named, so leave it out; "
       "write HOST"},
      {"a max_slots=no\n", ":1: 'max_slots=no' has no valid number"},
      {"\n\na slots=3 max_slots=2\n", ":3: the line has more slots than max_slots"},
      {"a:2 slots=2\n", ":1: 'a:2' has a number of ranks, and slots= another"},
      {"a:0\n", ":1: 'a:0' has no valid number"},
      {"slots=2\n", ":1: 'slots=2' is not a host name"},
      {":2\n", ":1: ':2' has no host name"},
      {"-oProxyCommand=x\n", ":1: '-oProxyCommand=x' is not a host name"},
      {"[fd77::1\n", ":1: '[fd77::1' has no closing bracket"},
      {"a,b\n", ":1: 'a,b' is not a host name"},
      {"# a\n\n", " names no host"},
  };
  for (const auto& row : rows) {
    const TemporaryFile file;
    std::ofstream(file.path()) << row.text;
    const Result result = run({"--hostfile", file.path(), "true"});
    EXPECT_EQ(result.status, 125) << row.text;
    EXPECT_NE(result.err.find("hocket-run: " + file.path() + row.said), std::string::npos)
        << result.err;
  }
}

TEST(Hosts, are_refused_if_the_file_cannot_be_read_or_two_options_name_them) {
  const struct {
    Words options;
    const char* said;
  } rows[] = {
      {{"--hostfile", "/no/such/file"},
       "--hostfile: cannot read /no/such/file: No such file or directory"},
      {{"--hostfile", "/tmp"}, "--hostfile: cannot read /tmp: Is a directory"},
      {{"--hostfile", "/dev/null"}, "/dev/null names no host"},
      {{"--hostfile", "/dev/null", "-H", "a"}, "write only one of them"},
  };
  for (const auto& row : rows) {
    const Result result = numbers(row.options);
    EXPECT_EQ(result.status, 125);
    EXPECT_NE(result.err.find(row.said), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace hocket::internal::launch_test
