// The CPU executor: runs one rank's program for one operation, a step at a time. It never blocks.
// Collectives and messages of every size move their bytes through advance(). Only the measurements
// in engine/calibration.cc access memory without a program.
//
// The entry of a program runs before its lanes. It waits until this rank's part of the board is
// free: until no peer is so far behind that it may still read there (transport/shm/run_ahead.h). If
// the program arrives first, admission follows: this rank publishes its arrival, waits for the
// arrival of all local peers, compares signatures and maps the peers' buffers; if a buffer of some
// rank is not mapped, the program `staged` runs instead, which has the same entry, and may have
// other blocks and chunks.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/copy.h"
#include "collectives/execute/executor_host.h"
#include "collectives/plan/extents.h"
#include "collectives/plan/program.h"
#include "memory/regions.h"
#include "reduce/fold.h"
#include "reduce/user_fold.h"
#include "transport/shm/board.h"
#include "transport/shm/run_ahead.h"
#include "transport/transport.h"

namespace hocket::internal {

/// The parts of a communicator that its programs use. A communicator has one such object, which
/// outlives the executions.
struct Links {
  int rank = 0;
  const Board* board = nullptr;          // for all collectives; sends and receives need none
  RunAhead* run_ahead = nullptr;         // likewise
  std::vector<int> ranks_of_node;        // by local rank: the ranks that share the board
  std::vector<Transport*> transport_to;  // by rank, including this rank; null: unreachable
  Regions* regions = nullptr;            // of this process
  ExecutorHost* host = nullptr;
};

/// The arguments of one operation, in the form that a program needs.
struct Binding {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  Sizes sizes;
  Sizes staged_sizes;  // of the program that runs where a buffer is not mapped
  Dtype dtype = Dtype::int8;
  Op op = Op::sum;
  Stores stores = Stores::together;   // how results are stored into outputs
  bool non_temporal_scratch = false;  // stores to scratch bypass the caches
  bool prefetches_scratch = false;    // a rank that runs ahead prefetches the scratch that it needs
  bool many_scratches = false;        // of Board::size_for(); alike on all ranks
  const UserFold* user = nullptr;     // for a user operator
  /// True if this execution ran the previous operation by the same program, not by `staged`, and
  /// sizes and all fields above except the two buffers are the same.
  bool repeated = false;
  bool p2p = false;
  std::uint64_t message_sequence = 0;  // in the keys of the operation's messages
  std::uint64_t board_sequence = 0;    // load/store programs: number of the arrival, from 1
  std::uint64_t fingerprint = 0;
  Signature signature;
  RegionOffset input_region, output_region;
  std::uint64_t mapped = 0;  // bit 0: input_region is valid, bit 1: output_region
};

class Execution {
 public:
  /// staged: if `program` maps buffers, the program that runs instead, after the same admission, if
  /// a buffer of some rank is not mapped; else null. Both programs, the binding and the links
  /// outlive the execution.
  void start(const Program& program, const Program* staged, const Binding& binding,
             const Links& links);

  /// Runs the steps that can run now. Returns true if anything moved.
  bool advance();
  /// If all that is left is a message over shared memory: polls its transport until it has ended,
  /// at most so often. Returns true if the message has ended without error.
  bool await_message(unsigned polls);
  bool done() const { return done_; }
  bool failed() const { return failed_; }
  const Status& status() const { return status_; }  // the error that ended the execution early
  const Program& program() const { return *program_; }
  const Binding& binding() const { return *binding_; }

  /// Returns true once after each publication to local peers: then the caller must ring the peers
  /// that sleep.
  bool take_published() { return std::exchange(published_, false); }
  /// True if peers may write into the output until they have ended too.
  bool exports_output() const { return exported_; }
  /// True if the ranks that this rank needs have arrived. Over messages: if the first bytes of a
  /// peer have come, or a peer has asked for the bytes of a large message.
  bool admitted() const;
  /// The ranks that the next steps wait for, for errors and logs.
  std::vector<int> waits_for() const;

