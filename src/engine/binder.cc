#include "engine/binder.h"

#include <algorithm>
#include <numeric>

#include "base/assert.h"

namespace hocket::internal {
namespace {

/// Of an operator that the user has made: signature and its hash. Else it removes the one before.
void bind_made(BoundCall& bound, const Call& call) {
  Binding& binding = bound.binding;
  bound.made = call.op >= Op::pre_mul_sum;
  bound.user = call.user;
  binding.user = call.user.get();
  binding.signature.unit = call.user != nullptr ? call.user->unit : 0;
  binding.signature.operator_name = call.user != nullptr ? call.user->op->name() : OperatorName();
  if (call.op == Op::pre_mul_sum) binding.signature.set_scalar(call.scalar);
  if (call.user != nullptr) bound.call_hash = call_hash(binding.signature);
}

/// True if a block that the rank sends or receives is not small.
bool has_large_block(const Call& call, std::size_t small_bytes) {
  const std::size_t most = small_bytes / size_of(call.dtype);
  const auto any = [most](const std::vector<std::size_t>& counts) {
    return std::ranges::any_of(counts, [most](std::size_t count) { return count > most; });
  };
  return call.count > most || any(call.varying->input.counts) || any(call.varying->output.counts);
}

/// The bytes of all blocks of a varying call that this rank has in its buffers.
std::size_t bytes_held(const Call& call) {
  std::size_t elements = call.count;
  for (const VaryingBlocks::Side* side : {&call.varying->input, &call.varying->output}) {
    elements = std::accumulate(side->counts.begin(), side->counts.end(), elements);
  }
  return elements * size_of(call.dtype);
}

/// Of a varying call: sizes, signature and its hash.
void bind_blocks(BoundCall& bound, const Call& call) {
  const CollectiveRow& row = row_of(call.collective);
  const VaryingBlocks& varying = *bound.varying;
  Binding& binding = bound.binding;
  const auto extents = [&](Blocks blocks, const VaryingBlocks::Side& side) {
    if (blocks == Blocks::own) return equal_blocks(call.count, 1);
    return table_of_blocks(side.counts, side.offsets);
  };
  binding.sizes.input = extents(row.input, varying.input);
  binding.sizes.output = extents(row.output, varying.output);
  binding.staged_sizes.input = binding.sizes.input;
  binding.staged_sizes.output = binding.sizes.output;
  binding.signature.count = varying.total;
  if (shares_blocks(row)) binding.signature.root = varying.hash;
  binding.signature.flags |= signature_flag::varying;
  bound.call_hash = call_hash(binding.signature);
  const std::size_t small_bytes = bound.program->header().small_bytes;
  if (small_bytes > 0) bound.sends_messages = has_large_block(call, small_bytes);
}

}  // namespace

/// Finds the program of a call, and sets all that is alike in all calls of that kind.
Status Binder::bind_anew(const Call& call, BoundCall& bound) {
  const CallKey key = key_of(call);
  bound.reusable = false;
  const Selection* selection = nullptr;
  HOCKET_RETURN_IF_ERROR(selector_->select(key, &selection));
  HOCKET_ASSERT(selection != nullptr && selection->program != nullptr, "a selection has a program");
  bound.program = selection->program;
  bound.staged = selection->staged;
  bound.call_hash = selection->call_hash;
  bound.kind = selection->kind;
  bound.counted = selection->counted;
  bound.sends_messages = selection->program->header().sends_messages;
  Binding& binding = bound.binding;
  binding.sizes = selection->sizes;
  binding.staged_sizes = selection->staged_sizes;
  binding.dtype = call.dtype;
  binding.op = call.op;
  binding.stores = selection->stores;
  binding.non_temporal_scratch = selection->non_temporal_scratch;
  binding.prefetches_scratch = selection->prefetches_scratch;
  binding.many_scratches = selection->many_scratches;
  binding.p2p = is_p2p(call);
  Signature& signature = binding.signature;
  signature.count = call.count;
  signature.root = binding.p2p ? -1 : call.root;  // not the peer of a message
  signature.collective = call.collective;
  signature.dtype = call.dtype;
  signature.op = call.op;
  signature.flags = signature_flags_;
  signature.plan = selection->plan;
  bound.varying = call.varying;
  bound.own_count = call.count;
  if (call.op >= Op::pre_mul_sum || bound.made) bind_made(bound, call);
  if (call.varying != nullptr) bind_blocks(bound, call);
  if (call.varying != nullptr && !shares_blocks(row_of(call.collective))) {
    // Blocks that not all ranks know did not count when the program was selected.
    binding.stores = selector_->stores(call.collective, bytes_held(call),
                                       selection->program->header().uses_node);
  }
  const std::size_t elements = std::max(binding.sizes.input.end(), binding.sizes.output.end());
  bound.locates = elements * size_of(call.dtype) >= least_located_bytes;
  bound.key = key;
  bound.reusable = call.op < Op::pre_mul_sum;
  return {};
}

Status Binder::estimate(const Call& call, bool mapped, double* ns) {
  const Selection* selection = nullptr;
  HOCKET_RETURN_IF_ERROR(selector_->look(key_of(call), mapped, &selection));
  const bool staged = selection->staged != nullptr && !mapped;
  *ns = static_cast<double>(staged ? selection->staged_price_ps : selection->price_ps) / 1000;
  return {};
}

}  // namespace hocket::internal
