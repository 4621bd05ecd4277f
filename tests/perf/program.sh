#!/bin/bash
# hocket-perf, started as users start it. usage: program.sh BIN_DIR SPOILER HOSTS
set -uo pipefail
bin=$1 spoiler=$2 hosts=$3 failed=0
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

check() {  # WHAT COMMAND...: it must succeed
  local what=$1
  shift
  "$@" >"$out/log" 2>&1 || { echo "FAILED: $what"; cat "$out/log"; failed=1; }
}
perf() { "$bin/hocket-run" -n "$1" "$bin/hocket-perf" "${@:2}" >"$out/table" 2>"$out/errors"; }
spoiled() {  # CALL RANK BIT ARGS...: all-reduces with one result spoiled
  SPOIL_CALL=$1 SPOIL_RANK=$2 SPOIL_BIT=$3 LD_PRELOAD=$spoiler perf 2 all_reduce "${@:4}"
}
fields_of() { awk '/^ *[0-9]/ { print NF }' "$out/table" | sort -u | xargs; }
holds() { awk "BEGIN { exit !($1) }"; }  # EXPRESSION of numbers

# ---- The lines that readers of nccl-tests' output look for, and the columns
well() {  # WHAT PROGRAM FIELDS: $out/table is a whole table
  local line lines=(
    "# Collective test starting: $2"
    '# nThread 1 nGpus 1 minBytes [0-9]+ maxBytes [0-9]+ step: [0-9]+\((factor|bytes)\) .*'
    '# Using devices'
    '#  Rank  0 Group  0 Pid +[0-9]+ on +[^ ]+ device +0 \[cpu\] .*'
    '# Method: (back-to-back|barrier|aligned|overlap): .*'
    '# +size +count +type +redop +root .*'
    '# Out of bounds values : 0 OK'
    '# Avg bus bandwidth    : [0-9.e+-]+'
    "# Collective test concluded: $2")
  cp "$out/table" "$out/shown"
  for line in "${lines[@]}"; do check "$1: $line" grep -qxE -e "$line" "$out/shown"; done
  check "$1: $3 fields in every row, not $(fields_of)" test "$(fields_of)" = "$3"
  check "$1: nothing on stderr" test ! -s "$out/errors"
}
mode() {  # RANKS FIELDS PROGRAM ARGS...
  perf "$1" "${@:3}" -b 8 -e 32K -f 64 -n 5
  check "$1 ranks, ${*:3}: exit status" test $? = 0
  well "$1 ranks, ${*:3}" "$3_perf" "$2"
}
for ranks in 2 4; do
  for program in all_reduce all_gather reduce_scatter broadcast reduce gather scatter alltoall \
    sendrecv barrier latency bandwidth bibandwidth; do
    mode $ranks 13 $program
    case $program in latency | bandwidth | bibandwidth) continue ;; esac
    mode $ranks 13 $program --barrier
    mode $ranks 15 $program --aligned
    mode $ranks 12 $program --overlap
  done
  for program in all_gather_v reduce_scatter_v gather_v scatter_v alltoall_v; do
    mode $ranks 13 $program
  done
  mode $ranks 13 gather_v --barrier -r 1
  mode $ranks 13 reduce_scatter_v -m 4 -u 3 --memory alloc
  for blocking in 0 1 2 3; do mode $ranks 13 all_reduce -z $blocking; done
  mode $ranks 27 all_reduce -v
  mode $ranks 27 latency -v
  mode $ranks 27 bandwidth -v -z 0
  mode $ranks 21 all_reduce -I 1 -K 1
  mode $ranks 15 all_reduce -S 1
  mode $ranks 13 all_gather -m 4 -u 3 -R 1 -y 1 --memory alloc
  mode $ranks 13 reduce_scatter -C 1 -G 0 -p 0 -C 0 -N 2
  mode $ranks 13 bibandwidth --window 3 -z 0
  mode $ranks 13 all_reduce --buffers 1
  mode $ranks 13 all_reduce --buffers 2 --barrier
done
mode 1 13 all_reduce
for collective in all_reduce all_gather reduce_scatter broadcast reduce gather scatter alltoall \
  sendrecv all_gather_v reduce_scatter_v gather_v scatter_v alltoall_v; do
  perf 3 $collective -b 4 -e 40K -f 100 -n 2 -d all -o all
  check "3 ranks, $collective, every type and operator" test $? = 0
  well "3 ranks, $collective" ${collective}_perf 13
done
perf 3 broadcast -b 8 -e 8 -r all -n 2
check "-r all has a row for every root" \
  test "$(awk '/^ *[0-9]/ { print $5 }' "$out/table" | xargs)" = "0 1 2"
