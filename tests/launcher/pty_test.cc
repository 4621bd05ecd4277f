// hocket-run --pty.
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "launcher/job.h"

namespace hocket::internal::launch_test {
namespace {

using Words = std::vector<std::string>;

TEST(Pty, makes_both_output_streams_one_terminal_and_leaves_the_input_a_pipe) {
  const std::string script =
      "for fd in 0 1 2; do [ -t $fd ] && printf $fd >&3; done; "
      "echo out; echo err >&2; echo end";
  for (const bool pty : {false, true}) {
    const TemporaryFile file;
    const Words options = pty ? Words{"-n", "1", "--pty"} : Words{"-n", "1"};
    const Result result = run(shell(options, "exec 3>" + file.path() + "; " + script));
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(slurp(file.path()), pty ? "12" : "");
    EXPECT_EQ(result.out, pty ? "out\nerr\nend\n" : "out\nend\n");
    EXPECT_EQ(result.err, pty ? "" : "err\n");
  }
}

TEST(Pty, changes_no_byte_of_the_output) {
  const std::string every_byte =
      "i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done; "
      "printf 'a\\nb\\r\\n\\n\\tno end'";
  std::string expected;
  for (int byte = 0; byte < 256; ++byte) expected += static_cast<char>(byte);
  expected += "a\nb\r\n\n\tno end";
  const Result result = run(shell({"-n", "1", "--pty"}, every_byte));
  EXPECT_TRUE(result.out == expected) << result.out.size() << " bytes of " << expected.size();
  const Result tagged =
      run(shell({"-n", "2", "--pty", "--tag-output"}, "echo one; echo two >&2; printf 'no end'"));
  EXPECT_EQ(sorted_lines_of(tagged.out),
            (Words{"[0] no end", "[0] one", "[0] two", "[1] no end", "[1] one", "[1] two"}));
  EXPECT_EQ(tagged.err, "");
}

TEST(Pty, keeps_the_lines_of_a_rank_that_is_killed) {
  // The program writes three lines with printf(), and SIGKILL ends it.
  const Result piped = run({"-n", "1", this_program(), "--rank", "print-and-die"});
  EXPECT_EQ(piped.out, "");  // they were in the buffer of the C library
  EXPECT_EQ(piped.status, 137);
  const Result result = run({"-n", "1", "--pty", this_program(), "--rank", "print-and-die"});
  EXPECT_EQ(result.out, "line 0\nline 1\nline 2\n");
  EXPECT_EQ(result.status, 137);
  EXPECT_NE(result.err.find("was killed by signal 9"), std::string::npos) << result.err;
}

TEST(Pty, shows_a_line_when_it_is_written) {
  Job job({"-n", "2", "--pty", "--tag-output", this_program(), "--rank", "print-and-wait"});
  EXPECT_TRUE(job.wait_for("[0] line"));
  EXPECT_TRUE(job.wait_for("[1] line"));
  job.signal(SIGINT);
  job.finish();
  EXPECT_EQ(job.status, 128 + SIGINT);
}

TEST(Pty, has_all_that_a_rank_wrote_before_its_end) {
  // The agent sees the output and the end of the rank at the same time.
  const TemporaryFile file;
  Job job(shell({"-n", "1", "--pty"},
                "echo $$; until [ -s $FILE ]; do sleep 0.01; done; "
                "head -c 5000 /dev/zero | tr '\\0' x; kill -9 $$"),
          {"FILE=" + file.path()});
  ASSERT_TRUE(job.wait_for("\n"));
  const pid_t rank = std::atoi(job.out.c_str());
  const pid_t agent = children_of(children_of(job.pid()).front()).front();
  ::kill(agent, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return state_of(agent) == 'T'; }));
  std::ofstream(file.path()) << "now\n";
  ASSERT_TRUE(eventually([&] { return state_of(rank) == 'Z'; }));
  ::kill(agent, SIGCONT);
  job.finish();
  EXPECT_EQ(std::ranges::count(job.out, 'x'), 5000);
  EXPECT_EQ(job.status, 137) << job.err;
}

