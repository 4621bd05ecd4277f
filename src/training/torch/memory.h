// Tensors and hocket memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <hocket/hocket.hpp>
#include <hocket/training/parameter.hpp>
#include <string>
#include <vector>

namespace hocket::training {

/// The parameter as the core knows it. Throws InvalidArgument, in the name of the operation, if its
/// type, layout or device cannot be reduced.
Parameter describe_tensor(const char* operation, const std::string& name, const at::Tensor& tensor);

/// A tensor over the memory at address, with the type and sizes of another tensor, and with its
/// strides if these are dense, else row-major. It is no view for autograd, so zero_grad() works. It
/// does not own the memory.
at::Tensor tensor_over(void* address, const at::Tensor& like);

/// Collective. The tensors of root overwrite those of the other ranks. All ranks have tensors of
/// the same sizes and types. They may have any type and strides.
void broadcast_tensors(Communicator& comm, const std::vector<at::Tensor>& tensors, int root);

}  // namespace hocket::training
