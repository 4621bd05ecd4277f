#!/bin/bash
# Clang compiles the sources of the library without a warning, and without the precompiled headers,
# which would hide a missing include. (`./dev build --compiler clang` compiles everything,
# the adapter for libtorch too.)
cd "$(dirname "$0")/../.." || exit 1
command -v clang++ >/dev/null || { echo "clang++ is not here"; exit 77; }
find src -name '*.cc' -not -path '*/training/torch/*' -print0 |
  xargs -0 -n 8 clang++ -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Iinclude -Isrc
