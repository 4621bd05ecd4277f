#!/bin/bash
# usage: outside.sh BUILD_DIR CMAKE CC CXX [TORCH]
# Installs into a new prefix, moves it, and builds an outside C99 program and a C++20 one against
# it, once by the CMake package and once by pkg-config. All run on 2 ranks with the installed
# hocket-run. TORCH: libtorch's CMake packages: a C++ program that trains is built too.
set -euo pipefail
build=$1 cmake=$2 cc=$3 cxx=$4 torch=${5-}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { echo "== $*"; }

step "install"
"$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"
prefix=$work/prefix
for file in bin/hocket-run bin/hocket-topo bin/hocket-trace; do
  [[ -f $prefix/$file ]] || { echo "not installed: $file"; exit 1; }
done

step "the examples of plans are read as they lie"
plans=$prefix/share/hocket/plans
HOCKET_PLAN_FILES=$plans/cube.json:$plans/chain.json HOCKET_ALGORITHM=cube \
  "$prefix/bin/hocket-run" -n 4 "$prefix/bin/hocket-perf" all_reduce -b 8 -e 1K -n 10 >/dev/null

step "nothing but the public headers, and no word of what the library itself links"
headers=$(cd "$prefix/include" && find . -type f ! -path './hocket/cpp/*.hpp' \
  ! -path './hocket/training/*.hpp' | sort | tr '\n' ' ')
expected='./hocket/collectives.h ./hocket/communicators.h ./hocket/hocket.h ./hocket/hocket.hpp '
expected+='./hocket/operators.h '
[[ $headers == "$expected" ]] || { echo "headers: $headers"; exit 1; }
package=$(dirname "$(find "$prefix" -name hocket-config.cmake)")
pc=$(dirname "$(find "$prefix" -name hocket.pc)")
if grep -rniE 'fmt|hwy|openssl|crypto' "$package" "$pc/hocket.pc"; then exit 1; fi
if grep -rF -e "$build" -e "$work/first" "$package" "$pc"; then exit 1; fi

step "by find_package"
"$cmake" -S "$here/outside" -B "$work/by-cmake" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >"$work/log" || { cat "$work/log"; exit 1; }
"$cmake" --build "$work/by-cmake" >"$work/log" || { cat "$work/log"; exit 1; }
"$prefix/bin/hocket-run" -n 2 "$work/by-cmake/outside"
"$prefix/bin/hocket-run" -n 2 --shared-heap "$work/by-cmake/outside_cpp"

"$prefix/bin/hocket-run" -n 2 "$work/by-cmake/outside_training"

if [[ -n $torch ]]; then
  step "training with libtorch, by find_package"
  "$cmake" -S "$here/outside" -B "$work/torch" -DOUTSIDE_TORCH=ON -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_PREFIX_PATH="$prefix;$torch" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
    >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  "$cmake" --build "$work/torch" >"$work/log" || { cat "$work/log"; exit 1; }
  "$prefix/bin/hocket-run" -n 2 "$work/torch/outside_torch"
fi

step "a libtorch that is too old is refused"
mkdir -p "$work/old/Torch"
echo 'set(TORCH_LIBRARIES torch)' >"$work/old/Torch/TorchConfig.cmake"
printf '%s\n' 'set(PACKAGE_VERSION 2.6.0)' 'set(PACKAGE_VERSION_COMPATIBLE TRUE)' \
  >"$work/old/Torch/TorchConfigVersion.cmake"
refused() {  # WHAT ARGUMENTS_OF_CMAKE...
  local what=$1
  shift
  if "$cmake" "$@" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >"$work/log" 2>&1; then
    echo "$what takes libtorch 2.6.0"
    exit 1
  fi
  # CMake breaks lines.
  tr -s ' \n' ' ' <"$work/log" | grep -q 'hocket::torch needs libtorch 2.7 or newer, not 2.6.0' ||
    { echo "$what says something else of libtorch 2.6.0:"; cat "$work/log"; exit 1; }
}
refused "a project outside" -S "$here/outside" -B "$work/too-old" -DOUTSIDE_TORCH=ON \
  -DCMAKE_PREFIX_PATH="$prefix;$work/old"
refused "the repository" -S "$here/../.." -B "$work/tree-too-old" -DHOCKET_TORCH="$work/old"

step "by pkg-config"
export PKG_CONFIG_PATH=$pc
# shellcheck disable=SC2046  # flags are words
"$cc" -std=c99 -pedantic -Wall -Wextra -Werror "$here/outside/outside.c" \
  $(pkg-config --cflags --libs hocket) -o "$work/by-pkg-config"
"$prefix/bin/hocket-run" -n 2 "$work/by-pkg-config"
# shellcheck disable=SC2046
"$cxx" -std=c++20 -pedantic -Wall -Wextra -Werror "$here/outside/outside.cc" \
  $(pkg-config --cflags --libs hocket) -o "$work/cpp-by-pkg-config"
"$prefix/bin/hocket-run" -n 2 "$work/cpp-by-pkg-config"

step "a wrong result is the job's result"
if "$prefix/bin/hocket-run" -n 2 "$work/by-cmake/outside" --expect-nonsense; then exit 1; fi
