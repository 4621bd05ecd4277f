// A program is a plan lowered for one rank: flat, plain data without pointers, so that a GPU kernel
// can interpret the same one. Whatever can be worked out before a message's size is known has been.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

inline constexpr std::uint16_t all_peers = 0xffff;

struct Operand {
  Buffer buffer;
  bool wide;
  std::uint16_t rank;  // whose buffer; never `own`
  std::uint32_t block;
  std::uint32_t length_block;  // the message block whose length this range has
};
static_assert(sizeof(Operand) == 12);

struct Instruction {
  StepKind kind;
  bool finish;
  std::uint16_t peer;  // a rank, or all_peers
  std::uint16_t flag;
  std::uint16_t ordinal;
  std::uint16_t lag;
  std::uint16_t per_chunk;  // await: signals of the flag in one chunk. send, recv: messages of this
                            // lane and peer in one chunk
  std::uint16_t message;    // send, recv: which of those, from 0
  std::uint16_t dsts;       // operands[first_operand ..): dsts, then srcs
  std::uint32_t srcs;
  std::uint32_t first_operand;
};
static_assert(sizeof(Instruction) == 24);

struct Section {  // instructions [first, first + count)
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct Program {
  Shape shape;
  std::uint32_t input_blocks = 0, output_blocks = 0, scratch_blocks = 0;
  std::uint8_t slots = 1;
  bool load_store = false, maps_input = false, maps_output = false, single_chunk = false;
  bool awaits_all_arrivals = false;  // after it every local peer is known to have arrived
  bool wide_scratch = false;  // some scratch range is wide: slots are spaced for the wide type
  std::uint16_t private_flags = 0;
  std::uint32_t most_operands = 1;
  Section prologue, epilogue;
  std::vector<Section> lanes;
  std::vector<Instruction> code;
  std::vector<Operand> operands;
  std::string algorithm;  // for messages
};

/// Lowers one rank's verified plan. Fails where a number does not fit its field.
Status lower(const Plan& plan, Program* program);

}  // namespace hocket::internal
