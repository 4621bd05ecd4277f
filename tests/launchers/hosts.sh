# Cases on the two hosts h1 and h2 of tests/rig/hosts: sourced by launchers.sh.

two=("$hocket_run" --ssh "$HOSTS_RSH" --hosts h1:2,h2:2)
sums 4 2 | check "hocket-run, 2 hosts" 0 "${two[@]}" "$rank" sum
sums 4 2 | check "hocket-run, 2 hosts in turn" 0 "${two[@]}" --map-by node "$rank" sum
check_death "hocket-run, 2 hosts, a rank dies" 4 3 "${two[@]}"
check "hocket-run, 2 hosts, exit status" 5 "${two[@]}" "$rank" exit 3 <<<"rank 3 of 4"
check_deadline "hocket-run, 2 hosts, a rank is missing" fails "${two[@]}" "$rank" miss 3 TOLD \
  <<<"rank 3 is missing"

if have mpich; then
  mpich+=(-launcher ssh -launcher-exec "$HOSTS_RSH" -hosts h1,h2)
  sums 4 2 | check "Hydra, 2 hosts" 0 "${mpich[@]}" -ppn 2 -n 4 "$rank" sum
  check_death "Hydra, 2 hosts, a rank dies" 4 3 "${mpich[@]}" -ppn 2 -n 4
  check "Hydra, 2 hosts, exit status" 5 "${mpich[@]}" -ppn 1 -n 2 "$rank" exit 1 <<<"rank 1 of 2"
  check_deadline "Hydra, 2 hosts, a rank is missing" fails "${mpich[@]}" -ppn 1 -n 2 "$rank" \
    miss 1 TOLD <<<"waiting in the barrier of the launcher's PMI server"
  # The status is 9, or 255 if a proxy of Hydra sees a closed connection first.
  check "Hydra, 2 hosts, status of a killed rank" fails "${mpich[@]}" -ppn 1 -n 2 "$rank" kill 1 \
    <<<"EXIT CODE: 9"
  check_kill "Hydra, 2 hosts, a rank below a shell is killed" 137 4 3 "${mpich[@]}" -ppn 2 -n 4 \
    sh -c '"$0" "$@"; exit $?'
  check_keys "Hydra, 2 hosts, a wrong key" PMI_RANK "${mpich[@]}" -ppn 1 -n 2 <<<"$wrong_key"
  sums 2 2 | check "Hydra, 2 hosts, MPI_Init before" 0 "${mpich[@]}" -ppn 1 -n 2 "$rank" \
    sum libmpich.so.12,before

  port=("${mpich[@]}" -pmi-port)
  sums 4 2 | check "Hydra -pmi-port, 2 hosts" 0 "${port[@]}" -ppn 2 -n 4 "$rank" sum
  check_death "Hydra -pmi-port, 2 hosts, a rank dies" 4 3 "${port[@]}" -ppn 2 -n 4
  check "Hydra -pmi-port, 2 hosts, status of a killed rank" fails "${port[@]}" -ppn 1 -n 2 \
    "$rank" kill 1 <<<"EXIT CODE: 9"
  check_kill "Hydra -pmi-port, 2 hosts, a rank below a shell is killed" 137 4 3 "${port[@]}" \
    -ppn 2 -n 4 sh -c '"$0" "$@"; exit $?'
  check "Hydra -pmi-port, 2 hosts, exit status" 5 "${port[@]}" -ppn 1 -n 2 "$rank" exit 1 \
    <<<"rank 1 of 2"
  check_deadline "Hydra -pmi-port, 2 hosts, a rank is missing" fails "${port[@]}" -ppn 1 -n 2 \
    "$rank" miss 1 TOLD <<<"waiting in the barrier of the launcher's PMI server"
  check_keys "Hydra -pmi-port, 2 hosts, a wrong key" PMI_ID "${port[@]}" -ppn 1 -n 2 \
    <<<"$wrong_key"
fi
if have openmpi; then
  openmpi+=(--mca plm_rsh_agent "$HOSTS_RSH" --host h1:2,h2:2)
  sums 4 2 | check "Open MPI, 2 hosts" 0 "${openmpi[@]}" -n 4 "$rank" sum
  check_death "Open MPI, 2 hosts, a rank dies" 4 3 "${openmpi[@]}" -n 4
  check "Open MPI, 2 hosts, exit status" 5 "${openmpi[@]}" -n 4 "$rank" exit 3 <<<"rank 3 of 4"
  check_deadline "Open MPI, 2 hosts, a rank is missing" fails "${openmpi[@]}" -n 4 "$rank" \
    miss 3 TOLD <<<"rank 3 is missing"
  check "Open MPI, 2 hosts, status of a killed rank" 137 "${openmpi[@]}" -n 4 "$rank" kill 3 \
    </dev/null
  check_keys "Open MPI, 2 hosts, a wrong key" OMPI_COMM_WORLD_RANK "${openmpi[@]}" --map-by node \
    -n 2 <<<"job key"
  sums 4 2 | check "Open MPI, 2 hosts, MPI_Init before" 0 "${openmpi[@]}" -n 4 \
    "$rank" sum libmpi.so.40,before
