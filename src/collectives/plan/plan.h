// A plan is what one rank does in one collective, as data: no I/O, no clock, no communicator, no
// sizes.
//
// Blocks. A step names blocks of buffers, never bytes, so one plan serves every size. The row of
// the collective (base/collectives.h) says which blocks the input and the output have; the extents
// of the call (extents.h) say where the blocks are, and how many elements each has.
//
// Chunks. A block is cut into chunks of equal size; the last chunk may be short. There is at least
// one chunk: an empty block has one empty chunk. A data step (a fold, a send or a recv) handles
// chunk k of ONE block of the message, Step::block; all its ranges have the length of that chunk.
//
// Several blocks in one step. In a lane of all blocks a data step may stand for `repeat` blocks:
// those that Step::block and the indices of its ranges give for j = 0, 1, ... A fold is done for
// each of these blocks, as if each had its own step. A message carries all of them, from scratch to
// scratch. There they follow one another, so they are one run of bytes. An algorithm of log2 p
// rounds needs such messages, because each message costs a round. The source and the destination of
// a message of one block may be any buffer.
//
// Blocks of other ranks. In an all-to-all a rank may pass on blocks that are neither in its input
// nor in its output. A step of a lane of all blocks whose ranges are all in scratch may handle such
// blocks. Its Step::block says only how long they are; all blocks have the same length.
//
// Lanes. The lanes of a plan run independently of one another. Each lane runs its steps in order,
// for chunk 0, 1, ... Inside a lane every step ends before the next begins (a send has ended when
// its source may be overwritten). A lane stands for `instances` lanes i = 0, 1, ... that differ
// only in their indices: an index is affine in i. At most `window` instances are active at a time:
// instance i + window starts when instance i has ended.
//
// Progress. The progress of a lane's instance is the number of chunks that it has completed. Other
// lanes of the same rank wait for it by the step await. If the lane `publishes`, local peers wait
// for its progress by the step wait.
//
// Entry. A plan that uses the node begins with steps that precede all lanes: it waits until this
// rank's line and scratch are free; if it arrives first, it then arrives; if it maps buffers, it
// then awaits the arrival of all local peers. A plan that arrives first and maps no buffers goes
// on at once: there a step `wait` awaits the arrival of each peer whose flag it waits for.
//
// Scratch. Scratch block b of chunk k lies in slot k % slots. The plan itself must say when a slot,
// or a block that several instances use, may be overwritten.
//
// Small blocks. In a gather, a scatter or an all-to-all whose blocks have different counts, only
// the two ends of a block know its count. In a plan with small_bytes a data step may be for small
// blocks only, or for large ones only (Step::when): both ends leave out the same steps, and
// exchange nothing for that. A small block has at most small_bytes bytes. Each block of scratch has
// room for small_bytes, whatever the counts are; a large block needs a message. The arrival line
// of a rank has the counts of the blocks that the rank sends to its local peers. A rank that has
// awaited the arrival of a peer has compared the count with its own, so it does not wait for a
// large block that the peer considers small.
//
// In place. The output may be the input. In an all-gather and a gather the input may be block
// `rank` of the output; in a reduce-scatter and a scatter the output may be block `rank` of the
// input; an all-to-all is never in place. A copy (one source, no finish, equal width) of memory
// onto itself counts as no access: executors leave it out, because peers may be reading there.
//
// Memory of peers. Within a node a step may read the scratch and the line of any local peer and, in
// plans with maps_input or maps_output, access its input or output. Messages may go to every rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/collectives.h"
#include "base/limits.h"
#include "base/types.h"

namespace hocket::internal {

/// A rank, a block, a tag or an instance: (base + i * by_instance + j * by_source) mod modulo,
/// where i is the instance of the lane and j counts the ranges that one Range stands for, or the
/// blocks or instances that one Step stands for. modulo 0: no reduction; the value may then be
/// negative or too large only if the field that has the index says what that means.
struct Index {
  std::int32_t base = 0;
  std::int32_t by_instance = 0;
  std::int32_t by_source = 0;
  std::uint32_t modulo = 0;

