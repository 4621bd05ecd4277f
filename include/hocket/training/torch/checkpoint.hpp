// Checkpoints of libtorch modules, and their files for programs that use torch::save.
//
//   save_checkpoint(comm, directory, module_ranges(*net), {{"random", cpu_generator_state()}});
//
//   const LoadedCheckpoint loaded = load_checkpoint(comm, directory, module_ranges(*net));
#pragma once

#include <hocket/training/checkpoint.hpp>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace hocket::training {

/// The parameters and buffers of a module as "parameter/NAME" and "buffer/NAME", each whole. The
/// ranges are over the tensors' own memory, and are valid as long as the tensors keep it. A tensor
/// that occurs under two names (tied weights) is there once, under the first. Undefined tensors are
/// left out.
/// Throws InvalidArgument, with the name, for a tensor that is sparse, complex, quantized, on a
/// device, or has gaps or overlaps in memory (an expanded tensor): make it contiguous.
[[nodiscard]] std::vector<TensorRange> module_ranges(const ::torch::nn::Module& module);

/// Writes parameters and buffers of a checkpoint to a file that torch::load(module, path) reads.
/// The directory is as for load_checkpoint(). The module says what belongs into the file; its own
/// values are the same afterwards, but no other thread may use it meanwhile. Not collective: one
/// process calls it. Throws as load_checkpoint() does: for example Mismatch if the module is of
/// another model.
void export_torch(const std::string& directory, ::torch::nn::Module& module,
                  const std::string& path);

/// Reads a file of torch::save(module, path) into a module. torch::load(module, path) takes over
/// tensors of any sizes; here another type or size, a missing name and an additional name are a
/// Mismatch, and the module is unchanged. Modules with a save() of their own need their load().
/// libtorch may run code that is in such a file, so do not read files of others. Not collective.
void import_torch(const std::string& path, ::torch::nn::Module& module);

/// The state of libtorch's random generator of the CPU, as hexadecimal digits for metadata.
[[nodiscard]] std::string cpu_generator_state();
/// Throws InvalidArgument if the text is no such state.
void set_cpu_generator_state(const std::string& state);

}  // namespace hocket::training
