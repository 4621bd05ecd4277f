#!/bin/bash
# hocketCommInitFromEnv under real launchers, on one host and on two.
#
# usage: launchers.sh RANK TORCHRUN RIG GROUP
#   RANK      the program that the launchers start (rank.cc)
#   TORCHRUN  empty: none is installed
#   RIG       tests/rig
#   GROUP     local, hosts, openmpi5 or slurm; all but local start themselves again inside the rig
# LAUNCHERS_ONLY=TEXT: only the cases with this text in their name.
# LAUNCHERS_ABSENT="NAME...": these launchers may be missing (mpich, openmpi, openmpi5, torchrun,
# slurm, and pmix: a libpmix.so that Slurm can load). Their cases are left out if they are.
# Exit status: 1 if a case failed or another launcher is missing; 77 if no case ran.
set -u -o pipefail
rank=$1 torchrun=$2 rig=$3 group=$4
here=$(realpath "$0")
inside=${LAUNCHERS_INSIDE-}
export -n LAUNCHERS_INSIDE
export HOCKET_JOIN_DEADLINE_MS=120000
work=${LAUNCHERS_WORK:-$(mktemp -d)}
[[ $inside ]] || trap 'rm -rf "$work"' EXIT
export LAUNCHERS_WORK=$work
missing=''

installed() {  # NAME, as in LAUNCHERS_ABSENT
  case $1 in
    mpich | openmpi) command -v "mpirun.$1" ;;
    openmpi5) [[ -x ${openmpi5[0]} ]] ;;
    torchrun) [[ -x $torchrun ]] ;;
    slurm) command -v srun && command -v slurmctld && command -v slurmd && command -v munged ;;
    pmix) srun --mpi=pmix -n 1 true ;;
  esac >/dev/null 2>&1
}

have() {  # NAME...: true if all are installed
  local name
  for name in "$@"; do
    installed "$name" || { missing+=" $name"; return 1; }
  done
}

finish() {
  local name
  for name in $(tr ' ' '\n' <<<"$missing" | sort -u); do
    if [[ " ${LAUNCHERS_ABSENT-} " == *" $name "* ]]; then
      echo "left out: $name is not installed"
    else
      echo "FAILED $name is not installed: install it, or name it in LAUNCHERS_ABSENT"
      : >"$work/failed"
    fi
  done
  [[ ! -e $work/failed ]] || exit 1
  [[ -e $work/ran ]] || exit 77
  exit 0
}

# Runs a command; the result is in output, and in wrong what is not as expected. The word TOLD in
# the command stands for a file that does not exist yet (rank.cc: FILE).
try() {  # STATUS COMMAND...
  local wanted=$1 status line count told
  shift
  told=$(mktemp -u -p "$work")
  output=$(timeout 300 bash -c '"$@"' case "${@//TOLD/$told}" 2>&1 </dev/null)
  status=$?
  wrong=''
  case $wanted in
    fails) ((status != 0)) || wrong+="  it ended with status 0"$'\n' ;;
    *) ((status == wanted)) || wrong+="  it ended with status $status, not $wanted"$'\n' ;;
  esac
  for line in "${expected[@]}"; do
    if [[ $line =~ ^([0-9]+)\ times\ (.*) ]]; then
      count=$(grep -cF -- "${BASH_REMATCH[2]}" <<<"$output")
      ((count == BASH_REMATCH[1])) || wrong+="  $count times: ${BASH_REMATCH[2]}"$'\n'
    else
      grep -qF -- "$line" <<<"$output" || wrong+="  missing: $line"$'\n'
    fi
  done
}

run_case() {  # JOIN_DEADLINES_MS NAME STATUS COMMAND...
  local deadlines=$1 name=$2 output='' wrong='' expected deadline start=$SECONDS
  shift 2
  [[ $name == *"${LAUNCHERS_ONLY-}"* ]] || return 0
  mapfile -t expected
  : >"$work/ran"  # a file, because many cases run at the end of a pipe
  for deadline in $deadlines; do
    HOCKET_JOIN_DEADLINE_MS=$deadline try "$@"
    [[ $wrong ]] || break
  done
  printf '%s %s (%d s)\n' "$([[ $wrong ]] && echo FAILED || echo ok)" "$name" $((SECONDS - start))
  [[ $wrong ]] || return 0
  : >"$work/failed"
  printf '%s%s\n' "$wrong" "$(sed 's/^/  | /' <<<"$output" | cut -c1-900)"
}

# Runs COMMAND (a program or an exported function) and compares its status (a number, or `fails`)
# and what it printed: each line of standard input must be a part of it. A line `N times TEXT` wants
# N lines with that text.
check() {  # NAME STATUS COMMAND...
  run_case $HOCKET_JOIN_DEADLINE_MS "$@"
}

