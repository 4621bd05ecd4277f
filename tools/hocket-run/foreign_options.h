// Options of mpirun, torchrun and srun: those that hocket-run has under another name, and what to
// write instead of those that it does not have.
#pragma once

#include <string>
#include <string_view>

namespace hocket::internal::launch {

/// Returns hocket-run's spelling of an option that another launcher spells in a different way:
/// "-np" becomes "-n", "-hostfile=a" becomes "--hostfile=a". Returns any other word as it is.
std::string own_spelling(const std::string& word);

/// Returns what to write instead of an option of another launcher ("--host=a" counts as --host).
/// Empty: no known launcher has that option.
std::string remedy_for_foreign_option(std::string_view option);

}  // namespace hocket::internal::launch
