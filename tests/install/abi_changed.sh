#!/bin/bash
# usage: abi_changed.sh CC
# abi.sh detects changes that break compiled programs, and accepts changes that do not.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/hocket"

changed_by() {  # SED_SCRIPT: whether abi.sh finds the headers so changed to be another ABI
  for header in hocket.h communicators.h collectives.h operators.h; do
    sed -E "$1" "$here/../../include/hocket/$header" >"$work/hocket/$header"
  done
  if ABI_INCLUDE=$work "$here/abi.sh" "$cc" >"$work/log" 2>&1; then return 1; fi
  grep -q 'The ABI has changed' "$work/log" || { cat "$work/log"; exit 1; }
}

cc=$1
for change in 's/int deadline_ms;/long deadline_ms;/' 's/hocketTimeout = 8/hocketTimeout = 9/' \
  's/^  int silence_ms;/  int more_ms;\n  int silence_ms;/' '/hocketCommCount\(/d' \
  's/(HOCKET_UNIQUE_ID_BYTES) 128/\1 256/' 's/hocketBarrier\(/hocketBarrier(int more, /'; do
  changed_by "$change" || { echo "not found: $change"; exit 1; }
done
for change in 's/Effect:/Effect: yes,/' 's/(HOCKET_PATCH) 0/\1 7/'; do
  if changed_by "$change"; then echo "no change of the ABI: $change"; cat "$work/log"; exit 1; fi
done
