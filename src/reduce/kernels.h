// Internal to src/reduce: the functions that fold a range of elements, and their tables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

// Below AVX2 only SSE4 is compiled, to save compile time; with a sanitizer, less (compiler.cmake).
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif

#include "reduce/fold.h"

namespace hocket::internal::reduce {

/// Folds elements [begin, end) of a valid Fold, whose operator and dtype are those of the kernel's
/// place in the table. avg uses the kernel of sum, which divides if the Fold says so.
using Kernel = void (*)(const Fold& fold, std::size_t begin, std::size_t end);

/// The number of kernels of a type: one for each operator except avg, which uses that of sum, and
/// one for sums with scalars.
inline constexpr int kernel_count = op_count;
inline constexpr int scaled_sum = kernel_count - 1;
constexpr int kernel_op(Op op) {
  return op == Op::avg ? 0 : static_cast<int>(op) - (op > Op::avg ? 1 : 0);
}
constexpr int kernel_of(const Fold& fold) {
  return fold.scalars != nullptr ? scaled_sum : kernel_op(fold.op);
}

struct KernelRow {
  Kernel ops[kernel_count] = {};  // null: the operator does not exist for this type
};

/// Plain code, in a file of its own because it is compiled for the baseline instruction set. These
/// kernels divide integers too.
extern const KernelRow scalar_kernels[dtype_count];

/// The best vector code that this processor runs, by family. Rows are in the order of Dtype among
/// the family's members. Integer kernels do not divide.
const KernelRow* integer_kernels();      // int8 ... uint64, int16, uint16
const KernelRow* full_float_kernels();   // float32, float64
const KernelRow* small_float_kernels();  // float16, bfloat16, float8_e4m3, float8_e5m2

const char* target_name();

/// For tests: looks at Highway's supported targets again at the next fold.
void forget_targets();

/// Number of destinations with ordinary stores; they are the first ones.
inline int near_count(const Fold& f) {
  switch (f.stores) {
    case Stores::first_cached:
      return std::min(f.dst_count, 1);
    case Stores::non_temporal:
      return 0;
    default:
      return f.dst_count;
  }
}
inline bool divides(const Fold& f) { return f.op == Op::avg && f.finish && f.divisor > 1; }

}  // namespace hocket::internal::reduce
