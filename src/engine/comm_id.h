// The comm ids of communicators. All ranks compute the same comm id without a message. No two
// communicators of a job have the same comm id, and none is a reserved space of DescriptorName.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "base/mix.h"
#include "bootstrap/session.h"

namespace hocket::internal {

inline constexpr std::uint64_t comm_id_step = 0x9e3779b97f4a7c15ULL;  // 2^64 / the golden ratio

/// The comm id of communicator number `number` of all ranks of a job.
inline std::uint64_t comm_id_of_job(const JobId& job, std::uint64_t number) {
  std::uint64_t comm_id;
  std::memcpy(&comm_id, job.data(), sizeof comm_id);
  return (comm_id ^ (number * comm_id_step)) | 1 << 16;
}

/// The comm id of the ranks that give `color` in split number `split` of a communicator.
inline std::uint64_t comm_id_of_split(std::uint64_t comm_id, std::uint64_t split, int color) {
  const std::uint64_t of_split = mix(comm_id + split * comm_id_step);
  return mix(of_split + static_cast<std::uint32_t>(color) * comm_id_step) | 1 << 16;
}

/// The comm id of communicator number `number` that these members (session ranks, in order) of a
/// communicator make alone with this tag.
inline std::uint64_t comm_id_of_group(std::uint64_t comm_id, std::span<const int> members, int tag,
                                      std::uint64_t number) {
  std::uint64_t of_group = mix(~comm_id ^ members.size() * comm_id_step);
  of_group = mix(of_group + static_cast<std::uint32_t>(tag) + comm_id_step);
  for (const int member : members) {
    of_group = mix(of_group + static_cast<std::uint32_t>(member) + comm_id_step);
  }
  return mix(of_group + number * comm_id_step) | 1 << 16;
}

}  // namespace hocket::internal
