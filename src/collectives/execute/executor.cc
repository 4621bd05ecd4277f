#include "collectives/execute/executor.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace hocket::internal {
namespace {

// The value of a public flag has the number of the operation in its upper bits and the count of
// notifies in that operation below. So the value that an earlier operation left is always less.
// Values are compared by their signed difference, because the number may wrap.
constexpr int count_bits = 24;

/// Removes `address` from the list, and returns the new length of the list.
int drop(const void* address, void** list, int count) {
  return static_cast<int>(std::remove(list, list + count, address) - list);
}

bool reached(std::uint64_t value, std::uint64_t target) {
  return static_cast<std::int64_t>(value - target) >= 0;
}

}  // namespace

std::uint64_t Execution::flag_value(std::uint64_t count) const {
  return (binding_->board_sequence << count_bits) + count;
}

void Execution::start(const Program& program, const Program* staged, const Binding& binding,
                      const Links& links) {
  HOCKET_ASSERT(done_ || failed_, "an execution is started after the end of the one before");
  HOCKET_ASSERT(!program.load_store || links.board != nullptr, "a load/store program has a board");
  HOCKET_ASSERT(program.load_store || staged == nullptr,
                "only programs that map buffers are staged");
  program_ = &program;
  staged_ = staged;
  links_ = &links;
  binding_ = &binding;
  element_bytes_ = size_of(binding.dtype);
  wide_bytes_ = wide_size_of(binding.dtype);
  parity_ = static_cast<int>(binding.board_sequence & 1);
  done_ = published_ = exported_ = admitted_ = false;
  all_mapped_ = true;
  mapping_of_ = -1;
  if (failed_) [[unlikely]] {
    failed_ = false;
    status_ = {};
  }
  const bool wide = program.wide_scratch || (staged != nullptr && staged->wide_scratch);
  stride_ = scratch_stride_bytes(binding_->part, binding.dtype, wide);
  if (!program.load_store && program.scratch_blocks > 0) {
    scratch_ = links.host->private_scratch(stride_ * program.scratch_blocks * program.slots);
    if (scratch_ == nullptr) {
      fail({Code::system_error, "no memory for the scratch area of '" + program.algorithm + "'"});
      return;
    }
  }
  const std::uint32_t operands =
      std::max(program.most_operands, staged != nullptr ? staged->most_operands : 0);
  if (fold_srcs_.size() < operands) {
    fold_srcs_.resize(operands);
    fold_dsts_.resize(operands);
  }
  phase_ = Phase::prologue;
  enter(Phase::prologue);
}

/// Enters `phase`, or the first phase after it that has steps. If there is none, the execution is
/// done.
void Execution::enter(Phase phase) {
  const Program& program = *program_;
  if (phase == Phase::prologue) {
    if (program.prologue.count > 0) return enter_lanes(phase, {&program.prologue, 1});
    phase = Phase::body;
  }
  if (phase == Phase::body) {
    if (program.private_flags > 0) private_flags_.assign(program.private_flags, 0);
    if (!program.lanes.empty()) return enter_lanes(phase, program.lanes);
  }
  if (phase_ != Phase::epilogue && program.epilogue.count > 0) {
    return enter_lanes(Phase::epilogue, {&program.epilogue, 1});
  }
  done_ = true;
}

void Execution::enter_lanes(Phase phase, std::span<const Section> sections) {
  HOCKET_ASSERT(phase >= phase_, "phases follow one another");
  phase_ = phase;
  lanes_used_ = sections.size();
  if (lanes_.size() < lanes_used_) lanes_.resize(lanes_used_);
  for (std::size_t i = 0; i < lanes_used_; ++i) {
    Lane& lane = lanes_[i];
    lane.section = sections[i];
    lane.next = lane.peer = 0;
    lane.chunk = 0;
    lane.posted = false;
    lane.done = sections[i].count == 0;
  }
}

bool Execution::advance() {
  if (done_ || failed_) return false;
  bool moved = false;
  for (;;) {
    bool all_done = true;
    for (std::size_t i = 0; i < lanes_used_; ++i) {
      Lane& lane = lanes_[i];
      if (lane.done) continue;
      const bool waits_for_message = lane.posted && !lane.transfer.done;
      if (!waits_for_message) moved |= run_lane(lane);
      if (failed_) return true;
      all_done &= lane.done;
    }
    if (!all_done) return moved;
    moved = true;
    const bool was_prologue = phase_ == Phase::prologue;
    if (was_prologue && staged_ != nullptr && !all_mapped_) program_ = staged_;
    enter(was_prologue ? Phase::body : Phase::epilogue);
    if (done_) return true;
  }
}

