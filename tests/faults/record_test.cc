// The record of operations of processes: who waits for whom, told by a call from another thread,
// at a signal and at an error.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "faults/processes.h"

namespace faults {
namespace {

constexpr int ranks = 4;
constexpr int late_rank = 3;

/// A folder for as long as it lives.
struct Folder {
  Folder() {
    char name[] = "/tmp/hocket-record-XXXXXX";
    EXPECT_NE(::mkdtemp(name), nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  std::string path;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The texts of the files in the folder whose names have that in them.
std::string texts_in(const std::string& folder, const std::string& part) {
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().find(part) != std::string::npos) {
      text += text_of(entry.path());
    }
  }
  return text;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

/// In the latest of the dumps.
bool names_the_late_rank(const std::string& text) {
  const std::size_t call = text.rfind("under way: all-reduce of 7 float32, sum (operation 2)");
  if (call == std::string::npos) return false;
  const std::string line = text.substr(call, text.find('\n', call) - call);
  return line.find("began ") != std::string::npos &&
         line.find("; waits for rank 3 (host ") != std::string::npos &&
         line.find("rank 1 (host") == std::string::npos;
}

/// The late rank joins in when the job's phase is 1.
void all_reduce_with_a_late_rank(Process& self) {
  float x[7] = {};
  EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
  self.report().phase = 1;
  if (self.rank == late_rank) self.await_phase(1);
  EXPECT_HOCKET(hocketAllReduce(x, x, 7, hocketFloat32, hocketSum, self.comm, nullptr));
}

TEST(Record, dumped_by_a_call_beside_a_call_that_waits_names_the_late_rank) {
  const Folder folder;
  Job job(ranks);
  job.start(ranks::patient_config(), [&](Process& self) {
    std::thread watcher([&self, &folder] {
      while (self.rank != late_rank) {
        const std::string path = folder.path + "/" + std::to_string(self.rank);
        EXPECT_HOCKET(hocketCommDumpRecord(self.comm, path.c_str()));
        if (names_the_late_rank(text_of(path))) break;
        ::usleep(10'000);
      }
      self.report().phase = 2;
    });
    all_reduce_with_a_late_rank(self);
    watcher.join();
  });
  for (int rank = 0; rank < ranks; ++rank) {
    job.await([&] { return job.report(rank).phase.load() == 2 || rank == late_rank; });
  }
  job.shared().phase = 1;
  job.finish();
}

std::atomic<int>* signals_seen = nullptr;  // in memory of all processes

TEST(Record, dumped_at_a_signal_names_the_late_rank_and_an_earlier_handler_still_runs) {
  const Folder folder;
  const ranks::Env env({{"HOCKET_DUMP_SIGNAL", "USR1"}, {"HOCKET_DUMP_FOLDER", folder.path}});
  signals_seen = new (::mmap(nullptr, sizeof *signals_seen, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0);
  const auto before = ::signal(SIGUSR1, [](int) { ++*signals_seen; });
  Job job(ranks);
  job.start(ranks::patient_config(), all_reduce_with_a_late_rank);
  ::signal(SIGUSR1, before);
  for (int rank = 0; rank < ranks; ++rank) {
    job.await([&] { return job.report(rank).phase.load() == 1; });
  }
  int sent = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    job.await([&] {
      const std::string dumps = texts_in(folder.path, "rank" + std::to_string(rank) + "-");
      if (rank == late_rank ? count_of(dumps, ": 0 under way") > 0 : names_the_late_rank(dumps))
        return true;
      // The next signal only when this one is handled: signals of one kind do not queue up.
      if (signals_seen->load() == sent) {
        job.kill(rank, SIGUSR1);
        ++sent;
      }
      return false;
    });
  }
  EXPECT_GE(signals_seen->load(), ranks - 1);
  job.shared().phase = 1;
  job.finish();
}

TEST(Record, is_logged_once_at_an_error_with_the_latest_operations_and_written_to_the_folder) {
  const Folder folder;
  const ranks::Env env({{"HOCKET_DUMP_FOLDER", folder.path}});
  hocketConfig_t config = ranks::patient_config();
  config.deadline_ms = 1000;
  Job job(ranks);
  job.start(config, [](Process& self) {
    static std::string log;
    static std::mutex mutex;
    hocketSetLogCallback(
        [](int, const char* line, void*) {
          const std::lock_guard lock(mutex);
          log += std::string(line) + "\n";
        },
        nullptr);
    float x[7] = {};
    for (int i = 0; i < 20; ++i) EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
    self.report().phase = 1;
    if (self.rank == late_rank) return self.await_phase(1);
    for (int i = 0; i < 2; ++i) {
      EXPECT_NE(hocketSuccess,
                hocketAllReduce(x, x, 7, hocketFloat32, hocketSum, self.comm, nullptr));
    }
    const std::lock_guard lock(mutex);
    EXPECT_EQ(count_of(log, "record of 'world'"), 1U) << log;
    EXPECT_EQ(count_of(log, "  failed ("), 1U) << log;
    EXPECT_EQ(count_of(log, "ms: all-reduce of 7 float32, sum (operation 21)") +
                  count_of(log, "): all-reduce of 7 float32, sum (operation 21)"),
              1U)
        << log;
    EXPECT_NE(log.find("; waited for rank 3 (host "), std::string::npos) << log;
    EXPECT_EQ(count_of(log, "  ended: barrier (operation "), 7U) << log;
    self.report().phase = 2;
    self.await_phase(1);
  });
  for (int rank = 0; rank < late_rank; ++rank) {
    job.await([&] { return job.report(rank).phase.load() == 2; });
  }
  job.shared().phase = 1;
  job.finish();
  for (int rank = 0; rank < late_rank; ++rank) {
    const std::string dump = texts_in(folder.path, "rank" + std::to_string(rank) + "-");
    EXPECT_EQ(count_of(dump, "  failed ("), 1U) << dump;
    EXPECT_EQ(count_of(dump, "  ended: barrier (operation "), 20U) << dump;
  }
}

TEST(Record, of_no_operations_is_a_line_and_a_file_that_cannot_be_written_is_named) {
  const ranks::Env env(ranks::Env::List{{"HOCKET_RECORD_OPERATIONS", "0"}});
  const Folder folder;
  in_a_child([&] {
    ranks::run_ranks(2, [&](ranks::Rank& self) {
      EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
      const std::string path = folder.path + "/" + std::to_string(self.rank);
      EXPECT_HOCKET(hocketCommDumpRecord(self.comm, path.c_str()));
      EXPECT_EQ(count_of(text_of(path), "\n"), 1U) << text_of(path);
      EXPECT_EQ(hocketSystemError, hocketCommDumpRecord(self.comm, "/nowhere/at/all"));
      EXPECT_NE(std::string(hocketGetLastError(nullptr)).find("nowhere/at/all"), std::string::npos);
      EXPECT_EQ(hocketInvalidArgument, hocketCommDumpRecord(self.comm, ""));
      EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
    });
    EXPECT_EQ(hocketInvalidArgument, hocketCommDumpRecord(nullptr, nullptr));
  });
}

}  // namespace
}  // namespace faults
