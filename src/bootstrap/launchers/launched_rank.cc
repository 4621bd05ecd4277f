#include "bootstrap/launchers/launched_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/limits.h"
#include "bootstrap/launchers/host_list.h"

namespace hocket::internal {
namespace {

constexpr std::size_t most_hosts = 65'536;

struct Launcher {
  const char* name;
  const char* rank;  // the variables of the rank and of the number of ranks
  const char* ranks;
  bool (*present)(const Environment&);
  Status (*complete)(const Environment&, LaunchedRank*);
};

/// True if at least two of the three variables are set: one alone may belong to anything.
bool has_plain_ranks(const Environment& environment) {
  int set = 0;
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR"}) set += environment.has(name);
  return set >= 2;
}

/// Rank 0 listens on the host that MASTER_ADDR names. MASTER_PORT is a part of the job's name only:
/// under torchrun another server has that port.
Status complete_master(const Environment& environment, const std::string& run,
                       LaunchedRank* launched) {
  launched->host_variable = "MASTER_ADDR";
  const std::string host = environment.text("MASTER_ADDR");
  const bool loopback = host == "localhost" || host.starts_with("127.") || host == "::1";
  launched->one_host = loopback || environment.number("LOCAL_WORLD_SIZE") == launched->ranks;
  launched->hosts.assign(1, host);
  // Not the number of ranks: ranks that disagree about it shall meet, and be told.
  launched->job = fmt::format("{} port {}", run, environment.text("MASTER_PORT"));
  if (launched->ranks == 1 || !host.empty()) return {};
  return invalid_usage(
      fmt::format("{} give this process a rank, but MASTER_ADDR is not set, so that the rank "
                  "cannot find rank 0: set MASTER_ADDR to a host name or an address of rank 0's "
                  "host, on all ranks",
                  launched->variables));
}

Status complete_torchrun(const Environment& environment, LaunchedRank* launched) {
  return complete_master(
      environment,
      fmt::format("torchrun {} restart {}", environment.text("TORCHELASTIC_RUN_ID"),
                  environment.text("TORCHELASTIC_RESTART_COUNT")),
      launched);
}

Status complete_plain(const Environment& environment, LaunchedRank* launched) {
  return complete_master(environment, "ranks", launched);
}

Status complete_open_mpi(const Environment& environment, LaunchedRank* launched) {
  launched->exchange = Exchange::pmix;
  launched->one_host = environment.number("OMPI_COMM_WORLD_LOCAL_SIZE") == launched->ranks;
  return {};
}

/// srun --mpi=pmix, and other launchers with a PMIx server: the server says how many ranks there
/// are.
Status complete_pmix(const Environment& environment, LaunchedRank* launched) {
  launched->exchange = Exchange::pmix;
  launched->one_host = environment.number("SLURM_STEP_NUM_NODES") == 1;
  return {};
}

Status complete_pmi1(const Environment& environment, LaunchedRank* launched) {
  launched->exchange = Exchange::pmi1;
  launched->one_host =
      launched->ranks > 0 && environment.number("MPI_LOCALNRANKS") == launched->ranks;
  if (launched->ranks == 1 || environment.has("PMI_FD") || environment.has("PMI_PORT")) return {};
  return invalid_usage(fmt::format(
      "{} give this process a rank, but neither PMI_FD nor PMI_PORT is set: the launcher offers no "
      "PMI-1 server that could tell the ranks where rank 0 is. Use hocketCommInitRank with an id "
      "from hocketGetUniqueId, which the program passes to all ranks (MPI_Bcast)",
      launched->variables));
}

/// srun without an exchange: rank 0 is on the first host of the step, unless the user placed the
/// tasks.
Status complete_slurm(const Environment& environment, LaunchedRank* launched) {
  launched->one_host = environment.number("SLURM_STEP_NUM_NODES") == 1;
  launched->host_variable = "SLURM_STEP_NODELIST";
  launched->job =
      fmt::format("slurm {}.{} restart {}", environment.text("SLURM_JOB_ID"),
                  environment.text("SLURM_STEP_ID"), environment.text("SLURM_RESTART_COUNT"));
  if (launched->ranks == 1) return {};  // it looks for no host
  const std::string list = environment.text("SLURM_STEP_NODELIST");
  if (const Status status = expand_host_list(list, most_hosts, &launched->hosts); !status.ok()) {
    return invalid_usage(
        fmt::format("cannot find rank 0's host in SLURM_STEP_NODELIST: {}", status.message()));
  }
  const bool placed = environment.text("SLURM_DISTRIBUTION").starts_with("arbitrary");
  if (!placed) launched->hosts.resize(1);
  return {};
}

// Without a step this is sbatch's script or salloc's shell, which are no ranks.
constexpr Launcher srun = {
    "Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
    [](const Environment& e) { return e.has("SLURM_STEP_ID") && e.has("SLURM_PROCID"); },
    complete_slurm};

constexpr Launcher launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE",
     [](const Environment& e) { return e.has("TORCHELASTIC_RUN_ID") && e.has("RANK"); },
     complete_torchrun},
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     [](const Environment& e) { return e.has("OMPI_COMM_WORLD_RANK"); }, complete_open_mpi},
    {"a PMIx launcher", "PMIX_RANK", nullptr,
     [](const Environment& e) { return e.has("PMIX_RANK") && e.has("PMIX_NAMESPACE"); },
     complete_pmix},
    {"a PMI-1 launcher", "PMI_RANK", "PMI_SIZE",
     [](const Environment& e) { return e.has("PMI_RANK"); }, complete_pmi1},
    {"a PMI-1 launcher", nullptr, nullptr,
     [](const Environment& e) { return e.has("PMI_PORT") && e.has("PMI_ID"); }, complete_pmi1},
    srun,
    {"a launcher that sets RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", has_plain_ranks,
     complete_plain},
};

