// AdamW in vectors, compiled once per instruction set. Products and sums are rounded one by one, as
// in adamw_plain.cc: no multiply-add, which not every processor has.
#include <type_traits>

#include "training/adamw_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/adamw_vectors.cc"
#include "hwy/foreach_target.h"
#include "training/small_floats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hocket::training {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

template <class P, class G>
std::size_t update(const AdamWData& data, const AdamWNumbers& numbers) {
  using T = typename P::Wide;
  constexpr bool has_master = sizeof(typename P::Narrow) < sizeof(T);
  const hn::ScalableTag<T> d;
  const AdamWFactors<T>* f = nullptr;
  if constexpr (std::is_same_v<T, double>) {
    f = &numbers.wide;
  } else {
    f = &numbers.narrow;
  }
  const auto scale = hn::Set(d, f->scale), decay = hn::Set(d, f->decay);
  const auto keep1 = hn::Set(d, f->keep1), add1 = hn::Set(d, f->add1);
  const auto keep2 = hn::Set(d, f->keep2), add2 = hn::Set(d, f->add2);
  const auto root = hn::Set(d, f->root), epsilon = hn::Set(d, f->epsilon);
  const auto rate = hn::Set(d, f->rate);

  auto* const narrow = static_cast<typename P::Narrow*>(data.parameter);
  T* const parameters =
      has_master ? reinterpret_cast<T*>(data.master) : reinterpret_cast<T*>(data.parameter);
  const auto* const gradients = static_cast<const typename G::Narrow*>(data.gradient);
  T* const exp_avg = static_cast<T*>(data.exp_avg);
  T* const exp_avg_sq = static_cast<T*>(data.exp_avg_sq);
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= data.elements; i += lanes) {
    const auto gradient = hn::Mul(G::load(d, gradients + i), scale);
    const auto first = hn::Add(hn::Mul(hn::LoadU(d, exp_avg + i), keep1), hn::Mul(gradient, add1));
    const auto second = hn::Add(hn::Mul(hn::LoadU(d, exp_avg_sq + i), keep2),
                                hn::Mul(hn::Mul(add2, gradient), gradient));
    const auto divisor = hn::Add(hn::Div(hn::Sqrt(second), root), epsilon);
    const auto value = hn::Add(hn::Mul(hn::LoadU(d, parameters + i), decay),
                               hn::Div(hn::Mul(rate, first), divisor));
    hn::StoreU(first, d, exp_avg + i);
    hn::StoreU(second, d, exp_avg_sq + i);
    hn::StoreU(value, d, parameters + i);
    if constexpr (has_master) P::store(d, value, narrow + i);
  }
  return i;
}

using Half = Small<Float16Bits>;
using Brain = Small<Bfloat16Bits>;
#endif  // HWY_TARGET != HWY_SCALAR

std::size_t update_by_types(AdamWTypes types, const AdamWData& data, const AdamWNumbers& numbers) {
#if HWY_TARGET == HWY_SCALAR
  (void)types, (void)data, (void)numbers;
  return 0;
#else
  switch (types) {
    case AdamWTypes::f64_f64:
      return update<Plain<double>, Plain<double> >(data, numbers);
    case AdamWTypes::f32_f32:
      return update<Plain<float>, Plain<float> >(data, numbers);
    case AdamWTypes::f32_f16:
      return update<Plain<float>, Half>(data, numbers);
    case AdamWTypes::f32_bf16:
      return update<Plain<float>, Brain>(data, numbers);
    case AdamWTypes::f16_f16:
      return update<Half, Half>(data, numbers);
    case AdamWTypes::f16_f32:
      return update<Half, Plain<float> >(data, numbers);
    case AdamWTypes::bf16_bf16:
      return update<Brain, Brain>(data, numbers);
    default:
      return update<Brain, Plain<float> >(data, numbers);
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace hocket::training
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hocket::training {
HWY_EXPORT(update_by_types);

std::size_t adamw_vectors(AdamWTypes types, const AdamWData& data, const AdamWNumbers& numbers) {
  return HWY_DYNAMIC_DISPATCH(update_by_types)(types, data, numbers);
}
}  // namespace hocket::training
#endif
