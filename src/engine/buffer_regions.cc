#include "engine/buffer_regions.h"

#include "base/log.h"

namespace hocket::internal {
namespace {

std::size_t input_bytes(const Binding& binding) {
  return binding.sizes.input.end() * size_of(binding.dtype);
}
std::size_t output_bytes(const Binding& binding) {
  return binding.sizes.output.end() * size_of(binding.dtype);
}

}  // namespace

void BufferRegions::find(Binding& binding) {
  generation_ = regions_.generation();
  if (find(binding.input, input_bytes(binding), &binding.input_region)) binding.mapped |= 1;
  if (find(binding.output, output_bytes(binding), &binding.output_region)) binding.mapped |= 2;
}

void BufferRegions::find_sources(Binding& binding) {
  const std::size_t input = input_bytes(binding), output = output_bytes(binding);
  if (input >= least_located_bytes && find(binding.input, input, &binding.input_region)) {
    binding.mapped |= 1;
  }
  if (output >= least_located_bytes && find(binding.output, output, &binding.output_region)) {
    binding.mapped |= 2;
  }
}

bool BufferRegions::find(const void* buffer, std::size_t bytes, RegionOffset* offset) {
  const std::uint64_t generation = regions_.generation();
  SeenBuffer& seen = seen_[(reinterpret_cast<std::uintptr_t>(buffer) >> 12) % seen_.size()];
  if (seen.buffer != buffer || seen.bytes != bytes || seen.generation != generation) {
    seen = {buffer, bytes, generation, false, {}};
    seen.mapped =
        regions_.find(buffer, bytes, &seen.offset) && host_.export_region(seen.offset.region);
  }
  *offset = seen.offset;
  return seen.mapped;
}

bool BufferRegions::output_is_revoked(const Binding& binding) const {
  return regions_.was_revoked(binding.output, output_bytes(binding));
}

void BufferRegions::revoke_output(const Execution& execution) {
  if (!execution.exports_output()) return;
  const Binding& binding = execution.binding();
  const Status status = regions_.revoke(binding.output, output_bytes(binding));
  if (!status.ok()) log_line(LogLevel::error, status.message());
}

}  // namespace hocket::internal
