// hocket-run with agents that are reached by a command, as over ssh.
//
// OtherHosts needs no other host: the command is a script that runs the agent on this host.
// BetweenHosts needs the hosts h1 and h2 of tests/rig/hosts, and is skipped without them.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>

#include "launcher/job.h"
#include "message.h"
#include "sanitized.h"
#include "seed.h"

namespace hocket::internal::launch_test {
namespace {

using Words = std::vector<std::string>;

/// A command in place of ssh: `SCRIPT HOST COMMAND`.
class FakeSsh {
 public:
  explicit FakeSsh(const std::string& script) {
    // A file that is open for writing in any process cannot be run, so a child of another thread
    // must not have it: this program has one thread.
    std::ofstream(file_.path()) << "#!/bin/sh\nhost=$1; shift\n" << script << "\n";
    ::chmod(file_.path().c_str(), 0700);
  }
  const std::string& command() const { return file_.path(); }

 private:
  TemporaryFile file_;
};

const char* const run_here = "exec sh -c \"$*\"";

TEST(OtherHosts, ranks_run_on_each_in_the_order_of_the_hosts) {
  const FakeSsh ssh("export WHERE=$host; " + std::string(run_here));
  const Result result = run({"--ssh", ssh.command(), "--interface", "lo", "--hosts",
                             "far1:2,localhost:1,far2", "--tag-output", "sh", "-c", "echo $WHERE"},
                            {"WHERE=here"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines_of(result.out), (Words{"[0] far1", "[1] far1", "[2] here", "[3] far2"}));
}

TEST(OtherHosts, give_their_ranks_pseudo_terminals_too) {
  const FakeSsh ssh("export WHERE=$host; " + std::string(run_here));
  const Result result =
      run({"--ssh", ssh.command(), "--interface", "lo", "--hosts", "far1:2,far2", "--pty",
           "--tag-output", "sh", "-c", "[ -t 1 ] && [ -t 2 ] && ! [ -t 0 ] && echo $WHERE >&2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines_of(result.out), (Words{"[0] far1", "[1] far1", "[2] far2"}));
  EXPECT_EQ(result.err, "");
}

TEST(OtherHosts, of_a_list_of_slurm_are_reached_one_by_one) {
  const FakeSsh ssh("export WHERE=$host; " + std::string(run_here));
  const Result result = run({"--ssh", ssh.command(), "--interface", "lo", "--hosts", "far[08-09]:2",
                             "--tag-output", "sh", "-c", "echo $WHERE"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines_of(result.out),
            (Words{"[0] far08", "[1] far08", "[2] far09", "[3] far09"}));
}

TEST(OtherHosts, what_a_login_shell_says_first_does_no_harm) {
  const FakeSsh ssh("echo Welcome to $host; head -c 100000 /dev/zero; " + std::string(run_here));
  const Result result = run({"--ssh", ssh.command(), "--interface", "lo", "--hosts", "far1:2,far2",
                             this_program(), "--rank", "meet"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "rank 0 met 2\n");
}

TEST(OtherHosts, are_not_told_an_address_of_this_one) {
  const FakeSsh ssh("unset HOCKET_INTERFACE; " + std::string(run_here));
  for (const char* interface : {"127.0.0.1", "lo"}) {
    const Result result = run({"--ssh", ssh.command(), "--hosts", "far1:1,far2:1", "sh", "-c",
                               "echo \"[$HOCKET_INTERFACE]\""},
                              {std::string("HOCKET_INTERFACE=") + interface});
    EXPECT_EQ(result.out, interface[0] == 'l' ? "[lo]\n[lo]\n" : "[]\n[]\n") << result.err;
  }
}

TEST(OtherHosts, learn_that_rank_0_ended_without_joining_though_its_host_has_no_other_rank) {
  const FakeSsh ssh(run_here);
  const Result result =
      run({"--ssh", ssh.command(), "--interface", "lo", "--hosts", "far1:1,far2:2", "sh", "-c",
           "if [ $HOCKET_RANK = 0 ]; then exit 0; fi; sleep 0.5; exec " + this_program() +
               " --rank join"});
  EXPECT_EQ(result.status, 13) << result.err;
  const Words lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 2u) << result.out;
  for (const std::string& line : lines) {
    EXPECT_NE(line.find("exited with status 0 before all ranks had joined"), std::string::npos)
        << line;
  }
}

/// A rank waits in the join, or joins after rank 0 has ended because of the end of rank 3.
TEST(OtherHosts, report_to_the_coordinator_that_a_rank_ended_without_joining) {
  const FakeSsh ssh(run_here);
  for (const char* later : {"", "[ $HOCKET_RANK = 0 ] || sleep 0.5; "}) {
    const Result result =
        run({"--ssh", ssh.command(), "--interface", "lo", "--hosts", "far1:2,far2:2", "sh", "-c",
             "if [ $HOCKET_RANK = 3 ]; then exit 0; fi; " + std::string(later) + "exec " +
                 this_program() + " --rank join"});
    EXPECT_EQ(result.status, 13) << result.err;
    const Words lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), 3u) << result.out << result.err;
    for (const std::string& line : lines) {
      EXPECT_NE(line.find("rank 3 (process "), std::string::npos) << line;
      EXPECT_NE(line.find("exited with status 0 before all ranks had joined"), std::string::npos)
          << line;
    }
  }
}

TEST(OtherHosts, the_job_ends_when_rank_0s_agent_was_to_end_before_the_start) {
  const TemporaryFile file;
  const FakeSsh ssh("if [ $host = far2 ]; then until [ -s $FILE ]; do sleep 0.01; done; fi; " +
                    std::string(run_here));
  Job job(
      {"--ssh", ssh.command(), "--interface", "lo", "--hosts", "far1:1,far2:1", "sleep", "1000"},
      {"FILE=" + file.path()});
  const std::string agent_command("hocket-run\0--agent", 18);
  std::vector<pid_t> agents;  // of far1: the supervisor's child
  ASSERT_TRUE(eventually([&] {
    for (const pid_t pid : children_of(job.pid())) {
      if (slurp("/proc/" + std::to_string(pid) + "/cmdline").find(agent_command) !=
          std::string::npos) {
        agents = children_of(pid);
      }
    }
    return !agents.empty();
  }));
  ::kill(agents.front(), SIGTERM);
  std::ofstream(file.path()) << "now\n";
  job.finish();
  EXPECT_NE(job.status, 0) << job.err;
  EXPECT_TRUE(job.all_gone());
}

TEST(OtherHosts, number_their_own_ranks) {
  const FakeSsh ssh(run_here);
  const Result result =
      run({"--ssh", ssh.command(), "--interface", "lo", "--hosts", "far1:2,far2:1", "sh", "-c",
           "echo $HOCKET_RANK $HOCKET_RANKS $HOCKET_LOCAL_RANK "
           "$HOCKET_LOCAL_RANKS"});
  EXPECT_EQ(sorted_lines_of(result.out), (Words{"0 3 0 2", "1 3 1 2", "2 3 0 1"})) << result.err;
}

TEST(OtherHosts, the_environment_says_which_ssh) {
  const FakeSsh ssh(run_here);
  const Result result = run({"--interface", "lo", "--hosts", "far1:1,far2:1", "echo", "x"},
                            {"HOCKET_SSH=" + ssh.command()});
  EXPECT_EQ(result.out, "x\nx\n") << result.err;
}

TEST(OtherHosts, a_host_that_cannot_be_reached_is_named_and_nothing_runs) {
  const struct {
    const char* script;
    const char* said;
  } rows[] = {
      {"exit 255", "exited with status 255"},
      {"kill -9 $$", "was killed by signal 9"},
      {"exec no-such-program", "no program"},
      {"exit 0", "exited with status 0"},
      {"exec 1>&-; exit 3", "exited with status 3"},
      {"echo nonsense; exit 4", "exited with status 4"},
  };
  for (const auto& row : rows) {
    const FakeSsh ssh("if [ $host = bad ]; then " + std::string(row.script) + "; fi; " + run_here);
    const Result result = run({"--ssh", ssh.command(), "--interface", "lo", "--hosts",
                               "far1:2,bad:1,far2:1", "echo", "started"});
    EXPECT_EQ(result.status, 125) << row.script;
    EXPECT_EQ(result.out, "") << row.script;
    EXPECT_NE(result.err.find("no agent on host bad"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(row.said), std::string::npos) << result.err;
  }
}

TEST(OtherHosts, an_ssh_command_that_does_not_exist_is_named) {
  const Result result = run({"--ssh", "no-such-ssh -x", "--hosts", "far1", "true"});
  EXPECT_EQ(result.status, 125);
  EXPECT_NE(result.err.find("`no-such-ssh`"), std::string::npos) << result.err;
}

TEST(OtherHosts, a_host_that_does_not_answer_ends_at_the_join_deadline) {
  const FakeSsh ssh("[ $host = far1 ] || exec sleep 1000; " + std::string(run_here));
  const Result result = run({"--ssh", ssh.command(), "--hosts", "far1,dumb", "true"},
                            {"HOCKET_JOIN_DEADLINE_MS=300"});
  EXPECT_EQ(result.status, 125);
  EXPECT_NE(result.err.find("without an agent on dumb"), std::string::npos) << result.err;
}

TEST(OtherHosts, another_release_on_a_host_is_refused) {
  // A hello of version 7.
  const FakeSsh ssh(
      R"(printf '\001HOCKET-AGENT\002\r\n\004\000\000\000\100\007\000\000\000'; cat)");
  const Result result = run({"--ssh", ssh.command(), "--hosts", "old", "true"});
  EXPECT_EQ(result.status, 125);
  EXPECT_NE(result.err.find("hocket-run on old uses protocol version 7"), std::string::npos)
      << result.err;
}

TEST(OtherHosts, nonsense_from_a_host_is_refused) {
  const char* frames[] = {
      R"(\377\377\377\377\100)",              // longer than any frame may be
      R"(\001\000\000\000\100\007)",          // a hello that is too short
      R"(\000\000\000\000\377)",              // an unknown type
      R"(\000\000\000\000\101)",              // an address that is none
      R"(\003\000\000\000\103\001\002\003)",  // the end of a rank before there is one
  };
  for (const char* frame : frames) {
    const FakeSsh ssh("printf '\\001HOCKET-AGENT\\002\\r\\n" + std::string(frame) + "'; cat");
    const Result result = run({"--ssh", ssh.command(), "--hosts", "mad", "true"});
    EXPECT_EQ(result.status, 125) << frame;
    EXPECT_NE(result.err.find("mad"), std::string::npos) << frame << result.err;
  }
}

/// A frame from an agent, as an argument of printf.
std::string frame_of(launch::Type type, const std::string& payload) {
  const std::string frame = launch::payload_of(static_cast<std::uint32_t>(payload.size())) +
                            static_cast<char>(type) + payload;
  std::string text;
  for (const char byte : frame) {
    char octal[8];
    std::snprintf(octal, sizeof octal, "\\%03o", static_cast<unsigned char>(byte));
    text += octal;
  }
  return text;
}

std::string end_of(int rank) {
  launch::Exited exited;
  exited.rank = rank;
  exited.pid = 5;
  return frame_of(launch::Type::exited, exited.encode());
}

TEST(OtherHosts, ends_of_ranks_that_cannot_be_are_refused) {
  // An agent that says what one says in a job of one rank, whatever it is told.
  launch::Hello hello;
  hello.host = "mad";
  const std::string begin = "\\001HOCKET-AGENT\\002\\r\\n" +
                            frame_of(launch::Type::hello, hello.encode()) +
                            frame_of(launch::Type::listening, launch::payload_of(Address()));
  for (const std::string& ends : {end_of(0) + end_of(0), end_of(1), end_of(-1)}) {
    const FakeSsh ssh("printf '" + begin + ends + "'; cat >/dev/null");
    const Result result = run({"--ssh", ssh.command(), "--hosts", "mad", "true"});
    EXPECT_EQ(result.status, 125) << result.err;
    EXPECT_NE(result.err.find("mad sent an invalid message"), std::string::npos) << result.err;
  }
}

/// Gives the host far1 one NUMA node, and every other host three.
const char* const with_nodes =
    "export HWLOC_SYNTHETIC='numa:3 core:2 pu:1'; [ $host != far1 ] || "
    "export HWLOC_SYNTHETIC='numa:1 core:2 pu:1'; export WHERE=$host; ";

TEST(OtherHosts, with_different_numbers_of_parts_get_their_ranks) {
  const FakeSsh ssh(with_nodes + std::string(run_here));
  const auto where = [&](const Words& options) {
    Words words = {"--ssh", ssh.command(), "--interface", "lo", "--tag-output"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"sh", "-c", "echo $WHERE $HOCKET_LOCAL_RANK/$HOCKET_LOCAL_RANKS"});
    return run(words);
  };
  const Result all = where({"--hosts", "far1,far2", "--map-by", "ppr:1:numa", "--report-bindings"});
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(sorted_lines_of(all.out),
            (Words{"[0] far1 0/1", "[1] far2 0/3", "[2] far2 1/3", "[3] far2 2/3"}));
  EXPECT_NE(all.err.find("far2: rank 3 would be bound to CPUs 4-5 (NUMA node 2)"),
            std::string::npos)
      << all.err;
  const Result many = where({"--hosts", "far1,far2", "--map-by", "ppr:1:numa", "-n", "5"});
  EXPECT_EQ(many.status, 125);
  EXPECT_NE(many.err.find("-n 5 asks for more ranks than --map-by ppr:1:numa has room for (4): "
                          "far1 has 1 NUMA node, far2 has 3 NUMA nodes; use"),
            std::string::npos)
      << many.err;
  const Result little = where({"--hosts", "far1,far2:2", "--map-by", "ppr:1:numa"});
  EXPECT_EQ(little.status, 125);
  EXPECT_NE(little.err.find("far2 has 3 NUMA nodes, so 3 ranks, but room for 2 only in --hosts"),
            std::string::npos)
      << little.err;
}

TEST(OtherHosts, show_where_their_ranks_would_run_and_start_none) {
  const FakeSsh ssh(with_nodes + std::string(run_here));
  const Result result = run({"--ssh", ssh.command(), "--hosts", "far1,far2,far3", "--map-by",
                             "ppr:1:numa", "-n", "3", "--show-placement", "sh", "-c", "echo ran"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "");
  const auto says = [&](const char* text) { return result.err.find(text) != std::string::npos; };
  EXPECT_TRUE(says("far1: rank 0 would be bound to CPUs 0-1 (NUMA node 0)")) << result.err;
  EXPECT_TRUE(says("far2: rank 2 would be bound to CPUs 2-3 (NUMA node 1)")) << result.err;
  EXPECT_FALSE(says("far3")) << result.err;
}

TEST(OtherHosts, without_ranks_after_the_count_are_left_out) {
  const FakeSsh ssh(with_nodes + std::string(run_here));
  // Rank 0 alone has the input, and runs until it ends.
  Job job({"--ssh", ssh.command(), "--hosts", "far2,far1,far3", "--map-by", "ppr:1:numa", "-n", "3",
           "sh", "-c", this_program() + " --rank place; read line; :"});
  // A job on one host needs no address that other hosts reach.
  ASSERT_TRUE(job.wait_for("rank 0 of 3 listener 1 coordinator 127.0.0.1 "));
  const std::string agent_command("hocket-run\0--agent", 18);
  const auto is_agent = [&](pid_t pid) {
    return slurp("/proc/" + std::to_string(pid) + "/cmdline").find(agent_command) !=
           std::string::npos;
  };
  EXPECT_EQ(std::ranges::count_if(children_of(job.pid()), is_agent), 1);
  job.finish();
  EXPECT_EQ(job.status, 0) << job.err;
  EXPECT_EQ(lines_of(job.out).size(), 3u) << job.out;
  EXPECT_TRUE(job.all_gone());
}

TEST(OtherHosts, that_do_not_count_their_parts_are_named) {
  launch::Hello hello;
  hello.host = "dumb";
  const FakeSsh ssh("[ $host = far1 ] || { printf '\\001HOCKET-AGENT\\002\\r\\n" +
                    frame_of(launch::Type::hello, hello.encode()) + "'; exec sleep 1000; }; " +
                    run_here);
  const Words job = {"--ssh", ssh.command(), "--hosts", "far1,dumb", "--map-by", "ppr:1:numa"};
  Words words = job;
  words.push_back("true");
  const Result late = run(words, {"HOCKET_JOIN_DEADLINE_MS=300"});
  EXPECT_EQ(late.status, 125);
  EXPECT_NE(late.err.find("the join deadline has passed without an answer from the agent on dumb, "
                          "which counts the parts"),
            std::string::npos)
      << late.err;
  words = job;
  words.insert(words.end(), {"--timeout", "0.3", "true"});
  const Result limit = run(words);
  EXPECT_EQ(limit.status, 124);
  EXPECT_NE(limit.err.find("(--timeout): no answer from the agent on dumb"), std::string::npos)
      << limit.err;
}

TEST(OtherHosts, counts_of_parts_that_cannot_be_are_refused) {
  launch::Hello hello;
  hello.host = "mad";
  const std::string begin =
      "\\001HOCKET-AGENT\\002\\r\\n" + frame_of(launch::Type::hello, hello.encode());
  const std::string two = frame_of(launch::Type::counted, launch::Counted{2}.encode());
  const std::string none = frame_of(launch::Type::counted, launch::Counted{0}.encode());
  const std::string listening = frame_of(launch::Type::listening, launch::payload_of(Address()));
  const struct {
    const char* map_by;
    std::string frames;
  } rows[] = {
      {"slot", two}, {"ppr:1:numa", none}, {"ppr:1:numa", two + two}, {"ppr:1:numa", listening}};
  for (const auto& row : rows) {
    // The agent ends when the launcher has asked it for something.
    const FakeSsh ssh("printf '" + begin + row.frames + "'; head -c 1 >/dev/null");
    const Result result =
        run({"--ssh", ssh.command(), "--hosts", "mad", "--map-by", row.map_by, "true"});
    EXPECT_EQ(result.status, 125) << result.err;
    EXPECT_NE(result.err.find("mad sent an invalid message"), std::string::npos) << result.err;
  }
}

TEST(OtherHosts, an_agent_survives_nonsense_from_its_launcher) {
  // All of it is cut off in the middle: the agent sees the end and goes.
  const char* inputs[] = {R"(\377\377\377\377\002)",
                          R"(\001\000\000\000\002x)",
                          R"(\000\000\000\000\011)",
                          R"(\001\000\000\000\007\000)",
                          R"(\004\000\000\000\003\377\377\377\177)",
                          R"(\010\000\000\000\001\000\000\000\377\377\377)"};
  for (const char* input : inputs) {
    const FakeSsh ssh("printf '" + std::string(input) + "' | " + run_here);
    const Result result = run({"--ssh", ssh.command(), "--hosts", "far1", "true"});
    EXPECT_EQ(result.status, 125) << input << result.err;
  }
}

TEST(OtherHosts, a_directory_that_is_not_there_is_named) {
  char name[] = "/tmp/hocket-test-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string directory = name;
  const FakeSsh ssh("rmdir " + directory + "; cd /; " + run_here);
  char before[4096];
  ASSERT_NE(::getcwd(before, sizeof before), nullptr);
  ASSERT_EQ(::chdir(name), 0);
  Job job({"--ssh", ssh.command(), "--interface", "lo", "--hosts", "far1", "echo", "started"});
  ASSERT_EQ(::chdir(before), 0);
  job.finish();
  EXPECT_EQ(job.status, 125);
  EXPECT_EQ(job.out, "");
  EXPECT_NE(job.err.find("far1: cannot change to the working directory " + directory),
            std::string::npos)
      << job.err;
}

// ---- For real

class BetweenHosts : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (std::getenv("HOSTS") == nullptr) GTEST_SKIP() << "needs tests/rig/hosts";
    if (GetParam() && std::getenv("HOSTS_SSH_CONFIG") == nullptr) GTEST_SKIP() << "needs --sshd";
  }
  Words with(const std::string& hosts, const Words& rest) const {
    Words all = {"--hosts", hosts, "--ssh"};
    all.push_back(GetParam() ? "ssh -F " + std::string(std::getenv("HOSTS_SSH_CONFIG"))
                             : std::getenv("HOSTS_RSH"));
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }
};

INSTANTIATE_TEST_SUITE_P(By, BetweenHosts, testing::Bool(),
                         [](const auto& param) { return param.param ? "ssh" : "rsh"; });

TEST_P(BetweenHosts, ranks_run_where_they_should_with_directory_and_environment) {
  const Result result =
      run(with("h1:2,h2:2", {"--tag-output", "--env", "ALPHA=a b", "sh", "-c",
                             "echo $(hostname) $(pwd) $ALPHA $HOCKET_SILENCE_MS $LD_LIBRARY_PATH"}),
          {"HOCKET_SILENCE_MS=888", "LD_LIBRARY_PATH=/x"});
  char directory[4096];
  ASSERT_NE(::getcwd(directory, sizeof directory), nullptr);
  const std::string rest = " " + std::string(directory) + " a b 888 /x";
  EXPECT_EQ(sorted_lines_of(result.out),
            (Words{"[0] h1" + rest, "[1] h1" + rest, "[2] h2" + rest, "[3] h2" + rest}))
      << result.err;
  EXPECT_EQ(result.status, 0);
}

TEST_P(BetweenHosts, the_coordinator_listens_where_the_other_hosts_reach_it) {
  const struct {
    const char* hosts;
    Words options;
    const char* coordinator;
  } rows[] = {
      {"h1:1,h2:2", {}, "10.77.1.1"},
      {"h2:1,h1:2", {}, "10.77.1.2"},
      {"h2:1,h3:1,h1:1", {}, "10.77.1.2"},
      {"h1:1,h2:2", {"--interface", "eth2"}, "10.77.2.1"},
      {"h2:1,h1:2", {"--interface", "eth2"}, "10.77.2.2"},
      {"h2:1,h1:2", {"--interface", "10.77.2.2"}, "10.77.2.2"},
  };
  for (const auto& row : rows) {
    for (const char* what : {"place", "meet"}) {
      Words words = row.options;
      for (const std::string& word : {this_program(), std::string("--rank"), std::string(what)}) {
        words.push_back(word);
      }
      const Result result = run(with(row.hosts, words));
      EXPECT_EQ(result.status, 0) << row.hosts << result.err;
      const std::string expected = std::string(what) == "meet"
                                       ? "rank 0 met 2\n"
                                       : "coordinator " + std::string(row.coordinator) + " ";
      EXPECT_NE(result.out.find(expected), std::string::npos) << row.hosts << result.out;
    }
  }
}

TEST_P(BetweenHosts, ranks_go_to_the_parts_of_each_host) {
  Words words = with("h1,h2", {"--map-by", "ppr:2:numa", "--report-bindings", "--tag-output", "sh",
                               "-c", "echo $(hostname) $HOCKET_RANKS"});
  // Gives h2 a NUMA node more than h1.
  const FakeSsh ssh("numa=1; [ $host = h1 ] || numa=2; exec " + words[3] +
                    " $host \"export HWLOC_SYNTHETIC='numa:$numa core:2 pu:1'; $*\"");
  words[3] = ssh.command();
  const Result result = run(words, {"HWLOC_SYNTHETIC=numa:1 core:2 pu:1"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines_of(result.out),
            (Words{"[0] h1 6", "[1] h1 6", "[2] h2 6", "[3] h2 6", "[4] h2 6", "[5] h2 6"}));
  for (const char* text : {"h1: rank 1 would be bound to CPUs 0-1 (NUMA node 0)",
                           "h2: rank 5 would be bound to CPUs 2-3 (NUMA node 1)"}) {
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  }
}

TEST_P(BetweenHosts, a_death_on_another_host_is_told_and_ends_all) {
  const Result result =
      run(with("h1:1,h2:1", {"sh", "-c", "[ $(hostname) = h2 ] && kill -9 $$; exec sleep 1000"}));
  EXPECT_EQ(result.status, 137);
  EXPECT_NE(result.err.find("rank 1 on h2 (pid "), std::string::npos) << result.err;
}

TEST_P(BetweenHosts, input_reaches_rank_0_on_another_host_whole) {
  std::mt19937 random(2);
  std::string bytes(1 << 20, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  Job job(with("h2:1,h1:1", {"cat"}));
  job.write_input(bytes);
  job.finish();
  EXPECT_TRUE(job.out == bytes);
  EXPECT_EQ(job.status, 0) << job.err;
}

TEST_P(BetweenHosts, signals_cross_to_the_other_host) {
  Job job(with("h1:1,h2:1", {"--tag-output", "sh", "-c",
                             "trap 'echo caught; exit 0' INT; echo ready; "
                             "while :; do sleep 0.01; done"}));
  ASSERT_TRUE(job.wait_for("[0] ready"));
  ASSERT_TRUE(job.wait_for("[1] ready"));
  ::kill(-job.pid(), SIGINT);  // as a terminal does it: ssh gets it too
  job.finish();
  EXPECT_EQ(sorted_lines_of(job.out),
            (Words{"[0] caught", "[0] ready", "[1] caught", "[1] ready"}));
  EXPECT_EQ(job.status, 0) << job.err;
}

TEST_P(BetweenHosts, an_unknown_host_is_named_and_nothing_runs) {
  const Result result = run(with("h1:1,h9:1,h2:1", {"echo", "started"}));
  EXPECT_EQ(result.status, 125);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("no agent on host h9"), std::string::npos) << result.err;
}

TEST_P(BetweenHosts, nothing_is_left_when_anything_is_killed) {
  // Children of the launcher are the local supervisor and the way to h2; the others are found by
  // name.
  enum class Victim { launcher, connection, any_agent };
  const char* const family = "sleep 1000 & setsid sleep 1000 & echo ready; wait";
  std::mt19937_64 random(tests::seed());
  for (int round = 0; round < (tests::sanitized ? 3 : 9); ++round) {
    const auto victim = static_cast<Victim>(round % 3);
    Job job(with("h1:2,h2:2", {"--env", "LAUNCHER_TEST_MARK", "sh", "-c", family}));
    const bool settled = random() % 2 == 0;
    if (settled) {
      ASSERT_TRUE(job.wait_for("ready\nready\nready\nready\n"));
    } else {
      ::usleep(random() % 400'000);
    }
    pid_t pid = job.pid();
    if (victim != Victim::launcher) {
      ASSERT_TRUE(eventually([&] {
        std::vector<pid_t> found;
        for (const pid_t candidate : job.processes()) {
          const std::string command = slurp("/proc/" + std::to_string(candidate) + "/cmdline");
          const bool agent =
              command.find(std::string("hocket-run\0--agent", 18)) != std::string::npos;
          const std::vector<pid_t> children = children_of(job.pid());
          const bool child = std::ranges::find(children, candidate) != children.end();
          if (victim == Victim::any_agent ? agent : child) found.push_back(candidate);
        }
        if (!found.empty()) pid = found[random() % found.size()];
        return !found.empty();
      }));
    }
    ::kill(pid, SIGKILL);
    job.finish();
    EXPECT_NE(job.status, 0);
    EXPECT_TRUE(job.all_gone()) << "victim " << static_cast<int>(victim) << " settled " << settled;
  }
}

}  // namespace
}  // namespace hocket::internal::launch_test
