#!/bin/bash
# usage: abi.sh CC [--record]      ABI_INCLUDE: another folder than include/
# The ABI of hocket.h and of the headers that it includes is that of tests/install/abi.txt: calls,
# sizes and offsets of types, values of enumerators and macros. The version macros are left out.
set -euo pipefail
cd "$(dirname "$0")/../.."
cc=$1 record=tests/install/abi.txt include=${ABI_INCLUDE:-include}
headers=("$include"/hocket/{hocket,communicators,collectives,operators}.h)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The headers with a line for each declaration, without comments and without included headers.
sed '/^ *# *include/d' "${headers[@]}" | "$cc" -E -P -x c - |
  tr -s ' \n' '  ' >"$work/text"
awk '
  function fields_of(body, type,    lines, count, i, name) {
    count = split(body, lines, ";")
    for (i = 1; i < count; ++i) {
      name = lines[i]
      sub(/\[.*/, "", name)
      sub(/.*[ *]/, "", name)
      gsub(/^ +| +$/, "", lines[i])
      printf "  printf(\"  %%3zu, %%zu bytes: %s\\n\", offsetof(%s, %s), sizeof((%s){0}.%s));\n",
             lines[i], type, name, type, name
    }
  }
  function enumerators_of(body,    words, count, i, name) {
    count = split(body, words, ",")
    for (i = 1; i <= count; ++i) {
      name = words[i]
      sub(/=.*/, "", name)
      gsub(/ /, "", name)
      if (name != "") printf "  printf(\"  %s = %%lld\\n\", (long long)%s);\n", name, name
    }
  }
  # A declaration ends at the first ; outside of braces.
  { text = $0
    while (text != "") {
      depth = 0
      for (end = 1; end <= length(text); ++end) {
        c = substr(text, end, 1)
        depth += (c == "{") - (c == "}")
        if (c == ";" && depth == 0) break
      }
      one = substr(text, 1, end)
      text = substr(text, end + 1)
      gsub(/^ +| +$/, "", one)
      open = index(one, "{")
      if (one == "" || one !~ /hocket/) continue
      if (open == 0) {
        sub(/^__attribute__\(\([^)]*\)\)\) /, "", one)
        gsub(/"/, "\\\"", one)
        gsub(/, /, ",\\n    ", one)
        printf "  puts(\"%s\");\n", one
        continue
      }
      body = one; sub(/^[^{]*\{/, "", body); sub(/\}[^}]*$/, "", body)
      type = one; sub(/.*\} */, "", type); sub(/;.*/, "", type)
      printf "  printf(\"%s: %%zu bytes\\n\", sizeof(%s));\n", type, type
      if (one ~ /^typedef enum/) enumerators_of(body); else fields_of(body, type)
    }
  }' "$work/text" >"$work/declarations"
awk '/^#define HOCKET_[A-Z0-9_]+ / && $2 !~ /_(API|TYPE|INITIALIZER|MAJOR|MINOR|PATCH|CODE)$/ {
       printf "  printf(\"%s = %%lld\\n\", (long long)%s);\n", $2, $2 }' \
  "${headers[@]}" >"$work/macros"
{
  printf '#include <stdio.h>\n#include <hocket/hocket.h>\nint main(void) {\n'
  cat "$work/declarations" "$work/macros"
  printf '  return 0;\n}\n'
} >"$work/abi.c"
"$cc" -std=c99 -Wall -Wextra -Werror -I"$include" "$work/abi.c" -o "$work/abi"
"$work/abi" >"$work/abi.txt"
[[ $(grep -c '(' "$work/abi.txt") -gt 30 ]] || { echo "too few calls were read"; exit 1; }

if [[ ${2-} == --record ]]; then
  cp "$work/abi.txt" "$record"
elif ! diff -u --label "$record" --label include/hocket "$record" "$work/abi.txt"; then
  echo "The ABI has changed: compiled programs may break. If that is meant: ./dev abi --record"
  exit 1
fi
