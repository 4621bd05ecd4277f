// A range of the elements of a named tensor: what a rank holds of a parameter, of a gradient or of
// an optimizer's state.
#pragma once

#include <cstddef>
#include <hocket/training/parameter.hpp>

namespace hocket::training {

/// Elements [begin, begin + elements) of a tensor, in the order of its memory (that of its strides,
/// not that of its dimensions). A rank that holds the whole tensor has begin = 0.
struct TensorRange {
  Parameter tensor;
  std::size_t begin = 0;
  std::size_t elements = 0;
  void* data = nullptr;  // of the first element of the range
};

}  // namespace hocket::training
