// Mixed precision on the CPU: a scope in which libtorch computes in bfloat16 or float16.
//
//   {
//     const hocket::training::AutocastGuard autocast(at::kBFloat16);
//     output = net->forward(data);
//   }
//   loss(output, target).backward();  // outside: each operation's backward has its forward's type
#pragma once

#include <c10/core/ScalarType.h>

namespace hocket::training {

/// What autocast does with operations on the CPU, in one thread.
struct AutocastState {
  bool enabled = false;
  at::ScalarType dtype = at::kBFloat16;
  /// Keeps the converted parameters until the outermost scope ends. Older versions of libtorch keep
  /// a parameter that is converted while gradients are disabled without its place in the graph: a
  /// later use with gradients enabled finds it, and the parameter gets no gradient.
  bool cache = true;

  /// That of the calling thread.
  [[nodiscard]] static AutocastState current();
};

/// Sets the autocast state of the calling thread. The destructor restores the state before, and the
/// end of the outermost scope forgets the converted parameters.
///
/// The state belongs to a thread. A forward that runs in other threads needs a guard in each, with
/// AutocastState::current() of the first. What runs inside of backward does not see the state of
/// the forward either: checkpoint() and DataParallel hand the state on.
class AutocastGuard {
 public:
  explicit AutocastGuard(const AutocastState& state);
  /// Throws InvalidArgument if dtype is neither bfloat16 nor float16.
  explicit AutocastGuard(at::ScalarType dtype, bool enabled = true);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  AutocastState before_;
};

}  // namespace hocket::training
