// Sizes on which plans, the board and the executor must agree, and limits of arguments.
#pragma once

namespace hocket::internal {

// Flags of a rank on the board; each has a line of its own.
inline constexpr int public_flags = 4;
// Payload of an arrival line, in bytes: the rest of its 128 bytes.
inline constexpr int line_payload_bytes = 104;
// Arrival lines and tiny scratches of a rank: a power of two. Operations use them in turn, so a
// rank may be ahead of a local peer by at most one operation less. Where ranks share cores, a rank
// that may not go on waits until the kernel runs its peers: with 32 lines instead of 8, rooted
// calls of up to 512 B of 4 ranks on 2 cores took 0.4 of the time (2026-11-25).
inline constexpr int run_ahead_operations = 32;
// Chunks of scratch that may be in flight at once.
inline constexpr int max_slots = 8;
// Ranks of a job: the record of operations has 16 bits for a rank, and lower() allows so many tags.
inline constexpr int max_ranks = 65'535;
// With a shorter silence limit, a rank on a busy machine would count as silent.
inline constexpr int least_silence_ms = 100;
// The greatest number of operations that the record of a communicator can keep.
inline constexpr int most_recorded = 1 << 20;

}  // namespace hocket::internal
