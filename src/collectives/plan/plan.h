// A plan is what one rank does in one collective, as data: no I/O, no clock, no communicator, no
// sizes.
//
// Blocks. A message is cut in blocks: the input in input_blocks equal ones, the output in
// output_blocks, all of the same size, the last ones possibly shorter (or empty). A step names
// blocks, never bytes, so one plan serves every size.
//
// Chunks. The body of a plan runs once per chunk k = 0..chunks-1: chunk k is the k-th piece of
// EVERY block. Scratch block b of chunk k lies in slot k % slots; a lane may be slots chunks ahead
// of another, no more, and the plan itself must say so (wait with a lag). prologue and epilogue run
// once, before and after all chunks; they synchronise and move no data.
//
// Lanes. The body's lanes run independently, each one its steps in order, chunk after chunk. Inside
// a lane every step ends before the next begins (a send has ended when its source may be
// overwritten).
//
// In place. The output may be the input (all-gather: the input is the output's block `rank`;
// reduce-scatter: the output is the input's block `rank`). A copy (one src, no finish, equal width)
// onto the very same memory is no access at all: executors leave it out, since peers may be reading
// there.
//
// Who sees what. Through load/store links (one node), a step may read any local peer's scratch and,
// in plans with maps_input/maps_output, any peer's input/output; peers are told by notify and asked
// by wait; a rank notifies a flag in one lane. A private flag is signalled by one lane.
// Over messages, send and recv move a range. Private to the rank: signal and await between lanes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/types.h"

namespace hocket::internal {

inline constexpr int own = -1;  // "this rank", where a rank is asked for

enum class Buffer : std::uint8_t {
  input,    // the caller's send buffer
  output,   // the caller's receive buffer (may be the input: plans must be right in place)
  scratch,  // library memory: slots x scratch_blocks blocks; readable by local peers
  line,     // the payload of the arrival line: at most line_payload_bytes, its blocks one after
            // another, unpadded; readable by local peers
};

struct Range {
  Buffer buffer = Buffer::input;
  bool wide =
      false;  // scratch only: elements have the accumulator's type (fp32 for fp16, bf16, fp8)
  std::int16_t rank = own;  // whose buffer
  std::uint32_t block = 0;
  // scratch and line only: the message block whose (perhaps short) length this range has. input,
  // output: ignored.
  std::uint32_t length_block = 0;
  bool operator==(const Range&) const = default;
};

enum class StepKind : std::uint8_t {
  fold,  // every dst := fold of srcs in the given order with the operator; one src: a copy.
         // finish: dsts get the rounded result (avg divided); else they stay partial (wide dst).
  send,  // srcs[0] to peer: the n-th send of a lane to a peer meets the n-th recv of the SAME lane
         // there; without srcs: an empty message
  recv,  // from peer into dsts[0]; without dsts: an empty message
  arrive,  // publish this rank's arrival: signature, buffers, and (inline plans) the payload in its
           // line
  await_arrival,  // until `peer` has arrived (own: until all other ranks have); signatures are
                  // compared
  notify,         // this rank's public flag `flag` += 1
  wait,  // until peer's public flag has reached `ordinal` notifies of chunk (k - lag); own: that of
         // all other ranks
  signal,  // this rank's private flag += 1
  await,   // the same for this rank's private flags
};

struct Step {
  StepKind kind = StepKind::fold;
  bool finish = false;
  std::int16_t peer = own;
  std::uint16_t flag = 0;
  // notify and wait: a rank notifies a flag at most once per chunk, so ordinal is 1; a flag is used
  // in one of prologue, body, epilogue only.
  std::uint16_t ordinal = 1;  // 1-based among the notifies (signals) of `flag` in one chunk
  std::uint16_t lag = 0;      // chunks back; a chunk before the first is long reached
  std::vector<Range> dsts;
  std::vector<Range> srcs;
  bool operator==(const Step&) const = default;
};

using Steps = std::vector<Step>;

/// What a builder is asked for. Everything a plan depends on; the dtype only by is_widened.
struct Shape {
  Collective collective = Collective::barrier;
  int rank = 0;
  int ranks = 1;
  int root = -1;
  bool widened = false;  // partial results are wider than the data
  bool operator==(const Shape&) const = default;
};

struct Plan {
  std::string algorithm;  // "inline", "one-shot", "staged", "direct", "ring", "tree", "owner-fold",
                          // "message"
  Shape shape;
  std::uint32_t input_blocks = 1;   // barrier: 0
  std::uint32_t output_blocks = 1;  // barrier: 0; send: 0, as is recv's input_blocks
  std::uint32_t scratch_blocks = 0;
  std::uint8_t slots = 1;
  bool load_store = false;  // needs all ranks on one node; else messages only
  bool maps_input = false;  // reads peers' inputs in place: only where all of them are mapped
  bool maps_output = false;
  bool single_chunk =
      false;  // must run with chunks == 1 (its blocks must fit a slot, or need none)
  std::uint16_t private_flags = 0;
  Steps prologue;
  std::vector<Steps> lanes;
  Steps epilogue;
};

/// The one picture of a plan that tests keep golden and reviewers read. (print.cc)
std::string print(const Plan& plan);
std::string print(const Step& step);

}  // namespace hocket::internal
