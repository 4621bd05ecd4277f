// Chooses how to fold: by a copy, by plain code for a few elements, or by the vector kernel for
// this processor.
#include "reduce/fold.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/assert.h"
#include "base/copy.h"
#include "hwy/targets.h"
#include "reduce/kernels.h"

namespace hocket::internal {
namespace reduce {
namespace {

/// Chosen once per process. Atomics, because two threads may choose at once; both write the same.
std::array<std::atomic<Kernel>, std::size_t{dtype_count} * kernel_count> kernels;

int index_of(Dtype dtype, int op) { return static_cast<int>(dtype) * kernel_count + op; }

void choose_kernels() {
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  const KernelRow* const full = full_float_kernels();
  const KernelRow* const small = small_float_kernels();
  const KernelRow* const integers = integer_kernels();
  for (int i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    const KernelRow* row = nullptr;
    switch (dtype) {
      case Dtype::float32:
        row = &full[0];
        break;
      case Dtype::float64:
        row = &full[1];
        break;
      case Dtype::float16:
        row = &small[0];
        break;
      case Dtype::bfloat16:
        row = &small[1];
        break;
      case Dtype::float8_e4m3:
        row = &small[2];
        break;
      case Dtype::float8_e5m2:
        row = &small[3];
        break;
      case Dtype::int16:
        row = &integers[6];
        break;
      case Dtype::uint16:
        row = &integers[7];
        break;
      default:
        row = &integers[i];
    }
    for (int op = 0; op < kernel_count; ++op) {
      kernels[index_of(dtype, op)].store(row->ops[op], std::memory_order_relaxed);
    }
  }
}

Kernel chosen_kernel(Dtype dtype, int op) {
  const auto& slot = kernels[index_of(dtype, op)];
  Kernel kernel = slot.load(std::memory_order_relaxed);
  if (kernel == nullptr) [[unlikely]] {
    choose_kernels();
    kernel = slot.load(std::memory_order_relaxed);
  }
  return kernel;
}

/// A copy to several destinations goes piece by piece, so that it reads the source from memory
/// once.
constexpr std::size_t copy_piece_bytes = std::size_t{16} << 10;

void copy(const Fold& f, std::size_t bytes) {
  const char* const src = static_cast<const char*>(f.srcs[0].data);
  const int near = near_count(f);
  if (f.dst_count == 1 && near == 1) {
    if (f.dsts[0] != src) plain_copy(f.dsts[0], src, bytes);
    return;
  }
  const std::size_t piece = f.dst_count == 1 ? bytes : copy_piece_bytes;
  for (std::size_t at = 0; at < bytes; at += piece) {
    const std::size_t size = std::min(piece, bytes - at);
    for (int d = 0; d < f.dst_count; ++d) {
      char* const dst = static_cast<char*>(f.dsts[d]);
      if (dst == src) continue;
      if (d >= near) {
        stream_copy(dst + at, src + at, size);
      } else {
        plain_copy(dst + at, src + at, size);
      }
    }
  }
}

/// Elements per piece of an integer average: a piece stays in the L1 cache between sum and
/// division.
constexpr std::size_t average_piece = 1024;

template <class T, class Divisor>
void divide(void* data, std::size_t begin, std::size_t end, std::uint32_t divisor) {
  char* const base = static_cast<char*>(data);
  for (std::size_t i = begin; i < end; ++i) {
    T value;
    std::memcpy(&value, base + i * sizeof(T), sizeof(T));
    value = static_cast<T>(static_cast<Divisor>(value) / static_cast<Divisor>(divisor));
    std::memcpy(base + i * sizeof(T), &value, sizeof(T));
  }
}

void divide(Dtype dtype, void* data, std::size_t begin, std::size_t end, std::uint32_t divisor) {
  switch (dtype) {
    // The quotient of two integers of at most 32 bits as a double truncates to the right integer,
    // and doubles divide faster than integers.
    case Dtype::int8:
      return divide<std::int8_t, double>(data, begin, end, divisor);
    case Dtype::uint8:
      return divide<std::uint8_t, double>(data, begin, end, divisor);
    case Dtype::int16:
      return divide<std::int16_t, double>(data, begin, end, divisor);
    case Dtype::uint16:
      return divide<std::uint16_t, double>(data, begin, end, divisor);
    case Dtype::int32:
      return divide<std::int32_t, double>(data, begin, end, divisor);
    case Dtype::uint32:
      return divide<std::uint32_t, double>(data, begin, end, divisor);
    case Dtype::int64:
      return divide<std::int64_t, std::int64_t>(data, begin, end, divisor);
    default:
      return divide<std::uint64_t, std::uint64_t>(data, begin, end, divisor);
  }
}

/// There is no vector instruction that divides integers. So this sums a piece into the first
/// destination, divides it there and copies it to the others. A source may be the same memory as a
/// destination, because it has been read before the copies.
void average_integers(const Fold& f) {
  Fold sum = f;
  sum.op = Op::sum;
  sum.dst_count = 1;
  sum.stores = Stores::together;
  const Kernel kernel = chosen_kernel(f.dtype, kernel_op(Op::sum));
  const std::size_t size = size_of(f.dtype);
  for (std::size_t begin = 0; begin < f.count; begin += average_piece) {
    const std::size_t end = std::min(begin + average_piece, f.count);
    kernel(sum, begin, end);
    divide(f.dtype, f.dsts[0], begin, end, f.divisor);
    for (int d = 1; d < f.dst_count; ++d) {
      if (f.dsts[d] == f.dsts[0]) continue;
      plain_copy(static_cast<char*>(f.dsts[d]) + begin * size,
                 static_cast<const char*>(f.dsts[0]) + begin * size, (end - begin) * size);
    }
  }
}

/// With fewer bytes Stores::one_by_one does as Stores::together.
constexpr std::size_t least_copied_bytes = 1 << 10;

/// A source may be the same memory as a destination, because all sources are read before the
/// copies.
void fold_then_copy(const Fold& f, Kernel kernel, std::size_t bytes) {
  Fold first = f;
  first.dst_count = 1;
  first.stores = Stores::together;
  kernel(first, 0, f.count);
  for (int d = 1; d < f.dst_count; ++d) {
    if (f.dsts[d] != f.dsts[0]) plain_copy(f.dsts[d], f.dsts[0], bytes);
  }
}

/// Kernels write the destinations with ordinary stores first.
void fold_past_the_first(const Fold& f, Kernel kernel) {
  void* const turned[] = {f.dsts[1], f.dsts[0]};
  Fold fold = f;
  fold.dsts = turned;
  fold.stores = Stores::first_cached;
  kernel(fold, 0, f.count);
}

/// For at most this many elements plain code is at least as fast.
constexpr std::size_t few_elements = 2;

}  // namespace

void forget_targets() {
  for (auto& kernel : kernels) kernel.store(nullptr, std::memory_order_relaxed);
}

}  // namespace reduce

void fold(const Fold& f) {
  if (f.src_count == 1 && !reduce::divides(f) && f.scalars == nullptr) {
    const bool wide_src = f.srcs[0].wide && is_widened(f.dtype);
    const bool wide_dst = f.wide_dst && is_widened(f.dtype);
    if (wide_src == wide_dst) {
      reduce::copy(f, f.count * (wide_dst ? wide_size_of(f.dtype) : size_of(f.dtype)));
      return;
    }
  }
  HOCKET_ASSERT(computes(f.op, f.dtype), "the operator exists for the type");
  const int op = reduce::kernel_of(f);
  if (f.count <= reduce::few_elements) {
    reduce::scalar_kernels[static_cast<int>(f.dtype)].ops[op](f, 0, f.count);
  } else if (is_integer(f.dtype) && reduce::divides(f)) {
    reduce::average_integers(f);
  } else {
    const reduce::Kernel kernel = reduce::chosen_kernel(f.dtype, op);
    const bool wide = f.wide_dst && is_widened(f.dtype);
    const std::size_t bytes = f.count * (wide ? wide_size_of(f.dtype) : size_of(f.dtype));
    if (f.dst_count > 1 && f.stores == Stores::one_by_one && bytes >= reduce::least_copied_bytes) {
      reduce::fold_then_copy(f, kernel, bytes);
    } else if (f.dst_count == 2 && f.stores == Stores::second_cached) {
      reduce::fold_past_the_first(f, kernel);
    } else {
      kernel(f, 0, f.count);
    }
  }
}

const char* fold_target() {
  reduce::chosen_kernel(Dtype::float32, 0);
  return reduce::target_name();
}

}  // namespace hocket::internal
