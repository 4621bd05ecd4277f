// MUNGE, the service that Slurm uses to prove who sent a message: every host of a cluster runs it
// with one key. libmunge.so.2 is loaded at run time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace hocket::internal {

/// A credential that contains the bytes, encrypted: only a process of this user, on a host of the
/// cluster, can open it, and only once. An error if there is no library or its service does not
/// run.
Status seal_by_munge(const std::vector<std::uint8_t>& bytes, std::string* credential);
/// The bytes of a credential that a process of this user made.
Status open_by_munge(const std::string& credential, std::vector<std::uint8_t>* bytes);

}  // namespace hocket::internal
