// Two ranks of a session, each a thread of the test program.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "bootstrap/join/unique_id.h"
#include "bootstrap/session.h"
#include "topology/machine.h"

namespace hocket::internal {

/// Runs body(rank, session) in both. Ranks that share no memory are nodes of their own.
template <typename Body>
void run_two(bool share_memory, Body body) {
  UniqueId id;
  ASSERT_TRUE(make_unique_id(&id).ok());
  ASSERT_TRUE(start_coordinator(id.key, id.job_id, "lo", UniqueFd(), &id.coordinator, 60'000).ok());
  const auto run = [&](int rank) {
    JoinOptions options;
    options.rank = rank;
    options.ranks = 2;
    options.key = id.key;
    options.job_id = id.job_id;
    options.coordinator = id.coordinator;
    options.share_memory = share_memory;
    options.machine = machine().id;
    options.cores = machine().cores;
    std::shared_ptr<Session> session;
    const Status joined = Session::join(options, &session);
    ASSERT_TRUE(joined.ok()) << joined.message();
    body(rank, session);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

}  // namespace hocket::internal
