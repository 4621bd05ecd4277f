// Options of mpirun, torchrun and srun that hocket-run does not have, for those who know these.
#pragma once

#include <string>
#include <string_view>

namespace hocket::internal::launch {

/// What to write in place of an option of another launcher ("--host=a" counts as --host); empty: no
/// known launcher has that option.
std::string remedy_for_foreign_option(std::string_view option);

}  // namespace hocket::internal::launch
