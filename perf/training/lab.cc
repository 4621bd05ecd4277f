// training-lab: trains one model in several modes whose steps alternate, and prints what each step
// took as JSON. hocket-run starts it; training.py calls it and makes the table.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <hocket/training/reduction.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "activations.h"
#include "blas.h"
#include "measure.h"
#include "parity.h"

namespace {

struct Arguments {
  std::string workload = "mlp", json;
  std::vector<std::string> modes{"none", "hocket"};
  int rows = 0;
  bool parity = false, activations = false;
  lab::ModeOptions mode;
  lab::Plan plan;
};

int parse(int argc, char** argv, Arguments* arguments) {
  CLI::App app("Trains one model in several modes, step by step in turn");
  Arguments& a = *arguments;
  app.add_option("--workload", a.workload, "mlp, tensors, gpt10m or gpt85m");
  app.add_option("--modes", a.modes,
                 "none, barrier, hocket, fused, zero1, zero2, dp, checkpointed, reducer")
      ->delimiter(',');
  app.add_option("--rows", a.rows, "rows of a rank's batch; 0: the workload's own");
  app.add_option("--rounds", a.plan.rounds, "how often each mode has its turn");
  app.add_option("--burst", a.plan.burst, "steps of a turn; those after the first are measured");
  app.add_option("--warmup", a.plan.warmup, "rounds before those that are measured");
  app.add_flag("--alone", a.plan.alone, "measures communication without a backward too");
  app.add_option("--bucket-mb", a.mode.bucket_mb, "MiB of a bucket; 0: by limits_by_cost()");
  app.add_option("--replicas", a.mode.replicas, "of the mode dp, each a thread");
  app.add_option("--interface", a.mode.interface_name, "of Gloo's connections");
  app.add_option("--address", a.mode.address, "of rank 0, for Gloo");
  app.add_flag("--activations", a.activations,
               "counts the bytes of activations, plain and checkpointed");
  app.add_flag("--parity", a.parity, "compares the gradients of all ranks with one process");
  app.add_option("--json", a.json, "file for the results; else standard output");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? -1 : 2;
  }
  return 0;
}

double bucket_mb_by_cost(const lab::Workload& workload, hocket::Communicator& comm) {
  std::size_t bytes = 0;
  for (const at::Tensor& each : lab::make_model(workload)->parameters()) bytes += each.nbytes();
  return static_cast<double>(hocket::training::limits_by_cost(comm, bytes).bytes) / (1 << 20);
}

nlohmann::json run(Arguments arguments, hocket::Communicator& comm) {
  const lab::Workload workload = lab::workload(arguments.workload, arguments.rows);
  if (arguments.activations) return lab::count_activations(workload, comm.rank());
  if (arguments.mode.bucket_mb == 0) arguments.mode.bucket_mb = bucket_mb_by_cost(workload, comm);
  if (arguments.parity) return lab::compare_gradients(workload, comm, arguments.mode);
  const lab::Measurements measured =
      lab::measure(workload, arguments.modes, arguments.mode, arguments.plan, comm);
  nlohmann::json out = {{"workload", workload.name},
                        {"rows", workload.rows},
                        {"ranks", comm.ranks()},
                        {"bucket_mb", arguments.mode.bucket_mb},
                        {"pss", measured.pss},
                        {"freed", measured.freed},
                        {"samples", nlohmann::json::object()}};
  for (const lab::Measured& mode : measured.modes) {
    nlohmann::json& of = out["samples"][mode.mode];
    out["computed_bytes"][mode.mode] = mode.computed_bytes;
    for (std::size_t part = 0; part < lab::part_names.size(); ++part) {
      std::vector<double> values;
      for (const lab::Sample& sample : mode.samples) values.push_back(sample[part]);
      of[lab::part_names[part]] = values;
    }
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  Arguments arguments;
  if (const int status = parse(argc, argv, &arguments); status != 0) return std::max(status, 0);
  lab::require_fast_blas();
  at::set_num_threads(1);
  auto comm = hocket::Communicator::from_environment();
  const nlohmann::json result = run(arguments, comm);
  if (comm.rank() != 0) return 0;
  if (arguments.json.empty()) {
    std::cout << result << '\n';
    return 0;
  }
  std::ofstream(arguments.json) << result << '\n';
  return 0;
} catch (const std::exception& error) {
  std::cerr << "training-lab: " << error.what() << '\n';
  return 1;
}