bool Execution::run_lane(Lane& lane) {
  const Instruction* code = program_->code.data() + lane.section.first;
  HOCKET_ASSERT(lane.section.first + lane.section.count <= program_->code.size(),
                "a section lies within the code");
  const std::size_t chunks = phase_ == Phase::body ? binding_->part.chunks : 1;
  bool moved = false;
  for (;;) {
    const Outcome outcome = step(lane, code[lane.next]);
    if (outcome != Outcome::next) return moved;
    moved = true;
    if (++lane.next < lane.section.count) continue;
    lane.next = 0;
    if (++lane.chunk < chunks) continue;
    lane.done = true;
    return true;
  }
}

Execution::Outcome Execution::step(Lane& lane, const Instruction& instruction) {
  switch (instruction.kind) {
    case StepKind::fold:
      return do_fold(lane, instruction);
    case StepKind::send:
    case StepKind::recv:
      return do_message(lane, instruction);
    case StepKind::arrive:
      arrive();
      return Outcome::next;
    case StepKind::await_arrival:
      return do_await_arrival(lane, instruction);
    case StepKind::notify: {
      links_->board->flag(links_->rank, instruction.flag)
          .value.store(flag_value(lane.chunk + 1), std::memory_order_release);
      published_ = true;
      return Outcome::next;
    }
    case StepKind::wait:
      return do_wait(lane, instruction);
    case StepKind::signal:
      HOCKET_ASSERT(instruction.flag < private_flags_.size(), "a program counts its private flags");
      ++private_flags_[instruction.flag];
      return Outcome::next;
    case StepKind::await: {
      HOCKET_ASSERT(instruction.flag < private_flags_.size(), "a program counts its private flags");
      if (lane.chunk < instruction.lag) return Outcome::next;
      const std::uint64_t target =
          (lane.chunk - instruction.lag) * instruction.per_chunk + instruction.ordinal;
      return private_flags_[instruction.flag] >= target ? Outcome::next : Outcome::blocked;
    }
  }
  return fail(internal_error("a program holds an unknown instruction"));
}

std::size_t Execution::length_of(const Operand& operand, std::size_t chunk) const {
  return binding_->part.range(operand.length_block, chunk).count;
}

std::byte* Execution::address_of(const Operand& operand, std::size_t chunk) const {
  const bool is_own = operand.rank == links_->rank;
  HOCKET_ASSERT(is_own || operand.buffer == Buffer::scratch || operand.buffer == Buffer::line ||
                    operand.rank < peers_.size(),
                "the buffers of a peer are mapped before a step uses them");
  HOCKET_ASSERT(operand.buffer != Buffer::scratch || operand.block < program_->scratch_blocks,
                "a program counts its scratch blocks");
  switch (operand.buffer) {
    case Buffer::input: {
      const std::byte* base = is_own ? binding_->input : peers_[operand.rank].input;
      return const_cast<std::byte*>(base) +
             binding_->part.range(operand.block, chunk).first * element_bytes_;
    }
    case Buffer::output: {
      std::byte* base = is_own ? binding_->output : peers_[operand.rank].output;
      return base + binding_->part.range(operand.block, chunk).first * element_bytes_;
    }
    case Buffer::scratch: {
      std::byte* base =
          program_->load_store ? links_->board->scratch(operand.rank, parity_) : scratch_;
      const std::size_t slot = chunk % program_->slots;
      return base + (slot * program_->scratch_blocks + operand.block) * stride_;
    }
    case Buffer::line: {
      // The blocks of a line follow one another without padding.
      std::byte* base = links_->board->arrival(operand.rank, parity_).payload;
      return base + operand.block * binding_->part.block_elements * element_bytes_;
    }
  }
  return nullptr;
}

/// How a fold with a destination in scratch stores its results. first: the buffer of its first
/// destination; an output comes before scratch. A peer reads the scratch soon, so the stores leave
/// it in the caches, unless another core's cache costs more than memory (far_scratch).
Stores Execution::scratch_stores(Buffer first) const {
  if (!binding_->far_scratch) return Stores::one_by_one;
  const bool near_output = first == Buffer::output && binding_->stores != Stores::past_caches;
  return near_output ? Stores::near_and_far : Stores::past_caches;
}

