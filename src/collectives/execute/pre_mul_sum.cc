// PreMulSum: which scalar belongs to the input that a source of a fold holds.
#include "collectives/execute/executor.h"

namespace hocket::internal {

/// PreMulSum: at first every block of this rank's scratch counts as an input of this rank.
void Execution::expect_scalars() {
  const std::size_t blocks =
      std::max(header_->scratch_blocks * header_->slots,
               staged_ != nullptr ? staged_->header().scratch_blocks * staged_->header().slots : 0);
  scalars_.assign(blocks, binding_->signature.scalar());
}

/// The scalar of the rank whose input the operand holds: of the rank whose buffer it is, or, in
/// this rank's scratch, of the rank that has sent it. The verifier proves that (Proof::scalars).
std::uint64_t Execution::scalar_of(const Operand& operand, const Active& active,
                                   std::uint32_t source) const {
  const std::uint32_t rank = index_of(operand.rank, active.instance, source);
  if (rank != static_cast<std::uint32_t>(own_)) {
    return links_->board->call(static_cast<int>(rank), binding_->message_sequence)
        .signature.scalar();
  }
  if (operand.buffer != Buffer::scratch) return binding_->signature.scalar();
  return scalars_[scratch_index(index_of(operand.block, active.instance, source), active.chunk)];
}

/// Notes whose scalar belongs to what a message has brought.
void Execution::note_scalars(const Active& active, const Instruction& instruction) {
  if (instruction.dsts == 0) return;
  const Operand& operand = operands_[instruction.first_operand];
  if (operand.buffer != Buffer::scratch || operand.wide) return;
  for (std::uint32_t r = 0; r < instruction.repeat; ++r) {
    scalars_[scratch_index(index_of(operand.block, active.instance, r), active.chunk)] =
        active.transfer.sender_scalar;
  }
}

/// PreMulSum: a sum in which inputs, that is sources that are not wide, have their scalars.
/// A copy moves inputs as they are.
void Execution::add_scalars(const Active& active, const Instruction& instruction,
                            std::uint32_t repetition, Fold* fold) {
  fold->op = Op::sum;
  const bool copies = fold->src_count == 1 && !fold->finish && fold->srcs[0].wide == fold->wide_dst;
  if (copies) return;
  fold_scalars_.clear();
  const Operand* operand = operands_ + instruction.first_operand + instruction.dsts;
  for (const Operand* end = operand + instruction.srcs; operand != end; ++operand) {
    for (std::uint32_t j = 0; j < operand->repeat; ++j) {
      fold_scalars_.push_back(operand->wide ? 0 : scalar_of(*operand, active, repetition + j));
    }
  }
  fold->scalars = fold_scalars_.data();
}

}  // namespace hocket::internal