perf 3 gather -b 12K -e 12K -r all -n 2
check "the size of a gather does not depend on its root" \
  test "$(awk '/^ *[0-9]/ { print $1 }' "$out/table" | xargs)" = "12288 12288 12288"
# 0 cycles: it runs until it is killed.
timeout --signal=TERM 3 "$bin/hocket-run" -n 2 "$bin/hocket-perf" all_reduce -b 8 -e 8 -n 5 -N 0 \
  >"$out/table" 2>"$out/errors"
check "-N 0 goes on for ever" test "$(grep -c '^ *8 ' "$out/table")" -gt 1

# ---- JSON
"$bin/hocket-run" -n 2 "$bin/all_reduce_perf" -b 8 -e 8M -f 1024 -n 3 --memory alloc -v \
  --json "$out/rows.json" -J "$out/theirs.json" >"$out/table" 2>&1
check "all_reduce_perf by its name" test $? = 0
check "the JSON names the collective" grep -q '"collective": "all_reduce"' "$out/rows.json"
"$bin/hocket-run" -n 2 "$bin/alltoallv_perf" -b 64 -e 64 -n 3 --json "$out/varying.json" \
  >"$out/table" 2>&1
check "alltoallv_perf by nccl-tests' name" test $? = 0
check "the JSON names the v-variant" grep -q '"collective": "alltoall_v"' "$out/varying.json"
for field in collective method bytes count dtype redop root ranks nodes inplace memory blocking \
  iterations time_us min_us p50_us p95_us p99_us max_us algbw_GBps busbw_GBps wrong algorithm \
  transport; do
  check "the JSON has 6 $field" test "$(grep -c "\"$field\":" "$out/rows.json")" = 6
done
check "the JSON knows the memory" grep -q '"memory": "alloc"' "$out/rows.json"
check "-v has times in the JSON" grep -qE '"p50_us": [0-9]' "$out/rows.json"
for field in start_time args config devices results out_of_bounds average_bus_bandwidth; do
  check "-J writes $field" grep -q "\"$field\":" "$out/theirs.json"
done
check "-J has 3 results" test "$(grep -c '"out_of_place":' "$out/theirs.json")" = 3

# ---- --explain: every algorithm that can run the call beside its price; one of them is chosen
explained() {  # WHAT POINTS ALGORITHMS: $out/table has lines of these algorithms at so many sizes
  cp "$out/table" "$out/shown"
  check "$1: nothing on stderr" test ! -s "$out/errors"
  check "$1: one chosen algorithm for each size" test "$(grep -c ' [*] ' "$out/shown")" = "$2"
  check "$1: its algorithms are $3" test "$(awk '/^ *[0-9]/ { sub(/[*]/, ""); print $5 }' \
    "$out/shown" | sort -u | xargs)" = "$3"
  check "$1: a price and a time in every line" test -z "$(awk \
    '/^ *[0-9]/ { sub(/[*]/, ""); if (!($7 > 0 && $8 > 0 && $10 >= 1)) print }' "$out/shown")"
  check "$1: a verdict" grep -qE "^# The chosen .* at [0-9]+ of $2 points" "$out/shown"
}
plans=$(dirname "$0")/../../examples/plans/cube.json
HOCKET_PLAN_FILES=$plans perf 4 all_reduce --explain -b 8 -e 512 -f 64 -n 6 --json "$out/explained"
check "--explain: exit status" test $? = 0
explained "--explain" 2 "circulant cube double-tree inline one-shot owner-fold \
recursive-doubling ring staged tree"
check "--explain writes JSON" test "$(grep -c '"chosen": true' "$out/explained")" = 2
perf 2 all_reduce --explain -b 1M -e 1M --seconds 0 --memory alloc
explained "--explain of mapped memory" 1 "circulant direct double-tree one-shot owner-fold \
recursive-doubling ring staged tree"
perf 4 all_gather_v --explain -b 64 -e 64 --seconds 0
explained "--explain of unequal blocks" 1 "circulant inline one-shot pat ring staged"
perf 4 reduce_scatter_v --explain -b 64K -e 64K --seconds 0
explained "--explain of a reduce-scatter of unequal blocks" 1 \
  "circulant one-shot owner-fold pat ring staged"
for program in broadcast reduce gather scatter alltoall all_gather reduce_scatter barrier \
  all_gather_v reduce_scatter_v; do
  HOCKET_NODES=2,2 perf 4 $program --explain -b 64 -e 64 --seconds 0
  check "--explain $program of two nodes" test $? = 0
  check "--explain $program: a verdict" grep -q ' of 1 points' "$out/table"
done

