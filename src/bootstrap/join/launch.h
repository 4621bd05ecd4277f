// The data that a launcher gives to a process: its rank, the coordinator's address and the job key.
//
// hocket-run hands each rank an inherited descriptor, named by HOCKET_LAUNCH_FD: a sealed memfd
// with one launch record (docs/protocol/launch.md), so that the key is never in an argument list or
// an environment, where other users could read it.
#pragma once

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
  UniqueFd coordinator_listener;  // rank 0 only: the coordinator's, which the launcher made
  std::string source;             // "hocket-run": for messages
};

/// Finds the launcher that started this process and reads its data. May be called again: each call
/// returns the same data, with another duplicate of the listener. If there is no launcher, or
/// hocket does not support it, the error says what to do.
Status detect_launch(const Settings& settings, LaunchInfo* info);

/// For the launcher: a sealed, close-on-exec memfd with the record of one rank. listener is the
/// descriptor number of the coordinator's listening socket in the rank; -1: none.
Status make_launch_record(const LaunchInfo& info, int listener, UniqueFd* record);

/// Reads a job key from a file: 64 hexadecimal digits. Refuses a file that others can read or
/// write, or that belongs to another user.
Status read_key_file(const std::string& path, Key* key);

}  // namespace hocket::internal
