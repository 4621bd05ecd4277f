// How ranks agree on whose gradients are not finite.
#pragma once

#include <cstdint>
#include <hocket/training/non_finite.hpp>
#include <optional>
#include <span>

namespace hocket::training {

/// Collective. mine: by parameter, 1 if this rank's gradient is not finite, else 0. All ranks
/// return the same.
[[nodiscard]] std::optional<NonFinite> agree_on_non_finite(Communicator& comm,
                                                           std::span<const Parameter> parameters,
                                                           const std::vector<std::uint8_t>& mine);

}  // namespace hocket::training
