// The options of hocket-train-gpt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hocket::gpt {

enum class Strategy { none, dp, ddp, zero1, zero2 };
const char* name_of(Strategy strategy);

struct Options {
  std::string text;
  Strategy strategy = Strategy::ddp;
  // The model.
  std::int64_t layers = 4, width = 256, heads = 4, sequence = 128;
  bool bfloat16 = false;
  bool checkpoint_activations = false;
  // The training.
  std::int64_t batch = 8, accumulate = 1;
  std::int64_t steps = 0;  // 0: no limit
  double seconds = 0;      // 0: no limit
  double learning_rate = 1e-3;
  std::int64_t warm_up = 20;
  double weight_decay = 0.1;
  double clip = 1;  // 0: no clipping
  std::uint64_t seed = 1;
  int threads = 1;
  int replicas = 2;  // of dp
  bool torch_optimizer = false;
  // Checkpoints.
  std::string save, resume;
  std::int64_t save_every = 0;  // 0: at the end only
  // What is printed.
  std::int64_t validate_every = 0;  // 0: at the end only
  std::int64_t report_every = 0;
  bool json = false;
  std::string trace, record_samples;
  std::int64_t sample = 200;
  double temperature = 0.8;
  std::int64_t top_k = 40;
  std::string prompt = "\n";
};

/// Reads the command line. An exit status means that the program ends with it, after *text was
/// printed (to standard output if it is 0).
std::optional<int> parse_options(int argc, char** argv, Options* options, std::string* text);

/// Everything that must be equal on all ranks, as text.
std::string text_of(const Options& options);

}  // namespace hocket::gpt
