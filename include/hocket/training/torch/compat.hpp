// The versions of libtorch that the adapter compiles against, and where they differ.
#pragma once

#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <utility>

#if TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 7)
#error "hocket::torch needs libtorch 2.7 or newer"
#endif

namespace hocket::training::compat {

/// A node of the autograd graph: a std::shared_ptr before 2.13, an intrusive pointer since.
using NodePointer =
    decltype(::torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

}  // namespace hocket::training::compat