 private:
  /// part: a step has done a part of its work, and the other lanes take their turn.
  enum class Outcome : std::uint8_t { blocked, part, next, failed };
  static constexpr std::size_t line_bytes = 64;
  static constexpr std::size_t payload_in_first_line = line_bytes - offsetof(ArrivalLine, payload);
  // A rank that runs ahead prefetches the lines of memory that it will write so many operations
  // later.
  static constexpr std::uint64_t prefetched_ahead = 4;
  static constexpr int looks_in_a_row = 16;                       // for the arrival of a peer
  static constexpr std::size_t most_bytes_without_kernel = 1024;  // of a copy
  static constexpr std::size_t copied_part_bytes = std::size_t{256} << 10;
  /// A lane instance that is active, or the entry.
  struct Active {
    const LaneCode* lane = nullptr;
    std::uint32_t instance = 0;
    std::uint32_t next = 0;    // index of an instruction of the lane
    std::uint32_t cursor = 0;  // the next peer, instance or part of a step that has several of them
    std::size_t chunk = 0, chunks = 1;
    bool posted = false;
    bool done = false;
    Transfer transfer = {};
  };

  /// The memory that holds a range: a buffer of the plan; or, if the range is a small block in
  /// scratch, the scratches of the size that its bytes need.
  struct Storage {
    Buffer buffer;
    ScratchSize size = ScratchSize::none;
  };

  /// A fold that is ready to run: only its addresses are still to be set.
  struct ReadyFold {
    Fold fold;
    std::uint32_t first_place = 0;  // destinations, then sources
    std::size_t copied = 0;         // bytes, of a copy from one place to one other; else 0
  };
  /// The address of a range: its distance from the address of its storage in `bases_`.
  struct Place {
    std::uint8_t base;  // index in bases_
    bool wide;
    std::ptrdiff_t offset;
  };
  enum class Readiness : std::uint8_t { unknown, ready, never };

