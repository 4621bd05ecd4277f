// Finds the tensors in what a forward returns.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <optional>
#include <ranges>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace hocket::training {

/// Calls visit(tensor) for every tensor in a value: a tensor; an optional, a pair, a tuple, a
/// range or a map of such values; or a type of the program that says what its tensors are:
///
///   struct Outputs { at::Tensor logits, hidden; std::string note; };
///   template <typename Visit>
///   void visit_tensors(const Outputs& outputs, Visit&& visit) {   // in the namespace of Outputs
///     visit(outputs.logits);
///     visit(outputs.hidden);
///   }
///
/// Numbers and strings have no tensors. For other types the program does not compile: a tensor that
/// was not found would leave its gradients out without a word.
template <typename Visit>
void visit_tensors(const at::Tensor& tensor, Visit&& visit) {
  visit(tensor);
}

namespace detail {

template <typename T>
concept tuple_like = requires {
  std::tuple_size<T>::value;
};
template <typename T>
concept without_tensors =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::convertible_to<const T&, std::string_view>;
template <typename T>
concept optional_like = requires(const T& value) {
  { value.has_value() } -> std::convertible_to<bool>;
  *value;
};
template <typename T>
inline constexpr bool has_own_visit = requires(const T& value) {
  visit_tensors(value, [](const at::Tensor&) {});
};

struct FindTensors {
  template <typename T, typename Visit>
  void operator()(const T& value, Visit& visit) const {
    if constexpr (std::derived_from<T, at::Tensor>) {
      visit(static_cast<const at::Tensor&>(value));
    } else if constexpr (has_own_visit<T>) {
      visit_tensors(value, visit);
    } else if constexpr (without_tensors<T>) {
    } else if constexpr (optional_like<T>) {
      if (value.has_value()) (*this)(*value, visit);
    } else if constexpr (tuple_like<T>) {
      std::apply([&](const auto&... each) { ((*this)(each, visit), ...); }, value);
    } else if constexpr (std::ranges::input_range<const T&>) {
      for (const auto& each : value) (*this)(each, visit);
    } else {
      static_assert(has_own_visit<T>,
                    "hocket: which tensors does this type have? Write visit_tensors(const T&, "
                    "Visit&&) for it: see hocket/training/torch/tensors.hpp");
    }
  }
};

}  // namespace detail

/// visit_tensors for any value.
template <typename T, typename Visit>
void for_each_tensor(const T& value, Visit visit) {
  detail::FindTensors{}(value, visit);
}

}  // namespace hocket::training
