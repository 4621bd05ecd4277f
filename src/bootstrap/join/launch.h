// The data that a launcher gives to a process: its rank, the coordinator's address and the job key;
// and the launch record of hocket-run. bootstrap/launchers finds the launcher.
//
// hocket-run hands each rank an inherited descriptor, named by HOCKET_LAUNCH_FD: a sealed memfd
// with one launch record (docs/protocol/launch.md), so that the key is never in an argument list or
// an environment, where other users could read it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/settings.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "bootstrap/types.h"

namespace hocket::internal {

struct LaunchInfo {
  Key key{};
  bool has_key = false;
  JobId job_id{};
  Address coordinator;  // where rank 0 listens
  int rank = 0;
  int ranks = 1;
  UniqueFd
      coordinator_listener;  // rank 0 only: the coordinator's, which the launcher or meet() made
  std::string source;        // "hocket-run": for messages
  std::string variables;     // "RANK=1, WORLD_SIZE=4": for messages; hocket-run has none
  bool met = false;          // meet() has filled in key and address
  std::int64_t join_ms = 0;  // met: what is left of the join deadline
  /// met: what other ranks use until this rank has joined, such as the PMIx connection.
  std::shared_ptr<void> until_joined;
  /// met, rank 0 only: the server that gives them the coordinator's address, until all have joined
  /// or know why they cannot.
  std::shared_ptr<void> until_all_know;
};

/// Reads the record of hocket-run. May be called again: each call returns the same data, with
/// another duplicate of the listener.
Status read_launch_record(const Settings& settings, LaunchInfo* info);

/// For the launcher: a sealed, close-on-exec memfd with the record of one rank. listener is the
/// descriptor number of the coordinator's listening socket in the rank; -1: none.
Status make_launch_record(const LaunchInfo& info, int listener, UniqueFd* record);

/// Reads a job key from a file: 64 hexadecimal digits. Refuses a file that others can read or
/// write, or that belongs to another user.
Status read_key_file(const std::string& path, Key* key);

}  // namespace hocket::internal
