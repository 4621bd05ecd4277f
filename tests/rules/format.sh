#!/bin/bash
# clang-format would not change the sources.
cd "$(dirname "$0")/../.." || exit 1
command -v clang-format >/dev/null || { echo "clang-format is not here"; exit 77; }
find include src tools perf tests examples \
  \( -name '*.h' -o -name '*.hpp' -o -name '*.cc' -o -name '*.c' \) -print0 2>/dev/null |
  xargs -0 clang-format --dry-run --Werror
