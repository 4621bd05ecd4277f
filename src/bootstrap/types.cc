#include "bootstrap/types.h"

#include <fmt/format.h>

#include <algorithm>

namespace hocket::internal {

bool FaultScope::covers(const Fault& fault) const {
  if (fault.comm_id == 0) {
    return std::find(members.begin(), members.end(), fault.rank) != members.end();
  }
  return fault.comm_id == comm_id ||
         (fault.comm_id == parent && fault.kind == Fault::Kind::aborted);
}

std::string ranks_text(const std::vector<int>& ascending) {
  constexpr std::size_t shown_runs = 12;
  std::string out;
  std::size_t runs = 0;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    if (runs == shown_runs) {
      return out + fmt::format(" and {} more", ascending.size() - i);
    }
    if (runs > 0) out += last + 1 == ascending.size() ? " and " : ", ";
    out += last == i ? fmt::format("{}", ascending[i])
                     : fmt::format("{}-{}", ascending[i], ascending[last]);
    ++runs;
    i = last + 1;
  }
  return out;
}

}  // namespace hocket::internal
