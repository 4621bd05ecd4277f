// A rank under a launcher: `launched_rank WHAT [MPI]`. Prints one line, and exits with 0 if what it
// saw is what it expects, else with 3.
//
//   sum       joins, sums the ranks in two sessions one after another, leaves
//   die R     joins; rank R kills itself; the others call an all-reduce, and print the culprit
//   exit R    as sum; then rank R exits with 5
//   miss R    rank R does not join, and exits after 2 s; the others print the error of their join
//   join      joins and prints the error, if there is one
//
// MPI is `LIBRARY,before`, `LIBRARY,after` or `LIBRARY,never`: loads an MPI library by dlopen, and
// calls MPI_Init before or after the first call of hocketCommInitFromEnv, or never.
#include <dlfcn.h>
#include <hocket/hocket.h>
#include <signal.h>
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

int die(hocketComm_t comm, int victim) {
  int rank = -1;
  int sum = 1;
  hocketCommUserRank(comm, &rank);
  if (hocketBarrier(comm, nullptr) != hocketSuccess) return report("barrier");
  ::signal(SIGTERM, SIG_IGN);  // a launcher that ends the job gives a rank time to report
  if (rank == victim) ::raise(SIGKILL);
  if (hocketAllReduce(&sum, &sum, 1, hocketInt32, hocketSum, comm, nullptr) == hocketSuccess) {
    return wrong;
  }
  int culprit = -1;
  hocketCommGetCulprit(comm, &culprit);
  say("rank " + std::to_string(rank) + ": culprit " + std::to_string(culprit));
  return wrong;
}

int number(const char* text) { return text != nullptr ? std::atoi(text) : -1; }

/// For `miss`: the rank, before it has joined.
int rank_by_variables() {
  for (const char* name :
       {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (std::getenv(name) != nullptr) return number(std::getenv(name));
  }
  return -1;
}

int run(const std::string& what, int which, Mpi& mpi) {
  if (what == "miss" && rank_by_variables() == which) {
    ::sleep(2);  // Open MPI ends a job in which a rank exits without PMIx while another uses it
    return 0;
  }
  if (mpi.first() && !mpi.init()) return wrong;
  hocketComm_t comm = nullptr;
  if (hocketCommInitFromEnv(&comm, nullptr) != hocketSuccess) return report("join");
  int status = what == "die" ? die(comm, which) : sum_ranks(comm);
  int rank = -1;
  hocketCommUserRank(comm, &rank);
  hocketCommDestroy(comm);
  if (mpi.second() && !mpi.init()) status = wrong;
  if (status == 0 && what == "sum") {
    if (hocketCommInitFromEnv(&comm, nullptr) != hocketSuccess) return report("second join");
    if (hocketBarrier(comm, nullptr) != hocketSuccess) status = report("barrier");
    hocketCommDestroy(comm);
  }
  mpi.finalize();
  return status == 0 && what == "exit" && rank == which ? 5 : status;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "sum";
  const bool numbered = what == "die" || what == "exit" || what == "miss";
  const int next = numbered ? 3 : 2;
  Mpi mpi(argc > next ? argv[next] : "");
  return run(what, numbered ? number(argv[2]) : -1, mpi);
}
