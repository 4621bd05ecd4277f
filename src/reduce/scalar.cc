// Folds element by element in plain C++: the reference for tests, the tails of the vector kernels,
// and folds that are too short for a vector.
#include <cstring>
#include <type_traits>

#include "reduce/elements.h"
#include "reduce/kernels.h"

namespace hocket::internal {
namespace reduce {
namespace {

/// kScaled: with Fold::scalars.
template <class Element, class Operator, bool kScaled = false>
void fold_scalar(const Fold& f, std::size_t begin, std::size_t end) {
  using Wide = typename Element::Wide;
  const bool division = divides(f);
  const auto load = [&](int s, std::size_t i) -> Wide {
    const FoldSource& source = f.srcs[s];
    if constexpr (Element::widened) {
      if (source.wide) return load_as<Wide>(source.data, i);
    }
    const Wide value = Element::load(source.data, i);
    if constexpr (kScaled) {
      if (!source.wide) return Prod::apply(value, load_as<Wide>(f.scalars + s, 0));
    }
    return value;
  };
  for (std::size_t i = begin; i < end; ++i) {
    Wide value = load(0, i);
    for (int s = 1; s < f.src_count; ++s) value = Operator::apply(value, load(s, i));
    if (division) value = divide(value, f.divisor);
    value = canonical(value);
    for (int d = 0; d < f.dst_count; ++d) {
      if (Element::widened && f.wide_dst) {
        store_as<Wide>(f.dsts[d], i, value);
      } else {
        Element::store(f.dsts[d], i, value);
      }
    }
  }
}

template <class Element>
constexpr KernelRow row() {
  KernelRow row = {{fold_scalar<Element, Sum>, fold_scalar<Element, Prod>,
                    fold_scalar<Element, Max>, fold_scalar<Element, Min>}};
  row.ops[scaled_sum] = fold_scalar<Element, Sum, true>;
  if constexpr (std::is_integral_v<typename Element::Wide>) {
    row.ops[kernel_op(Op::bit_and)] = fold_scalar<Element, BitAnd>;
    row.ops[kernel_op(Op::bit_or)] = fold_scalar<Element, BitOr>;
    row.ops[kernel_op(Op::bit_xor)] = fold_scalar<Element, BitXor>;
  }
  return row;
}

}  // namespace

const KernelRow scalar_kernels[dtype_count] = {
    row<Plain<std::int8_t>>(),   row<Plain<std::uint8_t>>(),  row<Plain<std::int32_t>>(),
    row<Plain<std::uint32_t>>(), row<Plain<std::int64_t>>(),  row<Plain<std::uint64_t>>(),
    row<Widened<Float16>>(),     row<Plain<float>>(),         row<Plain<double>>(),
    row<Widened<Bfloat16>>(),    row<Widened<E4m3>>(),        row<Widened<E5m2>>(),
    row<Plain<std::int16_t>>(),  row<Plain<std::uint16_t>>(),
};

}  // namespace reduce

void fold_reference(const Fold& f) {
  const bool widened = is_widened(f.dtype);
  if (f.src_count == 1 && !reduce::divides(f) && f.scalars == nullptr &&
      (!widened || f.srcs[0].wide == f.wide_dst)) {  // a copy: NaN payloads survive
    const std::size_t size = f.wide_dst ? wide_size_of(f.dtype) : size_of(f.dtype);
    for (int d = 0; d < f.dst_count; ++d) {
      if (f.count != 0) std::memmove(f.dsts[d], f.srcs[0].data, f.count * size);
    }
    return;
  }
  const auto& row = reduce::scalar_kernels[static_cast<int>(f.dtype)];
  row.ops[reduce::kernel_of(f)](f, 0, f.count);
}

}  // namespace hocket::internal