  void prepare(const Program& program, const Program* staged, const Links& links);
  void use(const Program& program, const Sizes& sizes);
  void set_bases();
  void make_ready();
  bool can_be_ready() const;
  bool can_be_straight() const;
  bool can_be_message();
  bool ends_at_once(const LaneCode& lane) const;
  ReadyFold ready_fold(const Active& active, const Instruction& instruction);
  std::byte* address_of(const Place& place) const { return bases_[place.base] + place.offset; }
  /// fold_ready() of a copy from one place to one other.
  void copy_ready(const ReadyFold& ready) const {
    const Place* const places = &places_[ready.first_place];
    std::byte* const dst = address_of(places[0]);
    const std::byte* const src = address_of(places[1]);
    if (dst == src) return;
    if (ready.copied <= most_bytes_without_kernel) {
      copy_few(dst, src, ready.copied);
    } else {
      plain_copy(dst, src, ready.copied);
    }
  }
  void fold_ready(const ReadyFold& ready);
  std::uint8_t base_index(const Storage& storage);
  std::size_t line_bytes_used() const;
  bool all_are_in_line() const;
  std::size_t stride_of(const ProgramHeader& header, const Sizes& sizes) const;
  void size_scratch(const Program* staged);
  ScratchSize size_of_small_block(std::size_t bytes) const;
  std::size_t most_in_scratch() const;
  void fall_back();
  bool place_scratch();
  bool run_entry();
  void begin_lanes();
  void begin_first();
  void begin_again();
  void start_straight();
  void start_message();
  bool end_only_message(Active& active, const Instruction& message);
  void run_straight();
  Outcome look_several_times(Active& active, const Instruction& instruction);
  void begin_instance(Active& active, std::uint32_t instance) const;
  bool advance_lanes();
  bool run(Active& active);
  Outcome step(Active& active, const Instruction& instruction);
  Outcome do_fold(Active& active, const Instruction& instruction);
  Outcome fold_blocks(Active& active, const Instruction& instruction);
  void fold_block(const Active& active, const Instruction& instruction, std::uint32_t repetition);
  Fold fold_of(const Instruction& instruction, std::size_t count) const;
  std::size_t copied_bytes(const Instruction& instruction, std::size_t count) const;
  bool copies_in_parts(const Instruction& instruction, std::size_t count) const;
  Outcome copy_part(Active& active, const Instruction& instruction, std::size_t count) const;
  void expect_scalars();
  std::uint64_t scalar_of(const Operand& operand, const Active& active, std::uint32_t source) const;
  void note_scalars(const Active& active, const Instruction& instruction);
  void add_scalars(const Active& active, const Instruction& instruction, std::uint32_t repetition,
                   Fold* fold);
  Outcome do_message(Active& active, const Instruction& instruction);
  void set_location(Transfer& transfer, Buffer buffer) const;
  void describe_message(Active& active, const Instruction& instruction) const;
  void post(Active& active, const Instruction& instruction, Transport& transport);
  Outcome end_message(Active& active, const Instruction& instruction);
  /// The collective that all local peers must have begun before the board is free.
  std::uint64_t board_awaits() const {
    const std::uint64_t collective = binding_->message_sequence;
    if (!header_->uses_node) return RunAhead::required_by(collective);
    return links_->run_ahead->required_by(collective, operation_, scratch_size_);
  }
  bool board_is_free() const { return links_->run_ahead->all_have_begun(board_awaits()); }
  void begin_by_messages();
  Outcome do_await_board(std::uint32_t& cursor);
  Outcome look_at_lines(std::uint32_t& cursor, bool all, std::uint32_t peer);
  Outcome look_for_arrivals(std::uint32_t& cursor, bool all, std::uint32_t peer);
  bool lacks_mapping(int rank, std::uint64_t mapped) const;
  Outcome do_await_arrival(std::uint32_t& cursor, bool all, std::uint32_t peer);
  Outcome await_arrivals_of(const Active& active, const Instruction& instruction);
  Outcome do_wait(Active& active, const Instruction& instruction);
  Outcome do_await(Active& active, const Instruction& instruction) const;
  void complete_chunk(Active& active);
  void arrive();
  void prefetch_scratch(std::uint64_t operation) const;
  Outcome fail(Status status);
  bool reads_input_of(int peer) const;
  bool writes_output_of(int peer) const;
  std::size_t end_of(Buffer buffer, int peer) const;
  Outcome resolve_peers();
  Stores output_stores(const Operand& first) const;
  Stores scratch_stores(Buffer first) const;
  std::byte* caller_address(Buffer buffer, std::uint32_t rank, std::uint32_t block,
                            std::size_t chunk) const;
  /// A block of scratch, counted over all slots.
  std::size_t scratch_index(std::uint32_t block, std::size_t chunk) const {
    const std::size_t slot = header_->slots == 1 ? 0 : chunk % header_->slots;
    return slot * header_->scratch_blocks + block;
  }
  std::byte* library_address(const Storage& storage, std::uint32_t rank, std::uint32_t block,
                             std::size_t chunk) const;
  Storage storage_of(const Operand& operand, std::size_t count) const;
  std::byte* address_of(const Operand& operand, const Storage& storage, const Active& active,
                        std::uint32_t source) const;
  std::size_t elements_of(const Active& active, const Instruction& instruction,
                          std::uint32_t repetition) const;
  /// True if the step is not for its block, because that is small or large.
  bool is_left_out(const Active& active, const Instruction& instruction) const {
    return instruction.when != When::always &&
           sizes_->leaves_out(instruction.when, active.lane->extents,
                              index_of(instruction.block, active.instance));
  }
  void set_counts();
  /// The elements of a block that a rank sends, as its line says. place: in the rank's input.
  static std::uint64_t count_in(const ArrivalLine& line, std::size_t place) {
    std::uint64_t count;
    std::memcpy(&count, line.payload + place * sizeof count, sizeof count);
    return count;
  }
  /// True if the peer sends a block of the count that this rank expects of it, or sends nothing to
  /// this rank.
  bool agrees_about_block(int peer, const ArrivalLine& line) const {
    const AwaitedBlock& awaited = awaited_blocks_[static_cast<std::size_t>(peer)];
    return !awaited.comes || count_in(line, awaited.place) == awaited.count;
  }
  Status other_block(int peer, const ArrivalLine& line) const;
  std::size_t message_bytes(const Active& active, const Instruction& instruction) const;
  std::uint64_t flag_value(std::uint64_t count) const;
  bool wait_is_over(const Active& active, const Instruction& instruction, int peer) const;
  bool has_arrived(int peer, std::uint64_t operation) const;
  bool has_begun(int peer, std::uint64_t collective) const;
  void add_awaited(const Active& active, std::vector<int>& ranks) const;
  void drop_those_that_wait_too(std::vector<int>& ranks) const;
  static std::uint32_t index_of(const Index& index, std::uint32_t instance,
                                std::uint32_t source = 0) {
    return static_cast<std::uint32_t>(index.at(instance, source));
  }
  int rank_of(int local_rank) const {
    return links_->ranks_of_node[static_cast<std::size_t>(local_rank)];
  }

