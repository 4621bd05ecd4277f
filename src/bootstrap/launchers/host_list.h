// The compressed list in which Slurm names the hosts of a step.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hocket::internal {

/// Cuts the text up to the next comma that is not in brackets off `rest`. Empty, which no item is,
/// also if the list ends with a comma.
std::string_view next_list_item(std::string_view* rest);

/// "h[1-2,05],login" becomes h1, h2, h05, login; "a[1-2]b[1-2]" becomes a1b1, a1b2, a2b1, a2b2. A
/// list that does not follow these rules, or has more than `most` hosts, is an error.
Status expand_host_list(std::string_view list, std::size_t most, std::vector<std::string>* hosts);

}  // namespace hocket::internal
