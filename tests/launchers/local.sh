# Cases on one host: sourced by launchers.sh.
check_death "hocket-run, a rank dies" 3 1 "$hocket_run" -n 3
check "hocket-run, status of a killed rank" 137 "$hocket_run" -n 2 "$rank" kill 1 </dev/null
check_kill "hocket-run --on-death=continue, a rank is killed" 137 3 1 "$hocket_run" -n 3 \
  --on-death=continue
check "hocket-run, exit status" 5 "$hocket_run" -n 2 "$rank" exit 1 <<<"rank 1 of 2"
check_deadline "hocket-run, a rank is missing" fails "$hocket_run" -n 2 "$rank" miss 1 TOLD \
  <<<"rank 1 is missing"

if have mpich; then
  sums 3 1 | check "Hydra" 0 "${mpich[@]}" -n 3 "$rank" sum
  sums 1 1 | check "Hydra, the only rank" 0 "${mpich[@]}" -n 1 "$rank" sum
  check "Hydra, without PMI_RANK" fails "${mpich[@]}" -n 2 env -u PMI_RANK "$rank" join \
    <<<"(PMI_SIZE=2), but PMI_RANK is not set"
  sums 2 1 | check "Hydra -pmi-port" 0 "${mpich[@]}" -pmi-port -n 2 "$rank" sum
  check_death "Hydra, a rank dies" 3 1 "${mpich[@]}" -n 3
  check_death "Hydra -pmi-port, a rank dies" 2 0 "${mpich[@]}" -pmi-port -n 2
  check "Hydra, status of a killed rank" 9 "${mpich[@]}" -n 2 "$rank" kill 1 </dev/null
  check_kill "Hydra, a rank below a shell is killed" 137 3 1 "${mpich[@]}" -n 3 \
    sh -c '"$0" "$@"; exit $?'
  check "Hydra, exit status" 5 "${mpich[@]}" -n 2 "$rank" exit 1 <<<"rank 1 of 2"
  check_deadline "Hydra, a rank is missing" fails "${mpich[@]}" -n 2 "$rank" miss 1 TOLD \
    <<<"ms passed while the rank was waiting in the barrier of the launcher's PMI server
this process is rank 0 of 2, started by a PMI-1 launcher: PMI_RANK=0, PMI_SIZE=2"
  check_keys "Hydra, a wrong key" PMI_RANK "${mpich[@]}" -n 2 <<<"$wrong_key
started by a PMI-1 launcher: PMI_RANK=1"
  for when in before after never; do
    sums 2 1 | check "Hydra, MPI_Init $when" 0 "${mpich[@]}" -n 2 "$rank" \
      sum libmpich.so.12,$when
  done
  for when in before after never; do
    check "Hydra -pmi-port, MPI_Init $when" fails "${mpich[@]}" -pmi-port -n 2 "$rank" \
      join libmpich.so.12,$when <<<"an id from hocketGetUniqueId that MPI_Bcast passes to all ranks"
  done
fi

if have openmpi; then
  sums 3 1 | check "Open MPI" 0 "${openmpi[@]}" -n 3 "$rank" sum
  sums 1 1 | check "Open MPI, the only rank" 0 "${openmpi[@]}" -n 1 "$rank" sum
  check_death "Open MPI, a rank dies" 3 1 "${openmpi[@]}" -n 3
  check "Open MPI, status of a killed rank" 137 "${openmpi[@]}" -n 2 "$rank" kill 1 </dev/null
  check "Open MPI, exit status" 5 "${openmpi[@]}" -n 2 "$rank" exit 1 <<<"rank 1 of 2"
  check_deadline "Open MPI, a rank is missing" fails "${openmpi[@]}" -n 2 "$rank" miss 1 TOLD \
    <<<"rank 1 is missing"
  check_deadline "Open MPI, rank 0 is missing" fails "${openmpi[@]}" -n 2 "$rank" miss 0 TOLD \
    <<<"waiting for rank 0 to publish its address by PMIx"
  check_keys "Open MPI, a wrong key" OMPI_COMM_WORLD_RANK "${openmpi[@]}" -n 2 \
    <<<"job key"  # of the rank that mpirun leaves the time to report
  for when in before after never; do
    sums 2 1 | check "Open MPI, MPI_Init $when" 0 "${openmpi[@]}" -n 2 "$rank" \
      sum libmpi.so.40,$when
  done