# ---- Ranks that a launcher binds: all must measure alike, and know how they share the cores.
bound() {  # FIRST SECOND RANKS_PER_CORE: two ranks, each bound to the cores given
  rm -rf "$out/first"
  HOCKET_LOG=info "$bin/hocket-run" -n 2 bash -c \
    'mkdir "$0" 2>/dev/null && cores=$1 || cores=$2; exec taskset -c "$cores" "${@:3}"' \
    "$out/first" "$1" "$2" "$bin/hocket-perf" all_reduce -b 8 -e 1M -f 64 -n 3 --memory alloc \
    >"$out/table" 2>&1
  check "ranks bound to $1 and $2" test $? = 0
  cp "$out/table" "$out/log"
  check "ranks bound to $1 and $2 are $3 per core" \
    test "$(grep -c "; $3 ranks per core here" "$out/log")" = 2
}
bound 0 0 2
if [ "$(nproc)" -ge 2 ] && taskset -c 0,1 true; then
  bound 0 1 1
  bound 0 0,1 1
  bound 0,1 0,1 1
fi

# ---- Errors are printed once, whatever the number of ranks
once() {  # WHAT TEXT STATUS RANKS ARGS...
  perf "${@:4}"
  check "$1: exit status" test $? = "$3"
  cp "$out/errors" "$out/shown"
  check "$1 is said once: $(cat "$out/shown")" test "$(grep -c -e "$2" "$out/shown")" = 1
}
once "an unknown flag" 'bogus' 2 4 all_reduce --bogus
once "a refused flag" 'CUDA graphs' 2 4 all_reduce -G 1
once "a missing program" 'collective is required' 2 3
once "an explanation of messages" 'no choice of algorithms' 2 2 latency --explain
once "a root that is no rank" 'only ranks 0 to 1' 1 2 broadcast -r 5 -b 8 -e 8
once "an odd number of ranks" '3 is odd' 1 3 latency -b 8 -e 8
once "a file that cannot be written" 'no/such/folder' 1 3 all_reduce -b 8 -e 8 \
  --json "$out/no/such/folder/x"
once "too much memory" 'no memory' 1 2 all_reduce -b 8 -e 1024T -f 1000000 -c 0
perf 4 --help
check "--help succeeds" test $? = 0
check "--help is shown once" test "$(grep -c 'Times and checks' "$out/table")" = 1
# One rank alone is called wrongly: it says why, and all end with its status.
rm -rf "$out/first"
"$bin/hocket-run" -n 3 bash -c 'mkdir "$0" 2>/dev/null && set -- "$@" --bogus; exec "$@"' \
  "$out/first" "$bin/hocket-perf" all_reduce -b 8 -e 8 >"$out/table" 2>"$out/errors"
check "one wrong rank ends all" test $? = 2
check "and says why, once" test "$(grep -c 'bogus' "$out/errors")" = 1
# A rank dies: one of the others prints the error.
rm -rf "$out/first"
"$bin/hocket-run" -n 4 --on-death=continue bash -c \
  'mkdir "$0" 2>/dev/null && { "$@" & sleep 1; kill -9 $!; exit 3; }; exec "$@"' \
  "$out/first" "$bin/hocket-perf" all_reduce -b 8 -e 8 -N 0 >"$out/table" 2>"$out/errors"
check "a dead rank is told of once: $(cat "$out/errors")" \
  test "$(grep -c '^hocket-perf: rank' "$out/errors")" = 1

NCCL_TESTS_MIN_BW=1000000 perf 2 all_reduce -b 64K -e 64K -n 2
check "a bandwidth below NCCL_TESTS_MIN_BW fails" test $? = 1
check "and is shown" grep -q '^# Avg bus bandwidth .* FAILED$' "$out/table"
NCCL_TESTS_MIN_BW=0 perf 2 all_reduce -b 64K -e 64K -n 2
check "a bandwidth above it succeeds" test $? = 0

# ---- The timed intervals. Rank 1 starts 200 ms after rank 0, whenever there was a barrier.
late() {  # ARGS...: rank 0's time, and what follows #wrong; in us
  LATE_RANK=1 LATE_MS=200 LD_PRELOAD=$spoiler perf 2 all_reduce -b 8 -e 8 -n 10 -w 1 "$@"
  awk '/^ *8 / { print $6, $10 }' "$out/table"
}
read -r back_to_back _ <<<"$(late -a 0 -z 2)"
read -r barrier _ <<<"$(late -a 0 --barrier)"
read -r aligned skew <<<"$(late --aligned)"
check "--barrier has the late start in every iteration: $barrier us" holds "$barrier >= 190000"
check "back to back it counts once for 10 iterations: $back_to_back us" \
  holds "$back_to_back >= 19000 && $back_to_back < $barrier / 2"
