#include "collectives/execute/executor.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/assert.h"
#include "base/copy.h"

// A small call takes as long as some 800 instructions, of which a function that is called in
// between takes 15. So functions that every small call needs are always inline, and functions that
// a small call does not need are never inline in them.

namespace hocket::internal {
namespace {

// The value of a public flag has the number of the operation in its upper bits and the chunks that
// the lane has completed below. So the value that an earlier operation left is always less. Values
// are compared by their signed difference, because the number may wrap.
constexpr int count_bits = 24;

// The progress of a lane instance that has ended.
constexpr std::uint32_t ended = 0xffffffff;

/// Removes `address` from the list, and returns the new length of the list.
std::uint32_t drop(const void* address, void** list, std::uint32_t count) {
  return static_cast<std::uint32_t>(std::remove(list, list + count, address) - list);
}

/// Takes a cache line from the caches of other cores.
void prefetch_to_write(const void* address) {
#if defined(__x86_64__)
  // The builtin would only read without an option for processors that have the instruction. Those
  // that do not have it ignore it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

bool reached(std::uint64_t value, std::uint64_t target) {
  return static_cast<std::int64_t>(value - target) >= 0;
}

}  // namespace

std::uint64_t Execution::flag_value(std::uint64_t count) const {
  return (operation_ << count_bits) + count;
}

void Execution::use(const Program& program, const Sizes& sizes) {
  program_ = &program;
  sizes_ = &sizes;
  header_ = &program.header();
  lanes_ = program.lanes().data();
  code_ = program.code().data();
  operands_ = program.operands().data();
  maps_ = header_->maps_input || header_->maps_output;
  if (header_->small_bytes > 0) {
    line_blocks_ =
        line_blocks(row_of(header_->collective), header_->ranks, header_->scratch_blocks);
  } else {
    line_blocks_ = {.step = line_stride(sizes) * size_of(binding_->dtype)};
  }
}

void Execution::start(const Program& program, const Program* staged, const Binding& binding,
                      const Links& links) {
  HOCKET_ASSERT(done_ || failed_, "an execution is started after the end of the one before");
  HOCKET_ASSERT(!binding.repeated || program_ == &program, "a repeated call has its program");
  binding_ = &binding;
  operation_ = binding.board_sequence;
  done_ = published_ = admitted_ = in_lanes_ = false;
  if (binding.repeated && !failed_) [[likely]] {
    if (is_straight_) [[likely]]
      return start_straight();
    if (is_message_) return start_message();
  }
  exported_ = false;
  all_mapped_ = true;
  mapping_of_ = -1;
  arrived_before_ = 0;
  if (failed_) [[unlikely]] {
    failed_ = false;
    status_ = {};
  }
  if (!binding.repeated) prepare(program, staged, links);
  if (has_scratch_ && !place_scratch()) return;
  if (binding.op == Op::pre_mul_sum) [[unlikely]]
    expect_scalars();
  entry_.next = entry_.cursor = 0;
  if (header_->uses_node) {
    links.run_ahead->begin_operation(operation_, binding.message_sequence);
  }
  // The first step of the entry is await_board. Mostly it need not wait.
  if (header_->entry > 0 && board_is_free()) {
    if (!header_->uses_node) begin_by_messages();
    entry_.next = 1;
  }
  if (entry_.next != header_->entry) {
    run_entry();
    return;
  }
  begin_lanes();
  if (binding.repeated && is_straight_) run_straight();
}

/// start() of a straight call: its entry only awaits the board, and it maps no buffers.
[[gnu::always_inline]] inline void Execution::start_straight() {
  const Links& links = *links_;
  if (has_scratch_) scratch_ = links.board->scratch(scratch_size_, 0, operation_);
  links.run_ahead->begin_operation(operation_, binding_->message_sequence);
  entry_.next = entry_.cursor = 0;
  if (!board_is_free()) [[unlikely]] {
    run_entry();
    return;
  }
  entry_.next = 1;
  in_lanes_ = true;
  begin_again();
  run_straight();
}

/// start() of a call whose only step is a message.
[[gnu::noinline]] void Execution::start_message() {
  Active& active = active_[0];
  in_lanes_ = true;
  active.next = active.cursor = 0;
  active.chunk = 0;
  active.done = false;
  set_bases();
  const Instruction& message = code_[active.lane->first];
  post(active, message, *links_->transport_to[active.transfer.peer]);
  if (active.transfer.done) end_only_message(active, message);
}

/// Runs the only lane of a straight call until it must wait. advance() runs the steps that are
/// left.
[[gnu::always_inline]] inline void Execution::run_straight() {
  Active& active = active_[0];
  const Instruction* const first = straight_.first;
  const Instruction* const end = straight_.end;
  const ReadyFold* ready = straight_.ready;
  const Instruction* step = first;
  for (; step != end; ++step, ++ready) {
    if (step->kind == StepKind::fold) {
      if (ready->copied > 0) {
        copy_ready(*ready);
      } else {
        fold_ready(*ready);
      }
    } else if (step->kind == StepKind::arrive) {
      arrive();
    } else if (look_several_times(active, *step) != Outcome::next) {
      break;
    }
  }
  active.next = static_cast<std::uint32_t>(step - first);
  done_ = active.done = step == end;
}

/// Where each rank waits for all others, no rank can be ahead, so the peer comes soon: a look at
/// its line takes less time than a round of the engine. In a rooted collective a peer may be far
/// ahead. There several looks would make the ranks take turns: the rank that waits would take each
/// line from its peer as soon as the peer has written it (a gather took 1.08 times as long).
[[gnu::always_inline]] inline Execution::Outcome Execution::look_several_times(
    Active& active, const Instruction& instruction) {
  const std::uint32_t peer = index_of(instruction.peer, 0);
  active.cursor = 0;
  int looks = header_->root < 0 ? looks_in_a_row : 1;
  for (;;) {
    const Outcome outcome = look_at_lines(active.cursor, instruction.all, peer);
    if (outcome != Outcome::blocked || --looks == 0) return outcome;
  }
}

/// Sets all that a repeated call leaves as it is.
[[gnu::noinline]] void Execution::prepare(const Program& program, const Program* staged,
                                          const Links& links) {
  use(program, binding_->sizes);
  HOCKET_ASSERT(!header_->uses_node || links.board != nullptr, "a load/store program has a board");
  HOCKET_ASSERT(header_->arrives_first || staged == nullptr,
                "only programs that arrive first have an alternative");
  is_straight_ = is_message_ = false;
  staged_ = staged;
  links_ = &links;
  element_bytes_ = size_of(binding_->dtype);
  wide_bytes_ = wide_size_of(binding_->dtype);
  own_ = header_->uses_node ? links.board->local_rank() : links.rank;
  std::uint32_t operands = header_->most_operands;
  if (staged != nullptr) operands = std::max(operands, staged->header().most_operands);
  if (fold_srcs_.size() < operands) {
    fold_srcs_.resize(operands);
    fold_dsts_.resize(operands);
  }
  uses_second_line_ = line_bytes_used() > payload_in_first_line;
  set_counts();
  size_scratch(staged);
}

/// A buffer of some rank is not mapped: the lanes are those of the other program.
void Execution::fall_back() {
  use(*staged_, binding_->staged_sizes);
  stride_ = stride_of(*header_, *sizes_);
}

/// Finds the scratch of the operation. False: no memory.
[[gnu::always_inline]] inline bool Execution::place_scratch() {
  if (header_->uses_node) {
    scratch_ = links_->board->scratch(scratch_size_, 0, operation_);
    scratch_step_ = links_->board->scratch_step(scratch_size_);
    return true;
  }
  if (!header_->uses_scratch) return true;
  scratch_ = links_->host->private_scratch(scratch_bytes_);
  scratch_step_ = 0;
  if (scratch_ != nullptr) return true;
  fail({Code::system_error, "no memory for the scratch area of '" + program_->algorithm() + "'"});
  return false;
}

/// Runs the entry as far as possible, and begins the lanes when it has ended. Returns true if
/// anything moved.
bool Execution::run_entry() {
  bool moved = false;
  for (; entry_.next < header_->entry; ++entry_.next, entry_.cursor = 0, moved = true) {
    const std::uint32_t before = entry_.cursor;
    const Outcome outcome = step(entry_, code_[entry_.next]);
    if (outcome == Outcome::failed) return true;
    if (outcome != Outcome::next) return moved || entry_.cursor != before;
  }
  if (staged_ != nullptr && !all_mapped_) fall_back();
  begin_lanes();
  return true;
}

[[gnu::always_inline]] inline void Execution::begin_lanes() {
  in_lanes_ = true;
  if (header_->awaits) progress_.assign(header_->counters, 0);
  if (binding_->repeated && readiness_ == Readiness::ready) {
    begin_again();
  } else {
    begin_first();
  }
}

[[gnu::noinline]] void Execution::begin_first() {
  const ProgramHeader& header = *header_;
  active_count_ = header.active;
  if (active_.size() < active_count_) active_.resize(active_count_);
  std::size_t next = 0;
  for (std::uint32_t l = 0; l < header.lanes; ++l) {
    for (std::uint32_t i = 0; i < lanes_[l].window; ++i) {
      Active& active = active_[next++];
      active.lane = &lanes_[l];
      active.done = false;
      begin_instance(active, i);
    }
  }
  HOCKET_ASSERT(next == active_count_, "a program counts its windows");
  if (!binding_->repeated) {
    readiness_ = Readiness::unknown;
    return;
  }
  set_bases();
  if (readiness_ == Readiness::unknown) make_ready();
}

/// Each lane of the program has one instance and one chunk.
[[gnu::always_inline]] inline void Execution::begin_again() {
  const auto begin = [](Active& active) {
    active.next = active.cursor = 0;
    active.chunk = 0;
    active.posted = active.done = false;
  };
  if (active_count_ == 1) [[likely]] {
    begin(active_[0]);
  } else {
    for (std::size_t l = 0; l < active_count_; ++l) begin(active_[l]);
  }
  set_bases();
}

[[gnu::noinline]] void Execution::begin_instance(Active& active, std::uint32_t instance) const {
  const LaneCode& lane = *active.lane;
  active.instance = instance;
  active.next = active.cursor = 0;
  active.chunk = 0;
  active.posted = false;
  const Sizes& sizes = *sizes_;
  active.chunks = sizes.chunk_elements == 0
                      ? 1
                      : sizes.chunks_of(lane.counts, lane.extents, index_of(lane.block, instance));
}

bool Execution::advance() {
  if (done_ || failed_) return false;
  if (!in_lanes_) [[unlikely]] {
    const bool moved = run_entry();
    if (!in_lanes_) return moved;
    advance_lanes();
    return true;
  }
  return advance_lanes();
}

[[gnu::always_inline]] inline bool Execution::advance_lanes() {
  bool moved = false, all_done = true;
  for (std::size_t i = 0; i < active_count_; ++i) {
    Active& active = active_[i];
    if (active.done) continue;
    const bool waits_for_message = active.posted && !active.transfer.done;
    if (!waits_for_message) moved |= run(active);
    if (failed_) return true;
    all_done &= active.done;
  }
  done_ = all_done;
  return moved || done_;
}

[[gnu::always_inline]] inline bool Execution::run(Active& active) {
  const LaneCode& lane = *active.lane;
  HOCKET_ASSERT(lane.first + lane.count <= header_->instructions,
                "the instructions of a lane lie within the code");
  const Instruction* const code = code_ + lane.first;
  bool moved = false;
  for (std::uint32_t next = active.next;;) {
    const Outcome outcome = step(active, code[next]);
    if (outcome != Outcome::next) return moved || outcome == Outcome::part;
    moved = true;
    active.cursor = 0;
    active.next = ++next;
    if (next < lane.count) continue;
    complete_chunk(active);
    return true;  // the other lanes take their turn: a lane that never waits must not hold them up
  }
}

/// Publishes the progress of the lane instance, and goes on to its next chunk or the next instance.
[[gnu::always_inline]] inline void Execution::complete_chunk(Active& active) {
  const LaneCode& lane = *active.lane;
  active.next = 0;
  ++active.chunk;
  const bool last = active.chunk == active.chunks;
  if (header_->awaits) {
    HOCKET_ASSERT(lane.first_counter + active.instance < progress_.size(),
                  "a program counts its lane instances");
    progress_[lane.first_counter + active.instance] =
        last ? ended : static_cast<std::uint32_t>(active.chunk);
  }
  if (lane.publishes >= 0) {
    links_->board->flag(own_, lane.publishes)
        .value.store(flag_value(active.chunk), std::memory_order_release);
    published_ = true;
  }
  if (!last) return;
  const std::uint64_t following = std::uint64_t{active.instance} + lane.window;
  if (following < lane.instances) {
    begin_instance(active, static_cast<std::uint32_t>(following));
  } else {
    active.done = true;
  }
}

[[gnu::always_inline]] inline Execution::Outcome Execution::step(Active& active,
                                                                 const Instruction& instruction) {
  switch (instruction.kind) {
    case StepKind::fold:
      return do_fold(active, instruction);
    case StepKind::send:
    case StepKind::recv:
      return do_message(active, instruction);
    case StepKind::arrive:
      arrive();
      return Outcome::next;
    case StepKind::await_arrival:
      return do_await_arrival(active.cursor, instruction.all,
                              index_of(instruction.peer, active.instance));
    case StepKind::wait:
      return do_wait(active, instruction);
    case StepKind::await:
      return do_await(active, instruction);
    case StepKind::await_board:
      return do_await_board(active.cursor);
  }
  return fail(internal_error("a program holds an unknown instruction"));
}

/// The address of a chunk of a block of the input or the output of a local rank.
inline std::byte* Execution::caller_address(Buffer buffer, std::uint32_t rank, std::uint32_t block,
                                            std::size_t chunk) const {
  const bool is_own = rank == static_cast<std::uint32_t>(own_);
  HOCKET_ASSERT(is_own || rank < peers_.size(),
                "the buffers of a peer are mapped before a step uses them");
  std::byte* base;
  if (buffer == Buffer::input) {
    base = is_own ? const_cast<std::byte*>(binding_->input) : peers_[rank].input;
  } else {
    base = is_own ? binding_->output : peers_[rank].output;
  }
  return base + sizes_->first_of(buffer, block, chunk) * element_bytes_;
}

inline std::byte* Execution::library_address(const Storage& storage, std::uint32_t rank,
                                             std::uint32_t block, std::size_t chunk) const {
  const auto local_rank = static_cast<int>(rank);
  if (storage.buffer == Buffer::line) {
    std::byte* const payload = links_->board->arrival(local_rank, operation_).payload;
    return payload + line_blocks_.first + block * line_blocks_.step;
  }
  HOCKET_ASSERT(block < header_->scratch_blocks, "a program counts its scratch blocks");
  if (storage.size != ScratchSize::none) {
    const Board& board = *links_->board;
    const std::size_t room = board.scratch_bytes(storage.size) / header_->scratch_blocks;
    return board.scratch(storage.size, local_rank, operation_) +
           block * (room / line_bytes * line_bytes);
  }
  return scratch_ + rank * scratch_step_ + scratch_index(block, chunk) * stride_;
}

/// The memory that holds the operand in a step of `count` elements. A very small block of a plan
/// with small_bytes is in the arrival line instead of scratch, so that peers get both at once.
/// Other small blocks are in the scratches of their size, of which there are the more, the smaller
/// the blocks are.
Execution::Storage Execution::storage_of(const Operand& operand, std::size_t count) const {
  if (operand.buffer != Buffer::scratch || header_->small_bytes == 0) return {operand.buffer};
  const std::size_t bytes = count * element_bytes_;
  if (line_blocks_.has_room_for(bytes)) return {Buffer::line};
  return {Buffer::scratch, size_of_small_block(bytes)};
}

/// The address of range number `source` of those that the operand stands for, in that storage.
std::byte* Execution::address_of(const Operand& operand, const Storage& storage,
                                 const Active& active, std::uint32_t source) const {
  auto rank = static_cast<std::uint32_t>(operand.rank.base);
  auto block = static_cast<std::uint32_t>(operand.block.base);
  if (!operand.varies) [[likely]] {
    rank += source * static_cast<std::uint32_t>(operand.rank.by_source);
    block += source * static_cast<std::uint32_t>(operand.block.by_source);
  } else {
    rank = index_of(operand.rank, active.instance, source);
    block = index_of(operand.block, active.instance, source);
  }
  return storage.buffer == Buffer::input || storage.buffer == Buffer::output
             ? caller_address(storage.buffer, rank, block, active.chunk)
             : library_address(storage, rank, block, active.chunk);
}

/// How a fold whose destinations are all outputs stores its results. first: the first of them,
/// which is near if it is this rank's own.
Stores Execution::output_stores(const Operand& first) const {
  const bool near = index_of(first.rank, 0) == static_cast<std::uint32_t>(own_);
  return binding_->stores == Stores::first_cached && !near ? Stores::non_temporal
                                                           : binding_->stores;
}

/// How a fold with a destination in scratch stores its results. first: the buffer of its first
/// destination; an output comes before scratch. A peer reads the scratch soon, so the stores leave
/// it in the caches, unless another core's cache costs more than memory (non_temporal_scratch). An
/// output beside it is stored past the caches where outputs alone are.
Stores Execution::scratch_stores(Buffer first) const {
  const bool near_output = first == Buffer::output;
  const bool past = binding_->stores == Stores::non_temporal;
  if (binding_->non_temporal_scratch) {
    return near_output && !past ? Stores::first_cached : Stores::non_temporal;
  }
  if (near_output && past) return Stores::second_cached;
  return binding_->stores == Stores::together ? Stores::together : Stores::one_by_one;
}

/// The bytes of a copy from one place to one other; 0: the step is another one.
std::size_t Execution::copied_bytes(const Instruction& instruction, std::size_t count) const {
  const Operand* operand = operands_ + instruction.first_operand;
  const bool one_to_one = instruction.srcs == 1 && instruction.dsts == 1 && !instruction.finish &&
                          operand[0].repeat == 1 && operand[1].repeat == 1 &&
                          operand[0].wide == operand[1].wide;
  return one_to_one ? count * (operand[0].wide ? wide_bytes_ : element_bytes_) : 0;
}

/// True if the step copies so much that the messages of other lanes must move meanwhile.
bool Execution::copies_in_parts(const Instruction& instruction, std::size_t count) const {
  return instruction.repeat == 1 && binding_->op < Op::pre_mul_sum &&
         copied_bytes(instruction, count) > copied_part_bytes;
}

/// Copies the next part. cursor: the parts that are copied.
Execution::Outcome Execution::copy_part(Active& active, const Instruction& instruction,
                                        std::size_t count) const {
  const Operand* const operand = operands_ + instruction.first_operand;
  std::byte* const dst = address_of(operand[0], storage_of(operand[0], count), active, 0);
  const std::byte* const src = address_of(operand[1], storage_of(operand[1], count), active, 0);
  if (dst == src) return Outcome::next;
  const std::size_t bytes = copied_bytes(instruction, count);
  const std::size_t first = active.cursor * copied_part_bytes;
  const std::size_t part = std::min(copied_part_bytes, bytes - first);
  if (fold_of(instruction, count).stores == Stores::non_temporal) {
    stream_copy(dst + first, src + first, part);
  } else {
    plain_copy(dst + first, src + first, part);
  }
  ++active.cursor;
  return first + part < bytes ? Outcome::part : Outcome::next;
}

[[gnu::always_inline]] inline Execution::Outcome Execution::do_fold(
    Active& active, const Instruction& instruction) {
  HOCKET_ASSERT(
      instruction.first_operand + instruction.dsts + instruction.srcs <= header_->operands,
      "an instruction has its operands");
  if (readiness_ == Readiness::ready) {
    fold_ready(ready_[static_cast<std::size_t>(&instruction - code_)]);
    return Outcome::next;
  }
  return fold_blocks(active, instruction);
}

[[gnu::noinline]] Execution::Outcome Execution::fold_blocks(Active& active,
                                                            const Instruction& instruction) {
  const std::size_t count = elements_of(active, instruction, 0);
  if (copies_in_parts(instruction, count) && !is_left_out(active, instruction)) {
    return copy_part(active, instruction, count);
  }
  for (std::uint32_t r = 0; r < instruction.repeat; ++r) fold_block(active, instruction, r);
  return Outcome::next;
}

/// The fold of `count` elements, without addresses and their numbers.
Fold Execution::fold_of(const Instruction& instruction, std::size_t count) const {
  const Operand* const first = operands_ + instruction.first_operand;
  const bool only_output = std::all_of(first, first + instruction.dsts, [](const Operand& operand) {
    return operand.buffer == Buffer::output;
  });
  Fold fold;
  fold.count = count;
  fold.wide_dst = first->wide;
  fold.dtype = binding_->dtype;
  fold.op = binding_->op;
  fold.finish = instruction.finish;
  fold.divisor = header_->ranks;
  fold.stores = only_output ? output_stores(*first) : scratch_stores(first->buffer);
  return fold;
}

/// Block `repetition` of the instruction. Either the instruction is repeated, or an operand is.
void Execution::fold_block(const Active& active, const Instruction& instruction,
                           std::uint32_t repetition) {
  const std::size_t count = elements_of(active, instruction, repetition);
  if (count == 0 || is_left_out(active, instruction)) return;
  const Operand* operand = operands_ + instruction.first_operand;
  const auto address = [&](const Operand& of, std::uint32_t source) {
    return address_of(of, storage_of(of, count), active, source);
  };
  const std::size_t bytes = copied_bytes(instruction, count);
  if (bytes > 0 && bytes <= most_bytes_without_kernel) {
    std::byte* const dst = address(operand[0], repetition);
    const std::byte* const src = address(operand[1], repetition);
    // In place, a copy onto itself accesses no memory: a peer may be reading the same bytes.
    if (dst != src) copy_few(dst, src, bytes);
    return;
  }
  std::uint32_t dsts = 0, srcs = 0;
  for (const Operand* end = operand + instruction.dsts; operand != end; ++operand) {
    for (std::uint32_t j = 0; j < operand->repeat; ++j) {
      fold_dsts_[dsts++] = address(*operand, repetition + j);
    }
  }
  for (const Operand* end = operand + instruction.srcs; operand != end; ++operand) {
    for (std::uint32_t j = 0; j < operand->repeat; ++j) {
      fold_srcs_[srcs++] = {address(*operand, repetition + j), operand->wide};
    }
  }
  HOCKET_ASSERT(std::max(srcs, dsts) <= fold_srcs_.size(),
                "a program knows its longest list of operands");
  if (srcs == 1 && !instruction.finish) {
    dsts = drop(fold_srcs_[0].data, fold_dsts_.data(), dsts);  // a copy onto itself, as above
    if (dsts == 0) return;
  }
  Fold fold = fold_of(instruction, count);
  fold.srcs = fold_srcs_.data();
  fold.src_count = static_cast<int>(srcs);
  fold.dsts = fold_dsts_.data();
  fold.dst_count = static_cast<int>(dsts);
  if (binding_->op == Op::pre_mul_sum) [[unlikely]]
    add_scalars(active, instruction, repetition, &fold);
  if (binding_->user != nullptr) [[unlikely]] {
    fold_by_user(fold, *binding_->user, &user_room_);
  } else {
    hocket::internal::fold(fold);
  }
}

[[gnu::always_inline]] inline void Execution::set_bases() {
  bases_[static_cast<int>(Buffer::input)] = const_cast<std::byte*>(binding_->input);
  bases_[static_cast<int>(Buffer::output)] = binding_->output;
  bases_[static_cast<int>(Buffer::scratch)] = scratch_;
  if (header_->uses_node) {
    bases_[static_cast<int>(Buffer::line)] = links_->board->arrival(0, operation_).payload;
  }
  for (const ScratchSize size : ready_sizes_) {
    bases_[first_sized_base + static_cast<std::size_t>(size)] =
        links_->board->scratch(size, 0, operation_);
  }
}

/// Elements of the chunk of a block that the step handles.
std::size_t Execution::elements_of(const Active& active, const Instruction& instruction,
                                   std::uint32_t repetition) const {
  const Sizes& sizes = *sizes_;
  const std::uint32_t block = index_of(instruction.block, active.instance, repetition);
  if (sizes.chunk_elements == 0) return sizes.of(active.lane->extents).block(block).count;
  return sizes.range(active.lane->extents, block, active.chunk).count;
}

[[gnu::always_inline]] inline void Execution::arrive() {
  // Copies, because the compiler must assume that the stores below change the members.
  const std::uint64_t operation = operation_;
  const Binding& binding = *binding_;
  const Board& board = *links_->board;
  RunAhead& run_ahead = *links_->run_ahead;
  ArrivalLine& line = board.arrival(own_, operation);
  const std::uint64_t collective = binding.message_sequence;
  const std::uint64_t fingerprint = binding.fingerprint;
  run_ahead.record(collective, fingerprint, binding.signature);
  if (maps_) {
    const BufferPlaces places{binding.input_region.region, binding.input_region.offset,
                              binding.output_region.region, binding.output_region.offset};
    std::memcpy(line.payload, &places, sizeof places);
    all_mapped_ = !lacks_mapping(own_, binding.mapped);
    exported_ = all_mapped_ && writes_output_of(own_);
  }
  if (!sent_counts_.empty()) [[unlikely]] {
    copy_few(line.payload, sent_counts_.data(), sent_counts_.size() * sizeof sent_counts_[0]);
  }
  line.fingerprint = fingerprint;
  line.mapped = binding.mapped;
  line.sequence.store(operation, std::memory_order_release);
  run_ahead.begin(collective);
  // The caches of peers still have the lines of earlier operations. A rank that runs ahead takes
  // its next ones from them in time, so that it need not wait for each. A rank that does not run
  // ahead leaves them: a peer that polls a line reads it from its own cache until the line changes.
  if (!run_ahead.all_have_begun(collective - 1)) {
    ArrivalLine& later = board.arrival(own_, operation + prefetched_ahead);
    prefetch_to_write(&later);
    if (uses_second_line_) prefetch_to_write(later.payload + payload_in_first_line);
    if (prefetched_lines_ > 0) prefetch_scratch(operation + prefetched_ahead);
  }
  published_ = true;
}

void Execution::prefetch_scratch(std::uint64_t operation) const {
  const std::byte* const scratch = links_->board->scratch(scratch_size_, own_, operation);
  for (std::size_t i = 0; i < prefetched_lines_; ++i) prefetch_to_write(scratch + i * line_bytes);
}

/// A peer may sleep until this rank has begun the collective.
void Execution::begin_by_messages() {
  const std::uint64_t collective = binding_->message_sequence;
  links_->run_ahead->record(collective, binding_->fingerprint, binding_->signature);
  links_->run_ahead->begin(collective);
  published_ = true;
}

/// cursor: the local rank that is looked at next.
Execution::Outcome Execution::do_await_board(std::uint32_t& cursor) {
  if (!board_is_free()) {
    RunAhead& run_ahead = *links_->run_ahead;
    const RunAhead::Look look = run_ahead.look(board_awaits());
    cursor = static_cast<std::uint32_t>(run_ahead.looked_at());
    if (look == RunAhead::Look::disagrees) return fail(run_ahead.disagreement());
    if (look == RunAhead::Look::waits) return Outcome::blocked;
  }
  if (!header_->uses_node) begin_by_messages();
  return Outcome::next;
}

/// cursor: the local rank that is looked at next.
[[gnu::noinline]] Execution::Outcome Execution::look_for_arrivals(std::uint32_t& cursor, bool all,
                                                                  std::uint32_t peer) {
  return look_at_lines(cursor, all, peer);
}

[[gnu::always_inline]] inline Execution::Outcome Execution::look_at_lines(std::uint32_t& cursor,
                                                                          bool all,
                                                                          std::uint32_t peer) {
  const Board& board = *links_->board;
  const std::uint64_t operation = operation_, fingerprint = binding_->fingerprint;
  const auto end = all ? static_cast<std::uint32_t>(board.local_ranks()) : peer + 1;
  for (std::uint32_t at = all ? cursor : peer; at < end; ++at) {
    const auto rank = static_cast<int>(at);
    if (rank == own_) continue;
    const ArrivalLine& line = board.arrival(rank, operation);
    if (line.sequence.load(std::memory_order_acquire) < operation) {
      cursor = at;
      return Outcome::blocked;
    }
    if (line.fingerprint != fingerprint) [[unlikely]] {
      return fail(links_->run_ahead->disagreement_with(rank));
    }
    if (!awaited_blocks_.empty() && !agrees_about_block(rank, line)) [[unlikely]] {
      return fail(other_block(rank, line));
    }
    // In a loop of rooted calls a peer is often ahead: its next line comes while this rank works.
    const ArrivalLine& next = board.arrival(rank, operation + 1);
    __builtin_prefetch(&next);
    if (uses_second_line_) __builtin_prefetch(next.payload + payload_in_first_line);
    if (maps_ && lacks_mapping(rank, line.mapped)) {
      all_mapped_ = exported_ = false;
      cursor = at;
      return Outcome::next;
    }
  }
  cursor = end;
  // With two local ranks the peer is all of them.
  if (all || board.local_ranks() == 2) links_->run_ahead->saw_all(binding_->message_sequence);
  admitted_ = true;
  return Outcome::next;
}

/// A program that maps buffers does so when their ranks have arrived. As soon as a buffer is known
/// not to be mapped, this rank goes on with the other program, whose steps `wait` await arrivals.
/// cursor: the local rank that is looked at next.
Execution::Outcome Execution::do_await_arrival(std::uint32_t& cursor, bool all,
                                               std::uint32_t peer) {
  if (maps_ && !all_mapped_) return Outcome::next;
  const Outcome outcome = look_for_arrivals(cursor, all, peer);
  return outcome == Outcome::next && maps_ && all_mapped_ ? resolve_peers() : outcome;
}

bool Execution::wait_is_over(const Active& active, const Instruction& instruction, int peer) const {
  const std::uint64_t value =
      links_->board->flag(peer, instruction.flag).value.load(std::memory_order_acquire);
  return reached(value, flag_value(active.chunk - instruction.lag + 1));
}

/// Before the first chunk that a step `wait` waits for: whether the peers have arrived whose flags
/// it waits for. A peer in another call may have published any flag.
Execution::Outcome Execution::await_arrivals_of(const Active& active,
                                                const Instruction& instruction) {
  if (instruction.all) return look_for_arrivals(arrived_before_, true, 0);
  std::uint32_t cursor = 0;
  return look_for_arrivals(cursor, false, index_of(instruction.peer, active.instance));
}

Execution::Outcome Execution::do_wait(Active& active, const Instruction& instruction) {
  if (active.chunk < instruction.lag) return Outcome::next;
  if (active.chunk == instruction.lag && header_->waits_await_arrivals) {
    if (const Outcome outcome = await_arrivals_of(active, instruction); outcome != Outcome::next) {
      return outcome;
    }
  }
  if (!instruction.all) {
    const auto peer = static_cast<int>(index_of(instruction.peer, active.instance));
    return wait_is_over(active, instruction, peer) ? Outcome::next : Outcome::blocked;
  }
  const auto end = static_cast<std::uint32_t>(links_->board->local_ranks());
  for (; active.cursor < end; ++active.cursor) {
    const auto peer = static_cast<int>(active.cursor);
    if (peer != own_ && !wait_is_over(active, instruction, peer)) return Outcome::blocked;
  }
  return Outcome::next;
}

Execution::Outcome Execution::do_await(Active& active, const Instruction& instruction) const {
  if (!instruction.end && active.chunk < instruction.lag) return Outcome::next;
  const LaneCode& lane = lanes_[instruction.lane];
  const std::uint64_t target = instruction.end ? ended : active.chunk - instruction.lag + 1;
  for (; active.cursor < instruction.repeat; ++active.cursor) {
    const std::int64_t instance = instruction.peer.at(active.instance, active.cursor);
    if (instance < 0 || instance >= lane.instances) continue;
    if (progress_[lane.first_counter + static_cast<std::size_t>(instance)] < target) {
      return Outcome::blocked;
    }
  }
  return Outcome::next;
}

Execution::Outcome Execution::fail(Status status) {
  failed_ = true;
  status_ = std::move(status);
  return Outcome::failed;
}

}  // namespace hocket::internal
