// The checks of single steps that need no run (part of check_form).
#pragma once

#include <span>

#include "base/status.h"
#include "collectives/plan/plan.h"

namespace hocket::internal::verify_detail {

/// Precondition: the headers and the lanes of the plans have passed check_form's checks.
Status check_steps(std::span<const Plan> plans);

}  // namespace hocket::internal::verify_detail
