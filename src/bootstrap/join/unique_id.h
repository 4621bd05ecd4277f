// The content of the 128 bytes of a hocketUniqueId: the job's id, its key and the coordinator's
// address. A process that has these bytes may join.
#pragma once

#include <array>
#include <cstddef>

#include "base/status.h"
#include "bootstrap/types.h"

namespace hocket::internal {

inline constexpr std::size_t unique_id_bytes = 128;
using UniqueIdBytes = std::array<std::uint8_t, unique_id_bytes>;

struct UniqueId {
  JobId job_id{};
  Key key{};
  Address coordinator;
};

/// Fills in a new random job id and key.
Status make_unique_id(UniqueId* out);
UniqueIdBytes encode(const UniqueId& id);
/// If the bytes are no unique id, the error says why: never filled in, cut off, damaged, of another
/// version, or without a job key.
Status decode(const UniqueIdBytes& bytes, UniqueId* out);

}  // namespace hocket::internal
