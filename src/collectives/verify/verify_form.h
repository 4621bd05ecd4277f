// The part of the verifier that needs no run: numbers in range, flags with one writer, partners.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "collectives/plan/plan.h"

namespace hocket::internal::verify_detail {

enum class Section { prologue, lane, epilogue };

/// "rank 2, lane 1, step 3 (recv 0 -> s[1])".
std::string name_of_step(const Plan& plan, Section section, std::size_t lane, std::size_t step);

Status check_form(std::span<const Plan> plans);

}  // namespace hocket::internal::verify_detail
