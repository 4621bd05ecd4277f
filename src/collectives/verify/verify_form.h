// The checks of the verifier that need no run: numbers are in range, each flag has one writer,
// sends and recvs pair up.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "collectives/plan/plan.h"

namespace hocket::internal::verify_detail {

enum class Section { prologue, lane, epilogue };

/// The text of a step for errors: "'tree', rank 2, lane 1, step 3 (recv 0 -> s[1])".
std::string name_of_step(const Plan& plan, Section section, std::size_t lane, std::size_t step);

Status check_form(std::span<const Plan> plans);

}  // namespace hocket::internal::verify_detail
