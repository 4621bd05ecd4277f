// The types of tensors that hocket has, too.
#pragma once

#include <c10/core/ScalarType.h>

#include <hocket/hocket.hpp>
#include <optional>

namespace hocket::training {

/// Empty: hocket has no such type. A bool is a byte.
std::optional<hocketDataType_t> datatype(at::ScalarType type);
/// The type of tensors for which datatype() is this; dtype is such a type.
at::ScalarType scalar_type(hocketDataType_t dtype);

}  // namespace hocket::training
