# Cases on one host: sourced by launchers.sh.
key "$work/key"
key "$work/other_key"
# KEYS RANK COMMAND...: rank 1 gets another key than the others.
give_keys='HOCKET_JOB_KEY_FILE=$0/key; [ $1 != 1 ] || HOCKET_JOB_KEY_FILE=$0/other_key
export HOCKET_JOB_KEY_FILE; shift; exec "$@"'
two_survivors='rank 0: culprit 1
rank 2: culprit 1'
wrong_key="refused this rank's job key
1 connection with another job's key was refused"

if have mpirun.mpich; then
  sums 3 1 | check "Hydra" 0 "${mpich[@]}" -n 3 "$rank" sum
  sums 2 1 | check "Hydra -pmi-port" 0 "${mpich[@]}" -pmi-port -n 2 "$rank" sum
  check "Hydra, a rank dies" fails "${mpich[@]}" -n 3 "${in_shell[@]}" "$rank" die 1 \
    <<<"$two_survivors"
  check "Hydra, exit status" 5 "${mpich[@]}" -n 2 "$rank" exit 1 <<<"rank 1 of 2"
  check "Hydra, a rank is missing" fails env HOCKET_JOIN_DEADLINE_MS=1000 \
    "${mpich[@]}" -n 2 "$rank" miss 1 <<<"the join deadline of 1000 ms passed while the rank was \
waiting in the barrier of the launcher's PMI server
this process is rank 0 of 2, started by a PMI-1 launcher: PMI_RANK=0, PMI_SIZE=2"
  check "Hydra, a wrong key" fails env HOCKET_JOIN_DEADLINE_MS=1000 \
    "${mpich[@]}" -n 2 sh -c 'exec sh -c "$0" "$1" $PMI_RANK "$2" join' \
    "$give_keys" "$work" "$rank" <<<"$wrong_key
started by a PMI-1 launcher: PMI_RANK=1"
  for when in before after never; do
    sums 2 1 | check "Hydra, $when MPI_Init" 0 "${mpich[@]}" -n 2 "$rank" \
      sum libmpich.so.12,$when
  done
  check "Hydra -pmi-port, before MPI_Init" fails "${mpich[@]}" -pmi-port -n 2 "$rank" \
    join libmpich.so.12,before <<<"an id from hocketGetUniqueId that MPI_Bcast passes to all ranks"
fi

if have mpirun.openmpi; then
  sums 3 1 | check "Open MPI" 0 "${openmpi[@]}" -n 3 "$rank" sum
  check "Open MPI, a rank dies" fails "${openmpi[@]}" -n 3 "$rank" die 1 <<<"$two_survivors"
  check "Open MPI, exit status" 5 "${openmpi[@]}" -n 2 "$rank" exit 1 <<<"rank 1 of 2"
  check "Open MPI, a rank is missing" fails "${openmpi[@]}" -x HOCKET_JOIN_DEADLINE_MS=1000 \
    -n 2 "$rank" miss 1 <<<"rank 1 is missing"
  check "Open MPI, rank 0 is missing" fails "${openmpi[@]}" -x HOCKET_JOIN_DEADLINE_MS=1000 \
    -n 2 "$rank" miss 0 <<<"waiting for rank 0 to publish its address by PMIx"
  for when in before after never; do
    sums 2 1 | check "Open MPI, $when MPI_Init" 0 "${openmpi[@]}" -n 2 "$rank" \
      sum libmpi.so.40,$when
  done
fi

if [[ $torchrun ]]; then
  sums 2 1 | check "torchrun" 0 "${torch[@]}" --standalone --nproc-per-node 2 "$rank" sum
  check "torchrun, a rank dies" 1 "${torch[@]}" --standalone --nproc-per-node 3 \
    "$rank" die 1 <<<"$two_survivors"
else
  missing+=" torchrun"
fi

# RANK, WORLD_SIZE and MASTER_ADDR alone.
sums 2 1 | check "variables" 0 by_hand 2 MASTER_ADDR=localhost -- "$rank" sum
sums 2 1 | check "variables, with a key" 0 by_hand 2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
  HOCKET_JOB_KEY_FILE="$work/key" -- "$rank" sum
check "variables, over several hosts without a key" fails by_hand 2 MASTER_ADDR=192.0.2.1 \
  -- "$rank" join <<<"2 times gives ranks on several hosts no secret"
check "variables, without MASTER_ADDR" fails by_hand 2 TERM=dumb -- "$rank" join \
  <<<"2 times MASTER_ADDR is not set"
check "variables, without WORLD_SIZE" 3 env RANK=0 MASTER_ADDR=localhost "$rank" join \
  <<<"WORLD_SIZE is not set"
check "variables, a wrong key" fails by_hand 2 MASTER_ADDR=localhost \
  HOCKET_JOIN_DEADLINE_MS=1000 -- sh -c 'exec sh -c "$0" "$1" $RANK "$2" join' "$give_keys" \
  "$work" "$rank" <<<"$wrong_key
RANK=1, WORLD_SIZE=2"
check "variables, key file that others may read" fails by_hand 2 MASTER_ADDR=localhost \
  HOCKET_JOB_KEY_FILE="$here" -- "$rank" join <<<"2 times others may use the job key file"
check "variables, two ranks of one number" fails by_hand 2 MASTER_ADDR=localhost -- \
  env RANK=0 "$rank" join <<<"two processes claim to be rank 0"
check "variables, ranks disagree about their number" fails by_hand 2 MASTER_ADDR=localhost -- \
  sh -c 'WORLD_SIZE=$((2 + RANK)) exec "$0" join' "$rank" <<<"ranks disagree about their number"

# Launchers inside launchers: the outer one's variables are left.
if have mpirun.mpich mpirun.openmpi; then
  sums 2 1 | check "Open MPI inside Hydra" 0 "${mpich[@]}" -n 1 "${openmpi[@]}" -n 2 "$rank" sum
  check "Hydra inside Open MPI" fails "${openmpi[@]}" -n 1 "${mpich[@]}" -n 2 "$rank" join \
    <<<"the variables of two launchers contradict each other: OMPI_COMM_WORLD_RANK=0"
  sums 2 1 | check "Hydra inside Open MPI, unset" 0 "${openmpi[@]}" -n 1 env \
    -u OMPI_COMM_WORLD_RANK -u PMIX_RANK "${mpich[@]}" -n 2 "$rank" sum
fi
check "Open MPI's variables without Open MPI" fails env OMPI_COMM_WORLD_RANK=0 \
  OMPI_COMM_WORLD_SIZE=2 "$rank" join <<<"PMIx"
