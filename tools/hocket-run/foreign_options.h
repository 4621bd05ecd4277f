// Options of mpirun, torchrun and srun that hocket-run does not have, and what to write instead.
#pragma once

#include <string>
#include <string_view>

namespace hocket::internal::launch {

/// Returns what to write instead of an option of another launcher ("--host=a" counts as --host).
/// Empty: no known launcher has that option.
std::string remedy_for_foreign_option(std::string_view option);

}  // namespace hocket::internal::launch
