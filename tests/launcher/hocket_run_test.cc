// hocket-run on one host, started as users start it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "launcher/job.h"

namespace hocket::internal::launch_test {
namespace {

using Words = std::vector<std::string>;

TEST(HocketRun, the_status_is_the_first_failing_ranks) {
  const struct {
    Words arguments;
    std::string script;
    int status;
    const char* said;  // on standard error; empty: nothing may be said
  } rows[] = {
      {{"-n", "1"}, "true", 0, ""},
      {{"-n", "5"}, "exit 0", 0, ""},
      {{"-n", "1"}, "exit 3", 3, "exited with status 3"},
      {{"-n", "3"}, "exit 7", 7, "exited with status 7"},
      {{"-n", "2"}, "kill -9 $$", 137, "was killed by signal 9 (SIGKILL, Killed)"},
      {{"-n", "1"}, "kill -TERM $$", 143, "was killed by signal 15 (SIGTERM"},
      {{"-n", "2", "--on-death", "continue"}, "exit 255", 255, "exited with status 255"},
      {{"-n", "2", "--on-death=end"}, "exit 255", 255, "exited with status 255"},
  };
  for (const auto& row : rows) {
    const Result result = run(shell(row.arguments, row.script));
    EXPECT_EQ(result.status, row.status) << row.script << result.err;
    EXPECT_NE(result.err.find(row.said), std::string::npos) << result.err;
    if (*row.said == 0) {
      EXPECT_EQ(result.err, "") << row.script;
    }
  }
}

TEST(HocketRun, a_program_that_cannot_be_run_is_named) {
  const TemporaryFile file;  // not executable
  const struct {
    std::string program;
    int status;
    std::string said;
  } rows[] = {
      {"no-such-program", 127, "cannot run 'no-such-program': No such file or directory"},
      {"/no/such/program", 127, "cannot run '/no/such/program'"},
      {file.path(), 126, "cannot run '" + file.path() + "': Permission denied"},
      {"/tmp", 126, "cannot run '/tmp': Permission denied"},
  };
  for (const auto& row : rows) {
    const Result result = run({"-n", "2", row.program});
    EXPECT_EQ(result.status, row.status) << row.program;
    EXPECT_NE(result.err.find(row.said), std::string::npos) << result.err;
  }
}

TEST(HocketRun, bad_usage_is_refused_with_the_culprit) {
  const struct {
    Words arguments;
    const char* said;
  } rows[] = {
      {{}, "no program to run"},
      {{"-n", "2"}, "no program to run"},
      {{"true"}, "-n RANKS"},
      {{"-n", "0", "true"}, "-n"},
      {{"-n", "x", "true"}, "-n"},
      {{"-n", "1048577", "true"}, "-n"},
      {{"--bogus", "-n", "2", "true"}, "unknown option --bogus"},
      {{"-n", "2", "--on-death=ignore", "true"}, "--on-death"},
      {{"-n", "2", "--env", "=x", "true"}, "--env: '=x' has no name"},
      {{"-n", "2", "--env", "HOCKET_RANK=1", "true"}, "hocket-run itself sets HOCKET_RANK"},
      {{"-n", "2", "--env", "NOT_SET_ANYWHERE", "true"}, "NOT_SET_ANYWHERE is not set here"},
      {{"--hosts", "a:0", "true"}, "'a:0' has no valid number of ranks (1 to 65535)"},
      {{"--hosts", "a:-1", "true"}, "'a:-1'"},
      {{"--hosts", "a:2x", "true"}, "'a:2x'"},
      {{"--hosts", ":2", "true"}, "':2' has no host name"},
      {{"--hosts", "a,,b", "true"}, "'' has no host name"},
      {{"--hosts", "a,", "true"}, "'' has no host name"},
      {{"--hosts", "[fd77::1", "true"}, "no closing bracket"},
      {{"--hosts", "[fd77::1]2", "true"}, "'[fd77::1]2' is not a host"},
      {{"--hosts", "fd77::1", "true"}, "'fd77::1'"},
      {{"--hosts", "-oProxyCommand=x", "true"}, "is not a host name"},
      {{"--hosts", "a, b", "true"}, "' b' is not a host name"},
      {{"--hosts", "a,+e:2", "true"}, "'+e:2' refers to a host of an allocation"},
      {{"--hosts", "a,^b", "true"}, "'^b' excludes a host"},
      {{"-n", "4", "--hosts", "localhost:3", "true"}, "more ranks than --hosts has room for"},
      {{"-n", "1", "--bind-to", "board", "true"},
       "--bind-to: board not in {core,l3cache,numa,socket,package,none}"},
      {{"-n", "1", "--timeout", "0", "true"}, "--timeout"},
      {{"-n", "1", "--timeout", "5m", "true"}, "--timeout"},
      {{"-n", "1", "--ssh", "'open", "true"}, "open quote"},
      {{"-n", "1", "--ssh", " ", "true"}, "ssh command is empty"},
      {{"-n", "1", "--interface", "nosuch0", "true"}, "interface \"nosuch0\" does not exist"},
      {{"-n", "1", "--interface", "192.0.2.1", "true"},
       "\"192.0.2.1\": no interface of this host has that address"},
  };
  for (const auto& row : rows) {
    const Result result = run(row.arguments);
    EXPECT_EQ(result.status, 125) << row.said << result.err;
    EXPECT_NE(result.err.find(row.said), std::string::npos) << row.said << " / " << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(HocketRun, np_is_n) {
  for (const Words& words : {Words{"-np", "2"}, Words{"--np", "2"}, Words{"--np=2"},
                             Words{"--tag-output", "-np", "2"}}) {
    Words arguments = words;
    arguments.insert(arguments.end(), {"echo", "-np", "--np"});
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(lines_of(result.out).size(), 2u) << result.out;
    EXPECT_NE(result.out.find("-np --np\n"), std::string::npos) << result.out;
  }
}

TEST(HocketRun, an_option_of_another_launcher_is_refused_with_its_remedy) {
  const struct {
    Words arguments;
    const char* remedy;
  } rows[] = {
      {{"-N", "2"}, "--hosts HOST:RANKS"},
      {{"--npersocket", "2"}, "--map-by ppr:RANKS:socket"},
      {{"--ntasks-per-core=2"}, "--map-by ppr:RANKS:core"},
      {{"-w", "a,b"}, "--hosts"},
      {{"-genv", "A", "1"}, "--env"},
      {{"--bind-to-core"}, "--bind-to core"},
      {{"--cpu-set", "0-3"}, "taskset -c LIST"},
      {{"--oversubscribe"}, "not needed"},
      {{"--time", "5"}, "--timeout SECONDS"},
      {{"--chdir", "/"}, "--wdir DIRECTORY"},
      {{"-v"}, "HOCKET_LOG=info"},
      {{"--display-map"}, "write --report-bindings, or --show-placement"},
      {{"--do-not-launch"}, "write --show-placement"},
      {{"--output-filename", "d"}, "--output-dir DIRECTORY"},
      {{"--unbuffered"}, "write --pty"},
      {{"--nproc-per-node", "2"}, "-n RANKS"},
      {{"--nproc_per_node=2"}, "-n RANKS"},
  };
  for (const auto& row : rows) {
    Words arguments = {"--env", "A=-x", "-n", "2"};
    arguments.insert(arguments.end(), row.arguments.begin(), row.arguments.end());
    arguments.push_back("true");
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 125) << result.err;
    EXPECT_NE(result.err.find("has no option " + row.arguments[0]), std::string::npos)
        << result.err;
    EXPECT_NE(result.err.find(row.remedy), std::string::npos) << result.err;
  }
}

TEST(HocketRun, ranks_learn_their_numbers_in_variables) {
  const Words words =
      shell({"-n", "3"}, "echo $HOCKET_RANK $HOCKET_RANKS $HOCKET_LOCAL_RANK $HOCKET_LOCAL_RANKS");
  // Those of an outer job must not come through.
  const Result result = run(words, {"HOCKET_RANK=7", "HOCKET_LOCAL_RANKS=9"});
  EXPECT_EQ(sorted_lines_of(result.out), (Words{"0 3 0 3", "1 3 1 3", "2 3 2 3"}));
  EXPECT_EQ(result.err, "");
}

TEST(HocketRun, closed_standard_descriptors_do_no_harm) {
  const Words words = shell({"-n", "2"}, "cat; echo out; echo err >&2");
  for (const char* setup : {"exec <&-", "exec >&-", "exec 2>&-", "exec <&- >&- 2>&-"}) {
    const Result result = run(words, {}, setup);
    EXPECT_EQ(result.status, 0) << setup;
    const std::string closed = setup;
    EXPECT_EQ(result.out, closed.find(" >&-") == closed.npos ? "out\nout\n" : "") << setup;
    EXPECT_EQ(result.err, closed.find("2>&-") == closed.npos ? "err\nerr\n" : "") << setup;
  }
}

TEST(HocketRun, a_low_limit_of_open_files_is_named_with_the_remedy) {
  const Result low = run({"-n", "2", "true"}, {}, "ulimit -n 20");
  EXPECT_EQ(low.status, 125);
  EXPECT_NE(low.err.find("the limit is 20; raise it with `ulimit -n 1024`"), std::string::npos)
      << low.err;
  const Result many = run({"-n", "40", "true"}, {}, "ulimit -n 80");
  EXPECT_EQ(many.status, 125);
  EXPECT_NE(many.err.find("needs 152 open files here, and the limit is 80"), std::string::npos)
      << many.err;
  EXPECT_EQ(run({"-n", "40", "true"}, {}, "ulimit -n 152").status, 0);
  EXPECT_EQ(run({"-n", "40", "--pty", "true"}, {}, "ulimit -n 152").status, 0);
}

TEST(HocketRun, a_bad_setting_is_refused_and_an_unknown_one_reported) {
  const Result bad = run({"-n", "1", "true"}, {"HOCKET_TRANSPORT=smoke"});
  EXPECT_EQ(bad.status, 125);
  EXPECT_NE(bad.err.find("HOCKET_TRANSPORT=smoke"), std::string::npos) << bad.err;
  const Result unknown = run({"-n", "1", "true"}, {"HOCKET_TRANSPROT=shm"});
  EXPECT_EQ(unknown.status, 0);
  EXPECT_NE(unknown.err.find("did you mean HOCKET_TRANSPORT?"), std::string::npos) << unknown.err;
}

TEST(HocketRun, options_of_the_program_are_the_programs) {
  const Result result = run({"-n", "1", "echo", "-n", "3", "--hosts", "--help"});
  EXPECT_EQ(result.out, "3 --hosts --help");
  EXPECT_EQ(run({"-n", "1", "--", "echo", "--settings"}).out, "--settings\n");
}

TEST(HocketRun, hosts_without_n_fill_every_slot_and_n_takes_the_first) {
  const Result all = run({"--hosts", "localhost:3", "echo", "x"});
  EXPECT_EQ(all.out, "x\nx\nx\n") << all.err;
  const Result two =
      run({"-n", "2", "--hosts", "localhost:3,never-contacted.invalid:9", "echo", "x"});
  EXPECT_EQ(two.out, "x\nx\n") << two.err;
}

TEST(HocketRun, help_and_settings_are_printed) {
  const Result help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("--on-death"), std::string::npos);
  EXPECT_EQ(help.out.find("--agent"), std::string::npos);
  const Result settings = run({"--settings"});
  EXPECT_EQ(settings.status, 0);
  EXPECT_NE(settings.out.find("HOCKET_SILENCE_MS\n"), std::string::npos);
}

TEST(HocketRun, every_rank_of_64_learns_its_place) {
  const Result result = run({"-n", "64", this_program(), "--rank", "place"});
  EXPECT_EQ(result.status, 0) << result.err;
  std::set<std::string> ranks, keys;
  for (const std::string& line : lines_of(result.out)) {
    const std::size_t key = line.find(" coordinator ");
    ASSERT_NE(key, std::string::npos) << line;
    ranks.insert(line.substr(0, key));
    keys.insert(line.substr(key));
  }
  EXPECT_EQ(ranks.size(), 64u);
  for (int rank = 0; rank < 64; ++rank) {
    const std::string listener = rank == 0 ? "1" : "0";
    EXPECT_TRUE(ranks.contains("rank " + std::to_string(rank) + " of 64 listener " + listener));
  }
  ASSERT_EQ(keys.size(), 1u);  // all have the same key
  EXPECT_NE(keys.begin()->find("coordinator 127.0.0.1 "), std::string::npos) << *keys.begin();
  EXPECT_EQ(keys.begin()->find("key 00000000"), std::string::npos);
}

TEST(HocketRun, two_jobs_have_different_keys) {
  const Words place = {"-n", "1", this_program(), "--rank", "place"};
  EXPECT_NE(run(place).out, run(place).out);
}

TEST(HocketRun, ranks_meet_at_the_coordinators_listener) {
  const Result result = run({"-n", "8", this_program(), "--rank", "meet"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "rank 0 met 7\n");
}

TEST(HocketRun, the_place_survives_a_shell_in_between) {
  const Result result = run(shell({"-n", "2"}, this_program() + " --rank place; true"));
  EXPECT_EQ(lines_of(result.out).size(), 2u) << result.err;
}

TEST(HocketRun, the_key_is_in_no_argument_list_and_no_environment) {
  Job job({"-n", "2", this_program(), "--rank", "hold"});
  // The first line that ends has the key. A rank that has not written yet may not have started.
  for (const char* text : {" job ", "\n", "rank 0 of 2", "rank 1 of 2"}) {
    ASSERT_TRUE(job.wait_for(text)) << text;
  }
  const std::string hex = job.out.substr(job.out.find(" key ") + 5, 64);
  ASSERT_EQ(hex.find_first_not_of("0123456789abcdef"), std::string::npos);
  std::string raw;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    raw += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  const std::vector<pid_t> processes = job.processes();
  EXPECT_GE(processes.size(), 5u);  // launcher, supervisor, agent, two ranks
  for (const pid_t pid : processes) {
    for (const char* file : {"cmdline", "environ"}) {
      const std::string text = slurp("/proc/" + std::to_string(pid) + "/" + file);
      EXPECT_EQ(text.find(hex), std::string::npos) << pid << file;
      EXPECT_EQ(text.find(raw.substr(0, 8)), std::string::npos) << pid << file;
    }
  }
  job.signal(SIGTERM);
  job.finish();
  EXPECT_EQ(job.status, 128 + SIGTERM);
}

TEST(HocketRun, tags_begin_every_line_of_the_stream_it_was_written_to) {
  const Result result =
      run(shell({"-n", "3", "--tag-output"}, "echo one; echo two >&2; printf 'no end'"));
  EXPECT_EQ(sorted_lines_of(result.out),
            (Words{"[0] no end", "[0] one", "[1] no end", "[1] one", "[2] no end", "[2] one"}));
  EXPECT_EQ(sorted_lines_of(result.err), (Words{"[0] two", "[1] two", "[2] two"}));
}

TEST(HocketRun, lines_of_many_ranks_do_not_mix) {
  // Every line is written in pieces, with other ranks writing at the same time.
  const std::string script =
      "i=0; while [ $i -lt 40 ]; do for p in 1 2 3 4; do printf '%0500d' $$; done; echo; "
      "i=$((i+1)); done";
  for (const bool tagged : {false, true}) {
    const Result result =
        run(shell(tagged ? Words{"-n", "6", "--tag-output"} : Words{"-n", "6"}, script));
    std::map<std::string, int> lines;
    for (const std::string& line : lines_of(result.out)) ++lines[line];
    EXPECT_EQ(lines.size(), 6u) << "tagged: " << tagged;
    for (const auto& [line, count] : lines) {
      EXPECT_EQ(line.size(), 2000u + (tagged ? 4 : 0)) << line.substr(0, 20);
      EXPECT_EQ(count, 40);
    }
  }
}

TEST(HocketRun, input_goes_to_rank_0_and_bytes_stay_as_they_are) {
  std::mt19937 random(1);
  std::string bytes(3 << 20, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  Job job(shell({"-n", "2"}, "cat; cat >&2"));
  job.write_input(bytes);
  job.finish();
  EXPECT_EQ(job.status, 0);
  EXPECT_TRUE(job.out == bytes) << job.out.size() << " bytes of " << bytes.size();
  EXPECT_EQ(job.err, "");
}

TEST(HocketRun, a_rank_that_does_not_read_its_input_can_end) {
  Job job({"-n", "1", "true"});
  job.write_input(std::string(1 << 20, 'x'));
  job.finish();
  EXPECT_EQ(job.status, 0);
}

TEST(HocketRun, a_prompt_without_a_newline_is_seen) {
  Job job(shell({"-n", "1"}, "printf 'name? '; read name; echo hello $name"));
  ASSERT_TRUE(job.wait_for("name? "));
  job.write_input("world\n");
  job.finish();
  EXPECT_EQ(job.out, "name? hello world\n");
}

TEST(HocketRun, ranks_end_when_nobody_reads_their_output) {
  Job job({"-n", "2", "yes"});
  ASSERT_TRUE(job.wait_for("y\n"));
  job.close_output();
  job.finish();
  EXPECT_EQ(job.status, 128 + SIGPIPE);
  EXPECT_NE(job.err.find("cannot write standard output"), std::string::npos) << job.err;
  EXPECT_TRUE(job.all_gone());
}

TEST(HocketRun, a_reader_that_stopped_reading_does_not_keep_it_from_ending) {
  for (const char* script : {"exec yes", "head -c 200000 /dev/zero; exec sleep 1000"}) {
    Job job(shell({"-n", "2"}, script));
    ASSERT_TRUE(eventually([&] { return job.unread() > 60'000; }));
    job.signal(SIGTERM);
    EXPECT_TRUE(eventually([&] { return job.ended(); })) << script;
    job.finish();
    EXPECT_EQ(job.status, 128 + SIGTERM);
    EXPECT_NE(job.err.find("which were not read within 2 s after SIGTERM"), std::string::npos)
        << job.err;
    EXPECT_TRUE(job.all_gone());
  }
}

TEST(HocketRun, all_output_arrives_however_slowly_it_is_read) {
  Job job(shell({"-n", "2"}, "head -c 4000000 /dev/zero; exit 0"));
  ASSERT_TRUE(eventually([&] { return job.processes().size() >= 5; }));
  job.finish();
  EXPECT_EQ(job.out.size(), 8'000'000u);
}

TEST(HocketRun, working_directory_and_environment_are_the_callers) {
  const Result result =
      run(shell({"-n", "1", "--env", "ALPHA=a b", "--env", "BETA", "--interface", "lo"},
                "pwd; echo $ALPHA,$BETA,$GAMMA,$HOCKET_INTERFACE"),
          {"BETA=b", "GAMMA=c", "HOCKET_SILENCE_MS=777"});
  char directory[4096];
  ASSERT_NE(::getcwd(directory, sizeof directory), nullptr);
  EXPECT_EQ(result.out, std::string(directory) + "\na b,b,c,lo\n") << result.err;
}

TEST(HocketRun, x_sets_variables_as_env_does) {
  const Result result = run(shell({"-n", "1", "-x", "ALPHA=a b", "-x", "BETA", "--env", "GAMMA=c"},
                                  "echo $ALPHA,$BETA,$GAMMA"),
                            {"BETA=b"});
  EXPECT_EQ(result.out, "a b,b,c\n") << result.err;
}

TEST(HocketRun, the_shared_heap_comes_before_other_libraries_of_ld_preload) {
  const std::string script = "echo $LD_PRELOAD";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const Result refused = run(shell({"-n", "1", "--shared-heap"}, script));
  EXPECT_EQ(refused.status, 125);
  EXPECT_NE(refused.err.find("there is no libhocket_heap.so"), std::string::npos) << refused.err;
  GTEST_SKIP() << "the sanitizers replace malloc themselves";
#endif
  const auto preload = [&](const Words& options, const Words& environment) {
    Words words = {"-n", "1", "--shared-heap"};
    words.insert(words.end(), options.begin(), options.end());
    const Result result = run(shell(words, script), environment);
    EXPECT_EQ(result.status, 0) << result.err;
    const std::size_t name = result.out.find("/libhocket_heap.so");
    return name == std::string::npos ? "none of: " + result.out : result.out.substr(name + 1);
  };
  EXPECT_EQ(preload({}, {}), "libhocket_heap.so\n");
  EXPECT_EQ(preload({}, {"LD_PRELOAD="}), "libhocket_heap.so\n");
  EXPECT_EQ(preload({}, {"LD_PRELOAD=libc.so.6"}), "libhocket_heap.so:libc.so.6\n");
  EXPECT_EQ(preload({"-x", "LD_PRELOAD=libm.so.6"}, {"LD_PRELOAD=libc.so.6"}),
            "libhocket_heap.so:libm.so.6\n");
  EXPECT_EQ(preload({"-x", "LD_PRELOAD="}, {}), "libhocket_heap.so\n");
}

TEST(HocketRun, wdir_is_the_working_directory_of_the_ranks) {
  char name[] = "/tmp/hocket-test-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string directory = name;
  const std::string program = directory + "/program";
  std::ofstream(program) << "#!/bin/sh\npwd\n";
  ::chmod(program.c_str(), 0700);
  for (const Words& option : {Words{"--wdir", directory}, Words{"-wdir", directory},
                              Words{"--wdir=" + directory.substr(5)}}) {
    Words words = {"-n", "2"};
    words.insert(words.end(), option.begin(), option.end());
    words.push_back("./program");  // counts from there
    const Result result = run(words, {}, "cd /tmp");
    EXPECT_EQ(result.out, directory + "\n" + directory + "\n") << result.err;
  }
  const Result missing = run({"-n", "2", "--wdir", directory + "/no", "true"});
  EXPECT_EQ(missing.status, 125);
  EXPECT_NE(missing.err.find("cannot change to the working directory " + directory + "/no"),
            std::string::npos)
      << missing.err;
  ::unlink(program.c_str());
  ::rmdir(name);
}

TEST(HocketRun, signals_reach_every_rank) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    const std::string n = std::to_string(number);
    Job job(shell({"-n", "2", "--tag-output"}, "trap 'echo caught; exit 0' " + n +
                                                   "; echo ready; while :; do sleep 0.01; done"));
    ASSERT_TRUE(job.wait_for("[0] ready"));
    ASSERT_TRUE(job.wait_for("[1] ready"));
    job.signal(number);
    job.finish();
    EXPECT_EQ(sorted_lines_of(job.out),
              (Words{"[0] caught", "[0] ready", "[1] caught", "[1] ready"}))
        << number;
    EXPECT_EQ(job.status, 0) << number;
    // (The shell may say how its own child ended.)
    EXPECT_EQ(job.err.find("hocket-run:"), std::string::npos) << job.err;
  }
}

TEST(HocketRun, ranks_that_a_passed_on_signal_ends_are_no_news) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    Job job(shell({"-n", "2"}, "echo ready; exec sleep 1000"));
    ASSERT_TRUE(job.wait_for("ready\nready\n"));
    job.signal(number);
    job.finish();
    EXPECT_EQ(job.status, 128 + number);
    EXPECT_EQ(job.err.find("was killed by"), std::string::npos) << job.err;
  }
}

TEST(HocketRun, a_second_interrupt_ends_ranks_that_ignore_the_first) {
  Job job(shell({"-n", "2", "--tag-output"},
                "trap 'echo ignored' INT; trap '' TERM; echo ready; while :; do sleep 0.01; done"));
  ASSERT_TRUE(job.wait_for("[0] ready"));
  ASSERT_TRUE(job.wait_for("[1] ready"));
  job.signal(SIGINT);
  ASSERT_TRUE(job.wait_for("[0] ignored"));
  job.signal(SIGINT);
  job.finish();
  EXPECT_EQ(job.status, 128 + SIGKILL);
  EXPECT_NE(job.err.find("SIGINT again"), std::string::npos) << job.err;
  EXPECT_TRUE(job.all_gone());
}

TEST(HocketRun, stop_and_continue_stop_and_continue_the_ranks) {
  Job job({"-n", "1", "sleep", "1000"});
  pid_t rank = 0;
  ASSERT_TRUE(eventually([&] {
    for (const pid_t pid : job.processes()) {
      if (slurp("/proc/" + std::to_string(pid) + "/cmdline").starts_with("sleep")) rank = pid;
    }
    return rank != 0;
  }));
  job.signal(SIGTSTP);
  EXPECT_TRUE(eventually([&] { return state_of(rank) == 'T' && state_of(job.pid()) == 'T'; }));
  job.signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return state_of(rank) == 'S' && state_of(job.pid()) != 'T'; }));
  job.signal(SIGTERM);
  job.finish();
  EXPECT_EQ(job.status, 128 + SIGTERM);
}

