#include <fmt/format.h>

#include <cmath>
#include <hocket/hocket.hpp>
#include <hocket/training/adamw.hpp>
#include <hocket/training/parameter.hpp>

#include "training/adamw_kernels.h"

namespace hocket::training {
namespace {

template <class T>
AdamWFactors<T> factors(const AdamWOptions& options, std::int64_t step, double gradient_scale) {
  const auto n = static_cast<double>(step);
  const double correction1 = 1 - std::pow(options.beta1, n);
  const double correction2 = 1 - std::pow(options.beta2, n);
  return {.scale = static_cast<T>(gradient_scale),
          .decay = static_cast<T>(1 - options.learning_rate * options.weight_decay),
          .keep1 = static_cast<T>(options.beta1),
          .add1 = static_cast<T>(1 - options.beta1),
          .keep2 = static_cast<T>(options.beta2),
          .add2 = static_cast<T>(1 - options.beta2),
          .root = static_cast<T>(std::sqrt(correction2)),
          .epsilon = static_cast<T>(options.epsilon),
          .rate = static_cast<T>(-(options.learning_rate / correction1))};
}

AdamWTypes types_of(const AdamWData& data) {
  const auto pair = [&](hocketDataType_t parameter, hocketDataType_t gradient) {
    return data.dtype == parameter && data.gradient_dtype == gradient;
  };
  if (pair(hocketFloat64, hocketFloat64)) return AdamWTypes::f64_f64;
  if (pair(hocketFloat32, hocketFloat32)) return AdamWTypes::f32_f32;
  if (pair(hocketFloat32, hocketFloat16)) return AdamWTypes::f32_f16;
  if (pair(hocketFloat32, hocketBfloat16)) return AdamWTypes::f32_bf16;
  if (pair(hocketFloat16, hocketFloat16)) return AdamWTypes::f16_f16;
  if (pair(hocketFloat16, hocketFloat32)) return AdamWTypes::f16_f32;
  if (pair(hocketBfloat16, hocketBfloat16)) return AdamWTypes::bf16_bf16;
  if (pair(hocketBfloat16, hocketFloat32)) return AdamWTypes::bf16_f32;
  throw InvalidArgument("hocket::training::adamw",
                        fmt::format("parameters in {} with gradients in {} are not supported",
                                    dtype_name(data.dtype), dtype_name(data.gradient_dtype)));
}

AdamWNumbers numbers_of(const AdamWData& data, const AdamWOptions& options, std::int64_t step,
                        double gradient_scale) {
  if (step < 1) {
    throw InvalidArgument("hocket::training::adamw",
                          fmt::format("the step is {}: steps count from 1", step));
  }
  if ((data.master != nullptr) != (element_bytes(data.dtype) == 2)) {
    throw InvalidArgument("hocket::training::adamw",
                          "parameters in float16 and bfloat16, and no others, need a master copy");
  }
  return {factors<double>(options, step, gradient_scale),
          factors<float>(options, step, gradient_scale)};
}

}  // namespace

void adamw(const AdamWData& data, const AdamWOptions& options, std::int64_t step,
           double gradient_scale) {
  const AdamWTypes types = types_of(data);
  const AdamWNumbers numbers = numbers_of(data, options, step, gradient_scale);
  const std::size_t done = adamw_vectors(types, data, numbers);
  adamw_plain[static_cast<int>(types)](data, numbers, done, data.elements);
}

void adamw_reference(const AdamWData& data, const AdamWOptions& options, std::int64_t step,
                     double gradient_scale) {
  const AdamWTypes types = types_of(data);
  const AdamWNumbers numbers = numbers_of(data, options, step, gradient_scale);
  adamw_plain[static_cast<int>(types)](data, numbers, 0, data.elements);
}

}  // namespace hocket::training
