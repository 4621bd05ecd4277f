#!/bin/bash
# hocket-train-gpt, started as users start it. usage: train_gpt.sh BIN_DIR
set -uo pipefail
bin=$1 failed=0
export OMP_NUM_THREADS=1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

fail() { echo "FAILED: $*"; failed=1; }
check() {  # WHAT COMMAND...: it must succeed
  local what=$1
  shift
  "$@" >"$out/log" 2>&1 || { fail "$what"; cat "$out/log"; tail -n 5 "$out/stdout" "$out/stderr"; }
}
train() {  # RANKS OPTIONS...: a tiny model
  "$bin/hocket-run" -n "$1" "$bin/hocket-train-gpt" --text "$out/text" --layers 1 --width 32 \
    --heads 2 --sequence 16 --batch 4 --warm-up 2 --learning-rate 0.01 "${@:2}" \
    >"$out/stdout" 2>"$out/stderr"
}
json() { grep -oE "\"$1\":[^,}]*" "$out/stdout" | cut -d: -f2; }  # FIELD: its values
says() { grep -qE -e "$1" "$out/stdout"; }
complains() { grep -qE -e "$1" "$out/stderr"; }
holds() { awk "BEGIN { exit !($1) }"; }  # EXPRESSION of numbers

# 601 windows of 16 bytes are 571 to train on and 30 to validate.
for i in {1..220}; do printf 'The quick brown fox %03d jumps over the lazy dog.' "$i"; done |
  head -c $((601 * 16 + 1)) >"$out/text"

# ---- The loss goes down, by every strategy
for options in "1 --strategy none" "1 --strategy dp" "2 --strategy ddp" \
  "2 --strategy ddp --dtype bf16" \
  "3 --strategy ddp --checkpoint-activations --accumulate 2" "2 --strategy zero1" \
  "3 --strategy zero2 --accumulate 2" "2 --strategy zero1 --optimizer torch"; do
  # shellcheck disable=SC2086
  train $options --steps 60 --report json --sample 20
  check "$options: exit status" test $? = 0
  check "$options: the loss went down" \
    holds "$(json loss | tail -n 1) < 0.6 * $(json loss | head -n 1)"
  check "$options: 60 lines of steps" test "$(json loss | wc -l)" = 60
  case $options in [23]*)
    check "$options: the last step communicated every gradient" \
      holds "$(json bytes | tail -n 1) >= 4 * 21472 && $(json communication_s | tail -n 1) > 0" ;;
  esac
  check "$options: a validation" holds "$(json validation_loss) < 4"
  check "$options: a sample of the model" says '"prompt":"\\n","sample":"'
  check "$options: nothing on standard error" test ! -s "$out/stderr"
done

# ---- A resume at another number of ranks trains on the samples that were left
resumes() {  # RANKS_BEFORE RANKS_AFTER STRATEGY_AFTER: 8 steps, then until the epoch has ended
  rm -rf "$out/checkpoints" "$out/samples"
  train "$1" --steps 8 --save "$out/checkpoints" --record-samples "$out/samples" --sample 0
  check "$1 to $2: first part" test $? = 0
  local done=$((8 * 4 * $1))
  local left=$(((571 - done + 4 * $2 - 1) / (4 * $2)))
  train "$2" --steps $((8 + left)) --resume "$out/checkpoints" --record-samples "$out/samples" \
    --sample 0 --strategy "$3"
  check "$1 to $2: second part" test $? = 0
  check "$1 to $2: says where it goes on" says \
    "^resumed 000001-step-8 at step 8: $done of 571 sequences of epoch 0 are done, on $1 ranks"
  # Every window of the epoch once; as many repeated as make the ranks equal.
  cat "$out"/samples/rank-* | awk '$2 == 0' | cut -d' ' -f3- | tr ' ' '\n' | sort -n >"$out/seen"
  check "$1 to $2: every sequence" test "$(sort -nu "$out/seen" | wc -l)" = 571
  local repeated=$(($(wc -l <"$out/seen") - 571))
  check "$1 to $2: $repeated repeated" test $repeated -lt "$2"
}
resumes 2 3 ddp
resumes 3 1 none
resumes 2 3 zero2

# ---- A resume at the same number of ranks gives the bits of a training without a break
train 2 --steps 12 --seed 7 --report json --sample 0
json loss >"$out/straight"
rm -rf "$out/checkpoints"
train 2 --steps 12 --seed 7 --save "$out/checkpoints" --save-every 5 --report json --sample 0
check "saves every 5 steps, at the end, and keeps two" \
  test "$(ls "$out/checkpoints" | xargs)" = "000002-step-10 000003-step-12 latest"
train 2 --steps 12 --seed 7 --resume "$out/checkpoints/000002-step-10" --report json --sample 0
check "2 steps after the resume" test "$(json loss | wc -l)" = 2
check "the same losses" diff <(tail -n 2 "$out/straight") <(json loss)

start() {  # RANKS OPTIONS...: trains in the background until it is ended; returns after 3 steps
  : >"$out/stdout"
  train "$1" --steps 1000000000 --report-every 1 "${@:2}" &
  job=$!
  until says '^step +3 ' || ! kill -0 $job 2>/dev/null; do sleep 0.05; done
}

