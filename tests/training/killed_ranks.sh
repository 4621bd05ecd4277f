#!/bin/bash
# Ranks of a training job are killed, again and again, and the job goes on with fewer ranks from its
# last checkpoint. usage: killed_ranks.sh BIN_DIR [KILLS]
set -uo pipefail
bin=$1 kills=${2:-20} failed=0
export OMP_NUM_THREADS=1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
seed=${TEST_SEED:-$RANDOM}
RANDOM=$seed
fail() {
  echo "FAILED (repeat with TEST_SEED=$seed): $*"
  tail -n 5 "$out/stdout" "$out/stderr"
  failed=1
}

for i in {1..400}; do printf 'The quick brown fox %03d jumps over the lazy dog.' "$i"; done \
  >"$out/text"
strategies=(ddp zero1 zero2)
ranks=3 step=0
for ((kill = 1; kill <= kills; ++kill)); do
  strategy=${strategies[RANDOM % 3]}
  resume=()
  ((step == 0)) || resume=(--resume "$out/checkpoints")
  : >"$out/stdout"
  "$bin/hocket-run" -n $ranks --on-death continue "$bin/hocket-train-gpt" --text "$out/text" \
    --layers 1 --width 32 --heads 2 --sequence 16 --batch 2 --steps 1000000 --report-every 1 \
    --strategy "$strategy" --save "$out/checkpoints" --save-every 3 "${resume[@]}" \
    >"$out/stdout" 2>"$out/stderr" &
  job=$!
  until grep -q '^saved ' "$out/stdout" || ! kill -0 $job 2>/dev/null; do sleep 0.02; done
  sleep "0.0$((RANDOM % 10))"
  mapfile -t processes < <(pgrep -f "^$bin/hocket-train-gpt --text $out/text")
  ((${#processes[@]} == ranks)) || fail "kill $kill: ${#processes[@]} processes of $ranks ranks"
  victim=${processes[RANDOM % ranks]}
  kill -KILL "$victim"
  wait $job
  status=$?
  killed="s/^hocket-run: rank \([0-9]*\) on .* (pid $victim) was killed.*/\1/p"
  rank=$(sed -n "$killed" "$out/stderr")
  what="kill $kill: rank $rank of $ranks, $strategy"
  ((status == 137)) || fail "$what: hocket-run exited with $status"
  named=$(grep -cE "^hocket-train-gpt: rank [0-9]+: .*\(caused by rank $rank\)" "$out/stderr")
  ((named == ranks - 1)) || fail "$what: $named survivors named it"
  ((step == 0)) || grep -q "^resumed .* at step $step:" "$out/stdout" ||
    fail "$what: did not go on at step $step"
  # The next job goes on with one rank fewer; after the last one, with 3 again.
  last=$(cat "$out/checkpoints/latest")
  step=${last##*-}
  ranks=$((ranks > 1 ? ranks - 1 : 3))
  pgrep -f "^$bin/hocket-train-gpt --text $out/text" >/dev/null && fail "$what: a process is left"
done
echo "$kills ranks killed; the last checkpoint has step $step"
exit $failed
