#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <hocket/training/torch/checkpoint.hpp>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "training/dense_tensor.h"
#include "training/storage_failure.h"
#include "training/storage_file.h"
#include "training/torch/types.h"

namespace hocket::training {
namespace {

using ::torch::nn::Module;
using namespace storage;

TensorRange range_of(const std::string& name, const at::Tensor& tensor) {
  const auto refuse_as = [&](const std::string& what) { refuse("'" + name + "' " + what); };
  if (tensor.layout() != at::kStrided) refuse_as("is sparse; checkpoints have dense tensors");
  if (!tensor.device().is_cpu()) {
    refuse_as("is on device " + tensor.device().str() + "; checkpoints have tensors in CPU memory");
  }
  const std::optional<hocketDataType_t> dtype = datatype(tensor.scalar_type());
  if (!dtype) {
    refuse_as(std::string("has type ") + c10::toString(tensor.scalar_type()) +
              ", which checkpoints do not have");
  }
  if (!tensor.is_non_overlapping_and_dense()) {
    refuse_as("has gaps or overlaps in memory; make it contiguous");
  }
  TensorRange range{{name, *dtype, tensor.sizes().vec(), {}}, 0, 0, tensor.data_ptr()};
  if (!tensor.is_contiguous()) range.tensor.strides = tensor.strides().vec();
  range.elements = range.tensor.elements();
  return range;
}

struct Named {
  std::string name;  // with its kind
  at::Tensor tensor;
};

/// The tensors of a module, each once.
std::vector<Named> tensors_of(const Module& module) {
  std::vector<Named> all;
  std::unordered_set<const void*> seen;
  const auto add = [&](const std::string& kind, const auto& tensors) {
    for (const auto& each : tensors) {
      const at::Tensor& tensor = each.value();
      if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      all.push_back({kind + "/" + each.key(), tensor});
    }
  };
  add("parameter", module.named_parameters());
  add("buffer", module.named_buffers());
  return all;
}

/// Gives tensors other values, in other memory, until its end.
class Exchanged {
 public:
  ~Exchanged() {
    for (auto& [tensor, own] : own_) tensor.set_data(own);
  }
  void set(const at::Tensor& tensor, const at::Tensor& values) {
    own_.emplace_back(tensor, tensor.variable_data());
    tensor.set_data(values);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> own_;
};

void export_module(const std::string& directory, Module& module, const std::string& path) {
  const c10::AutoGradMode no_grad(false);
  CheckpointReader reader(directory);
  Exchanged exchanged;
  for (const Named& named : tensors_of(module)) {
    const at::Tensor values =
        at::empty_strided(named.tensor.sizes(), named.tensor.strides(), named.tensor.options());
    TensorRange range = range_of(named.name, named.tensor);
    range.data = values.data_ptr();
    reader.read(range);
    exchanged.set(named.tensor, values);
  }
  ::torch::serialize::OutputArchive archive;
  module.save(archive);
  const std::string temporary = path + ".new-" + std::to_string(::getpid());
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);  // of a process that died
  try {
    File file = File::create(temporary);
    std::uint64_t end = 0;
    archive.save_to([&](const void* data, std::size_t bytes) {
      file.write(data, bytes, end);
      end += bytes;
      return bytes;
    });
    file.sync_and_close();
    rename_path(temporary, path);
  } catch (...) {
    std::filesystem::remove(temporary, ignored);
    throw;
  }
}

using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;  // to, from

void add_copy(const std::string& path, const std::string& name, const at::Tensor& to,
              const at::Tensor& from, Copies* copies) {
  const auto describe = [](const at::Tensor& tensor) {
    const auto dtype = datatype(tensor.scalar_type()).value_or(hocketMaxDataType);
    return describe_type({"", dtype, tensor.sizes().vec(), {}});
  };
  if (to.scalar_type() != from.scalar_type() || to.sizes() != from.sizes()) {
    mismatch("'" + name + "' is " + describe(to) + " in this module, and " + describe(from) +
             " in '" + path + "'");
  }
  copies->emplace_back(to, from);
}

/// Finds the tensors of a module and of its children in the archive.
void find_copies(const std::string& path, const Module& module, const std::string& prefix,
                 ::torch::serialize::InputArchive& archive, Copies* copies) {
  std::set<std::string> known;
  const auto missing = [&](const std::string& name) {
    mismatch("'" + prefix + name + "' is in this module, and not in '" + path + "'");
  };
  const auto read_all = [&](const auto& tensors, bool are_buffers) {
    for (const auto& each : tensors) {
      known.insert(each.key());
      if (!each.value().defined()) continue;
      at::Tensor from;
      if (!archive.try_read(each.key(), from, are_buffers)) missing(each.key());
      add_copy(path, prefix + each.key(), each.value(), from, copies);
    }
  };
  read_all(module.named_parameters(false), false);
  read_all(module.named_buffers(false), true);
  for (const auto& child : module.named_children()) {
    known.insert(child.key());
    if (!child.value()->is_serializable()) continue;
    ::torch::serialize::InputArchive inner;
    if (!archive.try_read(child.key(), inner)) missing(child.key());
    find_copies(path, *child.value(), prefix + child.key() + ".", inner, copies);
  }
  for (const std::string& key : archive.keys()) {
    if (known.contains(key)) continue;
    mismatch("'" + prefix + key + "' is in '" + path + "', and not in this module");
  }
}

void import_module(const std::string& path, Module& module) {
  const c10::AutoGradMode no_grad(false);
  (void)File::open(path);  // for the system's reason, which libtorch does not tell
  Copies copies;
  try {
    ::torch::serialize::InputArchive archive;
    archive.load_from(path);
    find_copies(path, module, "", archive, &copies);
  } catch (const c10::Error& error) {
    damaged(path, std::string("libtorch cannot read it: ") + error.what_without_backtrace());
  }
  for (auto& [to, from] : copies) to.copy_(from);
}

}  // namespace

std::vector<TensorRange> module_ranges(const Module& module) {
  std::vector<TensorRange> ranges;
  locally("hocket::training::module_ranges", [&] {
    for (const Named& named : tensors_of(module)) {
      ranges.push_back(range_of(named.name, named.tensor));
    }
  });
  return ranges;
}

void export_torch(const std::string& directory, Module& module, const std::string& path) {
  locally("hocket::training::export_torch", [&] { export_module(directory, module, path); });
}

void import_torch(const std::string& path, Module& module) {
  locally("hocket::training::import_torch", [&] { import_module(path, module); });
}

std::string cpu_generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  const auto* const bytes = static_cast<const unsigned char*>(state.data_ptr());
  std::string text;
  for (std::int64_t i = 0; i < state.numel(); ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

void set_cpu_generator_state(const std::string& text) {
  locally("hocket::training::set_cpu_generator_state", [&] {
    const auto digit = [](char c) {
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      refuse("the state of a random generator has hexadecimal digits only");
    };
    at::Tensor state = at::empty({static_cast<std::int64_t>(text.size() / 2)}, at::kByte);
    auto* const bytes = static_cast<unsigned char*>(state.data_ptr());
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
      bytes[i / 2] = static_cast<unsigned char>(digit(text[i]) * 16 + digit(text[i + 1]));
    }
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    try {
      generator.set_state(state);
    } catch (const c10::Error& error) {
      refuse(std::string("the text is no state of this random generator: ") +
             error.what_without_backtrace());
    }
  });
}

}  // namespace hocket::training
