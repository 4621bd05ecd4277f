// Whether all ranks have the same model.
#pragma once

#include <hocket/hocket.hpp>
#include <hocket/training/parameter.hpp>
#include <string>
#include <vector>

namespace hocket::training {

/// Collective. Throws Mismatch on all ranks if the parameters differ: the number of parameters, or
/// the first parameter whose name, type, sizes or strides differ, with the ranks.
void require_same_parameters(Communicator& comm, const std::vector<Parameter>& parameters);

/// "rank 1", "ranks 0 and 2", "ranks 0 to 3 and 5".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace hocket::training