check "--aligned has it in the skew: $skew us" holds "$skew >= 190000"
check "and not in the time: $aligned us" holds "$aligned < $skew / 2"

# ---- A wrong result is found
# Large sizes: warm-up is call 0, the timed loop calls 1 to 5. The lowest bit is within the error
# bound of a sum: only the comparison between ranks can see it.
for method in "-z 0" "-z 2" --barrier --aligned "--barrier --buffers 8"; do
  spoiled 3 1 0 -b 64K -e 64K -n 5 $method
  check "$method: one low bit on one rank in the timed loop fails" test $? != 0
  check "and the ranks are named" grep -q '# ranks 0 and 1 hold different bytes' "$out/table"
  # The same on all ranks: only the reference can see it. Bit 30 is in the exponent.
  spoiled 5 -1 30 -b 64K -e 64K -n 5 $method
  check "$method: the same wrong value on all ranks fails" test $? != 0
  check "as out of bounds" grep -q '^# Out of bounds values : 2 FAILED$' "$out/table"
done
spoiled 40 0 0 -b 8 -e 8 -n 60
check "one low bit in a loop of small operations fails" test $? != 0
# In place, 64 slots serve 100 operations: those that count come after the timed loop.
spoiled 250 -1 30 -b 8 -e 8 -n 100
check "a wrong value after the timed loop in place fails" test $? != 0
spoiled 999999 0 0 -b 8 -e 64K -f 8192 -n 2
check "nothing is found where nothing was spoiled" test $? = 0

# ---- Two hosts have two clocks, and so have two time namespaces. The second one's clock is
# 100,000 s ahead: what is left of that, if anything, is 10^11 us.
if unshare --time --monotonic 100000 --fork true 2>/dev/null; then
  rm -rf "$out/first"
  "$bin/hocket-run" -n 2 bash -c 'mkdir "$0" 2>/dev/null && exec "$@"
    exec unshare --time --monotonic 100000 --fork "$@"' \
    "$out/first" "$bin/hocket-perf" all_reduce -b 8 -e 8 -n 20 --aligned \
    >"$out/table" 2>"$out/errors"
  check "--aligned with two clocks" test $? = 0
  read -r time skew <<<"$(awk '/^ *8 / { print $6, $10 }' "$out/table")"
  check "--aligned knows how far clocks are apart: time $time, skew $skew us" \
    holds "$time > -1e9 && $time < 1e9 && $skew < 1e9"
fi
skipped=77
aligned_hosts() {
  "$hosts" -- bash -c '"$0/hocket-run" -n 4 --hosts h1:2,h2:2 --ssh "$HOSTS_RSH" \
    "$0/hocket-perf" all_reduce -b 8 -e 64K -f 8192 -n 20 --aligned --json "$1"' \
    "$bin" "$out/hosts.json" >"$out/table" 2>"$out/errors"
}
aligned_hosts
status=$?
if [ $status != $skipped ]; then
  check "--aligned between two hosts" test $status = 0
  cp "$out/table" "$out/shown"
  check "--aligned between two hosts: a time in every row" \
    test "$(awk '/^ *[0-9]/ && $6 > 0' "$out/shown" | wc -l)" = 2
  check "the clocks of two hosts are not known exactly" \
    grep -qE '"clock_uncertainty_us": [0-9]*[1-9]' "$out/hosts.json"
fi
# ---- Builds of the library, compared in turns: the same library twice
lib=$(dirname "$bin")/lib/libhocket.so
compare() { "$bin/hocket-run" -n 2 "$bin/compare_builds" "$@" >"$out/table" 2>"$out/errors"; }
calls=barrier,broadcast:8,reduce:8,gather:8,scatter:8,all_reduce:512,all_gather:8,reduce_scatter:8
compare --turns 3 --iterations 50 --calls $calls,alltoall:4096 "$lib" "$lib"
check "compare_builds: exit status" test $? = 0
check "compare_builds: a time and a ratio of each library in every row" \
  test "$(awk '!/^#/ && NF == 5 && $2 > 0 && $3 == 1 && $4 > 0 && $5 > 0' "$out/table" | wc -l)" = 9
refused() {  # TEXT ARGS...: compare_builds says TEXT
  ! compare "${@:2}" && cat "$out/table" >>"$out/errors" && grep -qF -e "$1" "$out/errors"
}
check "compare_builds: no library" refused "File does not exist" "$out/none.so"
check "compare_builds: another library" refused "undefined symbol" "$spoiler"
check "compare_builds: another collective" refused "barriers: not one of" --calls barriers "$lib"
check "compare_builds: part of an element" refused "a multiple of 4" --calls gather:6 "$lib"
exit $failed
