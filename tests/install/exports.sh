#!/bin/bash
# usage: exports.sh LIBRARY HEADER...
# The library exports the calls that the headers declare, all of them and nothing else.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
library=$1
shift
nm -D --defined-only "$library" | awk '{ print $NF }' | sort >"$work/exported"
awk '/^HOCKET_API / && match($0, /hocket[A-Za-z]+\(/) { print substr($0, RSTART, RLENGTH - 1) }' \
  "$@" | sort >"$work/declared"
[[ $(wc -l <"$work/declared") -gt 30 ]] || { echo "the headers declare too few calls"; exit 1; }
diff --unchanged-line-format= --old-line-format='declared, not exported: %L' \
  --new-line-format='exported, not declared: %L' "$work/declared" "$work/exported"
