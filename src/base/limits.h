// Sizes that plans, the board and the executor must agree on, and what callers may ask for.
#pragma once

namespace hocket::internal {

inline constexpr int public_flags = 4;  // flags of a rank that local peers see; a line each
inline constexpr int line_payload_bytes =
    104;                             // what rides in an arrival line beside flag and fingerprint
inline constexpr int max_slots = 8;  // chunks of scratch that may be in flight
inline constexpr int max_ranks = 32'767;      // of a job: plans number ranks with 15 bits
inline constexpr int least_silence_ms = 100;  // below, silence cannot be told from a busy machine

}  // namespace hocket::internal
