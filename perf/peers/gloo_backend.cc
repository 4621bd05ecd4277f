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

/// A tensor for the block of each rank.
std::vector<at::Tensor> blocks(float* data, std::size_t count) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < group->getSize(); ++rank) {
    all.push_back(tensor(data + static_cast<std::size_t>(rank) * count, count));
  }
  return all;
}

c10::intrusive_ptr<c10d::Work> begin_to_all(const Call& c) {
  const std::size_t all = c.count * static_cast<std::size_t>(group->getSize());
  auto out = tensor(c.out, all), in = tensor(c.in, all);
  std::vector<std::int64_t> lengths;  // of what is sent, and of what is received; none: equal ones
  if (c.varying) lengths.assign(c.blocks.counts.begin(), c.blocks.counts.end());
  return group->all_to_all_single(out, in, lengths, lengths);
}

c10::intrusive_ptr<c10d::Work> begin_varying_reduce_scatter(const Call& c) {
  std::vector<at::Tensor> own{tensor(c.out, c.own_count)};
  std::vector<std::vector<at::Tensor>> parts(1);
  for (std::size_t rank = 0; rank < c.blocks.counts.size(); ++rank) {
    parts[0].push_back(tensor(c.in + c.blocks.starts[rank], c.blocks.counts[rank]));
  }
  return group->reduce_scatter(own, parts);
}

c10::intrusive_ptr<c10d::Work> begin(const Call& c) {
  const std::size_t all = c.count * static_cast<std::size_t>(group->getSize());
  const bool is_root = group->getRank() == 0;
  std::vector<at::Tensor> whole{tensor(c.out, c.count)}, mine{tensor(c.in, c.count)};
  std::vector<std::vector<at::Tensor>> parts;
  switch (c.collective) {
    case Collective::all_gather: {
      auto gathered = tensor(c.out, all);
      return group->all_gather_single(gathered, mine[0]);
    }
    case Collective::reduce_scatter: {
      if (c.varying) return begin_varying_reduce_scatter(c);
      auto given = tensor(c.in, all);
      return group->reduce_scatter_single(whole[0], given);
    }
    case Collective::broadcast:
      return group->broadcast(whole);
    case Collective::reduce:
      return group->reduce(whole);
    case Collective::gather:
      if (is_root) parts.push_back(blocks(c.out, c.count));
      return group->gather(parts, mine);
    case Collective::scatter:
      if (is_root) parts.push_back(blocks(c.in, c.count));
      return group->scatter(whole, parts);
    case Collective::alltoall:
      return begin_to_all(c);
    case Collective::barrier:
      return group->barrier();
    default:
      return group->allreduce(whole);
  }
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
  return collective == Collective::all_reduce || collective == Collective::broadcast ||
         collective == Collective::reduce;
}

bool backend_run(const Call& call, std::string* error) {
  try {
    begin(call)->wait();
  } catch (const std::exception& problem) {
    *error = problem.what();
    return false;
  }
  return true;
}

void backend_progress() {}  // Gloo has threads for that

void backend_stop() { group.reset(); }

}  // namespace hocket::peers
