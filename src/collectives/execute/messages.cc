// The sends and receives of an execution.
#include <string>

#include "base/assert.h"
#include "collectives/execute/executor.h"

namespace hocket::internal {

/// From the first block of a message to the end of its last block that is not empty.
std::size_t Execution::message_bytes(const Active& active, const Instruction& instruction) const {
  const std::size_t element =
      operands_[instruction.first_operand].wide ? wide_bytes_ : element_bytes_;
  for (std::uint32_t last = instruction.repeat; last-- > 1;) {
    const std::size_t elements = elements_of(active, instruction, last);
    if (elements > 0) return last * stride_ + elements * element;
  }
  return elements_of(active, instruction, 0) * element;
}

/// Says where the message is, if it is in a buffer that peers on this node can map. In a scatter
/// and an all-to-all several receivers copy at the same time, so that they copy from there also
/// messages that could be eager: between 2 ranks a scatter-v of 128 KiB took 0.63 of the time, an
/// alltoall-v 0.86. In a gather only the root would copy, which took 1.0 to 1.25 times as long.
void Execution::set_location(Transfer& transfer, Buffer buffer) const {
  const bool is_input = buffer == Buffer::input;
  if (!is_input && buffer != Buffer::output) return;
  if ((binding_->mapped & (is_input ? 1 : 2)) == 0) return;
  const RegionOffset& region = is_input ? binding_->input_region : binding_->output_region;
  const std::byte* const base = is_input ? binding_->input : binding_->output;
  transfer.mappable = true;
  transfer.prefers_location =
      scatters_blocks(row_of(header_->collective)) && transfer.bytes >= least_located_bytes;
  transfer.location = {region.region,
                       region.offset + static_cast<std::uint64_t>(transfer.data - base)};
}

/// Sets what a repeated call does not change.
void Execution::describe_message(Active& active, const Instruction& instruction) const {
  Transfer& transfer = active.transfer;
  transfer.data = nullptr;
  transfer.bytes = 0;
  transfer.non_temporal = false;
  transfer.key.index = static_cast<std::uint32_t>(active.chunk);
  transfer.key.tag = index_of(instruction.tag, active.instance);
  transfer.key.p2p = binding_->p2p;
  transfer.peer = static_cast<int>(index_of(instruction.peer, active.instance));
  transfer.signature = &binding_->signature;
  const bool carries = instruction.dsts + instruction.srcs > 0;  // false: a message of a barrier
  if (!carries) return;
  const Operand& operand = operands_[instruction.first_operand];
  const Storage storage = storage_of(operand, elements_of(active, instruction, 0));
  transfer.data = address_of(operand, storage, active, 0);
  transfer.bytes = message_bytes(active, instruction);
  transfer.non_temporal =
      storage.buffer == Buffer::output && binding_->stores == Stores::non_temporal;
}

void Execution::post(Active& active, const Instruction& instruction, Transport& transport) {
  Transfer& transfer = active.transfer;
  if (is_message_) {
    transfer.data = address_of(message_place_);
  } else {
    describe_message(active, instruction);
  }
  transfer.key.sequence = binding_->message_sequence;
  transfer.mappable = transfer.prefers_location = transfer.readable = false;
  if (instruction.dsts + instruction.srcs > 0) {
    if (binding_->mapped != 0) set_location(transfer, operands_[instruction.first_operand].buffer);
    transfer.readable = binding_->p2p || scatters_blocks(row_of(header_->collective));
  }
  active.posted = true;
  if (instruction.kind == StepKind::send) {
    transport.post_send(transfer);
  } else {
    transport.post_recv(transfer);
  }
}

Execution::Outcome Execution::do_message(Active& active, const Instruction& instruction) {
  if (is_left_out(active, instruction)) return Outcome::next;
  if (!active.posted) {
    const std::uint32_t peer = index_of(instruction.peer, active.instance);
    HOCKET_ASSERT(peer < links_->transport_to.size(), "a message goes to a rank");
    Transport* const transport = links_->transport_to[peer];
    if (transport == nullptr) [[unlikely]] {
      return fail(internal_error("no transport reaches rank " + std::to_string(peer)));
    }
    post(active, instruction, *transport);
  }
  return active.transfer.done ? end_message(active, instruction) : Outcome::blocked;
}

/// The transfer has ended.
Execution::Outcome Execution::end_message(Active& active, const Instruction& instruction) {
  const Transfer& transfer = active.transfer;
  active.posted = false;
  const bool received = instruction.kind == StepKind::recv;
  admitted_ |= received;
  if (received && binding_->op == Op::pre_mul_sum) [[unlikely]]
    note_scalars(active, instruction);
  return transfer.status.ok() ? Outcome::next : fail(transfer.status);
}

bool Execution::end_only_message(Active& active, const Instruction& message) {
  done_ = active.done = end_message(active, message) == Outcome::next;
  return done_;
}

bool Execution::await_message(unsigned polls) {
  if (!is_message_ || !binding_->repeated || failed_) return false;
  Active& active = active_[0];
  Transport& transport = *links_->transport_to[active.transfer.peer];
  if (transport.wait_descriptor() >= 0) return false;  // each poll is a system call
  for (; !active.transfer.done; --polls) {
    if (polls == 0) return false;
    transport.poll();
    if (transport.failure() != nullptr) [[unlikely]]
      return false;  // the engine looks whether that concerns this message
  }
  return end_only_message(active, code_[active.lane->first]);
}

bool Execution::admitted() const {
  if (admitted_ || !header_->sends_messages) return admitted_;
  for (std::size_t i = 0; i < active_count_; ++i) {
    if (active_[i].posted && active_[i].transfer.moved > 0) return true;
  }
  return false;
}

}  // namespace hocket::internal
