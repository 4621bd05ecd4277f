// AdamW element by element: the reference, and the last elements of a run.
#include <cmath>
#include <type_traits>

#include "training/adamw_kernels.h"
#include "training/small_floats.h"

namespace hocket::training {
namespace {

template <class T>
struct Plain {
  using Wide = T;
  using Narrow = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};
template <class Format>
struct Small : Format {
  using Wide = float;
  using Narrow = std::uint16_t;
};
using Half = Small<small::Float16>;
using Brain = Small<small::Bfloat16>;

template <class T>
const AdamWFactors<T>& factors(const AdamWNumbers& numbers) {
  if constexpr (std::is_same_v<T, double>) {
    return numbers.wide;
  } else {
    return numbers.narrow;
  }
}

template <class P, class G>
void update(const AdamWData& data, const AdamWNumbers& numbers, std::size_t begin,
            std::size_t end) {
  using T = typename P::Wide;
  constexpr bool has_master = sizeof(typename P::Narrow) < sizeof(T);
  const AdamWFactors<T>& f = factors<T>(numbers);
  auto* const narrow = static_cast<typename P::Narrow*>(data.parameter);
  T* const parameters =
      has_master ? reinterpret_cast<T*>(data.master) : reinterpret_cast<T*>(data.parameter);
  const auto* const gradients = static_cast<const typename G::Narrow*>(data.gradient);
  T* const exp_avg = static_cast<T*>(data.exp_avg);
  T* const exp_avg_sq = static_cast<T*>(data.exp_avg_sq);
  for (std::size_t i = begin; i < end; ++i) {
    const T gradient = static_cast<T>(G::widen(gradients[i])) * f.scale;
    const T first = exp_avg[i] * f.keep1 + gradient * f.add1;
    const T second = exp_avg_sq[i] * f.keep2 + f.add2 * gradient * gradient;
    const T divisor = std::sqrt(second) / f.root + f.epsilon;
    const T value = parameters[i] * f.decay + f.rate * first / divisor;
    exp_avg[i] = first;
    exp_avg_sq[i] = second;
    parameters[i] = value;
    if constexpr (has_master) narrow[i] = P::narrow(value);
  }
}

}  // namespace

const AdamWKernel adamw_plain[] = {
    update<Plain<double>, Plain<double>>,
    update<Plain<float>, Plain<float>>,
    update<Plain<float>, Half>,
    update<Plain<float>, Brain>,
    update<Half, Half>,
    update<Half, Plain<float>>,
    update<Brain, Brain>,
    update<Brain, Plain<float>>,
};

}  // namespace hocket::training
