// Plans as JSON. docs/PLANS.md is the manual of the form, docs/plan.schema.json its schema.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "collectives/plan/plan_file.h"

namespace hocket::internal {

/// Reads one plan. source: what errors call the text. The plan still has to be verified. An error
/// names the source, and the line and the column of a mistake in the JSON or the place ("lanes[1]")
/// of any other mistake.
Status read_plan(std::string_view text, const std::string& source, PlanFile* out);

/// Writes the plans of all ranks as one file: for a rooted collective those of root 0, then those
/// of root 1, and so on. read_plan() and PlanFile::build() give the same plans again. varying:
/// whether the file is to serve blocks of different counts. Where partial results may be wide, the
/// plans must be those for widened data. Plans of send and recv cannot be written. (json_write.cc)
std::string write_json(std::span<const Plan> plans, bool varying);

}  // namespace hocket::internal
