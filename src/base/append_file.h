#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace hocket::internal {

/// Appends to a file; makes the file if it does not exist. An error names the file.
Status append_file(const std::string& path, std::string_view bytes);

}  // namespace hocket::internal
