# Cases in the Slurm cluster of tests/rig/slurm, nodes h1 and h2: sourced by launchers.sh.
two=(-N 2 --ntasks-per-node 2)

sums 4 2 | check "srun, 2 hosts, by MUNGE" 0 srun "${two[@]}" "$rank" sum
sums 2 1 | check "srun, 1 host" 0 srun -N 1 -n 2 "$rank" sum
sums 1 1 | check "srun, the only rank" 0 srun -N 1 -n 1 "$rank" sum
check "srun, without SLURM_PROCID" fails srun -N 1 -n 2 env -u SLURM_PROCID "$rank" join \
  <<<"SLURM_STEP_NUM_TASKS=2), but SLURM_PROCID is not set"
sums 4 2 | check "srun, 2 hosts, by a key file" 0 env HOCKET_JOB_KEY_FILE="$work/key" \
  srun "${two[@]}" "$rank" sum
check_death "srun, 1 host, a rank dies" 3 1 srun -N 1 -n 3
check_death "srun, a rank dies" 4 3 srun "${two[@]}"
check_kill "srun, a rank is killed" 137 4 3 srun "${two[@]}"
check "srun -K, status of a killed rank" 137 srun -K "${two[@]}" "$rank" kill 2 </dev/null
check "srun, exit status" 5 srun "${two[@]}" "$rank" exit 2 <<<"rank 2 of 4"
check_deadline "srun, a rank is missing" fails srun "${two[@]}" "$rank" miss 3 TOLD \
  <<<"rank 3 is missing
started by Slurm's srun: SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=4"
check_keys "srun, a wrong key" SLURM_PROCID srun --kill-on-bad-exit=0 -N 2 -n 2 <<<"$wrong_key
SLURM_PROCID=1"
printf 'h2\nh1\nh2\n' >"$work/hostfile"
sums 3 2 | check "srun, tasks placed by hand" 0 env SLURM_HOSTFILE="$work/hostfile" \
  srun -m arbitrary -n 3 "$rank" sum

sums 4 2 | check "srun --mpi=pmi2" 0 srun --mpi=pmi2 "${two[@]}" "$rank" sum
sums 2 1 | check "srun --mpi=pmi2, 1 host" 0 srun --mpi=pmi2 -N 1 -n 2 "$rank" sum
check_kill "srun --mpi=pmi2, a rank is killed" 137 4 3 srun --mpi=pmi2 "${two[@]}"
check_keys "srun --mpi=pmi2, a wrong key" SLURM_PROCID srun --mpi=pmi2 --kill-on-bad-exit=0 -N 2 \
  -n 2 <<<"$wrong_key"
check_death "srun --mpi=pmi2, a rank dies" 4 0 srun --mpi=pmi2 "${two[@]}"
check "srun --mpi=pmi2, exit status" 5 srun --mpi=pmi2 "${two[@]}" "$rank" exit 2 <<<"rank 2 of 4"
check_deadline "srun --mpi=pmi2, a rank is missing" fails srun --mpi=pmi2 "${two[@]}" \
  "$rank" miss 3 TOLD <<<"waiting in the barrier of the launcher's PMI server"
if have mpich; then
  for when in before after never; do
    sums 4 2 | check "srun --mpi=pmi2, MPI_Init $when" 0 srun --mpi=pmi2 "${two[@]}" \
      "$rank" sum libmpich.so.12,$when
  done
fi
if have pmix; then
  sums 4 2 | check "srun --mpi=pmix" 0 srun --mpi=pmix "${two[@]}" "$rank" sum
  sums 2 1 | check "srun --mpi=pmix, 1 host" 0 srun --mpi=pmix -N 1 -n 2 "$rank" sum
  check_kill "srun --mpi=pmix, a rank is killed" 137 4 3 srun --mpi=pmix "${two[@]}"
  check_keys "srun --mpi=pmix, a wrong key" SLURM_PROCID srun --mpi=pmix --kill-on-bad-exit=0 -N 2 \
    -n 2 <<<"$wrong_key"
  check_death "srun --mpi=pmix, a rank dies" 4 1 srun --mpi=pmix "${two[@]}"
  check "srun --mpi=pmix, exit status" 5 srun --mpi=pmix "${two[@]}" "$rank" exit 2 \
    <<<"rank 2 of 4"
  check_deadline "srun --mpi=pmix, a rank is missing" fails srun --mpi=pmix "${two[@]}" \
    "$rank" miss 3 TOLD <<<"rank 3 is missing"
fi
if have pmix openmpi; then
  for when in before after never; do
    sums 4 2 | check "srun --mpi=pmix, MPI_Init $when" 0 srun --mpi=pmix "${two[@]}" \
      "$rank" sum libmpi.so.40,$when
  done
fi

# Launchers inside an allocation: Slurm's variables are left, and are wrong.
if have openmpi; then
  sums 4 2 | check "Open MPI inside salloc" 0 salloc -Q "${two[@]}" "${openmpi[@]}" "$rank" sum
fi
if have openmpi5; then
  sums 4 2 | check "Open MPI 5 inside salloc" 0 salloc -Q "${two[@]}" "${openmpi5[@]}" \
    "$rank" sum
fi
if have mpich; then
  sums 4 2 | check "Hydra inside salloc" 0 salloc -Q "${two[@]}" "${mpich[@]}" -n 4 "$rank" sum
fi
if have torchrun; then
  # Each task of srun is an agent. The key travels by MUNGE.
  sums 4 2 | check "torchrun inside srun" 0 srun -N 2 --ntasks-per-node 1 sh -c \
    'exec "$0" --no-python --nnodes 2 --node-rank $SLURM_NODEID --nproc-per-node 2 \
     --master-addr h1 --master-port 29512 "$1" sum' "$torchrun" "$rank"
fi
sums 4 2 | check "hocket-run inside salloc" 0 salloc -Q "${two[@]}" "$hocket_run" \
  --ssh "$HOSTS_RSH" --hosts h1:2,h2:2 "$rank" sum
sums 2 1 | check "hocket-run inside srun" 0 srun -N 1 -n 1 "$hocket_run" -n 2 \
  "$rank" sum
sums 1 1 | check "a batch script is no rank" 0 salloc -Q -N 2 -n 2 "$rank" sum
# shellcheck disable=SC1091
source "$(dirname "$here")/lines.sh" slurm
