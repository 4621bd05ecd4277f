// Binds calls: finds the program of a call, and computes what the program gets as arguments. Calls
// often repeat, so a call that is like the call before keeps everything but its two buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.h"
#include "collectives/execute/executor.h"
#include "collectives/select/selector.h"
#include "engine/call.h"
#include "reduce/user_fold.h"

namespace hocket::internal {

/// The program of a call and its arguments. Of the binding, the engine itself sets the numbers of
/// the operation, its fingerprint and the regions.
struct BoundCall {
  const Program* program = nullptr;
  const Program* staged = nullptr;
  std::uint16_t kind = 0;  // Selection::kind
  bool counted = false;    // Selection::counted
  Binding binding;
  std::uint64_t call_hash = 0;
  /// True if this rank, or another rank for what this rank knows, sends messages in the call. False
  /// if the program has messages for large blocks only, and this rank has none.
  bool sends_messages = false;
  /// True if the receiver of a message may copy it from a buffer of this call. A smaller buffer has
  /// no message for which that is worth while.
  bool locates = false;
  /// True if program, binding and hash are valid for another call with the same key, blocks
  /// and count. Always false with a user operator.
  bool reusable = false;
  std::uint64_t row = 0;  // Call::row
  CallKey key;
  std::shared_ptr<const VaryingBlocks> varying;  // binding.sizes points into it; or null
  std::size_t own_count = 0;                     // Call::count
  std::shared_ptr<const UserFold> user;          // binding points to it; or null
  bool made = false;                             // the operator was made by the user
};

class Binder {
 public:
  explicit Binder(std::unique_ptr<Selector> selector) : selector_(std::move(selector)) {}

  /// bound: of the call before, which has ended; or new. Fails if no algorithm can run the call.
  Status bind(const Call& call, BoundCall& bound) {
    Binding& binding = bound.binding;
    const bool alike = call.row != 0 && call.row == bound.row;
    binding.repeated = bound.reusable && (alike || is_like(call, bound)) &&
                       (!bound.counted || selector_->counts_unmapped(bound.kind));
    if (!binding.repeated) HOCKET_RETURN_IF_ERROR(bind_anew(call, bound));
    bound.row = call.row;
    binding.input = static_cast<const std::byte*>(call.input);
    binding.output = static_cast<std::byte*>(call.output);
    binding.signature.sequence = call.number;
    return {};
  }
  /// To be called if the operation ran BoundCall::staged.
  void fell_back(BoundCall& bound) {
    selector_->fell_back(bound.kind);
    bound.reusable = false;
  }
  /// See Engine::estimate().
  Status estimate(const Call& call, bool mapped, double* ns);

  // ---- After each of these three, no BoundCall is reusable.
  void force_algorithm(const char* algorithm) { selector_->force(algorithm); }
  void add_plan(std::shared_ptr<const LoadedPlan> plan, bool forced) {
    selector_->add(std::move(plan), forced);
  }
  /// Called once. signature_flags: as the selector has them.
  void set_selector(std::unique_ptr<Selector> selector, std::uint8_t signature_flags) {
    first_selector_ = std::exchange(selector_, std::move(selector));
    signature_flags_ = signature_flags;
  }
  const LoadedPlans& loaded_plans() const { return selector_->loaded(); }

 private:
  static CallKey key_of(const Call& call) {
    CallKey key{call.collective, call.dtype, call.op, call.root, call.count};
    if (call.varying != nullptr) [[unlikely]] {
      // Only what all ranks know: they must choose alike.
      key.count = call.varying->longest;
      key.total = call.varying->total;
      key.varying = true;
    }
    if (call.user != nullptr) [[unlikely]]
      key.unit = call.user->unit;
    return key;
  }
  static bool is_like(const Call& call, const BoundCall& bound) {
    return bound.key == key_of(call) && bound.varying == call.varying &&
           bound.own_count == call.count;
  }
  Status bind_anew(const Call& call, BoundCall& bound);

  std::unique_ptr<Selector> selector_;
  std::unique_ptr<Selector> first_selector_;  // the record has operations with its programs
  std::uint8_t signature_flags_ = 0;
};

}  // namespace hocket::internal
