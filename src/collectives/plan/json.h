// Plans as JSON. docs/PLANS.md is the manual of the form, docs/plan.schema.json its schema.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "collectives/plan/plan_file.h"

namespace hocket::internal {

/// Reads one plan, which still has to be verified. source: the name of the text in errors. An error
/// names the source, and the line and the column of a mistake in the JSON or the place ("lanes[1]")
/// of any other mistake.
Status read_plan(std::string_view text, const std::string& source, PlanFile* out);

/// Writes the plans of all ranks as one file. plans: for a rooted collective those of root 0, then
/// those of root 1, and so on; if the collective reduces, the plans for widened data. varying:
/// whether the file serves blocks of different counts. read_plan() and PlanFile::build() give the
/// same plans again. Plans of send and recv cannot be written. (json_write.cc)
std::string write_json(std::span<const Plan> plans, bool varying);

}  // namespace hocket::internal
