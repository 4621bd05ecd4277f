// What all ranks must agree on before they go on.
#pragma once

#include <functional>
#include <hocket/hocket.hpp>
#include <hocket/training/parameter.hpp>
#include <string>
#include <vector>

namespace hocket::training {

/// Collective. Runs an action that communicates with no other rank. If the action throws on any
/// rank, this throws on all ranks: there the exception of the action, elsewhere a hocket::Error of
/// the same class (hocket::Error itself for other exceptions), whose message begins with the rank
/// that failed and whose culprit is that rank. So no rank waits for a rank that has failed.
void run_on_all(Communicator& comm, const char* operation, const std::function<void()>& action);

/// Collective. Throws Mismatch on all ranks if the parameters differ: the number of parameters, or
/// the first parameter whose name, type, sizes or strides differ, with the ranks.
void require_same_parameters(Communicator& comm, const std::vector<Parameter>& parameters);

/// The same for anything that can be described: throws Mismatch on all ranks if the lists of the
/// ranks differ, and names the first line that does. what: what a line describes, such as
/// "parameter".
void require_same_lines(Communicator& comm, const char* what,
                        const std::vector<std::string>& lines);

/// "rank 1", "ranks 0 and 2", "ranks 0 to 3 and 5".
[[nodiscard]] std::string ranks_text(const std::vector<int>& ranks);

}  // namespace hocket::training
