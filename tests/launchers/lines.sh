# The lines of docs/LAUNCHING.md, as they stand there, on the hosts h1 and h2 of tests/rig/hosts:
# sourced by hosts.sh and slurm.sh, with the name of their group. Only the names of hosts are
# replaced. ./my_program prints the sum that rank.cc prints.
manual=$(realpath "$rig/../../docs/LAUNCHING.md")
lines=$work/lines
mkdir -p "$lines/bin"
printf '#!/bin/sh\nexec %s sum\n' "$rank" >"$lines/my_program"
chmod 755 "$lines/my_program"
cp "$lines/my_program" "$lines/server"
cp "$lines/my_program" "$lines/client"

# What a user has set up: programs in PATH, a home folder on all hosts, a way to reach hosts.
setup="cd $lines; export HOME=$lines HOCKET_SSH='$HOSTS_RSH'
export PATH=$lines/bin:$(dirname "$hocket_run")${torchrun:+:$(dirname "$torchrun")}:\$PATH
export HOCKET_JOIN_DEADLINE_MS=$HOCKET_JOIN_DEADLINE_MS
export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC='$HOSTS_RSH' OMPI_MCA_plm_rsh_agent='$HOSTS_RSH'
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_orte_tmpdir_base='$work'
"

on_rig() { sed -E 's/\ba([:,])/h1\1/g; s/\bb([: ])/h2\1/g; s/\bHOST0\b/h1/g; s/ +#.*//'; }

# The line of a launcher in the table of other launchers; a line with these first words.
line_of() {
  awk -F' *[|] *' -v launcher="$1" \
    '$2 == launcher && split($3, part, "`") > 1 { print part[2]; exit }' "$manual" | on_rig
}
line_with() { grep -m1 -F -- "$1" "$manual" | on_rig; }

# NAME LINE RANKS NODES [LINE ON h2]: an empty line fails.
check_line() {
  local name=$1 line=${2:-false} ranks=$3 nodes=$4 other=${5-}
  sums "$ranks" "$nodes" | check "LAUNCHING.md: $name" 0 both "$setup$line" "${other:+$setup$other}"
}
both() {  # COMMANDS ON h1, COMMANDS ON h2
  local status=0
  [[ ! $2 ]] || $HOSTS_RSH h2 "$2" &
  bash -c "$1" || status=$?
  wait $! || status=1
  return $status
}
export -f both

mpirun_is() {  # PROGRAM: it finds its own files by the name under which it was started
  printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v "$1")" >"$lines/bin/mpirun"
  chmod 755 "$lines/bin/mpirun"
}

case $1 in
  hosts)
    bash -c "$setup$(line_with '(umask 077; openssl')"
    check_line "4 ranks" "$(line_with 'hocket-run -n 4 ')" 4 1
    check_line "2 hosts" "$(line_with 'hocket-run --hosts a:2,b:2 ')" 4 2
    check_line "2 programs" "$(line_with 'hocket-run -n 1 ./server')" 4 1
    if have torchrun; then
      check_line "torchrun" "$(line_of 'torchrun, one host')" 4 1
      line=$(line_of 'torchrun, two hosts; on each, with its own `--node-rank`')
      check_line "torchrun, 2 hosts" "$line" 8 2 "${line/--node-rank 0/--node-rank 1}"
    fi
    if have openmpi; then
      mpirun_is mpirun.openmpi
      check_line "Open MPI" "$(line_of 'Open MPI')" 8 2
    fi
    if have mpich; then
      mpirun_is mpirun.mpich
      check_line "MPICH" "$(line_of 'MPICH (Hydra)')" 8 2
    fi
    line=$(line_of 'RANK, WORLD_SIZE, MASTER_ADDR')
    check_line "variables" "$line" 2 2 "${line/RANK=0/RANK=1}"
    ;;
  slurm)
    check_line "srun" "$(line_of srun)" 8 2
    check_line "srun with PMI" "$(line_of 'srun with PMI')" 8 2
    if have pmix; then check_line "srun with PMIx" "$(line_of 'srun with PMIx')" 8 2; fi
    # shellcheck disable=SC2016
    check_line "hocket-run in a job of Slurm" "export HOCKET_SSH='$HOSTS_RSH'
      salloc -Q -N 2 --ntasks-per-node 4 bash -c '$(line_with '--hosts "$SLURM_JOB_NODELIST"')'" 8 2
    awk '/^```/ { if (script ~ /#SBATCH/) exit; script = ""; next } { script = script $0 "\n" }
      END { printf "%s", script }' "$manual" >"$lines/script"
    check_line "a batch script" "sbatch -Q --wait -o output script; cat output" 8 2
    ;;
esac
