// What rank 0 publishes by PMI or PMIx: the job's id, its key and the coordinator's address, as
// text without blanks, which PMI-1 cannot carry.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "bootstrap/join/unique_id.h"

namespace hocket::internal {

/// with_key: false if all ranks read the key from a file; then it is not in the text.
std::string published_text(const UniqueId& id, bool with_key);
Status parse_published(std::string_view text, UniqueId* id, bool* with_key);

}  // namespace hocket::internal
