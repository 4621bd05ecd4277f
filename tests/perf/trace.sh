#!/bin/bash
# The traces of two ranks with two clocks, joined on one clock. usage: trace.sh BIN_DIR
# The clock of rank 1 is 100,000 s ahead, in a time namespace. On the joined clock no rank ends an
# all-reduce before the other begins it, but for the error that the measurement of the offset has.
set -uo pipefail
bin=$1
unshare --time --monotonic 100000 --fork true 2>/dev/null || exit 77
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

HOCKET_TRACE=$out "$bin/hocket-run" -n 2 bash -c 'test $HOCKET_RANK = 0 && exec "$@"
  exec unshare --time --monotonic 100000 --fork "$@"' \
  "" "$bin/hocket-perf" all_reduce -b 8 -e 8 -n 20 >"$out/table" 2>"$out/errors" ||
  { cat "$out/errors"; exit 1; }
"$bin/hocket-trace" "$out" -o "$out/joined" 2>"$out/told" || { cat "$out/told"; exit 1; }
cat "$out/told"
awk '
  function field(name) {
    if (!match($0, "\"" name "\":[-0-9.]+")) return ""
    return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
  }
  /"hocket_communicator"/ {
    if (field("clock_uncertainty_us") > uncertainty) uncertainty = field("clock_uncertainty_us")
    offset += field("clock_offset_us")
  }
  /"name":"all-reduce","cat":"collective"/ {
    n = field("sequence")
    begin = field("ts")
    end = begin + field("dur")
    ranks[n]++
    if (ranks[n] == 1 || begin > last_begin[n]) last_begin[n] = begin
    if (ranks[n] == 1 || end < first_end[n]) first_end[n] = end
  }
  END {
    for (n in ranks) {
      seen++
      if (ranks[n] != 2) { print "all-reduce " n " is not on both ranks"; failed = 1 }
      if (last_begin[n] <= first_end[n] + uncertainty) continue
      print "all-reduce " n ": " last_begin[n] - first_end[n] " us, uncertain " uncertainty
      failed = 1
    }
    if (uncertainty <= 0 || offset < 9e10 || seen < 20) {
      print "offset " offset ", uncertain " uncertainty ", all-reduces " seen
      failed = 1
    }
    exit failed
  }' "$out/joined"