/// What a rank has that lost the variable of its rank. The mark is a variable that every rank of
/// the launcher has; without one, the number of ranks says that there are others.
struct LostRank {
  const char* launcher;
  const char* rank;
  const char* ranks;
  const char* mark;
};

constexpr LostRank lost_ranks[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
    {"a PMI-1 launcher", "PMI_RANK", "PMI_SIZE", nullptr},
    {"a PMI-1 launcher", "PMI_ID", nullptr, "PMI_PORT"},
    {"Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"},
    {"a launcher that sets RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", nullptr},
};

constexpr std::string_view marks[] = {
    "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_ID", "PMI_FD", "PMI_PORT",
    "SLURM_PROCID"};

/// Reads one of the two numbers; a launcher's server gives the number of ranks if it has no
/// variable.
Status read_number(const Environment& environment, const Launcher& launcher, const char* variable,
                   int least, int most, int* out) {
  if (variable == nullptr) return {};
  const std::optional<int> number = environment.number(variable);
  if (number && *number >= least && *number <= most) {
    *out = *number;
    return {};
  }
  return invalid_usage(fmt::format(
      "this process was started by {}, but {}: it must be a whole number from {} to {}. "
      "Set it, or unset the variables of that launcher (hocketCommInitRank with an id "
      "from hocketGetUniqueId works under any launcher)",
      launcher.name, environment.quoted(variable), least, most));
}

Status read_launched_rank(const Environment& environment, const Launcher& launcher,
                          LaunchedRank* launched) {
  launched->launcher = launcher.name;
  launched->in_slurm = environment.has("SLURM_STEP_ID");
  for (const char* name : {launcher.rank, launcher.ranks}) {
    if (name == nullptr) continue;
    launched->variables += (launched->variables.empty() ? "" : ", ") + environment.quoted(name);
  }
  if (launched->variables.empty()) launched->variables = environment.quoted("PMI_PORT");
  HOCKET_RETURN_IF_ERROR(
      read_number(environment, launcher, launcher.ranks, 1, max_ranks, &launched->ranks));
  const int most = launcher.ranks != nullptr ? launched->ranks - 1 : max_ranks - 1;
  HOCKET_RETURN_IF_ERROR(
      read_number(environment, launcher, launcher.rank, 0, most, &launched->rank));
  return launcher.complete(environment, launched);
}

/// A number that only the launcher's server knows contradicts nothing.
bool says_the_same(const Environment& environment, const Launcher& launcher,
                   const LaunchedRank& launched) {
  const bool rank = launched.rank < 0 || environment.number(launcher.rank) == launched.rank;
  const bool ranks = launched.ranks == 0 || launcher.ranks == nullptr ||
                     environment.number(launcher.ranks) == launched.ranks;
  return rank && ranks;
}

