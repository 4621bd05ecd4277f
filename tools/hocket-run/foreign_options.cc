#include "foreign_options.h"

#include <algorithm>
#include <vector>

namespace hocket::internal::launch {
namespace {

struct Row {
  std::vector<std::string_view> options;
  const char* remedy;
};

const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {{"-N", "-npernode", "--npernode", "--map-by", "--ntasks-per-node", "-ppn", "--ppn"},
       "--hosts HOST:RANKS,... says how many ranks run on each host"},
      {{"-H", "-host", "--host", "-hosts", "-w", "--nodelist"}, "write --hosts HOST:RANKS,..."},
      {{"-hostfile", "--hostfile", "-machinefile", "--machinefile", "-f"},
       "there is no host file yet; write --hosts HOST:RANKS,..."},
      {{"-x", "-env", "-genv", "-envlist", "-genvlist", "--export"},
       "write --env NAME or --env NAME=VALUE, once for each variable"},
      {{"--bind-to", "-bind-to", "--bind-to-core", "--cpu-bind", "--cpu-list", "--cpu-set"},
       "hocket-run does not bind ranks to cores yet; a script can do so: taskset -c "
       "$HOCKET_LOCAL_RANK PROGRAM"},
      {{"--oversubscribe", "-oversubscribe", "--overcommit", "-O"},
       "it is not needed: hocket-run starts as many ranks as -n says, however many cores there "
       "are"},
      {{"--allow-run-as-root"}, "it is not needed"},
      {{"--timeout", "-timeout", "-t", "--time"},
       "there is no time limit yet; write `timeout SECONDS hocket-run ...`"},
      {{"--wdir", "-wdir", "-wd", "--chdir", "-D"},
       "there is no such option yet: the ranks run in the working directory of hocket-run; change "
       "to the directory before"},
      {{"-v", "--verbose", "--display-map"},
       "there is no such option yet; HOCKET_LOG=info makes the ranks log how they join"},
      {{"--nproc-per-node", "--nproc_per_node", "--nnodes", "--nodes"},
       "write -n RANKS on one host, --hosts HOST:RANKS,... on several"},
      {{"--node-rank", "--node_rank", "--master-addr", "--master_addr", "--master-port",
        "--master_port", "--rdzv-endpoint", "--rdzv_endpoint", "--rdzv-backend", "--rdzv_backend",
        "--standalone"},
       "it is not needed: hocket-run is called once and starts the ranks of all --hosts by ssh"},
      {{"--ntasks"}, "write -n RANKS"},
      {{"-l", "--label", "-tag-output", "-prepend-rank"}, "write --tag-output"},
      {{"-o", "--output", "--output-filename", "-output-filename", "-e", "--error", "--log-dir"},
       "there is no such option yet; a script can write a file for each rank: exec PROGRAM "
       ">out.$HOCKET_RANK"},
      {{"-mca", "--mca", "-gmca", "--gmca", "--mpi"},
       "hocket-run starts no MPI; `hocket-run --settings` lists hocket's settings"},
  };
  return rows;
}

}  // namespace

std::string remedy_for_foreign_option(std::string_view option) {
  const std::string_view name = option.substr(0, option.find('='));
  for (const Row& row : table()) {
    if (std::ranges::find(row.options, name) != row.options.end()) return row.remedy;
  }
  return {};
}

}  // namespace hocket::internal::launch
