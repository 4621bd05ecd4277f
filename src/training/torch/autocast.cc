#include <ATen/autocast_mode.h>

#include <hocket/hocket.hpp>
#include <hocket/training/torch/autocast.hpp>
#include <string>

namespace hocket::training {
namespace {

void set(const AutocastState& state) {
  at::autocast::set_autocast_enabled(at::kCPU, state.enabled);
  at::autocast::set_autocast_dtype(at::kCPU, state.dtype);
  at::autocast::set_autocast_cache_enabled(state.cache);
}

AutocastState checked(at::ScalarType dtype, bool enabled) {
  if (dtype != at::kBFloat16 && dtype != at::kHalf) {
    throw InvalidArgument("hocket::training::AutocastGuard",
                          std::string("libtorch computes in bfloat16 or float16 on the CPU, not "
                                      "in ") +
                              c10::toString(dtype));
  }
  return {.enabled = enabled, .dtype = dtype, .cache = AutocastState::current().cache};
}

}  // namespace

AutocastState AutocastState::current() {
  return {.enabled = at::autocast::is_autocast_enabled(at::kCPU),
          .dtype = at::autocast::get_autocast_dtype(at::kCPU),
          .cache = at::autocast::is_autocast_cache_enabled()};
}

AutocastGuard::AutocastGuard(const AutocastState& state) : before_(AutocastState::current()) {
  at::autocast::increment_nesting();
  set(state);
}
AutocastGuard::AutocastGuard(at::ScalarType dtype, bool enabled)
    : AutocastGuard(checked(dtype, enabled)) {}
AutocastGuard::~AutocastGuard() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set(before_);
}

}  // namespace hocket::training
