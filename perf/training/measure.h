// Steps of several modes in turn, and their times.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "modes.h"

namespace lab {

/// What is measured of a step, in ms. computed: from the begin of backward until all gradients are
/// computed. cpu: processor time of all threads of a rank, in the step and until computed. alone:
/// the communication without a backward.
inline constexpr std::array<const char*, 9> part_names = {"step",         "forward",   "backward",
                                                          "computed",     "optimizer", "cpu",
                                                          "computed_cpu", "alone",     "alone_cpu"};
using Sample = std::array<double, part_names.size()>;  // means over the ranks

struct Plan {
  int rounds = 20;
  int burst = 2;
  int warmup = 3;
  bool alone = false;
};

struct Measured {
  std::string mode;
  std::vector<Sample> samples;
  double computed_bytes = 0;  // of a rank, by Mode::computed_bytes(); the mean
};

struct Measurements {
  std::vector<Measured> modes;
  // Bytes of a rank's process after the last step, while it has the models and optimizers of all
  // modes: a page that two ranks share counts by half; the mean. freed: what the program has freed,
  // and malloc keeps for later; pss is without it.
  double pss = 0, freed = 0;
};

/// Collective. In every round each mode has a turn of plan.burst steps, in an order that changes
/// from round to round. All ranks begin a turn together.
Measurements measure(const Workload& workload, const std::vector<std::string>& modes,
                     const ModeOptions& options, const Plan& plan, hocket::Communicator& comm);

}  // namespace lab
