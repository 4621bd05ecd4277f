// The record of operations as text for people: the operations under way with the ranks that they
// wait for, then the operations that have ended.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/membership.h"

namespace hocket::internal {

/// The communicator whose record it is.
struct RecordOwner {
  const Engine& engine;
  const Membership& membership;
  const std::string& name;  // of the communicator
  Status error;             // of the communicator
};

/// The transports of an operation, such as "shm" or "shm,tcp"; "none" if it uses none.
std::string transports_of(const Program& program, const Engine& engine, int ranks);

/// The lines of the text, without newlines. Of the operations that have ended it has the latest, at
/// most most_ended. Any thread may call it.
std::vector<std::string> record_lines(const RecordOwner& owner, std::size_t most_ended);

}  // namespace hocket::internal
