#include "activations.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <stdexcept>

namespace lab {
namespace {

/// Counts what libtorch's CPU allocator gives out and takes back in this thread.
class AllocatedBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*place*/, std::int64_t bytes, std::size_t /*allocated*/,
                         std::size_t /*reserved*/, c10::Device /*device*/) override {
    bytes_ += bytes;  // negative if memory is freed
  }
  bool memoryProfilingEnabled() const override { return true; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

std::int64_t allocated_by_forward(Model& model, const Batch& batch) {
  const auto counter = std::make_shared<AllocatedBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  const at::Tensor loss = model.loss(batch);
  return counter->bytes();  // while loss, and with it the graph, exists
}

}  // namespace

nlohmann::json count_activations(const Workload& workload, int rank) {
  const std::shared_ptr<Model> model = make_model(workload);
  const Batch batch = make_batch(workload, rank, 0);
  const std::int64_t computed = model->bytes_saved_by_checkpoints(batch);
  if (computed == 0) {
    throw std::invalid_argument("the workload '" + workload.name + "' checkpoints nothing");
  }
  nlohmann::json out = {{"workload", workload.name}, {"computed", computed}};
  for (const bool checkpointed : {false, true}) {
    model->checkpoints_activations = checkpointed;
    out[checkpointed ? "checkpointed" : "plain"] = allocated_by_forward(*model, batch);
  }
  return out;
}

}  // namespace lab
