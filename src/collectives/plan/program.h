// A program is a plan lowered for one rank: one block of bytes without pointers, the same for all
// sizes. It can be copied to another address, and a GPU kernel can interpret it without
// translation.
//
//   ProgramHeader | LaneCode of every lane | Instruction of every step | Operand of every range
//
// The first instructions are those of the entry, which a host runs before the lanes, also for a
// program whose lanes a device runs.
//
// Each of these is plain data without padding; the header says where each array begins.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

struct Operand {
  Index rank;  // whose buffer: a local rank; without a node: this rank
  Index block;
  std::uint32_t repeat;
  Buffer buffer;
  bool wide;
  bool varies;  // an index depends on the instance, or has a modulus
  std::uint8_t unused;
};
static_assert(sizeof(Operand) == 40);

struct Instruction {
  StepKind kind;
  When when;
  bool finish;
  bool all;
  bool end;
  std::uint8_t unused[3];
  std::uint16_t flag;
  std::uint16_t lag;
  Index peer;  // send, recv, wait, await_arrival; await: the instance
  Index tag;
  Index block;
  std::uint32_t lane;           // await
  std::uint32_t repeat;         // await
  std::uint32_t first_operand;  // destinations, then sources
  std::uint32_t dsts, srcs;     // operands
};
static_assert(sizeof(Instruction) == 80);

struct LaneCode {
  std::uint32_t first, count;  // instructions
  std::uint32_t instances, window;
  std::uint32_t first_counter;  // of the progress of its instances
  Index block;
  std::int16_t publishes;
  Counts counts;
  Buffer extents;
};
static_assert(sizeof(LaneCode) == 40);

struct ProgramHeader {
  std::uint32_t bytes;  // of the whole program
  std::uint32_t rank, ranks;
  std::int32_t root;
  std::uint32_t lanes, first_lane;                // number; offset in bytes
  std::uint32_t instructions, first_instruction;  // likewise
  std::uint32_t entry;                            // how many instructions the entry has
  std::uint32_t operands, first_operand;
  std::uint32_t input_blocks, output_blocks, line_blocks, scratch_blocks;
  std::uint32_t slots;
  std::uint32_t small_bytes;
  std::uint32_t active;         // the windows of all lanes together
  std::uint32_t counters;       // the instances of all lanes together
  std::uint32_t most_operands;  // of one instruction, each counted `repeat` times
  Collective collective;
  bool uses_node, arrives_first, maps_input, maps_output, single_chunk;
  bool wide_scratch;    // some scratch range of some rank is wide
  bool uses_scratch;    // some range of this rank is in scratch
  bool writes_scratch;  // this rank writes to its own scratch
  bool awaits;          // some step awaits the progress of a lane
  bool sends_messages;  // this rank, or another rank in the same operation
  // Steps of this rank access the inputs, or the outputs, of local peers.
  bool accesses_inputs, accesses_outputs;
  bool waits_await_arrivals;  // waits_await_arrivals() of the plan
  std::uint8_t unused[2];
};
static_assert(sizeof(ProgramHeader) == 96);

class Program {
 public:
  const ProgramHeader& header() const {
    return *reinterpret_cast<const ProgramHeader*>(words_.data());
  }
  std::span<const LaneCode> lanes() const {
    return array<LaneCode>(header().first_lane, header().lanes);
  }
  std::span<const Instruction> code() const {
    return array<Instruction>(header().first_instruction, header().instructions);
  }
  std::span<const Operand> operands() const {
    return array<Operand>(header().first_operand, header().operands);
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(words_)); }
  const std::string& algorithm() const { return algorithm_; }  // for messages

 private:
  friend Status lower(const Plan& plan, Program* program);
  template <typename T>
  std::span<const T> array(std::uint32_t offset, std::uint32_t count) const {
    return {reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(words_.data()) + offset),
            count};
  }

  std::vector<std::uint64_t> words_;
  std::string algorithm_;
};

/// The ranks with which a program exchanges messages, each once.
std::vector<std::uint32_t> message_peers(const Program& program);

/// Lowers one rank's verified plan. Fails if a number does not fit its field.
Status lower(const Plan& plan, Program* program);

}  // namespace hocket::internal
