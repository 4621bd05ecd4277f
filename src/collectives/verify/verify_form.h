// The checks of the verifier that need no run: numbers are in range, each flag is published by one
// lane, and the values that must be equal on all ranks are equal.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "collectives/plan/plan.h"

namespace hocket::internal::verify_detail {

// Limits of the numbers of a plan, so that a proof is finite.
inline constexpr std::uint32_t most_instances = 1 << 20;  // of a lane, and repetitions of a range
inline constexpr std::int64_t most_tag = 0x7fffffff;

/// "'tree', rank 2,": how a sentence about a plan begins.
std::string name_of_rank(const Plan& plan);
/// "'tree', rank 2, lane 'down' instance 3": the instance only where there are several.
std::string name_of_lane(const Plan& plan, std::size_t lane, std::uint32_t instance);
/// "'tree', rank 2, lane 'down' instance 3, step 1 (recv 0 tag 1 -> out[0])".
std::string name_of_step(const Plan& plan, std::size_t lane, std::uint32_t instance,
                         std::size_t step);
/// "the plan is wrong: ", the place and what is wrong there.
Status wrong(const std::string& where, const std::string& what);

constexpr bool moves_data(const Step& step) { return !step.srcs.empty() || !step.dsts.empty(); }

/// The blocks of the message that a lane with these extents addresses.
std::uint32_t message_blocks(const Plan& plan, Buffer extents);
/// The blocks of this rank's input or output: none where the rank has no such buffer.
std::uint32_t blocks_of(const Plan& plan, Buffer buffer);
/// The item of the block that an instance of a one_block lane handles.
std::uint64_t item_of(const Plan& plan, const Lane& lane, std::uint32_t instance);
/// True if instances of two lanes have the same number of chunks, whatever the sizes.
bool same_chunks(const Plan& a, const Lane& lane_a, std::uint32_t instance_a, const Plan& b,
                 const Lane& lane_b, std::uint32_t instance_b);
/// True if all blocks have the same number of chunks, whatever the sizes.
bool has_equal_blocks(const Plan& plan);
/// True if the step moves blocks that need not be in the rank's input or output: from and to
/// scratch, in a lane of all blocks of an all-to-all. Step::block does not name the item there.
bool passes_on(const Plan& plan, const Lane& lane, const Step& step);
/// The item of block `repetition` of a data step. Not for a step that passes blocks on.
std::uint64_t item_of(const Plan& plan, const Lane& lane, const Step& step, std::uint32_t instance,
                      std::uint32_t repetition);
/// The local rank of this plan's rank in its node.
std::uint32_t local_rank(const Plan& plan);

/// OK, or a sentence. In plans that pass all indices are in range, so that they can be run.
/// (Whether sends and recvs pair up is checked in verify_messages.h.)
Status check_form(std::span<const Plan> plans);

}  // namespace hocket::internal::verify_detail
