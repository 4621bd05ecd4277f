// A rank under a launcher: `launched_rank WHAT [MPI]`. Prints one line, and exits with 0 if what it
// saw is what it expects, else with 3.
//
//   sum          joins, sums the ranks in two sessions one after another, leaves
//   die R FILE N joins; rank R kills itself; the N others print the culprit. Each rank is the child
//                of the process that the launcher has started, so that the launcher learns of no
//                end before all have printed. The process above rank R prints last, if all others
//                named rank R: so this line shows that no other rank was ended before it named R
//   kill R       joins; rank R kills itself, and the launcher sees it; the others print the culprit
//                and exit with 0
//   exit R       as sum; then rank R exits with 5
//   miss R FILE  rank R does not join; the others print the error of their join. Rank R exits when
//                one of them has printed
//   join         joins and prints the error, if there is one
//
// Ranks add a byte to FILE when they have printed. Launchers end the other ranks some time after
// the first: a test that relied on that time would fail on a loaded machine.
//
// MPI is `LIBRARY,before`, `LIBRARY,after` or `LIBRARY,never`: loads an MPI library by dlopen, and
// calls MPI_Init before or after the first call of hocketCommInitFromEnv, or never.
#include <dlfcn.h>
#include <fcntl.h>
#include <hocket/hocket.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr int wrong = 3;

void say(const std::string& text) {
  const std::string line = text + "\n";  // one write, so that lines of ranks do not mix
  static_cast<void>(!::write(STDOUT_FILENO, line.data(), line.size()));
}

/// The MPI library of a program that uses MPI too.
class Mpi {
 public:
  explicit Mpi(const std::string& text) {
    const std::size_t comma = text.find(',');
    if (comma == std::string::npos) return;
    library_ = ::dlopen(text.substr(0, comma).c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library_ == nullptr) say(std::string("no MPI: ") + ::dlerror());
    when_ = text.substr(comma + 1);
  }
  bool first() const { return library_ != nullptr && when_ == "before"; }
  bool second() const { return library_ != nullptr && when_ == "after"; }
  bool init() {
    using Init = int (*)(int*, char***);
    return reinterpret_cast<Init>(::dlsym(library_, "MPI_Init"))(nullptr, nullptr) == 0;
  }
  void finalize() {
    if (!first() && !second()) return;
    using Finalize = int (*)();
    reinterpret_cast<Finalize>(::dlsym(library_, "MPI_Finalize"))();
  }

 private:
  void* library_ = nullptr;
  std::string when_;
};