Execution::Outcome Execution::do_fold(Lane& lane, const Instruction& instruction) {
  const Operand* operands = program_->operands.data() + instruction.first_operand;
  HOCKET_ASSERT(
      instruction.first_operand + instruction.dsts + instruction.srcs <= program_->operands.size(),
      "an instruction has its operands");
  HOCKET_ASSERT(std::max<std::size_t>(instruction.dsts, instruction.srcs) <= fold_srcs_.size(),
                "a program knows its longest list of operands");
  Fold fold;
  fold.count = length_of(operands[0], lane.chunk);
  if (fold.count == 0) return Outcome::next;
  bool only_output = true;
  int dsts = instruction.dsts;
  for (std::uint32_t i = 0; i < instruction.dsts; ++i) {
    fold_dsts_[i] = address_of(operands[i], lane.chunk);
    only_output &= operands[i].buffer == Buffer::output;
  }
  for (std::uint32_t i = 0; i < instruction.srcs; ++i) {
    const Operand& source = operands[instruction.dsts + i];
    fold_srcs_[i] = {address_of(source, lane.chunk), source.wide};
  }
  if (only_output && instruction.srcs == 1 && !instruction.finish) {
    // In place, a copy onto itself accesses no memory: a peer may be reading the same bytes.
    dsts = drop(fold_srcs_[0].data, fold_dsts_.data(), dsts);
    if (dsts == 0) return Outcome::next;
  }
  fold.srcs = fold_srcs_.data();
  fold.src_count = static_cast<int>(instruction.srcs);
  fold.dsts = fold_dsts_.data();
  fold.dst_count = dsts;
  fold.wide_dst = operands[0].wide;
  fold.dtype = binding_->dtype;
  fold.op = binding_->op;
  fold.finish = instruction.finish;
  fold.divisor = static_cast<std::uint32_t>(program_->shape.ranks);
  fold.stores = only_output ? binding_->stores : scratch_stores(operands[0].buffer);
  hocket::internal::fold(fold);
  return Outcome::next;
}

Execution::Outcome Execution::do_message(Lane& lane, const Instruction& instruction) {
  Transfer& transfer = lane.transfer;
  if (!lane.posted) {
    const bool carries = instruction.dsts + instruction.srcs > 0;  // false: a message of a barrier
    HOCKET_ASSERT(instruction.peer < links_->transport_to.size(), "a message goes to a rank");
    Transport* transport = links_->transport_to[instruction.peer];
    if (transport == nullptr) [[unlikely]] {
      return fail(internal_error("no transport reaches rank " + std::to_string(instruction.peer)));
    }
    transfer.data = nullptr;
    transfer.bytes = 0;
    transfer.key.sequence = binding_->message_sequence;
    transfer.key.index =
        static_cast<std::uint32_t>(lane.chunk * instruction.per_chunk + instruction.message);
    transfer.key.lane = static_cast<std::uint16_t>(&lane - lanes_.data());
    transfer.key.p2p = binding_->p2p;
    transfer.peer = instruction.peer;
    if (carries) {
      const Operand& operand = program_->operands[instruction.first_operand];
      transfer.data = address_of(operand, lane.chunk);
      transfer.bytes =
          length_of(operand, lane.chunk) * (operand.wide ? wide_bytes_ : element_bytes_);
    }
    transfer.signature = &binding_->signature;
    lane.posted = true;
    if (instruction.kind == StepKind::send) {
      transport->post_send(transfer);
    } else {
      transport->post_recv(transfer);
    }
  }
  if (!transfer.done) return Outcome::blocked;
  lane.posted = false;
  admitted_ |= instruction.kind == StepKind::recv;
  return transfer.status.ok() ? Outcome::next : fail(transfer.status);
}

void Execution::arrive() {
  const Board& board = *links_->board;
  ArrivalLine& line = board.arrival(links_->rank, parity_);
  board.signatures(links_->rank).of_parity[parity_] = binding_->signature;
  if (program_->maps_input || program_->maps_output) {
    const BufferPlaces places{binding_->input_region.region, binding_->input_region.offset,
                              binding_->output_region.region, binding_->output_region.offset};
    std::memcpy(line.payload, &places, sizeof places);
    exported_ = program_->maps_output && (binding_->mapped & 2) != 0;
  }
  line.fingerprint = binding_->fingerprint;
  line.mapped = binding_->mapped;
  line.sequence.store(binding_->board_sequence, std::memory_order_release);
  published_ = true;
}

Execution::Outcome Execution::do_await_arrival(Lane& lane, const Instruction& instruction) {
  const Board& board = *links_->board;
  const bool all = instruction.peer == all_peers;
  const std::uint32_t end = all ? board.local_ranks() : instruction.peer + 1;
  if (!all) lane.peer = instruction.peer;
  for (; lane.peer < end; ++lane.peer) {
    const ArrivalLine& line = board.arrival(static_cast<int>(lane.peer), parity_);
    const std::uint64_t sequence = line.sequence.load(std::memory_order_acquire);
    if (sequence != binding_->board_sequence) return Outcome::blocked;
    if (line.fingerprint != binding_->fingerprint) [[unlikely]] {
      return mismatch_with(static_cast<int>(lane.peer));
    }
    const std::uint64_t needed =
        (reads_input_of(static_cast<int>(lane.peer)) ? 1 : 0) | (program_->maps_output ? 2 : 0);
    all_mapped_ &= (line.mapped & needed) == needed;
  }
  if (program_->maps_input || program_->maps_output) {
    if (!all_mapped_) {
      exported_ = false;
    } else if (const Outcome resolved = resolve_peers(); resolved != Outcome::next) {
      return resolved;
    }
  }
  lane.peer = 0;
  admitted_ = true;
  return Outcome::next;
}

