// The files of HOCKET_PLAN_FILES.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/plan/plan_file.h"

namespace hocket::internal {

/// Reads files, one plan each. paths: with colons between them. The plans still have to be
/// verified.
Status read_plan_files(const std::string& paths, std::vector<PlanFile>* out);

}  // namespace hocket::internal
