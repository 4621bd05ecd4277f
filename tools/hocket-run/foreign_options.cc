#include "foreign_options.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace hocket::internal::launch {
namespace {

struct Spelling {
  std::string_view foreign;
  const char* own;
};

constexpr Spelling spellings[] = {
    {"-np", "-n"},
    {"--np", "-n"},
    {"-host", "--hosts"},
    {"-hosts", "--hosts"},
    {"-hostfile", "--hostfile"},
    {"-machinefile", "--hostfile"},
    {"--machinefile", "--hostfile"},
    {"-f", "--hostfile"},
    {"-wdir", "--wdir"},
    {"-wd", "--wdir"},
    {"-timeout", "--timeout"},
    {"-map-by", "--map-by"},
    {"-bind-to", "--bind-to"},
    {"-report-bindings", "--report-bindings"},
};

struct Row {
  std::vector<std::string_view> options;
  const char* remedy;
};

const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {{"-N", "-npernode", "--npernode", "--ntasks-per-node", "-ppn", "--ppn"},
       "write --map-by ppr:RANKS:node, or --hosts HOST:RANKS,..."},
      {{"-npersocket", "--npersocket", "--ntasks-per-socket"}, "write --map-by ppr:RANKS:socket"},
      {{"--ntasks-per-core"}, "write --map-by ppr:RANKS:core"},
      {{"-m", "--distribution", "-bynode", "--bynode", "-byslot", "--byslot", "-rr"},
       "write --map-by node (ranks go to the hosts in turn) or --map-by slot (the default)"},
      {{"-rank-by", "--rank-by"}, "ranks are numbered in the order in which --map-by places them"},
      {{"-c", "--cpus-per-task", "-cpus-per-proc", "--cpus-per-proc", "--cpus-per-rank"},
       "write --map-by slot:PE=CORES"},
      {{"-rf", "--rankfile", "-rankfile"},
       "write the hosts in the order of the ranks, with --hosts or --hostfile"},
      {{"-w", "--nodelist"}, "write --hosts HOST:RANKS,..."},
      {{"-env", "-genv", "-envlist", "-genvlist", "--export"},
       "write --env NAME or --env NAME=VALUE, once for each variable"},
      {{"--bind-to-core", "-bind-to-core", "--cpu-bind"},
       "write --bind-to core, l3cache, numa, socket or none"},
      {{"--cpu-list", "--cpu-set"},
       "write `taskset -c LIST hocket-run ...`: the ranks of this host share these CPUs"},
      {{"--oversubscribe", "-oversubscribe", "--overcommit", "-O"},
       "it is not needed: hocket-run starts as many ranks as -n says, however many cores there "
       "are"},
      {{"--allow-run-as-root"}, "it is not needed"},
      {{"-t", "--time"}, "write --timeout SECONDS"},
      {{"--chdir", "-D"}, "write --wdir DIRECTORY"},
      {{"-v", "--verbose"},
       "there is no such option yet; HOCKET_LOG=info makes the ranks log how they join"},
      {{"-display-map", "--display-map", "-display", "--display", "-display-allocation",
        "--display-allocation"},
       "write --report-bindings, or --show-placement to start no rank"},
      {{"-do-not-launch", "--do-not-launch", "-donotlaunch", "--donotlaunch"},
       "write --show-placement"},
      {{"--nproc-per-node", "--nproc_per_node", "--nnodes", "--nodes"},
       "write -n RANKS on one host, --hosts HOST:RANKS,... on several"},
      {{"--node-rank", "--node_rank", "--master-addr", "--master_addr", "--master-port",
        "--master_port", "--rdzv-endpoint", "--rdzv_endpoint", "--rdzv-backend", "--rdzv_backend",
        "--standalone"},
       "it is not needed: hocket-run is called once and starts the ranks of all --hosts by ssh"},
      {{"--ntasks"}, "write -n RANKS"},
      {{"-l", "--label", "-tag-output", "-prepend-rank"}, "write --tag-output"},
      {{"-u", "--unbuffered"}, "write --pty"},
      {{"-o", "--output", "--output-filename", "-output-filename", "--output-directory", "-e",
        "--error", "--log-dir"},
       "write --output-dir DIRECTORY, which gets files of the standard output and the standard "
       "error of each rank"},
      {{"-mca", "--mca", "-gmca", "--gmca", "--mpi"},
       "hocket-run starts no MPI; `hocket-run --settings` lists hocket's settings"},
  };
  return rows;
}

}  // namespace

std::string own_spelling(const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const auto spelling = std::ranges::find(spellings, name, &Spelling::foreign);
  if (spelling == std::end(spellings)) return word;
  const std::string own = spelling->own;
  if (equals == std::string::npos) return own;
  // `-n=2` would be no number.
  return own + (own.starts_with("--") ? "=" : "") + word.substr(equals + 1);
}

std::string remedy_for_foreign_option(std::string_view option) {
  const std::string_view name = option.substr(0, option.find('='));
  for (const Row& row : table()) {
    if (std::ranges::find(row.options, name) != row.options.end()) return row.remedy;
  }
  return {};
}

}  // namespace hocket::internal::launch
