// The record of operations as text for people: what is under way and which ranks it waits for, then
// what has ended.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/membership.h"

namespace hocket::internal {

/// Whose record it is.
struct RecordOwner {
  const Engine& engine;
  const Membership& membership;
  const std::string& name;  // of the communicator
  Status error;             // of the communicator
};

/// The transports of an operation, such as "shm" or "shm,tcp"; "none" where it uses none.
std::string transports_of(const Program& program, const Engine& engine, int ranks);

/// Lines, without newlines. Operations that have ended: the latest, at most most_ended. Any thread.
std::vector<std::string> record_lines(const RecordOwner& owner, std::size_t most_ended);

}  // namespace hocket::internal