TEST(HocketRun, with_end_the_death_of_a_rank_ends_the_others_and_is_told) {
  Job job(shell({"-n", "4", "--tag-output"},
                "trap 'echo told to end; exit 5' TERM; echo ready; read line && kill -9 $$; "
                "while :; do sleep 0.01; done"));
  for (const char* tag : {"[0] ready", "[1] ready", "[2] ready", "[3] ready"}) {
    ASSERT_TRUE(job.wait_for(tag));
  }
  job.write_input("now\n");
  job.finish();
  EXPECT_EQ(job.status, 137);
  EXPECT_NE(job.err.find("rank 0 on "), std::string::npos) << job.err;
  EXPECT_NE(job.err.find("was killed by signal 9"), std::string::npos) << job.err;
  EXPECT_NE(job.err.find("other failures: ranks 1-3 exited with status 5"), std::string::npos)
      << job.err;
  for (const char* tag : {"[1] told", "[2] told", "[3] told"}) {
    EXPECT_NE(job.out.find(tag), std::string::npos) << job.out;
  }
}

TEST(HocketRun, a_killed_rank_is_named_though_a_survivor_ended_first) {
  const TemporaryFile file;
  Job job(shell({"-n", "3", "--tag-output"},
                "echo $$; until [ -s $FILE ]; do sleep 0.01; done; [ $HOCKET_RANK = 1 ] || exit 1; "
                "kill -9 $$"),
          {"FILE=" + file.path()});
  std::vector<pid_t> ranks;  // a line comes whole
  for (const char* tag : {"[0] ", "[1] ", "[2] "}) {
    ASSERT_TRUE(job.wait_for(tag));
    ranks.push_back(std::atoi(job.out.c_str() + job.out.find(tag) + 4));
  }
  // The agent sees all three ends at once, and the kernel lists rank 0's first.
  const pid_t agent = children_of(children_of(job.pid()).front()).front();
  ::kill(agent, SIGSTOP);
  ASSERT_TRUE(eventually([&] { return state_of(agent) == 'T'; }));
  std::ofstream(file.path()) << "now\n";
  for (const pid_t rank : ranks) {
    ASSERT_TRUE(eventually([&] { return state_of(rank) == 'Z'; }));
  }
  ::kill(agent, SIGCONT);
  job.finish();
  EXPECT_EQ(job.status, 137) << job.err;
  EXPECT_NE(job.err.find("hocket-run: rank 1 on "), std::string::npos) << job.err;
  EXPECT_NE(job.err.find("other failures: ranks 0 and 2 exited with status 1"), std::string::npos)
      << job.err;
}

