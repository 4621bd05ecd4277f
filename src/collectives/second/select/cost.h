// The price of an operation, found by walking its plans with figures measured on this machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/second/algorithms/builders.h"
#include "collectives/select/figures.h"

namespace hocket::internal::second {

/// Picoseconds of one operation of `count` elements; all ranks get the same number, whatever
/// shape.rank.
std::int64_t price(const Builder& builder, const Shape& shape, std::size_t count, Dtype dtype,
                   std::size_t chunk_elements, const Figures& figures);

}  // namespace hocket::internal::second
