#include "training/torch/rebind.h"

#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/core/StorageImpl.h>

#include <cstring>
#include <hocket/hocket.hpp>
#include <unordered_map>

namespace hocket::training {
namespace {

/// Whether the tensor is all that its storage holds. Then the storage can move, with every view.
bool fills_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.storage().nbytes() == tensor.nbytes();
}

c10::DataPtr data_pointer(void* place, std::shared_ptr<const void> owner, c10::Device device) {
  auto* const context = new std::shared_ptr<const void>(std::move(owner));
  return {place, context,
          [](void* owner_of_it) { delete static_cast<std::shared_ptr<const void>*>(owner_of_it); },
          device};
}

}  // namespace

void require_movable(const char* operation, const std::vector<std::string>& names,
                     const std::vector<at::Tensor>& parameters) {
  std::unordered_map<const void*, std::size_t> storages;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const at::Tensor& parameter = parameters[p];
    const auto refuse = [&](const std::string& why) {
      throw InvalidArgument(operation, "parameter '" + names[p] + "' " + why);
    };
    if (!parameter.is_non_overlapping_and_dense()) {
      refuse(
          "has gaps in its memory: with sharding, parameters must be dense. Replace it by its "
          "clone");
    }
    const auto* const storage = parameter.storage().unsafeGetStorageImpl();
    const auto [found, is_first] = storages.emplace(storage, p);
    if (!is_first && parameter.numel() > 0) {
      refuse("shares memory with parameter '" + names[found->second] +
             "', but is another tensor: with sharding, tied parameters must be the same tensor, "
             "registered under two names");
    }
    if (!fills_storage(parameter) && parameter.storage().use_count() > 1) {
      refuse(
          "is a part of the memory of other tensors: with sharding it moves, and they would not "
          "move with it. Replace it by its clone");
    }
  }
}

void move_parameter(const at::Tensor& parameter, void* place, std::shared_ptr<const void> owner) {
  if (parameter.numel() == 0) return;
  std::memcpy(place, parameter.data_ptr(), parameter.nbytes());
  if (fills_storage(parameter)) {
    parameter.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        data_pointer(place, std::move(owner), parameter.device()));
    return;
  }
  const auto keep = [owner = std::move(owner)](void*) {};
  const c10::AutoGradMode no_grad(false);
  parameter.unsafeGetTensorImpl()->set_storage_keep_dtype(
      at::from_blob(place, parameter.sizes(), parameter.strides(), keep, parameter.options())
          .storage());
  parameter.unsafeGetTensorImpl()->set_storage_offset(0);
}

}  // namespace hocket::training
