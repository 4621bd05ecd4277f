// A plan is what one rank does in one collective, as data: no I/O, no clock, no communicator, no
// sizes.
//
// Blocks. A step names blocks of buffers, never bytes, so one plan serves every size. Which blocks
// the input and the output have is in the row of the collective (base/collectives.h); where they
// lie, and how many elements each has, is in the extents of the call (extents.h).
//
// Chunks. A block is cut in chunks of equal size, the last one short: at least one chunk, so that
// an empty block has one empty chunk. A data step handles chunk k of ONE block of the message,
// Step::block; all its ranges have the length of that chunk.
//
// Several blocks in one step. In a lane of all blocks a data step may stand for `repeat` blocks:
// Step::block and the indices of its ranges at j = 0, 1, ... A fold is done for each of them, as by
// a step of its own. A message carries all of them, from scratch to scratch, where they follow one
// another: so they are one run of bytes. An algorithm of log2 p rounds needs that, because each
// message costs a round. A message of one block goes from or to any buffer.
//
// Blocks of other ranks. In an all-to-all a rank may pass blocks on that are neither in its input
// nor in its output. A step of a lane of all blocks whose ranges are all in scratch may handle such
// blocks: Step::block only says how long they are, and all blocks are equally long.
//
// Lanes. The lanes of a plan run independently, each one its steps in order, for chunk 0, 1, ...
// Inside a lane every step ends before the next begins (a send has ended when its source may be
// overwritten). A lane stands for `instances` lanes i = 0, 1, ... that differ only in their
// indices: an index is affine in i. At most `window` instances are active at a time: instance i +
// window starts when instance i has ended.
//
// Progress. The progress of a lane's instance is the number of chunks that it has completed. Other
// lanes of the same rank await it (await); local peers see that of a lane that `publishes` and wait
// for it (wait).
//
// Scratch. Scratch block b of chunk k lies in slot k % slots. The plan itself must say when a slot,
// or a block that several instances use, may be overwritten.
//
// In place. The output may be the input (all-gather, gather: the input is block `rank` of the
// output; reduce-scatter, scatter: the output is block `rank` of the input; not: all-to-all). A
// copy (one source, no finish, equal width) onto the very same memory is no access at all:
// executors leave it out, since peers may be reading there.
//
// Who sees what. Within a node a step may read any local peer's scratch and line and, in plans with
// maps_input or maps_output, access any local peer's input or output. Messages go to every rank.
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
/// blocks or instances that one Step stands for. modulo 0: no reduction; then the value is negative
/// or too large only where the user of the index says what that means.
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
  bool wide =
      false;   // scratch only: elements have the accumulator's type (fp32 for fp16, bf16, fp8)
  Index rank;  // whose buffer: this rank, or a local peer
  Index block;
  std::uint32_t repeat =
      1;  // sources and destinations of a fold of one block: this range stands for `repeat` ranges
  bool operator==(const Range&) const = default;
};

enum class StepKind : std::uint8_t {
  fold,    // every destination := fold of the sources in the given order; one source: a copy.
           // finish: destinations get the rounded result (avg divided); else they stay partial
  send,    // srcs[0] to peer; without srcs: an empty message
  recv,    // from peer into dsts[0]; without dsts: an empty message
  arrive,  // publish this rank's arrival: signature, buffers, and the payload in its line
  await_arrival,  // until `peer` (all: every local peer) has arrived; signatures are compared
  wait,   // until the published lane `flag` of local rank `peer` (all: of every local peer) has
          // completed chunk k - lag
  await,  // until instance `instance` of lane `lane` of this rank has completed chunk k - lag, or
          // (end) has ended. A chunk before the first, and an instance that the lane does not
          // have, are long completed
};

struct Step {
  StepKind kind = StepKind::fold;
  bool finish = false;
  bool all = false;          // wait, await_arrival
  bool end = false;          // await
  std::uint16_t flag = 0;    // wait: below public_flags
  std::uint16_t lag = 0;     // wait, await: chunks back
  std::uint32_t lane = 0;    // await: index in Plan::lanes
  std::uint32_t repeat = 1;  // await: `repeat` instances, j = 0, 1, ...: all of them. Data steps:
                             // `repeat` blocks
  Index instance;            // await
  Index peer;                // send, recv: a rank; wait, await_arrival: a local rank
  Index tag;    // send, recv: a send and its recv have the same tag. From one rank to another, a
                // tag belongs to one step of one lane instance; its chunks follow in order
  Index block;  // data steps: the block of the message (see Lane::counts) they handle
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
  once,        // it runs once; it has no data steps
  one_block,   // as many as block `block` has; its data steps handle that block, and await others
               // that do
  all_blocks,  // as many as the longest block has. A step handles empty chunks of shorter blocks.
               // All ranks must know the counts of all blocks
};

struct Lane {
  std::string name;  // for pictures and errors: "stage", "fold", ...
  Counts counts = Counts::once;
  Buffer extents = Buffer::input;  // input or output: whose blocks `block` and Step::block mean
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

/// What a builder is asked for. Everything that a plan depends on; the dtype only by `widened`.
struct Shape {
  Collective collective = Collective::barrier;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::int32_t root = -1;  // send and recv: the peer
  bool varying = false;    // blocks have different counts (the v-variants)
  bool widened = false;    // partial results are wider than the data, or differ from it otherwise:
                           // those of PreMulSum have been multiplied
  /// Of the ranks, which outlives the shape; null: only plans for one node, or for messages only,
  /// are built.
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
  // These four are the same on all ranks, whether a rank uses them or not: with the sizes, they
  // decide whether a plan fits and how long its chunks are.
  std::uint32_t line_blocks = 0;
  std::uint32_t scratch_blocks = 0;
  std::uint8_t slots = 1;
  bool wide_scratch = false;  // some rank has a wide range: scratch blocks have room for it
  bool arrives_first =
      false;  // arrive and await_arrival of all come before all lanes; else they are steps
  bool maps_input =
      false;  // accesses local peers' inputs in place: only where all of them are mapped
  bool maps_output = false;
  bool single_chunk =
      false;  // blocks have one chunk each (they must fit a slot or a line, or need none)
  std::vector<Lane> lanes;

  bool uses_node() const { return !node.empty(); }
  bool operator==(const Plan&) const = default;
};

/// The number of blocks of an input and of an output, as the collective's row says; a rank may have
/// no such buffer (has_input, has_output), and still address the blocks of the root's.
std::uint32_t input_blocks(const Plan& plan);
std::uint32_t output_blocks(const Plan& plan);
bool has_input(const Shape& shape);
bool has_output(const Shape& shape);
/// The item of the message that block `block` of this rank's input or output is
/// (base/collectives.h).
std::uint64_t item_of(const Plan& plan, Buffer buffer, std::uint32_t block);
std::uint64_t items(const Plan& plan);

/// The picture of a plan that tests keep golden and reviewers read. (print.cc)
std::string print(const Plan& plan);
std::string print(const Plan& plan, const Step& step);

}  // namespace hocket::internal