fi

if have torchrun; then
  sums 2 1 | check "torchrun" 0 "${torch[@]}" --standalone --nproc-per-node 2 "$rank" sum
  sums 1 1 | check "torchrun, the only rank" 0 "${torch[@]}" --standalone --nproc-per-node 1 \
    "$rank" sum
  check_death "torchrun, a rank dies" 3 1 "${torch[@]}" --standalone --nproc-per-node 3
  check "torchrun, status of a killed rank" 1 "${torch[@]}" --standalone --nproc-per-node 2 \
    "$rank" kill 1 </dev/null
  check "torchrun, exit status" 1 "${torch[@]}" --standalone --nproc-per-node 2 \
    "$rank" exit 1 <<<"rank 1 of 2"
  check_deadline "torchrun, a rank is missing" fails "${torch[@]}" --standalone \
    --nproc-per-node 2 "$rank" miss 1 TOLD <<<"rank 1 is missing"
  check_keys "torchrun, a wrong key" RANK "${torch[@]}" --standalone --nproc-per-node 2 \
    <<<"job key"
fi

# RANK, WORLD_SIZE and MASTER_ADDR alone.
sums 2 1 | check "variables" 0 by_hand 2 MASTER_ADDR=localhost -- "$rank" sum
sums 2 1 | check "variables, with a key" 0 by_hand 2 MASTER_ADDR=127.0.0.1 \
  HOCKET_JOB_KEY_FILE="$work/key" -- "$rank" sum
check_death "variables, a rank dies" 3 1 by_hand 3 MASTER_ADDR=localhost --
check_deadline "variables, a rank is missing" fails by_hand 2 MASTER_ADDR=localhost -- \
  "$rank" miss 1 TOLD <<<"rank 1 is missing"
check "variables, over several hosts without a key" fails by_hand 2 MASTER_ADDR=192.0.2.1 \
  -- "$rank" join <<<"2 times gives ranks on several hosts no secret"
check "variables, without MASTER_ADDR" fails by_hand 2 TERM=dumb -- "$rank" join \
  <<<"2 times MASTER_ADDR is not set"
check "variables, without WORLD_SIZE" 3 env RANK=0 MASTER_ADDR=localhost "$rank" join \
  <<<"WORLD_SIZE is not set"
check "variables, without RANK" fails by_hand 2 MASTER_ADDR=localhost -- env -u RANK \
  -u MASTER_ADDR "$rank" join <<<"2 times WORLD_SIZE=2), but RANK is not set"
sums 1 1 | check "variables, the only rank" 0 env RANK=0 WORLD_SIZE=1 "$rank" sum
# Two ranks: a third might look for rank 0 only after rank 0 has failed, and then waits for it.
check_keys "variables, a wrong key" RANK by_hand 2 MASTER_ADDR=localhost -- <<<"$wrong_key
RANK=1, WORLD_SIZE=2"
sums 2 2 | check "variables, with a key and TLS" 0 by_hand 2 MASTER_ADDR=127.0.0.1 HOCKET_TLS=1 \
  HOCKET_TRANSPORT=tcp HOCKET_JOB_KEY_FILE="$work/key" -- "$rank" sum
check "variables, ranks differ in TLS" fails by_hand 2 MASTER_ADDR=localhost -- \
  sh -c 'HOCKET_TLS=$RANK exec "$0" join' "$rank" <<<"ranks disagree about HOCKET_TLS"
check "variables, key file that others may read" fails by_hand 2 MASTER_ADDR=localhost \
  HOCKET_JOB_KEY_FILE="$here" -- "$rank" join <<<"2 times others may use the job key file"
