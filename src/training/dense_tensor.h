// Tensors of any type, as checkpoints describe them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hocket/training/tensor_range.hpp>
#include <string>

namespace hocket::training::storage {

/// The bytes of an element; 0: there is no such type.
std::size_t type_bytes(hocketDataType_t dtype) noexcept;
/// "float32", "int64", ...
const char* type_name(hocketDataType_t dtype) noexcept;
/// "(float32, 3 x 4, strides 1 x 3)".
std::string describe_type(const Parameter& tensor);
/// The same after the name.
std::string describe_stored(const Parameter& tensor);
/// "parameter" of "parameter/block.0.weight"; empty without '/'.
std::string kind_of(const std::string& name);
/// "block.0.weight" of "parameter/block.0.weight".
std::string without_kind(const std::string& name);

/// Checks name, type, sizes and strides, and brings the strides into the form in which equal
/// layouts have equal strides: none for row-major; 1 for a dimension of one element, where the
/// stride does not matter. Throws Failure if the tensor is not dense or has 2^62 bytes or more.
Parameter checked(Parameter tensor);
/// Throws Failure unless the range lies in its tensor, which is checked, and has memory.
void require_range(const TensorRange& range);

/// Copies all elements of a checked tensor between the order of its memory and row-major order.
void to_row_major(const Parameter& tensor, const void* memory, void* row_major);
void from_row_major(const Parameter& tensor, const void* row_major, void* memory);

}  // namespace hocket::training::storage
