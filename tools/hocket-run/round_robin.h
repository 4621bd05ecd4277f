// Deals ranks to hosts, or to the NUMA nodes of a host, in turn.
#pragma once

#include <cstddef>
#include <vector>

namespace hocket::internal::launch {

/// The place of each of count ranks: 0, 1, 2, ..., 0, 1, ..., without the places that are full.
/// room: how many ranks each place takes; the sum of room must be at least count.
inline std::vector<std::size_t> round_robin(std::vector<int> room, int count) {
  std::vector<std::size_t> places;
  places.reserve(static_cast<std::size_t>(count));
  for (std::size_t at = 0; places.size() < static_cast<std::size_t>(count);
       at = (at + 1) % room.size()) {
    if (room[at]-- > 0) places.push_back(at);
  }
  return places;
}

}  // namespace hocket::internal::launch
