// Sizes on which plans, the board and the executor must agree, and limits of arguments.
#pragma once

#include <cstddef>

namespace hocket::internal {

// Flags of a rank on the board; each has a line of its own.
inline constexpr int public_flags = 4;
// Payload of an arrival line, in bytes: the rest of its 128 bytes.
inline constexpr int line_payload_bytes = 104;
// Arrival lines of a rank: a power of two. Operations use them in turn, so a rank may be ahead of a
// local peer by at most one operation less. A rank that may not go on waits for its peers; where
// ranks share cores, until the kernel runs them. With 128 lines instead of 32, rooted calls of at
// most 8 bytes for each rank took 0.6 to 0.8 of the time with 4 and 8 ranks on 2 cores, and with
// 512 lines 0.5 to 0.7 (2026-11-26). The more lines, the later ranks with different calls learn of
// it.
inline constexpr int run_ahead_operations = 128;
// Chunks of scratch that may be in flight at once.
inline constexpr int max_slots = 8;
// The longest eager message in shared memory. Where ranks share cores, the kernel may copy a longer
// message from the memory of its sender; with shorter messages that gains no time.
inline constexpr std::size_t shm_eager_bytes = 64 << 10;
// Ranks of a job: the record of operations has 16 bits for a rank, and lower() allows so many tags.
inline constexpr int max_ranks = 65'535;
// With a shorter silence limit, a rank on a busy machine would count as silent.
inline constexpr int least_silence_ms = 100;
// The greatest number of operations that the record of a communicator can keep.
inline constexpr int most_recorded = 1 << 20;

}  // namespace hocket::internal
