#!/bin/bash
# usage: check_model.sh CC MODEL PART...
# Spin checks every interleaving of the model of a protocol, a .pml file. It finds no error; and if
# the model leaves out a PART of the protocol (WITHOUT_PART), it finds one. Exit status 77: spin is
# not installed.
set -euo pipefail
cc=$1 model=$(realpath "$2")
shift 2
command -v spin >/dev/null || { echo "spin is not installed (Debian: spin)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

errors() {  # [SPIN'S DEFINE]: how many errors there are
  rm -f pan*
  spin -a "$@" "$model" >log
  "$cc" -O1 -DSAFETY -DNOREDUCE -w -o pan pan.c
  ./pan -m100000 >log
  if [[ ! $* ]] && grep 'too small\|not completed' log >&2; then exit 1; fi
  sed -n 's/.*errors: \([0-9]*\)$/\1/p' log
}

found=$(errors)
[[ $found == 0 ]] || { echo "the protocol has an error:"; cat log; exit 1; }
grep 'states, stored' log
for part; do
  found=$(errors "-DWITHOUT_$part")
  [[ $found -gt 0 ]] || { echo "without its $part the model has no error"; exit 1; }
  echo "without $part: an error, as it must be"
done
