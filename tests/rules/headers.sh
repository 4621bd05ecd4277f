#!/bin/bash
# usage: headers.sh CC CXX
# Every header compiles by itself. The C headers, and the program in the first comment of hocket.h,
# compile as C99 and as C++20 without a warning.
cd "$(dirname "$0")/../.." || exit 1
cc=$1 cxx=$2
strict=(-fsyntax-only -pedantic -Wall -Wextra -Werror)
status=0

for header in include/hocket/{hocket,communicators,collectives,operators}.h; do
  "$cc" -std=c99 "${strict[@]}" -x c "$header" || status=1
  "$cxx" -std=c++20 "${strict[@]}" -x c++ "$header" || status=1
done
awk '/^ \*   #include/ { on = 1 } on && /^ \*   cc / { exit } on { print substr($0, 6) }' \
  include/hocket/hocket.h | "$cc" -std=c99 "${strict[@]}" -Iinclude -x c - || status=1

# Headers that include libtorch's: only programs that have libtorch compile them.
of_libtorch() {
  grep -rlE '#include [<"](torch|ATen|c10|hocket/training/torch|training/torch)/' \
    include src tools perf tests --include='*.h' --include='*.hpp'
  find include src tests -path '*/training/torch/*.h*'
  grep -rl '#include "model.*\.h"' tools/hocket-train-gpt --include='*.h'
  find perf/training -name '*.h'
}

# A header that is the first include of its own source needs no further test: the Release tree
# compiles that source alone. Its precompiled header hides no more than standard.h below does, and
# fmt: includes_test.cc finds headers that miss one of those.
is_first_of_its_source() {
  local source=${1%.h}.cc
  [[ $1 =~ ^(src|perf|tools/hocket-(run|topo))/ && -f $source ]] &&
    [[ $(grep -m1 '^#include' "$source") =~ \"([^\"]+/)?"${1##*/}"\" ]]
}

# The headers in include/ are compiled without any other header. For all others the standard headers
# of C++ are compiled once: includes_test.cc finds those that such a header does not include.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
find include src tools perf tests \( -name '*.h' -o -name '*.hpp' \) 2>/dev/null |
  grep -vxF -f <(of_libtorch) >"$folder/headers"
options=(-std=c++20 -Wall -Wextra -Werror -Iinclude -Isrc -Itests '-DSOURCE_ROOT=""')
grep '^include/' "$folder/headers" |
  xargs -I{} "$cxx" "${options[@]}" -fsyntax-only -include {} -x c++ /dev/null || status=1
xargs grep -hoE '^#include <[a-z_]+>' <"$folder/headers" | sort -u |
  grep -vE '<c(errno|inttypes|limits|signal|stdarg|stdio|stdlib|string|time)>' |
  sed 's/.*<\(.*\)>/#if __has_include(<\1>)\n&\n#endif/' >"$folder/standard.h"
"$cxx" "${options[@]}" -x c++-header "$folder/standard.h" -o "$folder/standard.h.gch" || exit 1
grep -v '^include/' "$folder/headers" |
  while read -r header; do is_first_of_its_source "$header" || echo "$header"; done |
  xargs -I{} "$cxx" "${options[@]}" -fsyntax-only -include "$folder/standard.h" -include {} \
    -x c++ /dev/null || status=1
exit $status
