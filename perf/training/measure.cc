#include "measure.h"

#include <malloc.h>

#include <algorithm>
#include <hocket/training/report.hpp>
#include <utility>

namespace lab {
namespace {

Sample train(Mode& mode, const Batch& batch) {
  const Moment begin = Moment::now();
  mode.zero_grad();
  const at::Tensor loss = mode.forward(batch);
  const Moment forward = Moment::now();
  loss.backward();
  const Moment backward = Moment::now();
  mode.optimize();
  const Moment end = Moment::now();
  const Moment& computed = mode.computed();
  return {end.ms_since(begin),
          forward.ms_since(begin),
          backward.ms_since(forward),
          computed.ms_since(forward),
          end.ms_since(backward),
          end.processor_ms_since(begin),
          computed.processor_ms_since(forward)};
}

void communicate_alone(Mode& mode, Sample& sample) {
  const Moment begin = Moment::now();
  mode.communicate();
  const Moment end = Moment::now();
  sample[7] = end.ms_since(begin);
  sample[8] = end.processor_ms_since(begin);
}

double own_pss() {
  return static_cast<double>(hocket::training::process_memory(true).proportional);
}

/// Replaces the samples of this rank by the means over the ranks.
void average(std::vector<Measured>& measured, hocket::Communicator& comm) {
  std::vector<double> all;
  for (const Measured& mode : measured) {
    for (const Sample& sample : mode.samples) all.insert(all.end(), sample.begin(), sample.end());
  }
  comm.all_reduce(all, hocketAvg);
  auto from = all.begin();
  for (Measured& mode : measured) {
    for (Sample& sample : mode.samples) {
      std::copy_n(from, sample.size(), sample.begin());
      from += static_cast<std::ptrdiff_t>(sample.size());
    }
  }
}

}  // namespace

Measurements measure(const Workload& workload, const std::vector<std::string>& modes,
                     const ModeOptions& options, const Plan& plan, hocket::Communicator& comm) {
  std::vector<std::unique_ptr<Mode>> made;
  std::vector<Measured> measured;
  for (const std::string& name : modes) {
    made.push_back(make_mode(name, workload, comm, options));
    const auto computed = static_cast<double>(made.back()->computed_bytes());
    measured.push_back({name, {}, comm.all_reduce(computed, hocketAvg)});
  }
  std::vector<Batch> batches;
  for (int step = 0; step < 4; ++step) batches.push_back(make_batch(workload, comm.rank(), step));
  for (int round = -plan.warmup; round < plan.rounds; ++round) {
    for (std::size_t turn = 0; turn < made.size(); ++turn) {
      // Forwards in even rounds and backwards in odd ones, from another beginning each time.
      const std::size_t place = round % 2 == 0 ? turn : made.size() - 1 - turn;
      const std::size_t which =
          (place + static_cast<std::size_t>(round + plan.warmup) / 2) % made.size();
      comm.barrier();
      for (int step = 0; step < plan.burst; ++step) {
        Sample sample = train(*made[which], batches[static_cast<std::size_t>(step) % 4]);
        if (plan.alone) {
          comm.barrier();
          communicate_alone(*made[which], sample);
          comm.barrier();
        }
        const bool counts = step > 0 || plan.burst == 1;
        if (round >= 0 && counts) measured[which].samples.push_back(sample);
      }
    }
  }
  average(measured, comm);
  const double before = own_pss();
  malloc_trim(0);
  const double pss = own_pss();
  comm.barrier();  // all ranks have read theirs while all have their models
  return {std::move(measured), comm.all_reduce(pss, hocketAvg),
          comm.all_reduce(before - pss, hocketAvg)};
}

}  // namespace lab