check "variables, two ranks of one number" fails by_hand 2 MASTER_ADDR=localhost -- \
  env RANK=0 "$rank" join <<<"two processes claim to be rank 0"
check "variables, ranks disagree about their number" fails by_hand 2 MASTER_ADDR=localhost -- \
  sh -c 'WORLD_SIZE=$((2 + RANK)) exec "$0" join' "$rank" <<<"ranks disagree about their number"

# Launchers inside launchers: the outer one's variables are left.
if have mpich openmpi; then
  sums 2 1 | check "Open MPI inside Hydra" 0 "${mpich[@]}" -n 1 "${openmpi[@]}" -n 2 "$rank" sum
  check "Hydra inside Open MPI" fails "${openmpi[@]}" -n 1 "${mpich[@]}" -n 2 "$rank" join \
    <<<"the variables of two launchers contradict each other: OMPI_COMM_WORLD_RANK=0"
  sums 2 1 | check "Hydra inside Open MPI, unset" 0 "${openmpi[@]}" -n 1 env \
    -u OMPI_COMM_WORLD_RANK -u PMIX_RANK "${mpich[@]}" -n 2 "$rank" sum
fi
check "Open MPI's variables without the rank" 3 env OMPI_COMM_WORLD_SIZE=2 "$rank" join \
  <<<"(OMPI_COMM_WORLD_SIZE=2), but OMPI_COMM_WORLD_RANK is not set"
check "Open MPI's variables without Open MPI" fails env OMPI_COMM_WORLD_RANK=0 \
  OMPI_COMM_WORLD_SIZE=2 "$rank" join <<<"PMIx"
for launcher in mpich openmpi; do
  have $launcher || continue
  declare -n mpirun=$launcher
  sums 2 1 | check "mpirun.$launcher inside hocket-run" 0 "$hocket_run" -n 1 "${mpirun[@]}" -n 2 \
    "$rank" sum
  sums 2 1 | check "hocket-run inside mpirun.$launcher" 0 "${mpirun[@]}" -n 1 "$hocket_run" -n 2 \
    "$rank" sum
done
if have torchrun mpich; then
  check "Hydra inside torchrun" fails "${torch[@]}" --standalone --nproc-per-node 1 "${mpich[@]}" \
    -n 2 "$rank" join <<<"RANK=0, WORLD_SIZE=1 (torchrun), but PMI_SIZE=2"
  sums 2 1 | check "Hydra inside torchrun, unset" 0 "${torch[@]}" --standalone \
    --nproc-per-node 1 env -u TORCHELASTIC_RUN_ID "${mpich[@]}" -n 2 "$rank" sum
fi

# What a container engine makes with --network=host, and the small /dev/shm of its containers: no
# engine runs here, but the same namespaces. A container for each rank, with its own processes,
# mounts, IPC, host name and users; and one for all ranks, with its own network too.
container=(unshare --user --map-root-user --mount --ipc --uts --cgroup --pid --fork --mount-proc)
inside='mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$0" "$@"'
if "${container[@]}" sh -c "$inside" true 2>/dev/null; then
  sums 2 1 | check "a container for each rank, hocket-run" 0 "$hocket_run" -n 2 "${container[@]}" \
    sh -c "$inside" "$rank" sum
  check_death "a container for each rank, a rank dies" 3 1 "$hocket_run" -n 3 "${container[@]}" \
    sh -c "$inside"
  sums 2 1 | check "a container for each rank, variables" 0 by_hand 2 MASTER_ADDR=localhost -- \
    "${container[@]}" sh -c "$inside" "$rank" sum
  sums 2 1 | check "a container for all ranks" 0 "${container[@]}" --net sh -c \
    "ip link set lo up && $inside" "$hocket_run" -n 2 "$rank" sum
  for launcher in mpich openmpi; do
    have $launcher || continue
    declare -n mpirun=$launcher
    sums 2 1 | check "a container for each rank, mpirun.$launcher" 0 "${mpirun[@]}" -n 2 \
      "${container[@]}" sh -c "$inside" "$rank" sum
  done
else
  echo "left out: no user namespaces here"
fi
