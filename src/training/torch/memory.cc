#include "training/torch/memory.h"

#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

namespace hocket::training {
namespace {

hocketDataType_t datatype(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return hocketFloat64;
    case at::kFloat:
      return hocketFloat32;
    case at::kHalf:
      return hocketFloat16;
    case at::kBFloat16:
      return hocketBfloat16;
    default:
      return hocketMaxDataType;
  }
}

bool is_dense(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

}  // namespace

at::ScalarType scalar_type(hocketDataType_t dtype) {
  switch (dtype) {
    case hocketFloat64:
      return at::kDouble;
    case hocketFloat16:
      return at::kHalf;
    case hocketBfloat16:
      return at::kBFloat16;
    default:
      return at::kFloat;
  }
}

Parameter describe_tensor(const char* operation, const std::string& name,
                          const at::Tensor& tensor) {
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument(operation, "parameter '" + name + "' " + what);
  };
  if (tensor.layout() != at::kStrided) refuse("is sparse; only dense parameters can be trained");
  if (!tensor.device().is_cpu()) {
    refuse("is on device " + tensor.device().str() + "; only tensors in CPU memory can be reduced");
  }
  const hocketDataType_t dtype = datatype(tensor.scalar_type());
  if (dtype == hocketMaxDataType) {
    refuse(std::string("has type ") + c10::toString(tensor.scalar_type()) +
           "; float64, float32, float16 and bfloat16 can be reduced");
  }
  Parameter parameter{name, dtype, tensor.sizes().vec(), {}};
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
