// Random calls of load/store plans, for the tests of the interpreter of devices on the host and on
// a GPU.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/data.h"
#include "collectives/plans.h"

namespace hocket::internal {

struct DeviceCase {
  DrawnCall call;
  Group group;
  std::string text;
};

/// most_count, most_chunk: the limits of the random numbers of elements.
inline DeviceCase draw_case(const Builder& builder, std::uint32_t ranks, std::uint32_t workers,
                            std::uint64_t seed, std::size_t most_count, std::size_t most_chunk) {
  std::mt19937_64 random(seed * 64 + ranks * 8 + workers);
  DeviceCase drawn;
  DrawnCall& call = drawn.call;
  call.seed = seed;
  call.any_bits = true;
  call.dtype = static_cast<Dtype>(random() % dtype_count);
  call.op = draw_op(call.dtype, random, op_count);
  call.count = random() % most_count;
  call.chunk_elements = random() % 3 == 0 ? 0 : 1 + random() % most_chunk;
  call.in_place = builder.collective != Collective::all_to_all && random() % 2 == 0;
  if (std::string(builder.algorithm) == "inline") {
    call.count = std::min(call.count, line_payload_bytes / size_of(call.dtype) / ranks);
  }
  drawn.group.ranks = ranks;
  drawn.group.root = static_cast<std::uint32_t>(random() % ranks);
  drawn.group.widened = tells_partial_results(call.dtype, call.op);
  drawn.text = std::to_string(ranks) + " ranks, " + std::to_string(workers) + " workers, " +
               std::to_string(call.count) + " " + internal::name_of(call.dtype) + ", " +
               internal::name_of(call.op) + ", seed " + std::to_string(seed);
  return drawn;
}

/// The builders of load/store plans.
/// `eager` sends large blocks as messages, so a device cannot run it.
inline std::vector<Builder> node_builders() {
  std::vector<Builder> found;
  for (const Builder& builder : group_builders()) {
    const bool sends = std::string_view(builder.algorithm) == "eager";
    if (builder.medium == Medium::node && !sends) found.push_back(builder);
  }
  return found;
}

}  // namespace hocket::internal
