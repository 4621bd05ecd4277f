#include "training/non_finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <hocket/training/agreement.hpp>
#include <hocket/training/non_finite.hpp>
#include <string_view>
#include <unordered_map>

#include "training/range_math.h"

namespace hocket::training {
namespace {

constexpr const char* non_finite_operation = "hocket::training::find_non_finite";

/// By parameter: whether a range of it is not finite.
std::vector<std::uint8_t> bad_parameters(std::span<const Parameter> parameters,
                                         std::span<const TensorRange> gradients) {
  std::unordered_map<std::string_view, std::size_t> index;
  for (std::size_t i = 0; i < parameters.size(); ++i) index.emplace(parameters[i].name, i);
  std::vector<std::uint8_t> bad(parameters.size());
  for (const TensorRange& range : gradients) {
    const auto found = index.find(range.tensor.name);
    if (found == index.end() || element_bytes(range.tensor.dtype) < 2) {
      throw InvalidArgument(
          non_finite_operation,
          describe(range.tensor) + (found == index.end() ? " is no parameter of the model"
                                                         : " has no gradient that can be checked: "
                                                           "gradients are float64, float32, "
                                                           "float16 or bfloat16"));
    }
    if (!all_finite(range)) bad[found->second] = 1;
  }
  return bad;
}

}  // namespace

std::string NonFinite::text() const {
  const std::string others =
      parameters < 2 ? "" : fmt::format(" (and those of {} more parameters)", parameters - 1);
  if (only_average) {
    return fmt::format(
        "the average of the gradients of parameter {} is NaN or infinite{}, but the gradients of "
        "all ranks were finite before",
        describe(parameter), others);
  }
  return fmt::format("the gradient of parameter {} is NaN or infinite on {}{}", describe(parameter),
                     ranks_text(ranks), others);
}

std::optional<NonFinite> find_non_finite(Communicator& comm, std::span<const Parameter> parameters,
                                         std::span<const TensorRange> gradients) {
  std::vector<std::uint8_t> mine;
  run_on_all(comm, non_finite_operation, [&] { mine = bad_parameters(parameters, gradients); });
  return agree_on_non_finite(comm, parameters, mine);
}

std::optional<NonFinite> agree_on_non_finite(Communicator& comm,
                                             std::span<const Parameter> parameters,
                                             const std::vector<std::uint8_t>& mine) {
  std::vector<std::uint8_t> any = mine;
  comm.all_reduce(any, hocketMax);
  const auto first = std::ranges::find(any, 1);
  if (first == any.end()) return std::nullopt;
  const auto index = static_cast<std::size_t>(first - any.begin());
  const std::uint8_t own[] = {mine[index]};
  std::vector<std::uint8_t> all(static_cast<std::size_t>(comm.ranks()));
  comm.all_gather(own, all);
  NonFinite result{.parameter = parameters[index],
                   .ranks = {},
                   .parameters = static_cast<std::size_t>(std::ranges::count(any, 1))};
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != 0) result.ranks.push_back(static_cast<int>(rank));
  }
  return result;
}

std::optional<NonFinite> find_non_finite(GradientReducer& gradients) {
  std::optional<NonFinite> found =
      find_non_finite(gradients.communicator(), gradients.parameters(), gradients.held());
  if (!found.has_value() || !gradients.synchronizes()) return found;
  if (const NonFinite* const own = gradients.non_finite()) return *own;
  found->only_average = true;
  return found;
}

void require_finite(GradientReducer& gradients) {
  const auto found = find_non_finite(gradients);
  if (!found.has_value()) return;
  throw InvalidArgument("hocket::training::require_finite", found->text(),
                        found->ranks.size() == 1 ? found->ranks.front() : -1);
}

}  // namespace hocket::training