  constexpr std::int64_t at(std::uint32_t instance, std::uint32_t source = 0) const {
    const std::int64_t value =
        base + std::int64_t{by_instance} * instance + std::int64_t{by_source} * source;
    if (modulo == 0) return value;
    const std::int64_t rest = value % std::int64_t{modulo};
    return rest < 0 ? rest + modulo : rest;
  }
  bool operator==(const Index&) const = default;
};

enum class Buffer : std::uint8_t {
  input,    // the caller's send buffer
  output,   // the caller's receive buffer (may be the input: plans must be right in place)
  scratch,  // library memory: slots x scratch_blocks blocks; readable by local peers in plans that
            // arrive
  line,  // the payload of the arrival line: at most line_payload_bytes; block b follows block b - 1
         // without padding; readable by local peers
};

struct Range {
  Buffer buffer = Buffer::input;
  /// Scratch only: elements have the accumulator's type (fp32 for fp16, bf16, fp8).
  bool wide = false;
  Index rank;  // the rank whose buffer it is: this rank, or a local peer
  Index block;
  /// In a fold of one block: this range stands for `repeat` sources or destinations.
  std::uint32_t repeat = 1;
  bool operator==(const Range&) const = default;
};

enum class StepKind : std::uint8_t {
  /// Folds the sources in the given order; every destination receives the result. One source: a
  /// copy. finish: the result is rounded (and divided for avg); else it stays partial.
  fold,
  send,           // sends srcs[0] to peer; without srcs an empty message
  recv,           // receives from peer into dsts[0]; without dsts an empty message
  arrive,         // publishes this rank's arrival: signature, buffers, and the payload in its line
  await_arrival,  // waits until `peer` (all: every local peer) has arrived; compares signatures
  /// Waits until the lane that publishes flag `flag` on local rank `peer` (all: on every local
  /// peer) has completed chunk k - lag; if waits_await_arrivals(), also until that peer has
  /// arrived.
  wait,
  /// Waits until instance `instance` of lane `lane` of this rank has completed chunk k - lag, or
  /// (end) has ended. A chunk before the first chunk, and an instance that the lane does not have,
  /// count as completed.
  await,
  /// Only in the entry: waits until what this rank writes to the board is free, that is until no
  /// local peer is so far behind that it may still read there (transport/shm/run_ahead.h).
  await_board,
};

/// The blocks for which a data step runs; for other blocks it is left out. Only plans with
/// small_bytes have steps that do not always run.
enum class When : std::uint8_t { always, small, large };

struct Step {
  StepKind kind = StepKind::fold;
  When when = When::always;
  bool finish = false;
  bool all = false;        // wait, await_arrival; await_board: true
  bool end = false;        // await
  std::uint16_t flag = 0;  // wait: below public_flags
  std::uint16_t lag = 0;   // wait, await: chunks back
  std::uint32_t lane = 0;  // await: index in Plan::lanes
  /// await: waits for `repeat` instances, j = 0, 1, ... Data steps: handle `repeat` blocks.
  std::uint32_t repeat = 1;
  Index instance;  // await
  Index peer;      // send, recv: a rank; wait, await_arrival: a local rank
  /// send, recv: a send and its recv have the same tag. Between one sender and one receiver a tag
  /// belongs to one step of one lane instance, whose chunks follow one another.
  Index tag;
  Index block;  // data steps: the block of the message (see Lane::counts) that they handle
  std::vector<Range> dsts;
  std::vector<Range> srcs;
  bool operator==(const Step&) const = default;
};

using Steps = std::vector<Step>;

constexpr bool is_message(const Step& step) {
  return step.kind == StepKind::send || step.kind == StepKind::recv;
}

/// How many chunks a lane has.
enum class Counts : std::uint8_t {
  /// The lane runs once; it has no data steps.
  once,
  /// As many as block `block` has. The data steps of the lane handle that block; it may await other
  /// lanes of that block.
  one_block,
  /// As many as the longest block has; the chunks of shorter blocks are empty at the end. All ranks
  /// must know the counts of all blocks, unless each block has one chunk.
  all_blocks,
};

struct Lane {
  std::string name;  // for pictures and errors: "stage", "fold", ...
  Counts counts = Counts::once;
  Buffer extents = Buffer::input;  // input or output: the buffer of `block` and Step::block
  Index block;                     // one_block
  std::uint32_t instances = 1;
  std::uint32_t window = 1;     // at least 1
  std::int16_t publishes = -1;  // the public flag with its progress; only where instances == 1
  Steps steps;                  // at least one
  bool operator==(const Lane&) const = default;
};

/// Which ranks share a node: the same on all ranks. Nodes are numbered by their lowest rank.
class Layout {
 public:
  /// node_of[r]: the node of rank r; ranks of one node have the same number, whatever it is.
  explicit Layout(std::span<const std::uint32_t> node_of);

