#!/bin/bash
# usage: refusals.sh CXX INCLUDE_DIR
# Wrong uses of hocket.hpp do not compile, and the first error of the compiler is a sentence of
# hocket with the type.
set -euo pipefail
cxx=$1 include=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# Precompiled, the headers are read in a tenth of the time.
strict=(-std=c++20 -Wall -Wextra -Werror -I"$include")
cat >"$work/prelude.h" <<PRELUDE
#include <hocket/hocket.hpp>
#include <list>
#include <string>
#include <string_view>
#include <vector>
struct Point { float x, y; };
PRELUDE
"$cxx" "${strict[@]}" -x c++-header "$work/prelude.h" -o "$work/prelude.h.gch"

compile() {  # STATEMENT: with a communicator `comm` and a stream `stream`; messages in $work/log
  cat >"$work/program.cc" <<PROGRAM
#include "prelude.h"
void f(hocket::Communicator& comm, hocket::Stream& stream) {
  (void)comm, (void)stream;
  $1
}
PROGRAM
  LC_ALL=C "$cxx" "${strict[@]}" -fsyntax-only "$work/program.cc" >"$work/log" 2>&1
}

accept() {  # STATEMENT
  compile "$1" || { echo "refused: $1"; cat "$work/log"; status=1; }
}

refuse() {  # STATEMENT, the words of the first error, a word that follows it or comes before it
  if compile "$1"; then
    echo "accepted: $1"
    status=1
    return
  fi
  local first
  first=$(grep -m 1 -F 'error:' "$work/log")
  if [[ $first != *"$2"* ]] || ! grep -qF -e "$3" "$work/log"; then
    echo "refused with other words than '$2' and '$3': $1"
    head -n 15 "$work/log"
    status=1
  fi
}

accept 'std::vector<std::byte> x(4); comm.broadcast(x, 0);'
accept 'std::vector<long long> x(4); comm.all_reduce(x, hocketSum, stream);'
accept 'std::vector<short> x(4); comm.all_reduce(x, hocketXor);'
accept 'stream.record();'  # an event that is not wanted

accept 'std::vector<Point> x(4); comm.send(x, 0); comm.broadcast(x, 0, stream);'
copyable='must be trivially copyable'
refuse 'std::vector<std::string> x(4); comm.broadcast(x, 0);' "$copyable" string
refuse 'std::vector<std::vector<int>> x(4); comm.send(x, 0);' "$copyable" vector
pointer='hocket: an element that points into the memory of its process'
refuse 'std::vector<float*> x(4); comm.all_gather(x);' "$pointer" 'float*'
refuse 'float* x[2][2] = {}; comm.recv(x, 0);' "$pointer" 'float*'
refuse 'std::vector<std::string_view> x(4); comm.send(x, 0);' "$pointer" string_view

element='hocket: the operators of hocket do not know this type'
refuse 'std::vector<wchar_t> x(4); comm.all_reduce(x, hocketSum);' "$element" wchar_t
refuse 'std::vector<Point> x(4); comm.all_reduce(x, hocketSum);' "$element" Point
refuse 'std::vector<Point> x(4), y(2); comm.reduce_scatter(x, y, hocketSum);' "$element" Point
refuse 'std::vector<Point> x(4), y(4); comm.reduce(x, y, hocketMax, 0);' "$element" Point
refuse 'std::vector<long double> x(4); comm.reduce(x, hocketSum, 0);' "$element" 'long double'
refuse 'bool x = comm.all_reduce(true, hocketSum); (void)x;' "$element" bool

operator='hocket::Operator<Point> op(comm, "a", [](const Point& a, const Point&) { return a; });'
accept "$operator std::vector<Point> x(4); comm.all_reduce(x, op); comm.reduce(x, op, 0, stream);"
refuse "$operator std::vector<float> x(4); comm.all_reduce(x, op);" \
  "have another type than the operator's" float
refuse "$operator const std::vector<Point> x(4); comm.all_reduce(x, op);" \
  'the elements of this buffer are const' Point
refuse 'hocket::Operator<std::string> op(comm, "a", [](auto& a, auto&) { return a; });' \
  'must be trivially copyable' string

half='hocket::PreMulSum half(comm, 0.5f);'
accept "$half std::vector<float> x(4); comm.all_reduce(x, half); comm.reduce(x, half, 0, stream);"
refuse "$half std::vector<int> x(4); comm.all_reduce(x, half);" \
  "have another type than the operator's" int
refuse 'hocket::PreMulSum op(comm, Point{});' "$element" Point

blocks='std::vector<std::size_t> counts(2);'
accept "$blocks std::vector<int> x(4); comm.gather(x, hocket::Blocks(counts), 0, stream);"
accept "$blocks std::vector<int> x(4); comm.all_gather(x, {counts, counts});"
refuse "$blocks std::vector<int> x(4); comm.gather(x, counts, 0);" \
  'hocket: input and output have different element types' int
refuse "$blocks const std::vector<int> x(4); comm.scatter(x, hocket::Blocks(counts), 0);" \
  'hocket: the elements of this buffer are const' 'const int'
refuse 'float x = 0; comm.gather(x, 0);' 'hocket: a buffer is a contiguous range' float

bytes='hocket: std::byte has no arithmetic'
refuse 'std::vector<std::byte> x(4); comm.all_reduce(x, hocketSum);' "$bytes" byte
refuse 'std::vector<std::byte> x(4), y(2); comm.reduce_scatter(x, y, hocketMax);' "$bytes" byte

refuse 'std::vector<std::byte> x(4); comm.reduce(x, hocketSum, 0);' "$bytes" byte

range='hocket: a buffer is a contiguous range'
refuse 'std::list<float> x(4); comm.send(x, 0);' "$range" list
refuse 'std::vector<bool> x(4); comm.broadcast(x, 0);' "$range" 'vector<bool'
refuse 'float x = 0; comm.recv(x, 0);' "$range" float

refuse 'const std::vector<float> x(4); comm.all_reduce(x, hocketSum);' \
  'hocket: the elements of this buffer are const' 'const float'
refuse 'comm.send(std::vector<float>(4), 0, stream);' 'hocket: this buffer is a temporary' vector
refuse 'std::vector<float> x(4); std::vector<int> y(4); comm.all_reduce(x, y, hocketSum);' \
  'hocket: input and output have different element types' int
refuse 'std::vector<float> x(4); std::vector<int> y(4); comm.all_to_all(x, y);' \
  'hocket: input and output have different element types' int
refuse 'std::vector<Point> x(4); std::vector<std::byte> y(32); comm.all_to_all(x, y);' \
  'hocket: input and output have different element types' Point
refuse 'hocket::Memory<std::string> x(4);' "hocket: peers write the bytes" string
refuse 'struct alignas(8192) Wide {}; std::vector<Wide, hocket::allocator<Wide>> x(1);' \
  'hocket: memory is aligned to a page' Wide
refuse 'hocket::PreMulSum op(comm, std::byte{2});' "$bytes" byte

dropped='nodiscard'
refuse 'comm.rank();' "$dropped" rank
refuse 'comm.all_reduce(1, hocketSum);' "$dropped" all_reduce
refuse 'comm.split(0);' "$dropped" split
refuse 'stream.done();' "$dropped" done
refuse 'hocket::Stream::create();' "$dropped" create
refuse 'hocket::UniqueId::create();' "$dropped" create
refuse 'hocket::Communicator::from_environment();' "$dropped" from_environment
refuse 'const hocket::Communicator& same = comm; same.barrier();' 'const' barrier
exit $status