# ---- A signal ends it after the step, with a checkpoint
rm -rf "$out/checkpoints"
start 2 --save "$out/checkpoints"
kill -TERM "$(pgrep -f "^$bin/hocket-run -n 2 $bin/hocket-train-gpt --text $out/text")"
wait $job
check "TERM: exit status" test $? = 0
check "TERM: says so" says '^a signal ends the training after step [0-9]+$'
check "TERM: saved" test -s "$out/checkpoints/latest"

# ---- A rank that dies is named by the survivors
start 3
kill -KILL "$(pgrep --newest -f "^$bin/hocket-train-gpt --text $out/text")"
wait $job
check "a killed rank: exit status" test $? = 137
check "a killed rank: a survivor names it" complains \
  'hocket-train-gpt: rank [0-9]: .*caused by rank [0-9]\)'

# ---- The trace has the spans of all ranks, and hocket-trace reads it
train 2 --steps 3 --trace "$out/trace.json" --sample 0
check "trace: exit status" test $? = 0
for rank in 0 1; do
  for span in forward backward optimizer; do
    check "trace: $span of rank $rank" test 3 = \
      "$(grep -c "\"name\":\"$span\".*\"ph\":\"X\".*\"pid\":$rank," "$out/trace.json")"
  done
done
train 2 --steps 3 --strategy zero1 --trace "$out/zero1.json" --report json --sample 0
check "zero1: a gather in the trace of each step" test 3 = \
  "$(grep -c '"name":"gather 0".*"ph":"X".*"pid":1,' "$out/zero1.json")"
check "zero1: a step communicates gradients and parameters" \
  test "$(json bytes | tail -n 1)" -ge $((8 * 21472))
check "hocket-trace reads it" "$bin/hocket-trace" "$out/trace.json" -o "$out/joined.json"

# ---- What is wrong is refused, once, on all ranks
refused() {  # STATUS PATTERN OPTIONS...
  train 2 "${@:3}"
  local status=$?
  check "${*:3}: status $status" test $status = "$1"
  check "${*:3}: '$2'" complains "$2"
  check "${*:3}: one line" test "$(grep -c '^hocket-train-gpt: ' "$out/stderr")" = 1
}
refused 2 '--heads 3 must divide --width 32' --heads 3
refused 2 '--strategy: .*fsdp' --strategy fsdp
refused 2 '--steps: ' --steps 0
refused 2 'dp is one process with --replicas threads, but the job has 2 ranks' --strategy dp
refused 2 '--optimizer torch needs --strategy ddp, zero1 or zero2' --strategy none --optimizer torch
refused 2 '--save with --strategy none needs one rank' --strategy none --save "$out/none"
refused 2 '--save-every needs --save DIR' --save-every 3
refused 2 'not expected: --colour' --colour
refused 1 'cannot read the text /nowhere: No such file or directory' --text /nowhere
refused 1 'is too short: it has 9617 bytes, but --sequence 5000 needs 15001' --sequence 5000
printf '%2000s\xff%2000s' '' '' >"$out/latin"
refused 1 'is not UTF-8: byte 2000 \(0xff\) is no part of a character' --text "$out/latin"
refused 1 'cannot resume from|no checkpoint' --resume "$out"
train 2 --steps 2 --save "$out/checkpoints" --sample 0
refused 1 "cannot resume from .*parameter/" --resume "$out/checkpoints" --width 64
refused 1 'its model has .* 2 heads.* that of the command line .* 4 heads' \
  --resume "$out/checkpoints" --heads 4
refused 1 'parameter/block1' --resume "$out/checkpoints" --layers 2
refused 1 'cannot write the trace to /nowhere/trace: No such file' --steps 1 --sample 0 \
  --trace /nowhere/trace
refused 1 'the loss of rank 0 is -?nan at step' --steps 30 --clip 0 --learning-rate 1e30

# ---- A model whose loss is not finite takes the place of no checkpoint
rm -rf "$out/checkpoints"
train 2 --steps 2 --save "$out/checkpoints" --sample 0
cp -r "$out/checkpoints" "$out/before"
for options in "--save-every 1 --steps 30" "--steps 3"; do  # during the training, and at its end
  # shellcheck disable=SC2086
  refused 1 'the model of step 3 is not saved, because its loss is -?(nan|inf); earlier' \
    --resume "$out/checkpoints" --save "$out/checkpoints" --learning-rate 1e30 $options
  check "$options: the checkpoint before is as it was" diff -r "$out/before" "$out/checkpoints"
done
train 2 --steps 3 --resume "$out/checkpoints" --sample 0
check "a smaller rate goes on from the checkpoint before" test $? = 0
check "a smaller rate: one finite loss" says '^step +3  loss [0-9]'

"$bin/hocket-run" -n 2 "$bin/hocket-train-gpt" --help >"$out/stdout" 2>"$out/stderr"
check "--help: once" test "$(grep -c -- '--record-samples' "$out/stdout")" = 1

exit $failed
