#!/bin/bash
# hocket-perf as a user runs it. usage: program.sh BIN_DIR SPOILER
set -uo pipefail
bin=$1 spoiler=$2 failed=0
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

for collective in all_reduce all_gather reduce_scatter broadcast sendrecv; do
  perf 3 $collective -b 4 -e 40K -f 100 -n 2 -d all -o all
  check "3 ranks, $collective, every type and operator" test $? = 0
  check "$collective says that all is well" grep -q '^# Out of bounds values : 0 OK$' "$out/table"
  check "$collective leaves stderr alone" test ! -s "$out/errors"
done

"$bin/hocket-run" -n 2 "$bin/all_reduce_perf" -b 8 -e 8M -f 1024 -n 3 --memory alloc \
  --json "$out/rows.json" >"$out/table" 2>&1
check "all_reduce_perf by its name" test $? = 0
for field in collective bytes count dtype redop root ranks nodes inplace memory time_us p50_us \
  p99_us algbw_GBps busbw_GBps wrong algorithm transport; do
  check "the JSON has 6 $field" test "$(grep -c "\"$field\":" "$out/rows.json")" = 6
done
check "the JSON knows the memory" grep -q '"memory": "alloc"' "$out/rows.json"

# Ranks that a launcher binds: all must measure alike, and know how they share the cores.
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

perf 2 broadcast -r 5 -b 8 -e 8
check "a root that is no rank fails" test $? != 0
check "and is named" grep -q -e '-r 5' "$out/errors"
perf 2 all_reduce -b 8 -e 8 --json "$out/no/such/folder/x"
check "a JSON file that cannot be written fails" test $? != 0
check "and is named" grep -q 'no/such/folder' "$out/errors"

# Large sizes: warm-up is call 0, the timed loop calls 1 to 5. The lowest bit is within the error
# bound of a sum: only the comparison between ranks can see it.
spoiled 3 1 0 -b 64K -e 64K -n 5
check "one low bit on one rank in the timed loop fails" test $? != 0
check "and the ranks are named" grep -q '# ranks 0 and 1 hold different bytes' "$out/table"
# The same on all ranks: only the reference can see it. Bit 30 is in the exponent.
spoiled 5 -1 30 -b 64K -e 64K -n 5
check "the same wrong value on all ranks fails" test $? != 0
check "as out of bounds" grep -q '^# Out of bounds values : 2 FAILED$' "$out/table"
# A batch of small ones: call 100 is in the timed batch after the warm-up's 64.
spoiled 100 0 0 -b 8 -e 8 -n 2
check "one low bit in a batch of small operations fails" test $? != 0
spoiled 999999 0 0 -b 8 -e 64K -f 8192 -n 2
check "nothing is found where nothing was spoiled" test $? = 0
exit $failed