fi
# The program of a rank whose key depends on the rank: the rig's ssh has no quotes for more.
cat >"$work/wrong" <<END
#!/bin/sh
exec sh -c '$give_keys' "$work" \$RANK "$rank" join
END
chmod 700 "$work/wrong"
if have torchrun; then
  # The agent of h2 in the background; its ranks print there too.
  agents() {  # VARIABLE=VALUE COMMAND...
    local setting=$1 agent="$torchrun --no-python --nnodes 2 --nproc-per-node 1 --master-addr h1
      --master-port 29511 --node-rank"
    shift
    agent=$(tr -s '\n ' ' ' <<<"$agent")
    $HOSTS_RSH h2 "HOCKET_JOIN_DEADLINE_MS=$HOCKET_JOIN_DEADLINE_MS $setting $agent 1 $*" &
    env "$setting" $agent 0 "$@"
    local status=$?
    wait $! && return $status
  }
  export torchrun
  export -f agents
  sums 2 2 | check "torchrun, 2 hosts" 0 agents HOCKET_JOB_KEY_FILE="$work/key" "$rank" sum
  check_death "torchrun, 2 hosts, a rank dies" 2 1 agents HOCKET_JOB_KEY_FILE="$work/key"
  check "torchrun, 2 hosts, no key" fails agents HOCKET_LOG=warn "$rank" join \
    <<<"HOCKET_JOB_KEY_FILE"
  check_deadline "torchrun, 2 hosts, a rank is missing" fails agents \
    HOCKET_JOB_KEY_FILE="$work/key" "$rank" miss 1 TOLD <<<"rank 1 is missing"
  check "torchrun, 2 hosts, a wrong key" fails agents HOCKET_LOG=warn "$work/wrong" <<<"job key"
fi
master() {  # VARIABLES... -- COMMAND: rank 0 on h1 and rank 1 on h2
  local variables=(HOCKET_JOIN_DEADLINE_MS="$HOCKET_JOIN_DEADLINE_MS")
  while [[ $1 != -- ]]; do variables+=("$1"); shift; done
  shift
  $HOSTS_RSH h2 "RANK=1 WORLD_SIZE=2 ${variables[*]} $*" &
  env RANK=0 WORLD_SIZE=2 "${variables[@]}" "$@"
  local status=$?
  wait $! && return $status
}
export -f master
sums 2 2 | check "variables, 2 hosts" 0 master MASTER_ADDR=h1 HOCKET_JOB_KEY_FILE="$work/key" \
  -- "$rank" sum
sums 2 2 | check "variables, 2 hosts, TLS" 0 master MASTER_ADDR=h1 HOCKET_TLS=1 \
  HOCKET_JOB_KEY_FILE="$work/key" -- "$rank" sum
sums 2 2 | check "variables, 2 hosts, a trusted network" 0 master MASTER_ADDR=10.77.1.1 \
  MASTER_PORT=1234 HOCKET_TRUST_NETWORK=1 HOCKET_LOG=warn -- "$rank" sum
check "variables, 2 hosts, no key" fails master MASTER_ADDR=h1 -- "$rank" join \
  <<<"2 times HOCKET_JOB_KEY_FILE"
check "variables, 2 hosts, a wrong key" fails master MASTER_ADDR=h1 \
  -- "$work/wrong" <<<"refused this rank's job key
RANK=1, WORLD_SIZE=2
a process at 10.77.1.2:
which says that it is rank 1 of this job, presented another job key"
check_death "variables, 2 hosts, a rank dies" 2 1 master MASTER_ADDR=h1 \
  HOCKET_JOB_KEY_FILE="$work/key" --
check_deadline "variables, 2 hosts, a rank is missing" fails master MASTER_ADDR=h1 \
  HOCKET_JOB_KEY_FILE="$work/key" -- "$rank" miss 1 TOLD <<<"rank 1 is missing"
check "variables, 2 hosts, rank 0 is missing" fails $HOSTS_RSH h2 "RANK=1 WORLD_SIZE=2 \
  MASTER_ADDR=h1 HOCKET_JOIN_DEADLINE_MS=500 HOCKET_JOB_KEY_FILE=$work/key $rank join" \
  <<<"looking for rank 0 on h1 (MASTER_ADDR)"
# srun's variables where no munged runs.
check "srun's variables, no munged" 3 env SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_JOB_ID=7 \
  SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=h[1-2] "$rank" join \
  <<<"or start munged on every host
munged does not answer on this host"
# shellcheck disable=SC1091
source "$(dirname "$here")/lines.sh" hosts
