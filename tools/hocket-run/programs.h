// The programs of a job: one for all ranks, or several with a number of ranks each (MPMD).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace hocket::internal::launch {

struct Program {
  std::int32_t ranks = 0;
  std::vector<std::string> arguments;  // the program first
};

/// Splits the words after hocket-run's own options at `:`, as mpirun does: `./a x : -n 2 ./b`. The
/// ranks of the first program stay 0, because its -n is one of hocket-run's own options. After a
/// leading `--`, `:` is an argument like any other.
Status take_programs(const std::vector<std::string>& words, std::vector<Program>* programs);

/// The programs of these ranks, in the order of the ranks: consecutive ranks of one program are one
/// element.
std::vector<Program> programs_of_ranks(const std::vector<Program>& programs,
                                       const std::vector<int>& ranks);

/// The arguments of a rank; rank < the sum of the ranks of the programs.
const std::vector<std::string>& arguments_of(const std::vector<Program>& programs, int rank);

}  // namespace hocket::internal::launch