  const Program* program_ = nullptr;
  const Program* staged_ = nullptr;
  const Links* links_ = nullptr;
  const Binding* binding_ = nullptr;
  const Sizes* sizes_ = nullptr;  // of program_
  // Of program_:
  const ProgramHeader* header_ = nullptr;
  const LaneCode* lanes_ = nullptr;
  const Instruction* code_ = nullptr;
  const Operand* operands_ = nullptr;
  bool maps_ = false;  // peers map a buffer of some rank
  std::size_t element_bytes_ = 1, wide_bytes_ = 1, stride_ = 0;
  LineBlocks line_blocks_;
  std::vector<std::uint64_t> sent_counts_;  // of the blocks that this rank sends, for its line
  struct AwaitedBlock {
    bool comes = false;
    std::size_t place = 0;    // in the peer's input
    std::uint64_t count = 0;  // in elements
  };
  std::vector<AwaitedBlock> awaited_blocks_;  // by local rank: its block for this rank
  bool uses_second_line_ = false;
  std::byte* scratch_ = nullptr;  // of the first local rank; of this rank without a node
  std::size_t scratch_step_ = 0;  // to that of the next local rank
  // Of a plan with small_bytes: the size for the longest block that this rank puts into scratch.
  ScratchSize scratch_size_ = ScratchSize::none;
  std::size_t prefetched_lines_ = 0;  // of this rank's scratch, when it runs ahead
  bool has_scratch_ = false;
  std::size_t scratch_bytes_ = 0;  // all slots; with small_bytes: the longest small block
  std::uint64_t operation_ = 0;    // of the board
  int own_ = 0;  // this rank's number in ranges; a local rank if the program uses the node
  bool failed_ = false, done_ = true, published_ = false, exported_ = false, all_mapped_ = false;
  std::uint32_t arrived_before_ = 0;        // the steps `wait` saw all lower local ranks arrive
  bool admitted_ = false;                   // peers have arrived, or a message has come
  bool in_lanes_ = false;                   // the entry has ended
  static constexpr LaneCode entry_code_{};  // its instructions are the first of the program
  Active entry_{.lane = &entry_code_};
  Status status_;
  std::vector<Active> active_;
  std::size_t active_count_ = 0;
  std::vector<std::uint32_t> progress_;  // of each lane instance, in chunks; `ended` at its end
  // In a loop of equal calls: the lanes and steps that the call has, and its prepared folds.
  Readiness readiness_ = Readiness::unknown;
  bool is_straight_ = false;  // ready, and can be straight
  bool is_message_ = false;   // ready, and can be a message
  Place message_place_ = {};  // of that message
  /// The steps of a straight call.
  struct {
    const Instruction *first, *end;
    const ReadyFold* ready;  // of the first step
  } straight_ = {};
  std::vector<LaneCode> ready_lanes_;
  std::vector<Instruction> ready_code_;  // begins with the entry
  std::vector<ReadyFold> ready_;         // by instruction; those that are no fold are empty
  std::vector<Place> places_;
  // By Buffer: input, output, and the first rank's scratch and line; then by ScratchSize: the first
  // rank's scratch of that size.
  static constexpr std::size_t first_sized_base = 4;
  std::byte* bases_[first_sized_base + Board::scratch_sizes] = {};
  std::vector<ScratchSize> ready_sizes_;  // of small blocks in prepared folds
  std::vector<FoldSource> fold_srcs_;
  std::vector<void*> fold_dsts_;
  UserFoldRoom user_room_;
  // PreMulSum: the scalars of the sources of a fold, and of the inputs in each block of own
  // scratch.
  std::vector<std::uint64_t> fold_scalars_, scalars_;
  struct PeerBuffers {
    std::byte* input = nullptr;
    std::byte* output = nullptr;
  };
  std::vector<PeerBuffers> peers_;
  int mapping_of_ = -1;  // the local rank whose region is not mapped yet; -1: none
};

}  // namespace hocket::internal
