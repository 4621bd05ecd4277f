#include "parity.h"

#include <cstring>

namespace lab {
namespace {

constexpr int steps = 3;

std::vector<at::Tensor> gradients(Model& model) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : model.parameters()) all.push_back(parameter.grad().clone());
  return all;
}

void copy_parameters(Model& from, Model& to) {
  const torch::NoGradGuard no_grad;
  const auto source = from.parameters(), target = to.parameters();
  for (std::size_t i = 0; i < source.size(); ++i) target[i].copy_(source[i]);
}

/// The mean over the ranks of the gradients of their batches, one after another.
std::vector<at::Tensor> one_by_one(Model& model, const std::vector<Batch>& batches) {
  model.zero_grad();
  for (const Batch& batch : batches) model.loss(batch).backward();
  std::vector<at::Tensor> all = gradients(model);
  for (at::Tensor& gradient : all) gradient /= static_cast<double>(batches.size());
  return all;
}

std::vector<at::Tensor> at_once(Model& model, const std::vector<Batch>& batches) {
  Batch all = batches.front();
  for (std::size_t i = 1; i < batches.size(); ++i) all = joined(all, batches[i]);
  model.zero_grad();
  model.loss(all).backward();
  return gradients(model);
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const at::Tensor x = a[i].contiguous(), y = b[i].contiguous();
    if (std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) != 0) return false;
  }
  return true;
}

double relative_difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, (a[i] - b[i]).abs().max().item<double>());
    largest = std::max(largest, b[i].abs().max().item<double>());
  }
  return difference / largest;
}

bool ranks_equal(Model& model, hocket::Communicator& comm) {
  for (const at::Tensor& parameter : model.parameters()) {
    const at::Tensor own = parameter.detach().contiguous();
    std::vector<std::uint8_t> mine(own.nbytes()), root;
    std::memcpy(mine.data(), own.data_ptr(), mine.size());
    root = mine;
    comm.broadcast(root, 0);
    std::vector<std::int32_t> differs{mine == root ? 0 : 1};
    comm.all_reduce(differs, hocketMax);
    if (differs[0] != 0) return false;
  }
  return true;
}

}  // namespace

nlohmann::json compare_gradients(const Workload& workload, hocket::Communicator& comm,
                                 const ModeOptions& options) {
  const auto mode = make_mode("hocket", workload, comm, options);
  const auto alone = make_model(workload);
  bool bit_equal = true;
  double full_batch = 0;
  for (int step = 0; step < steps; ++step) {
    std::vector<Batch> batches;
    for (int rank = 0; rank < comm.ranks(); ++rank) {
      batches.push_back(make_batch(workload, rank, step));
    }
    copy_parameters(mode->model(), *alone);
    mode->zero_grad();
    mode->forward(batches[static_cast<std::size_t>(comm.rank())]).backward();
    const std::vector<at::Tensor> reduced = gradients(mode->model());
    bit_equal = bit_equal && same_bits(reduced, one_by_one(*alone, batches));
    full_batch = std::max(full_batch, relative_difference(reduced, at_once(*alone, batches)));
    mode->optimize();
  }
  return {{"workload", workload.name},
          {"ranks", comm.ranks()},
          {"bit_equal", bit_equal},
          {"full_batch", full_batch},
          {"ranks_equal", ranks_equal(mode->model(), comm)}};
}

}  // namespace lab
