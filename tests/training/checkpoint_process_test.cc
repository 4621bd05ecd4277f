// Saves that end in the middle: the disk is full, or a rank dies. The earlier checkpoint stays.
// The tests start this program again, as a process of its own or as ranks of hocket-run.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <hocket/training/checkpoint.hpp>
#include <string>
#include <thread>

#include "seed.h"
#include "training/checkpoint_model.h"
#include "training/child.h"
#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::command_of;
using tests::Cut;
using tests::Folder;
using tests::hold;
using tests::Holding;
using tests::names_in;
using tests::quoted;
using tests::run_ranks;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void save_step(Communicator& comm, const std::string& directory, Holding& own, int step) {
  own.fill(step);
  save_checkpoint(comm, directory, own.ranges(), {{"step", std::to_string(step)}},
                  {.label = "s", .keep = 2});
}

/// Loads with two ranks, and returns the step, whose values all elements have.
int loaded_step(const std::string& directory) {
  int step = 0;
  std::vector<Holding> held = hold(tests::mixed_model(), 2, Cut::equal, 1);
  run_ranks(2, [&](Communicator& comm) {
    Holding& own = held[static_cast<std::size_t>(comm.rank())];
    const LoadedCheckpoint loaded = load_checkpoint(comm, directory, own.ranges());
    const int its = std::stoi(loaded.metadata[0].at("step"));
    EXPECT_EQ(own.wrong(its), 0u);
    if (comm.rank() == 0) step = its;
  });
  return step;
}