TEST(Pty, leaves_the_status_as_it_is) {
  EXPECT_EQ(run({"-n", "2", "--pty", "true"}).status, 0);
  EXPECT_EQ(run(shell({"-n", "2", "--pty"}, "exit 7")).status, 7);
  EXPECT_EQ(run(shell({"-n", "2", "--pty"}, "kill -9 $$")).status, 137);
  const Result missing = run({"-n", "2", "--pty", "no-such-program"});
  EXPECT_EQ(missing.status, 127);
  EXPECT_NE(missing.err.find("cannot run 'no-such-program'"), std::string::npos) << missing.err;
}

TEST(Pty, passes_on_large_output_however_slowly_it_is_read) {
  Job job(shell({"-n", "2", "--pty"}, "head -c 10000000 /dev/zero | tr '\\0' x; exit 0"));
  // No process reads the output of hocket-run, so its pipe becomes full and the ranks must wait.
  ASSERT_TRUE(eventually([&] { return job.unread() > 60'000; }));
  job.finish();
  EXPECT_EQ(job.out.size(), 20'000'000u);
  EXPECT_EQ(std::ranges::count(job.out, 'x'), 20'000'000);
  EXPECT_EQ(job.status, 0);
}

TEST(Pty, gives_rank_0_the_input_as_a_pipe) {
  Job job(shell({"-n", "2", "--pty"}, "cat"));
  const std::string bytes = std::string("\x03\x04\x1a\0\n", 5) + std::string(300'000, 'x');
  job.write_input(bytes);
  job.finish();
  EXPECT_TRUE(job.out == bytes) << job.out.size();
  EXPECT_EQ(job.status, 0);
}

TEST(Pty, is_no_terminal_from_which_a_rank_can_read) {
  const Result result =
      run(shell({"-n", "1", "--pty"}, "LC_ALL=C dd iflag=nonblock count=1 <&2 2>&1 | cat"));
  EXPECT_NE(result.out.find("Bad file descriptor"), std::string::npos) << result.out;
}

/// Descriptors of the process that are masters of pseudo terminals.
int masters_of(pid_t pid) {
  int count = 0;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    count += std::filesystem::read_symlink(entry.path(), error).filename() == "ptmx";
  }
  return count;
}

TEST(Pty, that_a_rank_has_closed_is_at_its_end) {
  const TemporaryFile file;
  Job job(shell({"-n", "2", "--pty"},
                "echo ready; until [ -s $FILE ]; do sleep 0.01; done; "
                "[ $HOCKET_RANK = 0 ] || exec sleep 1000; echo bye; exec sleep 1000 >&- 2>&-"),
          {"FILE=" + file.path()});
  ASSERT_TRUE(job.wait_for("ready\nready\n"));
  const pid_t agent = children_of(children_of(job.pid()).front()).front();
  EXPECT_EQ(masters_of(agent), 2);
  std::ofstream(file.path()) << "now\n";
  EXPECT_TRUE(eventually([&] { return masters_of(agent) == 1; }));
  job.signal(SIGTERM);
  job.finish();
  EXPECT_EQ(job.out, "ready\nready\nbye\n");
  EXPECT_EQ(job.status, 128 + SIGTERM);
}

TEST(Pty, of_a_rank_that_has_ended_is_still_read_for_its_children) {
  const TemporaryFile file;
  const Result result =
      run(shell({"-n", "2", "--pty"},
                "if [ $HOCKET_RANK = 1 ]; then until grep -q late $FILE; do sleep 0.01; done; "
                "else (while kill -0 $$ 2>/dev/null; do sleep 0.01; done; echo late; "
                "echo late >>$FILE) & fi"),
          {"FILE=" + file.path()});
  EXPECT_EQ(result.out, "late\n");
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST(Pty, is_not_the_controlling_terminal) {
  // Field 7 of the file is the number of the controlling terminal.
  const std::string read = "cut -d' ' -f7 /proc/self/stat; ";
  const Result result =
      run(shell({"-n", "1", "--pty"}, read + "setsid sh -c \"" + read + "\"; cat /dev/tty"));
  EXPECT_TRUE(result.out.starts_with("0\n0\n")) << result.out;
  EXPECT_EQ(result.status, 1);
}

/// hocket-run on a terminal of its own, of 33 lines of 77 characters.
struct OnTerminal {
  explicit OnTerminal(const Words& arguments) {
    winsize size{};
    size.ws_row = 33;
    size.ws_col = 77;
    int master = -1;
    pid = ::forkpty(&master, nullptr, nullptr, &size);
    if (pid == 0) {
      Words words = arguments;
      words.insert(words.begin(), hocket_run());
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(99);
    }
    terminal = UniqueFd(master);
  }
  ~OnTerminal() {
    if (pid > 0) ::kill(pid, SIGTERM);
    finish();
  }

  /// Reads until it has seen the text so many times; false at the end of the output.
  bool read_until(const std::string& text, int times) {
    char buffer[4096];
    while (count(text) < times) {
      const ssize_t got = ::read(terminal.get(), buffer, sizeof buffer);
      if (got <= 0) return false;
      out.append(buffer, static_cast<std::size_t>(got));
    }
    return true;
  }
  int count(const std::string& text) const {
    int found = 0;
    for (std::size_t at = 0; (at = out.find(text, at)) != std::string::npos; ++at) ++found;
    return found;
  }
  void type(const std::string& keys) const {
    ASSERT_EQ(::write(terminal.get(), keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  int finish() {
    if (pid <= 0) return -1;
    read_until("no such text", 1);
    int wait_status = 0;
    ::waitpid(std::exchange(pid, 0), &wait_status, 0);
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -WTERMSIG(wait_status);
  }

  pid_t pid = 0;
  UniqueFd terminal;
  std::string out;
};

TEST(Pty, leaves_the_effect_of_ctrl_c_as_it_is) {
  for (const bool pty : {false, true}) {
    const Words options = pty ? Words{"-n", "2", "--pty"} : Words{"-n", "2"};
    OnTerminal caught(shell(options,
                            "trap 'echo caught; exit 0' INT; trap 'echo hung up' HUP; echo ready; "
                            "while :; do sleep 0.01; done"));
    ASSERT_TRUE(caught.read_until("ready", 2)) << caught.out;
    caught.type("\x03");
    EXPECT_EQ(caught.finish(), 0) << caught.out;
    EXPECT_EQ(caught.count("caught"), 2) << caught.out;
    EXPECT_EQ(caught.count("hung up"), 0) << caught.out;

    OnTerminal killed(shell(options, "echo ready; exec sleep 1000"));
    ASSERT_TRUE(killed.read_until("ready", 2)) << killed.out;
    killed.type("\x03");
    EXPECT_EQ(killed.finish(), 128 + SIGINT) << killed.out;
  }
}

TEST(Pty, has_the_size_of_the_terminal_of_hocket_run) {
  OnTerminal job(shell({"-n", "2", "--pty"}, "stty size <&1"));
  EXPECT_EQ(job.finish(), 0) << job.out;
  EXPECT_EQ(job.count("33 77"), 2) << job.out;
  EXPECT_EQ(run(shell({"-n", "1", "--pty"}, "stty size <&1")).out, "0 0\n");
}

TEST(Pty, keeps_the_job_from_starting_if_there_are_too_few_pseudo_terminals) {
  // A mount namespace in which there are two.
  const std::string few =
      "mount -t devpts -o newinstance,ptmxmode=666,max=2 none /dev/pts && "
      "mount --bind /dev/pts/ptmx /dev/ptmx";
  if (std::system(("unshare -rm sh -c '" + few + "' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "a user and mount namespace with a /dev/pts of its own cannot be made";
  }
  const std::string setup =
      "exec unshare -rm sh -c '" + few + "; exec \"$0\" \"$@\"' \"$0\" \"$@\"";
  const Result enough = run({"-n", "2", "--pty", "echo", "started"}, {}, setup);
  EXPECT_EQ(enough.out, "started\nstarted\n") << enough.err;
  const Result result = run({"-n", "3", "--pty", "echo", "started"}, {}, setup);
  EXPECT_EQ(result.status, 125);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("--pty needs 3 pseudo terminals here, and there are only 2: raise "
                            "/proc/sys/kernel/pty/max"),
            std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace hocket::internal::launch_test