Status contradiction(const LaunchedRank& launched, const std::string& other) {
  return invalid_usage(fmt::format(
      "the variables of two launchers contradict each other: {} ({}), but {}: one launcher runs "
      "inside the other. Unset the variables of the outer one before the inner one starts, for "
      "example by `env -u OMPI_COMM_WORLD_RANK -u PMIX_RANK mpirun ...`, `env -u "
      "TORCHELASTIC_RUN_ID mpirun ...`, or `env -u PMI_RANK torchrun ...`",
      launched.variables, launched.launcher, other));
}

/// The variables that say that this process is a rank of the launcher and not its only one, for
/// messages; empty if nothing says so.
std::string signs_of(const Environment& environment, const LostRank& lost) {
  if (environment.has(lost.rank)) return {};
  if (lost.mark != nullptr && !environment.has(lost.mark)) return {};
  const bool counted = lost.ranks != nullptr && environment.has(lost.ranks);
  if (counted && environment.number(lost.ranks) == 1) return {};
  std::string text;
  if (lost.mark != nullptr) text = environment.quoted(lost.mark);
  if (counted) text += (text.empty() ? "" : ", ") + environment.quoted(lost.ranks);
  return text;
}

/// A process that no launcher gave a rank is a job of one rank, unless it lost its rank: a script
/// or a container between the launcher and the program may remove variables.
Status check_lost_rank(const Environment& environment, LaunchedRank* launched, bool* found) {
  for (const LostRank& lost : lost_ranks) {
    const std::string signs = signs_of(environment, lost);
    if (signs.empty()) continue;
    *found = true;
    launched->launcher = lost.launcher;
    launched->variables = signs;
    return invalid_usage(fmt::format(
        "this process was started by {} ({}), but {}, so that the process does not know which rank "
        "it is: pass {} on to it, or use hocketCommInitRank with an id from hocketGetUniqueId, "
        "which works under any launcher. If the process shall be a job of one rank, unset the "
        "variables that are set",
        lost.launcher, signs, environment.quoted(lost.rank), lost.rank));
  }
  return {};
}

/// Open MPI's mpirun in a rank of Hydra, or the other way round: Open MPI closes PMI_FD in the
/// ranks that it starts, so that an open PMI_FD cannot be left from an outer Hydra. And an mpirun
/// of several ranks in the only rank of torchrun, or the other way round; if torchrun has several
/// ranks, the join finds more ranks than there are.
Status check_nesting(const Environment& environment, const SocketTest& is_socket,
                     const LaunchedRank& launched) {
  if (launched.exchange == Exchange::pmix && environment.has("PMI_RANK")) {
    const std::optional<int> fd = environment.number("PMI_FD");
    if (environment.number("PMI_RANK") == launched.rank || !fd || !is_socket(*fd)) return {};
    return contradiction(launched,
                         fmt::format("{} and {} (a PMI-1 launcher)", environment.quoted("PMI_RANK"),
                                     environment.quoted("PMI_SIZE")));
  }
  if (!environment.has("TORCHELASTIC_RUN_ID") || launched.ranks != 1) return {};
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (environment.number(size).value_or(1) > 1) {
      return contradiction(launched, environment.quoted(size));
    }
  }
  return {};
}

}  // namespace

Status find_launched_rank(const Environment& environment, const SocketTest& is_socket,
                          LaunchedRank* launched, bool* found) {
  *launched = LaunchedRank();
  const Launcher* chosen = nullptr;
  for (const Launcher& launcher : launchers) {
    if (!launcher.present(environment)) continue;
    if (chosen == nullptr) {
      chosen = &launcher;
      *found = true;
      HOCKET_RETURN_IF_ERROR(read_launched_rank(environment, launcher, launched));
    } else if (launcher.rank != nullptr && !says_the_same(environment, launcher, *launched)) {
      launched->others +=
          (launched->others.empty() ? "" : ", ") + environment.quoted(launcher.rank);
    }
  }
  *found = chosen != nullptr;
  if (chosen == nullptr) return check_lost_rank(environment, launched, found);
  return check_nesting(environment, is_socket, *launched);
}

bool marks_rank(std::string_view variable) {
  return std::ranges::find(marks, variable) != std::end(marks);
}

bool has_mark(const Environment& environment) {
  return std::ranges::any_of(marks, [&](std::string_view name) { return environment.has(name); });
}

Status srun_rank(const Environment& environment, LaunchedRank* launched) {
  *launched = LaunchedRank();
  return read_launched_rank(environment, srun, launched);
}

}  // namespace hocket::internal