void limit_files_to(rlim_t bytes) {
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/// A process whose disk, or whose limit of the length of a file, is 2 MB.
TEST(CheckpointChild, DISABLED_fails_to_write_a_large_checkpoint) {
  const std::string directory = environment("CHECKPOINT_DIRECTORY");
  const std::string reason = environment("CHECKPOINT_REASON");
  ASSERT_FALSE(reason.empty()) << "only CheckpointsOfProcesses starts this";
  const Parameter large{"parameter/large", hocketFloat32, {1000, 1000}, {}};
  run_ranks(3, [&](Communicator& comm) {
    Holding small = std::move(
        hold(tests::mixed_model(), 3, Cut::equal, 1)[static_cast<std::size_t>(comm.rank())]);
    save_step(comm, directory, small, 1);
    const std::vector<std::string> before = names_in(directory);
    if (reason == "File too large" && comm.rank() == 0) {
      std::signal(SIGXFSZ, SIG_IGN);
      limit_files_to(2'000'000);
    }
    comm.barrier();
    Holding most;  // rank 1 has nearly everything
    if (comm.rank() == 1) most.add(large, 0, 990'000);
    if (comm.rank() == 2) most.add(large, 990'000, 10'000);
    for (int i = 0; i < 2; ++i) {
      try {
        save_step(comm, directory, most, 2);
        ADD_FAILURE() << "rank " << comm.rank() << ": the large checkpoint was saved";
      } catch (const SystemError& error) {
        EXPECT_EQ(error.culprit(), 1);
        const std::string message = error.what();
        EXPECT_NE(message.find("rank 1: cannot write '" + directory), message.npos) << message;
        EXPECT_NE(message.find("rank-00001': " + reason), message.npos) << message;
      }
      comm.barrier();  // rank 0 has removed the files
      EXPECT_EQ(names_in(directory), before);
    }
    small.clear();
    load_checkpoint(comm, directory, small.ranges());
    EXPECT_EQ(small.wrong(1), 0u);
    comm.barrier();
    save_step(comm, directory, small, 3);
  });
}

TEST(CheckpointsOfProcesses, on_a_full_disk_fail_on_all_ranks_and_the_earlier_stays) {
  const Folder folder;
  const std::string child = "CHECKPOINT_DIRECTORY=" + quoted(folder.path()) +
                            " CHECKPOINT_REASON='No space left on device' " +
                            command_of("CheckpointChild.*");
  const std::string mount = "mount -t tmpfs -o size=3m none " + folder.path();
  const std::string in_namespace = "unshare --user --map-root-user --mount sh -c ";
  if (std::system((in_namespace + "\"" + mount + "\" 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "this user may not mount";
  }
  EXPECT_EQ(0, std::system((in_namespace + "\"" + mount + " && " + child + "\"").c_str()));
}

TEST(CheckpointsOfProcesses, beyond_the_limit_of_a_file_fail_on_all_ranks_and_the_earlier_stays) {
  const Folder folder;
  EXPECT_EQ(0,
            std::system(("CHECKPOINT_DIRECTORY=" + quoted(folder.path()) +
                         " CHECKPOINT_REASON='File too large' " + command_of("CheckpointChild.*"))
                            .c_str()));
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"000001-s", "000002-s", "latest"}));
  EXPECT_EQ(loaded_step(folder.path()), 3);
}

void kill_this_process(int) { ::kill(::getpid(), SIGKILL); }

/// A rank of hocket-run. The victim dies while it writes its file of the second checkpoint, or
/// after some time.
TEST(CheckpointRank, DISABLED_saves_until_the_victim_is_dead) {
  const std::string directory = environment("CHECKPOINT_DIRECTORY");
  ASSERT_FALSE(environment("CHECKPOINT_VICTIM").empty())
      << "only CheckpointsOfProcesses starts this";
  const int victim = std::stoi(environment("CHECKPOINT_VICTIM"));
  const int microseconds = std::stoi(environment("CHECKPOINT_MICROSECONDS"));
  Communicator comm = Communicator::from_environment();
  Holding own = std::move(
      hold(tests::mixed_model(), 3, Cut::equal, 1)[static_cast<std::size_t>(comm.rank())]);
  save_step(comm, directory, own, 1);
  std::thread killer;
  if (comm.rank() == victim && microseconds == 0) {
    std::signal(SIGXFSZ, kill_this_process);
    limit_files_to(100'000);  // the rank writes 400,000 bytes
  } else if (comm.rank() == victim) {
    killer = std::thread([microseconds] {
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      kill_this_process(0);
    });
  }
  try {
    for (int step = 2; step < 100'000; ++step) save_step(comm, directory, own, step);
    ADD_FAILURE() << "no rank died";
  } catch (const Error& error) {
    EXPECT_EQ(error.culprit(), victim) << error.what();
  }
  if (killer.joinable()) killer.join();
}

/// Runs three ranks until the victim has died; the others end without a failure.
void run_until_death(const std::string& directory, int victim, int microseconds) {
  const std::string command =
      "CHECKPOINT_DIRECTORY=" + quoted(directory) + " CHECKPOINT_VICTIM=" + std::to_string(victim) +
      " CHECKPOINT_MICROSECONDS=" + std::to_string(microseconds) + " " + tests::hocket_run(3) +
      "--on-death=continue " + command_of("CheckpointRank.*") + " 2>&1";
  FILE* const job = ::popen(command.c_str(), "r");
  ASSERT_NE(job, nullptr);
  std::string output;
  char part[4096];
  while (const std::size_t bytes = std::fread(part, 1, sizeof part, job))
    output.append(part, bytes);
  ::pclose(job);
  EXPECT_EQ(output.find("FAILED"), output.npos) << output;
  std::size_t passed = 0;
  for (std::size_t at = 0; (at = output.find("PASSED  ] 1 test", at)) != output.npos; ++at)
    ++passed;
  EXPECT_EQ(passed, 2u) << output;
}

TEST(CheckpointsOfProcesses, of_a_rank_that_is_killed_while_it_writes_leave_the_earlier) {
  for (const int victim : {0, 1, 2}) {
    const Folder folder;
    run_until_death(folder.path(), victim, 0);
    const std::vector<std::string> names = names_in(folder.path());
    EXPECT_TRUE(victim == 0 || names == std::vector<std::string>({"000001-s", "latest"}));
    EXPECT_EQ(loaded_step(folder.path()), 1);
    Holding own = std::move(hold(tests::mixed_model(), 1, Cut::whole, 1)[0]);
    run_ranks(1, [&](Communicator& comm) { save_step(comm, folder.path(), own, 5); });
    EXPECT_EQ(names_in(folder.path()),
              (std::vector<std::string>{"000001-s", "000002-s", "latest"}));
    EXPECT_EQ(loaded_step(folder.path()), 5);
  }
}

TEST(CheckpointsOfProcesses, of_a_rank_that_is_killed_at_any_moment_leave_a_whole_one) {
  std::mt19937_64 random(tests::seed());
  for (int i = 0; i < 8; ++i) {
    const Folder folder;
    run_until_death(folder.path(), i % 2 == 0 ? 0 : static_cast<int>(random() % 3),
                    1 + static_cast<int>(random() % 200'000));
    EXPECT_GE(loaded_step(folder.path()), 1);
  }
}

}  // namespace
}  // namespace hocket::training