  std::uint32_t ranks() const { return narrowed<std::uint32_t>(node_of_.size()); }
  std::uint32_t nodes() const { return narrowed<std::uint32_t>(ranks_of_.size()); }
  std::uint32_t node_of(std::uint32_t rank) const { return node_of_[rank]; }
  std::uint32_t local_rank(std::uint32_t rank) const { return local_rank_[rank]; }
  /// Ascending.
  const std::vector<std::uint32_t>& ranks_of(std::uint32_t node) const { return ranks_of_[node]; }
  std::uint32_t ranks_of_largest() const { return largest_; }
  std::uint32_t ranks_of_smallest() const { return smallest_; }

 private:
  std::vector<std::uint32_t> node_of_, local_rank_;
  std::vector<std::vector<std::uint32_t>> ranks_of_;
  std::uint32_t largest_ = 0, smallest_ = 0;
};

/// The arguments of a builder: everything on which a plan depends. Of the dtype and the operator,
/// only `widened` matters.
struct Shape {
  Collective collective = Collective::barrier;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::int32_t root = -1;  // send and recv: the peer
  bool varying = false;    // blocks have different counts (the v-variants)
  /// Partial results differ from inputs: they are wider, or have been multiplied (PreMulSum).
  bool widened = false;
  /// Ranks of a node share cores, so a rank should end as early as it can.
  bool shares_cores = false;
  /// The layout of the ranks, which outlives the shape; null: only plans for one node, or for
  /// messages only, are built.
  const Layout* layout = nullptr;
  bool operator==(const Shape&) const = default;

  bool is_root() const { return root == narrowed<std::int32_t>(rank); }
};

struct Plan {
  std::string algorithm;
  Shape shape;
  /// The ranks of this rank's node, ascending, if the plan uses links within the node: a local rank
  /// is an index in it. Empty: messages only.
  std::vector<std::uint32_t> node;
  std::uint32_t cut = 1;  // the number of blocks of a whole message (Blocks::whole)
  // The next four are the same on all ranks, whether a rank uses them or not. Together with the
  // sizes they decide whether a plan can run and how long its chunks are.
  std::uint32_t line_blocks = 0;
  std::uint32_t scratch_blocks = 0;
  std::uint8_t slots = 1;
  bool wide_scratch = false;  // some rank has a wide range: scratch blocks have room for it
  /// The entry (entry_of()) has the arrival; else a lane has it.
  bool arrives_first = false;
  /// Steps access the inputs (outputs) of local peers directly: only if all of them are mapped.
  bool maps_input = false;
  bool maps_output = false;
  /// Each block has one chunk (which must fit a slot or a line, or needs neither).
  bool single_chunk = false;
  /// The length of the longest small block, in bytes. A block of scratch can hold such a block. A
  /// multiple of 64, the same in the plans of all ranks. 0: the plan does not tell small blocks
  /// from large ones.
  std::uint32_t small_bytes = 0;
  std::vector<Lane> lanes;

  bool uses_node() const { return !node.empty(); }
  bool operator==(const Plan&) const = default;
};

/// The entry: the steps that a rank runs before all lanes. They follow from the fields above, so no
/// builder and no user's plan can leave them out.
Steps entry_of(const Plan& plan);

/// Whose buffers a plan maps: of no rank, of the root alone, or of all local ranks. In the entry a
/// rank awaits the arrivals of the peers whose buffers the plan maps.
enum class Mapped : std::uint8_t { none, of_root, of_all };
Mapped mapped_buffers(const Plan& plan);

/// True if a plan that arrives in the entry does not await all of its peers there: then its steps
/// `wait` await the arrivals of the peers whose flags they wait for.
bool waits_await_arrivals(const Plan& plan);

/// True if a plan, or the header of a program, can replace a plan that maps buffers in an operation
/// where a buffer is not mapped: it arrives in the entry too, and maps no buffer.
template <typename PlanOrHeader>
bool replaces_mapping(const PlanOrHeader& plan) {
  return plan.arrives_first && !plan.maps_input && !plan.maps_output;
}

/// The number of blocks of an input and of an output, as the collective's row says. A rank without
/// such a buffer (has_input, has_output) may still address the blocks of the root's buffer.
std::uint32_t input_blocks(const Plan& plan);
std::uint32_t output_blocks(const Plan& plan);
bool has_input(const Shape& shape);
bool has_output(const Shape& shape);
/// The number of the item that is block `block` of this rank's input or output
/// (base/collectives.h).
std::uint64_t item_of(const Plan& plan, Buffer buffer, std::uint32_t block);
std::uint64_t items(const Plan& plan);

/// A drawing of a plan as text; tests compare it with golden files. (print.cc)
std::string print(const Plan& plan);
std::string print(const Plan& plan, const Step& step);

}  // namespace hocket::internal
