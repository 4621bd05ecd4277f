// The record of operations of processes: who waits for whom, told by a call from another thread,
// at a signal and at an error.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
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

/// Each rank waits for each other one, the late rank too. In a ring or a tree, which the selector
/// may find cheaper, a rank waits for its neighbours.
const ranks::Env::List all_wait_for_all{{"HOCKET_TRANSPORT", "shm"},
                                        {"HOCKET_ALGORITHM", "direct"}};

ranks::Env::List with(ranks::Env::List variables) {
  variables.insert(variables.end(), all_wait_for_all.begin(), all_wait_for_all.end());
  return variables;
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
  const ranks::Env env(all_wait_for_all);
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
  const ranks::Env env(with({{"HOCKET_DUMP_SIGNAL", "USR1"}, {"HOCKET_DUMP_FOLDER", folder.path}}));
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

/// Whether the process sleeps in the kernel, as /proc/PID/stat says.
bool sleeps(pid_t pid) {
  const std::string stat = text_of("/proc/" + std::to_string(pid) + "/stat");
  return stat.find(") S ") != std::string::npos;
}

enum class Leave { destroy, finalize, exit };

[[noreturn]] void end_a_rank(Process& self, Leave end) {
  if (end != Leave::exit) {
    EXPECT_HOCKET(end == Leave::destroy ? hocketCommDestroy(self.comm)
                                        : hocketCommFinalize(self.comm));
  }
  std::fflush(nullptr);
  const int status = testing::Test::HasFailure() ? 1 : 0;
  if (end == Leave::exit) std::exit(status);
  ::_exit(status);
}

/// As a user does it: the late rank is in sleep(), all ranks get the signal, and the job ends at
/// once, because the signal has woken the late rank.
void expect_a_dump_of_each_rank_that_ends_by(Leave end) {
  const Folder folder;
  const ranks::Env env(with({{"HOCKET_DUMP_SIGNAL", "USR1"}, {"HOCKET_DUMP_FOLDER", folder.path}}));
  Job job(ranks);
  job.start(ranks::patient_config(), [end](Process& self) {
    float x[7] = {};
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
    self.report().phase = 1;
    if (self.rank == late_rank) ::sleep(20);
    EXPECT_HOCKET(hocketAllReduce(x, x, 7, hocketFloat32, hocketSum, self.comm, nullptr));
    end_a_rank(self, end);
  });
  for (int rank = 0; rank < ranks; ++rank) {
    job.await([&] { return job.report(rank).phase.load() == 1; });
  }
  job.await([&] { return sleeps(job.pid(late_rank)); });
  for (int rank = 0; rank < ranks; ++rank) job.kill(rank, SIGUSR1);  // the late rank's is the last
  job.finish();
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string dump = texts_in(folder.path, "rank" + std::to_string(rank) + "-");
    EXPECT_EQ(count_of(dump, "record of 'world'"), 1U) << "rank " << rank << ": " << dump;
  }
}

TEST(Record, that_a_signal_asks_for_is_dumped_before_a_rank_that_it_woke_from_sleep_has_ended) {
  for (int i = 0; i < ranks::repetitions(20, 5) && !HasFailure(); ++i) {
    for (const Leave end : {Leave::destroy, Leave::finalize, Leave::exit}) {
      SCOPED_TRACE(static_cast<int>(end));
      ASSERT_NO_FATAL_FAILURE(expect_a_dump_of_each_rank_that_ends_by(end));
    }
  }
}

