// A rank while it meets the others: the two ways, and what they have in common.
#pragma once

#include <string>

#include "base/settings.h"
#include "base/status.h"
#include "bootstrap/join/launch.h"
#include "bootstrap/launchers/join_wait.h"
#include "bootstrap/launchers/launched_rank.h"

namespace hocket::internal {

struct Meeting {
  const Settings& settings;
  const std::string& interface;
  LaunchedRank launched;
  JoinWait wait;
  LaunchInfo* info;
};

/// Rank 0: opens the coordinator's listener, and fills in its address.
Status open_listener(const Meeting& meeting);

/// PMIx and PMI-1: rank 0 publishes address and key through the launcher's server.
Status meet_by_pmix(const Meeting& meeting);
Status meet_by_pmi1(const Meeting& meeting);

/// torchrun, srun and plain variables: every rank computes where rank 0 listens. Without a key all
/// ranks are on one host, and there is nothing to learn.
Status meet_by_port(const Meeting& meeting);

}  // namespace hocket::internal
