#!/bin/bash
# Two hosts with two ranks each train over TCP. With HOCKET_DETERMINISTIC the losses have the bits
# that four ranks of one host have. tests/rig/hosts runs this on the first host.
# usage: train_hosts.sh BIN_DIR
set -uo pipefail
bin=$1
export OMP_NUM_THREADS=1 HOCKET_DETERMINISTIC=1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for i in {1..400}; do printf 'The quick brown fox %03d jumps over the lazy dog.' "$i"; done \
  >"$out/text"
losses() {  # STRATEGY HOCKET_RUN_OPTIONS...: of every step
  "$bin/hocket-run" -n 4 --env OMP_NUM_THREADS "${@:2}" "$bin/hocket-train-gpt" \
    --text "$out/text" --layers 2 --width 64 --heads 2 --sequence 16 --batch 2 --steps 25 \
    --report json --sample 0 --strategy "$1" >"$out/stdout" 2>"$out/stderr" ||
    { cat "$out/stderr"; return 1; }
  grep -oE '"(loss|gradient_norm)":[^,}]*' "$out/stdout"
}
for strategy in ddp zero1 zero2; do
  here=$(losses $strategy) || exit 1
  hosts=$(losses $strategy --hosts h1:2,h2:2 --ssh "$HOSTS_RSH") || exit 1
  [[ $(wc -l <<<"$here") == 50 ]] || { echo "$strategy: 25 steps report 25 losses"; exit 1; }
  if [[ $here != "$hosts" ]]; then
    echo "$strategy: four ranks of one host and two hosts with two ranks have other losses:"
    diff <(echo "$here") <(echo "$hosts") | head
    exit 1
  fi
done
