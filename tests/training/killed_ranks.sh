#!/bin/bash
# Ranks of a training job are killed, again and again, and the job goes on with fewer ranks from its
# last checkpoint. Each survivor names the killed rank, and the call in which it was. If one was
# outside of backward() and step() (it saved, or exchanged the loss), it says so, and another
# rank is killed, until there were KILLS in which all survivors were in one of them.
# usage: killed_ranks.sh BIN_DIR [KILLS]
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
ranks=3 step=0 within=0
resumed() {
  ((step == 0)) && return
  grep -q "^resumed .* at step $step:" "$out/stdout" || fail "$what: did not go on at step $step"
  grep -q ", $ranks ranks x batch " "$out/stdout" || fail "$what: did not go on with $ranks ranks"
}
# The steps take most of the time, not the checkpoints between them.
model=(--layers 2 --width 128 --heads 2 --sequence 64 --batch 4)
for ((kill = 1; within < kills; ++kill)); do
  if ((kill > 5 * kills)); then
    fail "of $((kill - 1)) kills $within were in backward() or step()"
    break
  fi
  strategy=${strategies[RANDOM % 3]}
  resume=()
  ((step == 0)) || resume=(--resume "$out/checkpoints")
  : >"$out/stdout"
  "$bin/hocket-run" -n $ranks --on-death continue "$bin/hocket-train-gpt" --text "$out/text" \
    "${model[@]}" --steps 1000000 --report-every 1 --strategy "$strategy" \
    --save "$out/checkpoints" --save-every 5 "${resume[@]}" \
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
  survivors=$(grep -E "^hocket-train-gpt: rank [0-9]+: .*\(caused by rank $rank\)" "$out/stderr")
  named=$(grep -c . <<<"$survivors")
  ((named == ranks - 1)) || fail "$what: $named survivors named it"
  inside=$(grep -cE ': step [0-9]+, (backward|step)\(\): ' <<<"$survivors")
  outside=$(grep -c ': after step [0-9]*, outside of backward() and step(): ' <<<"$survivors")
  ((inside + outside == named)) || fail "$what: survivors do not say in which call they were"
  ((ranks == 1 || inside < named)) || within=$((within + 1))
  resumed
  # The next job goes on with one rank fewer; after the last one, with 3 again.
  last=$(cat "$out/checkpoints/latest")
  step=${last##*-}
  ranks=$((ranks > 1 ? ranks - 1 : 3))
  pgrep -f "^$bin/hocket-train-gpt --text $out/text" >/dev/null && fail "$what: a process is left"
done
what="the last job"
"$bin/hocket-run" -n $ranks "$bin/hocket-train-gpt" --text "$out/text" "${model[@]}" \
  --steps $((step + 2)) --sample 0 --resume "$out/checkpoints" --save "$out/checkpoints" \
  >"$out/stdout" 2>"$out/stderr" || fail "$what: exited with $?"
resumed
[[ $(cat "$out/checkpoints/latest") == *-$((step + 2)) ]] || fail "$what: did not go on"
echo "$((kill - 1)) ranks killed, $within times in backward() or step(); the last one at step $step"
exit $failed
