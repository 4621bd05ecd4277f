// What all ranks must agree on before they go on.
#pragma once

#include <functional>
#include <hocket/hocket.hpp>
#include <hocket/training/parameter.hpp>
#include <string>
#include <vector>

namespace hocket::training {

/// Collective. Runs an action that communicates with no other rank. If it throws on any rank, all
/// ranks throw the same error of the operation, so that no rank waits for one that has failed: a
/// hocket::Error with the code of the first rank that failed (hocketInternalError for other
/// exceptions). The message names this rank, which is the culprit, and the further ranks that
/// failed; the note, a sentence without its full stop, is added to it.
void run_on_all(Communicator& comm, const char* operation, const std::string& note,
                const std::function<void()>& action);
inline void run_on_all(Communicator& comm, const char* operation,
                       const std::function<void()>& action) {
  run_on_all(comm, operation, "", action);
}

/// Collective. The bytes of every rank, by rank.
[[nodiscard]] std::vector<std::string> gather_bytes(Communicator& comm, const std::string& own);
/// Collective. The bytes of root.
[[nodiscard]] std::string broadcast_bytes(Communicator& comm, const std::string& own, int root = 0);

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
