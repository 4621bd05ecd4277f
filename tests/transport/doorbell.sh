#!/bin/bash
# usage: doorbell.sh CC
# Spin checks every interleaving of the doorbell's model. No ring is lost; without any part of the
# protocol, a ring is lost. Exit status 77: spin is not installed.
set -euo pipefail
cc=$1
model=$(cd "$(dirname "$0")" && pwd)/doorbell.pml
command -v spin >/dev/null || { echo "spin is not installed (Debian: spin)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

errors() {  # [SPIN'S DEFINE]: how many invalid end states there are
  rm -f pan*
  spin -a "$@" "$model" >log
  "$cc" -O1 -DSAFETY -DNOREDUCE -w -o pan pan.c
  ./pan -m100000 >log
  if [[ ! $* ]] && grep 'too small\|not completed' log >&2; then exit 1; fi
  sed -n 's/.*errors: \([0-9]*\)$/\1/p' log
}

found=$(errors)
[[ $found == 0 ]] || { echo "the doorbell loses a ring:"; cat log; exit 1; }
grep 'states, stored' log
for part in FENCE BARRIER LOOK CHECK; do
  found=$(errors "-DWITHOUT_$part")
  [[ $found -gt 0 ]] || { echo "without its $part the model loses nothing"; exit 1; }
  echo "without $part: a ring is lost, as it must be"
done
