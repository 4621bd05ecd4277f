#include "training/dense_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "training/storage_failure.h"

namespace hocket::training::storage {
namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 62;
constexpr std::size_t most_dimensions = 64;
constexpr std::size_t longest_tensor_name = 4096;

std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

/// Whether every element has its own place, without gaps between them.
bool is_dense(const Parameter& tensor) {
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    if (tensor.sizes[d] != 1) order.push_back(d);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return tensor.strides[a] < tensor.strides[b]; });
  std::int64_t expected = 1;
  for (const std::size_t d : order) {
    if (tensor.strides[d] != expected) return false;
    expected *= tensor.sizes[d];
  }
  return true;
}

/// Calls copy(row-major index, index in memory) for every element.
template <typename Copy>
void for_each_element(const Parameter& tensor, Copy copy) {
  const std::size_t elements = tensor.elements();
  const std::size_t dimensions = tensor.sizes.size();
  std::vector<std::int64_t> index(dimensions, 0);
  std::int64_t memory = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    copy(i, static_cast<std::size_t>(memory));
    for (std::size_t d = dimensions; d-- > 0;) {
      memory += tensor.strides[d];
      if (++index[d] < tensor.sizes[d]) break;
      memory -= tensor.strides[d] * tensor.sizes[d];
      index[d] = 0;
    }
  }
}

template <typename Element>
void reorder(const Parameter& tensor, const void* from, void* to, bool to_rows) {
  const auto* in = static_cast<const Element*>(from);
  auto* out = static_cast<Element*>(to);
  if (to_rows) {
    for_each_element(tensor, [&](std::size_t row, std::size_t memory) { out[row] = in[memory]; });
  } else {
    for_each_element(tensor, [&](std::size_t row, std::size_t memory) { out[memory] = in[row]; });
  }
}

void reorder(const Parameter& tensor, const void* from, void* to, bool to_rows) {
  const std::size_t bytes = type_bytes(tensor.dtype);
  if (tensor.strides.empty()) {
    if (tensor.elements() > 0) std::memcpy(to, from, tensor.elements() * bytes);
    return;
  }
  switch (bytes) {
    case 1:
      return reorder<std::uint8_t>(tensor, from, to, to_rows);
    case 2:
      return reorder<std::uint16_t>(tensor, from, to, to_rows);
    case 4:
      return reorder<std::uint32_t>(tensor, from, to, to_rows);
    default:
      return reorder<std::uint64_t>(tensor, from, to, to_rows);
  }
}

}  // namespace

std::size_t type_bytes(hocketDataType_t dtype) noexcept {
  switch (dtype) {
    case hocketInt8:
    case hocketUint8:
      return 1;
    case hocketInt16:
    case hocketUint16:
      return 2;
    case hocketInt32:
    case hocketUint32:
      return 4;
    case hocketInt64:
    case hocketUint64:
      return 8;
    default:
      return element_bytes(dtype);
  }
}

const char* type_name(hocketDataType_t dtype) noexcept {
  switch (dtype) {
    case hocketInt8:
      return "int8";
    case hocketUint8:
      return "uint8";
    case hocketInt16:
      return "int16";
    case hocketUint16:
      return "uint16";
    case hocketInt32:
      return "int32";
    case hocketUint32:
      return "uint32";
    case hocketInt64:
      return "int64";
    case hocketUint64:
      return "uint64";
    default:
      return element_bytes(dtype) > 0 ? dtype_name(dtype) : "an unknown type";
  }
}

std::string describe_type(const Parameter& tensor) {
  std::string text = fmt::format(
      "({}, {}", type_name(tensor.dtype),
      tensor.sizes.empty() ? "scalar" : fmt::format("{}", fmt::join(tensor.sizes, " x ")));
  if (!tensor.strides.empty()) {
    text += fmt::format(", strides {}", fmt::join(tensor.strides, " x "));
  }
  return text + ")";
}

std::string describe_stored(const Parameter& tensor) {
  return fmt::format("'{}' {}", tensor.name, describe_type(tensor));
}

std::string kind_of(const std::string& name) {
  const std::size_t slash = name.find('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

std::string without_kind(const std::string& name) {
  const std::size_t slash = name.find('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

Parameter checked(Parameter tensor) {
  const auto refuse_as = [&](const std::string& what) {
    refuse(fmt::format("tensor {} {}", describe_stored(tensor), what));
  };
  if (tensor.name.empty() || tensor.name.size() > longest_tensor_name) {
    refuse(fmt::format("the name of a tensor has {} bytes; it has 1 to {}", tensor.name.size(),
                       longest_tensor_name));
  }
  const std::size_t element = type_bytes(tensor.dtype);
  if (element == 0) refuse_as("has a type that is no hocketDataType_t");
  if (tensor.sizes.size() > most_dimensions) refuse_as("has more than 64 dimensions");
  std::size_t bytes = element;
  bool is_empty = false;
  for (const std::int64_t size : tensor.sizes) {
    if (size < 0) refuse_as("has a negative size");
    if (size == 0) is_empty = true;
    if (size > 0 && bytes > most_bytes / static_cast<std::size_t>(size)) {
      refuse_as("has 2^62 bytes or more");
    }
    if (size > 0) bytes *= static_cast<std::size_t>(size);
  }
  if (tensor.strides.empty()) return tensor;
  if (tensor.strides.size() != tensor.sizes.size()) refuse_as("has not a stride for each size");
  if (is_empty) tensor.strides.clear();
  const std::vector<std::int64_t> row_major = row_major_strides(tensor.sizes);
  bool is_row_major = true;
  for (std::size_t d = 0; d < tensor.strides.size(); ++d) {
    if (tensor.sizes[d] == 1)
      tensor.strides[d] = 1;
    else if (tensor.strides[d] != row_major[d])
      is_row_major = false;
  }
  if (is_row_major) {
    tensor.strides.clear();
  } else if (!is_dense(tensor)) {
    refuse_as("is not dense in memory: save a contiguous copy of it");
  }
  return tensor;
}

void require_range(const TensorRange& range) {
  const std::size_t elements = range.tensor.elements();
  if (range.begin > elements || range.elements > elements - range.begin) {
    refuse(fmt::format("elements [{}, {} + {}) are not in tensor {}, which has {} elements",
                       range.begin, range.begin, range.elements, describe_stored(range.tensor),
                       elements));
  }
  if (range.data == nullptr && range.elements > 0) {
    refuse(fmt::format("the range of tensor {} has no memory", describe_stored(range.tensor)));
  }
}

void to_row_major(const Parameter& tensor, const void* memory, void* row_major) {
  reorder(tensor, memory, row_major, true);
}

void from_row_major(const Parameter& tensor, const void* row_major, void* memory) {
  reorder(tensor, row_major, memory, false);
}

}  // namespace hocket::training::storage