/// The file to which ranks add a byte when they have printed.
class Told {
 public:
  explicit Told(const char* path = "") : path_(path) {}
  void add() const {
    const int fd = ::open(path_, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    static_cast<void>(!::write(fd, "1", 1));
    ::close(fd);
  }
  /// False: it gave up after a minute. Then launcher and test go on, and the test fails.
  bool wait_for(long count) const {
    struct stat file {};
    for (int tries = 0; tries < 6000; ++tries) {
      if (::stat(path_, &file) == 0 && file.st_size >= count) return true;
      ::usleep(10'000);
    }
    return false;
  }

 private:
  const char* path_;
};

struct Case {
  std::string what;
  int rank = -1;   // R
  Told told;       // FILE
  int others = 0;  // N
};

int report(const char* what) {
  say(std::string(what) + ": " + hocketGetLastError(nullptr));
  return wrong;
}

int sum_ranks(hocketComm_t comm) {
  int rank = -1;
  int ranks = 0;
  int nodes = 0;
  hocketCommUserRank(comm, &rank);
  hocketCommCount(comm, &ranks);
  hocketCommNodeCount(comm, &nodes);
  int sum = rank + 1;
  if (hocketAllReduce(&sum, &sum, 1, hocketInt32, hocketSum, comm, nullptr) != hocketSuccess) {
    return report("all-reduce");
  }
  say("rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " on " +
      std::to_string(nodes) + " nodes: sum " + std::to_string(sum));
  return sum == ranks * (ranks + 1) / 2 ? 0 : wrong;
}

/// Rank R kills itself when all have joined. Returns whether the others see an error: in the second
/// barrier, or in the first, which R may leave and die before another rank leaves it.
bool lose_rank(hocketComm_t comm, const Case& run) {
  int rank = -1;
  hocketCommUserRank(comm, &rank);
  if (hocketBarrier(comm, nullptr) != hocketSuccess) return true;
  if (rank == run.rank) ::raise(SIGKILL);
  return hocketBarrier(comm, nullptr) != hocketSuccess;
}

/// Prints the culprit that the communicator names, and returns whether that rank was killed.
bool name_culprit(hocketComm_t comm, const Case& run) {
  int rank = -1;
  int culprit = -1;
  hocketCommUserRank(comm, &rank);
  hocketCommGetCulprit(comm, &culprit);
  say("rank " + std::to_string(rank) + ": culprit " + std::to_string(culprit));
  return culprit == run.rank;
}

int die(hocketComm_t comm, const Case& run) {
  if (!lose_rank(comm, run) || !name_culprit(comm, run)) return wrong;
  run.told.add();
  run.told.wait_for(run.others + 1);  // the others, and the process above rank R
  return wrong;
}

/// For `miss`: the rank, before it has joined.
int rank_by_variables() {
  for (const char* name : {"HOCKET_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_ID",
                           "PMIX_RANK", "SLURM_PROCID"}) {
    if (std::getenv(name) != nullptr) return std::atoi(std::getenv(name));
  }
  return -1;
}

int run_joined(hocketComm_t comm, const Case& run) {
  if (run.what == "die") return die(comm, run);
  if (run.what == "kill") return lose_rank(comm, run) && name_culprit(comm, run) ? 0 : wrong;
  return sum_ranks(comm);
}

int run_case(const Case& run, Mpi& mpi) {
  if (run.what == "miss" && rank_by_variables() == run.rank) {
    run.told.wait_for(1);
    return 0;
  }
  if (mpi.first() && !mpi.init()) return wrong;
  hocketComm_t comm = nullptr;
  if (hocketCommInitFromEnv(&comm, nullptr) != hocketSuccess) {
    const int status = report("join");
    if (run.what == "miss") run.told.add();
    return status;
  }
  int status = run_joined(comm, run);
  int rank = -1;
  hocketCommUserRank(comm, &rank);
  hocketCommDestroy(comm);
  if (mpi.second() && !mpi.init()) status = wrong;
  if (status == 0 && run.what == "sum") {
    if (hocketCommInitFromEnv(&comm, nullptr) != hocketSuccess) return report("second join");
    if (hocketBarrier(comm, nullptr) != hocketSuccess) status = report("barrier");
    hocketCommDestroy(comm);
  }
  mpi.finalize();
  return status == 0 && run.what == "exit" && rank == run.rank ? 5 : status;
}

/// Runs the case in a child, whose death the launcher does not see.
int run_in_child(const Case& run, Mpi& mpi) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::_Exit(run_case(run, mpi));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  if (run.told.wait_for(run.others)) {
    say("rank " + std::to_string(run.rank) + ": named by all others before the launcher knew");
    run.told.add();
  }
  return 128 + WTERMSIG(status);
}

}  // namespace

int main(int argc, char** argv) {
  Case run;
  int next = 1;
  const auto argument = [&] { return next < argc ? argv[next++] : ""; };
  run.what = argument();
  const bool tells = run.what == "die" || run.what == "miss";
  if (tells || run.what == "exit" || run.what == "kill") run.rank = std::atoi(argument());
  if (tells) run.told = Told(argument());
  if (run.what == "die") run.others = std::atoi(argument());
  Mpi mpi(argument());
  return run.what == "die" ? run_in_child(run, mpi) : run_case(run, mpi);
}
