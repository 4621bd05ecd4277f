// Waiting is a policy: spin with a pause, then give way to other threads, then sleep on the rank's
// doorbell. How long each lasts follows from how many ranks share the cores.
#pragma once

#include <span>

#include "base/clock.h"
#include "engine/engine.h"

namespace hocket {

struct WaitPolicy {
  unsigned polls = 1000;    // before anything else: no clock, no lock, no system call
  Nanos spin = 100'000;     // then with an eye on the clock
  Nanos yield = 1'000'000;  // then giving way between polls; after that it sleeps
  static WaitPolicy for_crowd(double ranks_per_core);
};

/// How the waiting thread of one communicator is woken.
struct Sleeper {
  Engine* engine = nullptr;
  const Board* board = nullptr;
  int event_fd = -1;  // readable when rung while asleep in poll
};

/// Drives all engines until each is idle or has failed; their status() says which.
void drive(std::span<const Sleeper> sleepers, const WaitPolicy& policy);

}  // namespace hocket
