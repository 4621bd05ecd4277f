// Parameters of a module that move to memory of hocket.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace hocket::training {

/// Throws InvalidArgument, in the name of the operation, if a parameter cannot move: it is not
/// dense, or other tensors use its memory in a way that would not move with it.
void require_movable(const char* operation, const std::vector<std::string>& names,
                     const std::vector<at::Tensor>& parameters);

/// Moves the parameter's values to place, and the parameter with all its views with them. Sizes,
/// strides and the tensor's identity stay. The tensor keeps the memory's owner alive.
void move_parameter(const at::Tensor& parameter, void* place, std::shared_ptr<const void> owner);

}  // namespace hocket::training