/// Each way to end waits for a dump that takes longer than the way itself.
TEST(Record, that_a_signal_asks_for_is_dumped_before_destroy_finalize_and_exit_end) {
  static Report* report = nullptr;
  static std::atomic<bool> ends{false};
  const ranks::Env env(ranks::Env::List{{"HOCKET_DUMP_SIGNAL", "USR1"}});
  for (const Leave end : {Leave::destroy, Leave::finalize, Leave::exit}) {
    Job job(1);
    job.start(ranks::patient_config(), [end](Process& self) {
      report = &self.report();
      hocketSetLogCallback(
          [](int, const char* line, void*) {
            if (std::string(line).find("record of 'world'") == std::string::npos) return;
            while (!ends) ::usleep(1000);
            ::usleep(20'000);
            report->phase = 1;
          },
          nullptr);
      ::raise(SIGUSR1);
      ends = true;
      end_a_rank(self, end);
    });
    job.finish();
    EXPECT_EQ(job.report(0).phase, 1) << static_cast<int>(end);
  }
}

/// The log of a rank of one that asks for a dump by a signal and destroys its communicator, where
/// the file of the dump is what `make` makes at that path.
std::string log_of_a_dump_to(int (*make)(const char* path)) {
  static std::string log;
  static std::mutex mutex;
  const Folder folder;
  const ranks::Env env({{"HOCKET_DUMP_SIGNAL", "USR1"}, {"HOCKET_DUMP_FOLDER", folder.path}});
  const std::string told = folder.path + "/log";
  Job job(1);
  job.start(ranks::patient_config(), [&](Process& self) {
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    const std::string path =
        folder.path + "/hocket-rank0-" + host + "-pid" + std::to_string(::getpid()) + ".txt";
    EXPECT_EQ(make(path.c_str()), 0);
    hocketSetLogCallback(
        [](int, const char* line, void*) {
          const std::lock_guard lock(mutex);
          log += std::string(line) + "\n";
        },
        nullptr);
    for (int i = 0; i < 2; ++i) {
      hocketComm_t other = nullptr;
      EXPECT_HOCKET(hocketCommSplit(self.comm, 0, 0, &other, nullptr));
      ::raise(SIGUSR1);
      EXPECT_HOCKET(hocketCommDestroy(other));
    }
    const std::lock_guard lock(mutex);
    std::ofstream(told) << log;
  });
  job.finish();
  return text_of(told);
}

TEST(Record, that_cannot_be_dumped_at_a_signal_is_an_error_in_the_log_and_no_call_hangs) {
  const std::string full =
      log_of_a_dump_to([](const char* path) { return ::symlink("/dev/full", path); });
  EXPECT_NE(full.find("cannot write the file '"), std::string::npos) << full;
  EXPECT_NE(full.find("hocket-rank0-"), std::string::npos) << full;
  // A pipe without a reader: an open() of it waits.
  const std::string blocked =
      log_of_a_dump_to([](const char* path) { return ::mkfifo(path, 0600); });
  EXPECT_EQ(count_of(blocked, "is not written after 5 s"), 1U) << blocked;
  EXPECT_NE(blocked.find("hocket-rank0-"), std::string::npos) << blocked;
}

TEST(Record, is_logged_once_at_an_error_with_the_latest_operations_and_written_to_the_folder) {
  const Folder folder;
  const ranks::Env env(with({{"HOCKET_DUMP_FOLDER", folder.path}}));
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

/// An operation in a trace.
struct Span {
  std::string what;  // call and count
  double begin_us = 0, end_us = 0;
};
using Spans = std::map<std::uint64_t, Span>;  // by sequence number

std::string field(const std::string& line, const std::string& name) {
  const std::string label = "\"" + name + "\":";
  const std::size_t at = line.find(label);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + label.size();
  return line.substr(begin, line.find_first_of(",}", begin) - begin);
}

/// The collectives of a rank, which are no overlapping spans.
Spans collectives_in(const std::string& trace) {
  Spans spans;
  std::istringstream lines(trace);
  std::string line;
  while (std::getline(lines, line)) {
    if (field(line, "cat") != "\"collective\"") continue;
    const double begin_us = std::stod(field(line, "ts"));
    spans[std::stoull(field(line, "sequence"))] = {field(line, "name") + " " + field(line, "count"),
                                                   begin_us,
                                                   begin_us + std::stod(field(line, "dur"))};
  }
  return spans;
}

void trace_of_four_processes(const Folder& folder) {
  const ranks::Env env({{"HOCKET_TRACE", folder.path}, {"HOCKET_RECORD_OPERATIONS", "1"}});
  Job job(ranks);
  job.start(ranks::patient_config(), [](Process& self) {
    std::vector<float> x(300), y(300);
    for (std::size_t i = 1; i < x.size(); ++i) {
      EXPECT_HOCKET(
          hocketAllReduce(x.data(), x.data(), i, hocketFloat32, hocketSum, self.comm, nullptr));
    }
    const int right = (self.rank + 1) % ranks, left = (self.rank + ranks - 1) % ranks;
    EXPECT_HOCKET(hocketGroupStart());
    EXPECT_HOCKET(hocketSend(x.data(), 9, hocketFloat32, right, self.comm, nullptr));
    EXPECT_HOCKET(hocketRecv(y.data(), 9, hocketFloat32, left, self.comm, nullptr));
    EXPECT_HOCKET(hocketGroupEnd());
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
  });
  job.finish();
}

TEST(Trace, of_processes_has_every_operation_and_collectives_overlap_on_all_ranks) {
  const Folder folder;
  trace_of_four_processes(folder);
  std::vector<Spans> of_rank;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string trace = texts_in(folder.path, "rank" + std::to_string(rank) + ".json");
    of_rank.push_back(collectives_in(trace));
    EXPECT_EQ(count_of(trace, "\"name\":\"all-reduce\""), 299U);
    for (const char* name : {"send", "recv"}) {
      const std::string begins = "\"name\":\"" + std::string(name) + "\",\"cat\":\"message\"";
      EXPECT_EQ(count_of(trace, begins + ",\"ph\":\"b\""), 1U);
      EXPECT_EQ(count_of(trace, begins + ",\"ph\":\"e\""), 1U);
    }
  }
  for (const auto& [sequence, span] : of_rank[0]) {
    double last_begin_us = span.begin_us, first_end_us = span.end_us;
    for (const Spans& spans : of_rank) {
      ASSERT_TRUE(spans.contains(sequence)) << sequence;
      const Span& other = spans.at(sequence);
      EXPECT_EQ(other.what, span.what) << sequence;
      last_begin_us = std::max(last_begin_us, other.begin_us);
      first_end_us = std::min(first_end_us, other.end_us);
    }
    if (span.what.starts_with("\"all-reduce") || span.what.starts_with("\"barrier")) {
      EXPECT_LE(last_begin_us, first_end_us) << sequence;
    }
  }
  for (const Spans& spans : of_rank) {
    EXPECT_EQ(spans.size(), of_rank[0].size());
    double end_us = 0;
    for (const auto& [sequence, span] : spans) {
      EXPECT_LE(end_us, span.begin_us) << sequence;
      end_us = span.end_us;
    }
  }
}

TEST(Trace, of_all_ranks_is_joined_to_one_file_also_where_a_file_is_cut_off) {
  const Folder folder;
  trace_of_four_processes(folder);
  std::size_t events = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path)) {
    events += count_of(text_of(entry.path()), "},\n");
    std::ofstream(entry.path(), std::ios::app) << "{\"name\":\"cut o";
  }
  const auto program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "hocket-trace";
  const std::string joined = folder.path + "/joined", told = folder.path + "/told";
  const std::string command = program.string() + " " + folder.path + " -o " + joined + " 2>" + told;
  ASSERT_EQ(0, std::system(command.c_str())) << text_of(told);
  const std::string text = text_of(joined);
  EXPECT_TRUE(text.starts_with("[\n{"));
  EXPECT_TRUE(text.ends_with("}\n]\n"));
  EXPECT_EQ(count_of(text, "},\n") + 1, events);
  EXPECT_NE(text_of(told).find("'world'"), std::string::npos) << text_of(told);
  EXPECT_NE(text_of(told).find(": 4 ranks, "), std::string::npos) << text_of(told);
  EXPECT_NE(text_of(told).find(" came last "), std::string::npos) << text_of(told);
}

TEST(Trace, into_a_folder_that_does_not_exist_is_an_error_of_the_init_on_every_rank) {
  const ranks::Env env({{"HOCKET_TRACE", "/nowhere/at/all"}, {"HOCKET_RECORD_OPERATIONS", "1"}});
  in_a_child([] {
    hocketUniqueId id;
    ASSERT_HOCKET(hocketGetUniqueId(&id));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&id, rank] {
        hocketComm_t comm = nullptr;
        EXPECT_NE(hocketSuccess, hocketCommInitRank(&comm, 2, id, rank));
        EXPECT_NE(std::string(hocketGetLastError(nullptr)).find("/nowhere/at/all"),
                  std::string::npos)
            << hocketGetLastError(nullptr);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

}  // namespace
}  // namespace faults