/// In a rooted collective only the root has an input; the other ranks may have no buffer for it.
bool Execution::reads_input_of(int peer) const {
  return program_->maps_input && (program_->shape.root < 0 || program_->shape.root == peer);
}

/// Maps the buffers of all peers. If a buffer is not mapped yet, the next call begins again with
/// the first peer; it finds the buffers that are mapped by then at once.
Execution::Outcome Execution::resolve_peers() {
  const Board& board = *links_->board;
  mapping_of_ = -1;
  peers_.resize(static_cast<std::size_t>(board.local_ranks()));
  for (int peer = 0; peer < board.local_ranks(); ++peer) {
    if (peer == links_->rank) continue;
    BufferPlaces places;
    std::memcpy(&places, board.arrival(peer, parity_).payload, sizeof places);
    const auto map = [&](std::uint32_t blocks, RegionOffset offset, std::byte** out) {
      const std::size_t elements =
          std::min(blocks * binding_->part.block_elements, binding_->part.total);
      return links_->host->map_remote(peer, offset, elements * element_bytes_,
                                      binding_->message_sequence, out);
    };
    Status status;
    if (reads_input_of(peer)) {
      status = map(program_->input_blocks, {places.input_region, places.input_offset},
                   &peers_[peer].input);
    }
    if (status.ok() && program_->maps_output) {
      status = map(program_->output_blocks, {places.output_region, places.output_offset},
                   &peers_[peer].output);
    }
    if (status.code() == Code::in_progress) {
      mapping_of_ = peer;
      return Outcome::blocked;
    }
    if (!status.ok()) return fail(status);
  }
  return Outcome::next;
}

Execution::Outcome Execution::do_wait(Lane& lane, const Instruction& instruction) {
  if (lane.chunk < instruction.lag) return Outcome::next;
  const Board& board = *links_->board;
  const std::uint64_t target = flag_value(lane.chunk - instruction.lag + 1);
  const bool all = instruction.peer == all_peers;
  const std::uint32_t end = all ? board.local_ranks() : instruction.peer + 1;
  if (!all) lane.peer = instruction.peer;
  for (; lane.peer < end; ++lane.peer) {
    if (lane.peer == static_cast<std::uint32_t>(links_->rank)) continue;
    const auto value = board.flag(static_cast<int>(lane.peer), instruction.flag)
                           .value.load(std::memory_order_acquire);
    if (!reached(value, target)) return Outcome::blocked;
  }
  lane.peer = 0;
  return Outcome::next;
}

Execution::Outcome Execution::fail(Status status) {
  failed_ = true;
  status_ = std::move(status);
  return Outcome::failed;
}

Execution::Outcome Execution::mismatch_with(int peer) {
  return fail(links_->board->disagreement_with(peer, parity_, binding_->signature));
}

bool Execution::admitted() const {
  if (admitted_ || program_->load_store) return admitted_;
  for (std::size_t i = 0; i < lanes_used_; ++i) {
    if (lanes_[i].posted && lanes_[i].transfer.moved > 0) return true;
  }
  return false;
}

std::vector<int> Execution::waits_for() const {
  std::vector<int> ranks;
  const auto add = [&](int rank) {
    if (rank != links_->rank && std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
      ranks.push_back(rank);
    }
  };
  if (!done_ && mapping_of_ >= 0) add(mapping_of_);
  for (std::size_t i = 0; i < lanes_used_ && !done_; ++i) {
    const Lane& lane = lanes_[i];
    if (lane.done) continue;
    const Instruction& instruction = program_->code[lane.section.first + lane.next];
    const bool over_board =
        instruction.kind == StepKind::await_arrival || instruction.kind == StepKind::wait;
    if (!over_board && !lane.posted) continue;
    if (instruction.peer != all_peers) {
      add(instruction.peer);
      continue;
    }
    for (int peer = static_cast<int>(lane.peer); peer < links_->board->local_ranks(); ++peer) {
      const bool arrival = instruction.kind == StepKind::await_arrival;
      const bool here =
          arrival
              ? links_->board->arrival(peer, parity_).sequence.load(std::memory_order_relaxed) ==
                    binding_->board_sequence
              : reached(links_->board->flag(peer, instruction.flag)
                            .value.load(std::memory_order_relaxed),
                        flag_value(lane.chunk - instruction.lag + 1));
      if (!here) add(peer);
    }
  }
  return ranks;
}

}  // namespace hocket::internal
