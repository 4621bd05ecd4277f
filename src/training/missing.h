// Gradients that a rank did not give, and how all ranks report them.
#pragma once

#include <cstdint>
#include <hocket/hocket.hpp>
#include <hocket/training/parameter.hpp>
#include <vector>

namespace hocket::training {

/// Why a parameter's gradient of this rank is not in the result.
enum class Missing : std::uint8_t {
  no = 0,
  absent = 1,     // backward made none
  late = 2,       // backward made one, or one more, after the bucket had been launched
  abandoned = 3,  // backward failed on this rank
};

/// Collective. Throws on all ranks, and names the first parameter that any rank misses. mine: of
/// each parameter of this rank; at least one rank misses something.
[[noreturn]] void report_missing(const char* operation, Communicator& comm,
                                 const std::vector<Parameter>& parameters,
                                 const std::vector<Missing>& mine);

}  // namespace hocket::training
