#include "training/torch/memory.h"

#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include "training/torch/types.h"

namespace hocket::training {
namespace {

bool is_dense(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

}  // namespace

Parameter describe_tensor(const char* operation, const std::string& name,
                          const at::Tensor& tensor) {
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument(operation, "parameter '" + name + "' " + what);
  };
  if (tensor.layout() != at::kStrided) refuse("is sparse; only dense parameters can be trained");
  if (!tensor.device().is_cpu()) {
    refuse("is on device " + tensor.device().str() + "; only tensors in CPU memory can be reduced");
  }
  const std::optional<hocketDataType_t> dtype = datatype(tensor.scalar_type());
  if (!dtype || element_bytes(*dtype) < 2) {
    refuse(std::string("has type ") + c10::toString(tensor.scalar_type()) +
           "; float64, float32, float16 and bfloat16 can be reduced");
  }
  Parameter parameter{name, *dtype, tensor.sizes().vec(), {}};
  if (is_dense(tensor) && !tensor.is_contiguous()) parameter.strides = tensor.strides().vec();
  return parameter;
}

at::Tensor tensor_over(void* address, const at::Tensor& like) {
  if (is_dense(like)) {
    return at::from_blob(address, like.sizes(), like.strides(), like.options());
  }
  return at::from_blob(address, like.sizes(), like.options());
}

void broadcast_tensors(Communicator& comm, const std::vector<at::Tensor>& tensors, int root) {
  const c10::AutoGradMode no_grad(false);
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // what is not dense, and its dense copy
  std::vector<at::Tensor> dense;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.numel() == 0) continue;
    dense.push_back(tensor);
    if (is_dense(tensor)) continue;
    dense.back() = tensor.contiguous();
    copies.emplace_back(tensor, dense.back());
  }
  if (dense.empty()) return;
  group([&] {
    for (const at::Tensor& tensor : dense) {
      check(hocketBroadcast(tensor.data_ptr(), tensor.data_ptr(), tensor.nbytes(), hocketUint8,
                            root, comm.get(), nullptr),
            "hocketBroadcast");
    }
  });
  for (auto& [tensor, copy] : copies) tensor.copy_(copy);
}

}  // namespace hocket::training
