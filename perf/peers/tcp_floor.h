// The floor between two hosts: the time of a collective of two ranks that consists of its bytes on
// one TCP connection, written and read by calls that do not block, and of its additions. There are
// no frames and no checks.
#pragma once

#include <string>

#include "backend.h"

namespace hocket::peers {

/// Connects the ranks (tcp_links.h). Returns false and sets *error if it cannot.
bool tcp_floor_start(int rank, int ranks, const std::string& meeting_file, std::string* error);

/// whole: an all-reduce sends the whole input and adds up everything on both ranks; else each rank
/// adds up half and sends that.
bool tcp_floor_run(const Call& call, bool whole, std::string* error);

}  // namespace hocket::peers
