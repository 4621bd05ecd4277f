// TCP connections between all ranks, for the floors over TCP.
#pragma once

#include <string>
#include <vector>

namespace hocket::peers {

/// Connects each rank with each other rank. Of each rank except the last, the file meeting_file,
/// a dot and the rank gets its address, which is that of the interface named by FLOOR_INTERFACE,
/// or of lo. links[r]: the socket to rank r, whose calls do not block; -1 for this rank itself.
/// Returns false and sets *error if it cannot.
bool connect_ranks(int rank, int ranks, const std::string& meeting_file, std::vector<int>* links,
                   std::string* error);

}  // namespace hocket::peers