# The same for a case that ends at the join deadline. On a loaded machine a rank may start later
# than that, and is missing too; so the case gets more time if it fails.
check_deadline() {  # NAME STATUS COMMAND...
  run_case '1000 8000 60000' "$@"
}

# A rank of a job is killed: every other rank names it, before the launcher learns of an end and can
# end it (rank.cc: die).
check_death() {  # NAME RANKS VICTIM COMMAND...: COMMAND without the program
  local name=$1 ranks=$2 victim=$3 other
  shift 3
  for ((other = 0; other < ranks; ++other)); do
    ((other == victim)) || echo "rank $other: culprit $victim"
    ((other != victim)) || echo "rank $victim: named by all others before the launcher knew"
  done | check "$name" fails "$@" "$rank" die "$victim" TOLD $((ranks - 1))
}

# The launcher sees that the rank is killed, and leaves the others running: they name it.
check_kill() {  # NAME STATUS RANKS VICTIM COMMAND...: COMMAND without the program
  local name=$1 status=$2 ranks=$3 victim=$4 other
  shift 4
  for ((other = 0; other < ranks; ++other)); do
    ((other == victim)) || echo "rank $other: culprit $victim"
  done | check "$name" "$status" "$@" "$rank" kill "$victim"
}

sums() {  # RANKS NODES: what every rank prints
  local rank
  for ((rank = 0; rank < $1; ++rank)); do
    echo "rank $rank of $1 on $2 nodes: sum $(($1 * ($1 + 1) / 2))"
  done
}

key() {  # FILE: a new job key
  (umask 077 && head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$1")
}

# KEYS RANK COMMAND...: rank 1 gets another key than the others.
give_keys='HOCKET_JOB_KEY_FILE=$0/key; [ $1 != 1 ] || HOCKET_JOB_KEY_FILE=$0/other_key
export HOCKET_JOB_KEY_FILE; shift; exec "$@"'
wrong_key="refused this rank's job key
which says that it is rank 1 of this job, presented another job key"

# Every rank takes its key and joins; VARIABLE is its rank.
check_keys() {  # NAME VARIABLE COMMAND...: the expected text is the standard input
  local name=$1 variable=$2
  shift 2
  check "$name" fails "$@" sh -c "exec sh -c \"\$0\" \"\$1\" \$$variable \"\$2\" join" \
    "$give_keys" "$work" "$rank"
}

# Open MPI passes variables to the ranks only if told. It names its temporary folder by host and
# process number; both are the same in other runs of the rig.
openmpi=(mpirun.openmpi -x HOCKET_JOIN_DEADLINE_MS --allow-run-as-root --oversubscribe
  --mca orte_base_help_aggregate 0 --mca orte_tmpdir_base "$work")
openmpi5=$(realpath -m "$rig/../../build/peers/openmpi/bin/mpirun")  # perf/peers/install openmpi
openmpi5=("$openmpi5" -x HOCKET_JOIN_DEADLINE_MS --allow-run-as-root --prtemca prte_tmpdir_base
  "$work")
mpich=(mpirun.mpich)
hocket_run=$(dirname "$rank")/hocket-run
torch=("$torchrun" --no-python)
# Ranks that are started by hand: Kubernetes sets the same variables. Two jobs at once on a host, of
# one user and with one MASTER_PORT, would be taken for one.
by_hand() {  # RANKS VARIABLES... -- COMMAND: one status for all, 1 if any failed
  local ranks=$1 variables=(MASTER_PORT="$RANDOM") i pids=() status=0
  shift
  while [[ $1 != -- ]]; do variables+=("$1"); shift; done
  shift
  for ((i = 0; i < ranks; ++i)); do
    env "${variables[@]}" RANK=$i WORLD_SIZE=$ranks "$@" &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || status=1; done
  return $status
}
export -f by_hand

case $group:$inside in
  hosts:)
    LAUNCHERS_INSIDE=1 "$rig/hosts" -- "$here" "$@"
    exit
    ;;
  openmpi5:)
    have openmpi5 || finish
    # PRRTE starts its daemons over ssh.
    LAUNCHERS_INSIDE=1 "$rig/hosts" --sshd -- "$here" "$@"
    exit
    ;;
  slurm:)
    have slurm || finish
    LAUNCHERS_INSIDE=1 "$rig/slurm" -- "$here" "$@"
    exit
    ;;
esac

key "$work/key"
key "$work/other_key"
# shellcheck disable=SC1090
source "$(dirname "$here")/$group.sh"
finish
