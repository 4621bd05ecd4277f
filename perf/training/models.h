// The models that the lab trains, the same for every way of communication (ddp.py has them again
// for Python).
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lab {

/// The input of a step of one rank.
struct Batch {
  at::Tensor data;    // mlp: rows x 1024; tensors: rows x 64; gpt: rows x 128 bytes
  at::Tensor target;  // mlp, tensors: as the output; gpt: rows x 128, the next bytes
};

class Model : public torch::nn::Module {
 public:
  virtual at::Tensor loss(const Batch& batch) = 0;
  /// How many bytes less a forward of the batch keeps for its backward with
  /// checkpoints_activations.
  virtual std::int64_t bytes_saved_by_checkpoints(const Batch& /*batch*/) { return 0; }
  bool checkpoints_activations = false;  // of each block of a GPT
};

/// What is trained: a model and the rows of a batch of one rank.
struct Workload {
  std::string name;
  int rows = 0;
  bool adamw = false;  // its optimizer; else SGD without momentum
};

/// mlp: 8 layers 1024 x 1024. tensors: 64 matrices of 32 KiB. gpt10m: 6 layers, width 384. gpt85m:
/// 12 layers, width 768. rows: 0: the workload's own.
/// Throws std::invalid_argument if the name is unknown.
Workload workload(const std::string& name, int rows);
/// Has the same values on all ranks.
std::shared_ptr<Model> make_model(const Workload& workload);
/// The same for equal arguments, on every machine.
Batch make_batch(const Workload& workload, int rank, int step);
/// The rows of one batch after those of the other.
Batch joined(const Batch& first, const Batch& second);

}  // namespace lab