TEST(HocketRun, what_else_fails_after_an_interrupt_is_told) {
  Job job(shell({"-n", "2"},
                "[ $HOCKET_RANK = 0 ] && { echo ready; exec sleep 1000; }; "
                "trap 'exit 6' INT; echo ready; while :; do sleep 0.01; done"));
  ASSERT_TRUE(job.wait_for("ready\nready\n"));
  job.signal(SIGINT);
  job.finish();
  EXPECT_EQ(job.status, 128 + SIGINT) << job.err;
  EXPECT_NE(job.err.find("after SIGINT: rank 1 exited with status 6"), std::string::npos)
      << job.err;
}

struct RankEnd {
  const char* command;
  const char* how;
  int status;  // of the job
};
const RankEnd ends_of_a_rank[] = {{"exit 0", "exited with status 0", 13},
                                  {"exit 3", "exited with status 3", 3},
                                  {"kill -9 $$", "was killed by signal 9", 137}};

/// All ranks but one run the command `others`; that one ends. The error of each other one names it.
void expect_all_learn_of_the_end_of(int rank, const RankEnd& end, const std::string& others) {
  const std::string number = std::to_string(rank);
  const Result result =
      run(shell({"-n", "3", "--on-death=continue"},
                "if [ $HOCKET_RANK = " + number + " ]; then " + end.command + "; fi; " + others));
  EXPECT_EQ(result.status, end.status) << result.err;
  const Words lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 2u) << result.out;
  for (const std::string& line : lines) {
    EXPECT_NE(line.find("rank " + number + " (process "), std::string::npos) << line;
    EXPECT_NE(line.find(end.how), std::string::npos) << line;
    EXPECT_NE(line.find("before all ranks had joined"), std::string::npos) << line;
  }
}

