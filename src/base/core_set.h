// Which cores a rank may run on.
#pragma once

#include <bitset>

namespace hocket::internal {

/// A bit for each core, from core 0 on; cores that are 1024 apart share one.
using CoreSet = std::bitset<1024>;

}  // namespace hocket::internal
