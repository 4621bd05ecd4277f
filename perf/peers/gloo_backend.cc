// Gloo as part of libtorch, by the process group of c10d, as PyTorch programs use it. The wheel has
// Gloo's code but not its headers. So gloo_rank.py makes the group and loads this file as a
// library, which looks up the group by its name. No Python code runs during the collectives.
#include <ATen/ops/from_blob.h>

#include <cstdlib>
#include <exception>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "backend.h"

namespace hocket::peers {
namespace {

c10::intrusive_ptr<c10d::ProcessGroup> group;

std::string text_from(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? text : "";
}

at::Tensor tensor(float* data, std::size_t count) {
  return at::from_blob(data, {static_cast<std::int64_t>(count)}, at::TensorOptions(at::kFloat));
}

c10::intrusive_ptr<c10d::Work> begin(Collective collective, float* in, float* out,
                                     std::size_t count) {
  const std::size_t ranks = static_cast<std::size_t>(group->getSize());
  if (collective == Collective::all_gather) {
    auto all = tensor(out, count * ranks), mine = tensor(in, count);
    return group->all_gather_single(all, mine);
  }
  if (collective == Collective::reduce_scatter) {
    auto mine = tensor(out, count), all = tensor(in, count * ranks);
    return group->reduce_scatter_single(mine, all);
  }
  std::vector<at::Tensor> tensors{tensor(out, count)};
  if (collective == Collective::broadcast) return group->broadcast(tensors);
  return group->allreduce(tensors);
}

}  // namespace

const char* backend_name() { return "gloo"; }

bool backend_start(std::string* error) {
  try {
    group = c10d::resolve_process_group(text_from("PEER_GLOO_GROUP"));
  } catch (const std::exception& problem) {
    *error = problem.what();
  }
  return group != nullptr;
}

std::string backend_version() { return "Gloo in libtorch " + text_from("PEER_TORCH_VERSION"); }

int backend_rank() { return group->getRank(); }
int backend_ranks() { return group->getSize(); }

void* backend_allocate(std::size_t bytes, bool) {
  return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
}

bool backend_in_place(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::broadcast;
}

bool backend_run(Collective collective, float* in, float* out, std::size_t count,
                 std::string* error) {
  try {
    begin(collective, in, out, count)->wait();
  } catch (const std::exception& problem) {
    *error = problem.what();
    return false;
  }
  return true;
}

void backend_progress() {}  // Gloo has threads for that

void backend_stop() { group.reset(); }

}  // namespace hocket::peers
