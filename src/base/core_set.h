// Which cores a rank may run on.
#pragma once

#include <bitset>

namespace hocket::internal {

/// A bit for each core. Cores c and c + 1024 share a bit.
using CoreSet = std::bitset<1024>;

}  // namespace hocket::internal
