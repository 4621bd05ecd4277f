# Open MPI 5, whose mpirun is PRRTE, on the hosts h1 and h2 of tests/rig/hosts, over ssh: sourced by
# launchers.sh. `perf/peers/install openmpi` installs it below build/peers, with a PMIx library of
# its own.
one=("${openmpi5[@]}" --map-by :OVERSUBSCRIBE)
two=("${openmpi5[@]}" --host h1:2,h2:2)
# PMIx libraries of two versions: mpirun prints such lines.
right_library="0 times PMIX ERROR"

{ sums 3 1; echo "$right_library"; } | check "Open MPI 5" 0 "${one[@]}" -n 3 "$rank" sum
{ sums 4 2; echo "$right_library"; } | check "Open MPI 5, 2 hosts" 0 "${two[@]}" -n 4 "$rank" sum
check_death "Open MPI 5, a rank dies" 3 1 "${one[@]}" -n 3
check_death "Open MPI 5, 2 hosts, a rank dies" 4 3 "${two[@]}" -n 4
check "Open MPI 5, 2 hosts, status of a killed rank" 137 "${two[@]}" -n 4 "$rank" kill 3 </dev/null
check "Open MPI 5, 2 hosts, exit status" 5 "${two[@]}" -n 4 "$rank" exit 2 <<<"rank 2 of 4"
check_deadline "Open MPI 5, 2 hosts, a rank is missing" fails "${two[@]}" -n 4 "$rank" miss 3 TOLD \
  <<<"rank 3 is missing"
check_deadline "Open MPI 5, 2 hosts, rank 0 is missing" fails "${two[@]}" -n 4 "$rank" miss 0 TOLD \
  <<<"waiting for rank 0 to publish its address by PMIx"
check_keys "Open MPI 5, 2 hosts, a wrong key" OMPI_COMM_WORLD_RANK "${two[@]}" --map-by node \
  -n 2 <<<"job key"
sums 4 2 | check "Open MPI 5, 2 hosts, MPI_Init before" 0 "${two[@]}" -n 4 "$rank" \
  sum libmpi.so.40,before
# hocket cannot know that MPI_Init is not called later.
for when in after never; do
  check "Open MPI 5, 2 hosts, MPI_Init $when" fails "${two[@]}" -n 4 "$rank" \
    sum libmpi.so.40,$when <<<"MPI_Init of Open MPI 5 fails in a process that has used PMIx before"
done
sums 2 1 | check "Open MPI 5 inside hocket-run" 0 "$hocket_run" -n 1 "${one[@]}" -n 2 "$rank" sum
sums 2 1 | check "hocket-run inside Open MPI 5" 0 "${one[@]}" -n 1 "$hocket_run" -n 2 "$rank" sum