TEST(HocketRun, ranks_that_wait_for_rank_0_learn_that_it_ended_without_joining) {
  for (const RankEnd& end : ends_of_a_rank) {
    if (HasFailure()) return;
    expect_all_learn_of_the_end_of(0, end, "exec " + this_program() + " --rank join");
  }
}

TEST(HocketRun, ranks_that_wait_for_another_rank_learn_that_it_ended_without_joining) {
  for (const RankEnd& end : ends_of_a_rank) {
    if (HasFailure()) return;
    expect_all_learn_of_the_end_of(2, end, "exec " + this_program() + " --rank join");
  }
}

/// The coordinator hears of the end before any rank has come, and of the last rank after rank 0 has
/// returned the error.
TEST(HocketRun, ranks_that_join_later_learn_of_the_rank_that_ended_before) {
  for (const RankEnd& end : ends_of_a_rank) {
    if (HasFailure()) return;
    expect_all_learn_of_the_end_of(2, end,
                                   "sleep 0.$HOCKET_RANK; exec " + this_program() + " --rank join");
  }
}

/// After a join, a rank may end before the others do, and these may join again.
TEST(HocketRun, the_end_of_a_rank_that_has_joined_disturbs_no_later_program_of_its_script) {
  const Result result = run(shell({"-n", "2"}, this_program() + " --rank join; " + this_program() +
                                                   " --rank join; [ $HOCKET_RANK = 1 ] || "
                                                   "sleep 0.2"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "joined\njoined\njoined\njoined\n");
}

TEST(HocketRun, a_job_that_joins_is_not_disturbed) {
  const Result result = run({"-n", "4", this_program(), "--rank", "join"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "joined\njoined\njoined\njoined\n");
}

// Rank 0 (the one with input) writes its number to a file and dies; the others wait for that.
const char* const rank_0_dies =
    "if read line; then echo $$ >$FILE; exit 4; fi; "
    "until pid=$(cat $FILE) && [ \"$pid\" ]; do sleep 0.01; done; "
    "while [ -e /proc/$pid ]; do sleep 0.01; done; ";

TEST(HocketRun, survivors_have_time_to_report_before_they_are_ended) {
  const TemporaryFile file;
  Job job(shell({"-n", "3"}, std::string(rank_0_dies) + "echo reported; exit 5"),
          {"FILE=" + file.path()});
  job.write_input("now\n");
  job.finish();
  EXPECT_EQ(job.out, "reported\nreported\n");
  EXPECT_EQ(job.status, 4);
}

TEST(HocketRun, ranks_that_ignore_the_request_to_end_are_killed) {
  Job job(shell({"-n", "3"},
                "trap '' TERM INT HUP; echo ready; read line && exit 9; "
                "while :; do sleep 0.01; done"));
  ASSERT_TRUE(job.wait_for("ready\nready\nready\n"));
  job.write_input("now\n");
  job.finish();
  EXPECT_EQ(job.status, 9);
  EXPECT_TRUE(job.all_gone());
}

TEST(HocketRun, a_stopped_rank_is_ended_too) {
  Job job(shell({"-n", "2"},
                "trap 'echo asked to end; exit' TERM; echo ready; read line && exit 9; "
                "kill -STOP $$; echo never"));
  ASSERT_TRUE(job.wait_for("ready\nready\n"));
  job.write_input("now\n");
  job.finish();
  EXPECT_EQ(job.status, 9);
  EXPECT_NE(job.out.find("asked to end"), std::string::npos) << job.out;
  EXPECT_TRUE(job.all_gone());
}

TEST(HocketRun, with_continue_the_others_run_on) {
  const TemporaryFile file;
  Job job(shell({"-n", "3", "--on-death=continue"},
                "trap 'echo done; exit 0' USR1; " + std::string(rank_0_dies) +
                    "echo survived; while :; do sleep 0.01; done"),
          {"FILE=" + file.path()});
  job.write_input("now\n");
  ASSERT_TRUE(job.wait_for("survived\nsurvived\n"));
  ::usleep(2'500'000);  // longer than the grace after which `end` would have ended them
  job.signal(SIGUSR1);
  job.finish();
  EXPECT_EQ(job.status, 4);
  EXPECT_EQ(job.out, "survived\nsurvived\ndone\ndone\n") << job.err;
}

TEST(HocketRun, what_a_rank_leaves_running_ends_with_the_job) {
  const Result result = run(shell({"-n", "3"}, "sleep 1000 & setsid sleep 1000 & exit 0"));
  EXPECT_EQ(result.status, 0) << result.err;  // run() has seen that all are gone
}

TEST(HocketRun, the_limit_of_open_files_is_the_callers) {
  const Result result = run(shell({"-n", "1"}, "ulimit -Sn"));
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(result.out, std::to_string(limit.rlim_cur) + "\n");
}

TEST(HocketRun, ranks_do_not_see_what_an_outer_launcher_says_of_their_rank) {
  const Result result = run(
      {"-n", "1", "sh", "-c", "env; exec " + this_program() + " --rank place"},
      {"TORCHELASTIC_RUN_ID=1", "RANK=1", "WORLD_SIZE=3", "MASTER_ADDR=h", "OMPI_COMM_WORLD_RANK=1",
       "OMPI_COMM_WORLD_SIZE=3", "PMI_RANK=1", "PMI_FD=9", "SLURM_PROCID=1", "SLURM_STEP_ID=0"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("rank 0 of 1 listener 1"), std::string::npos) << result.out;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "PMI_", "SLURM_PROCID"}) {
    EXPECT_EQ(result.out.find(name), std::string::npos) << name;
  }
}

TEST(HocketRun, ranks_of_a_launcher_inside_it_belong_to_that_launcher) {
  const Result result = run({"-n", "1", "env", "TORCHELASTIC_RUN_ID=1", "RANK=1", "WORLD_SIZE=3",
                             "MASTER_ADDR=h", this_program(), "--rank", "place"});
  EXPECT_NE(result.out.find("rank 1 of 3 listener 0"), std::string::npos) << result.out;
  // RANK may be a variable of the program.
  const Result plain = run({"-n", "1", "env", "RANK=1", "WORLD_SIZE=3", "MASTER_ADDR=h",
                            this_program(), "--rank", "place"});
  EXPECT_NE(plain.out.find("rank 0 of 1 listener 1"), std::string::npos) << plain.out;
}

}  // namespace
}  // namespace hocket::internal::launch_test
