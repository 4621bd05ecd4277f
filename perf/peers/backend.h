// The one thing that differs between the programs build/bin/peers/peer-NAME: who all-reduces. Each
// NAME_backend.cc defines these functions; everything else is peer_bench.cc, compiled alike for
// all.
#pragma once

#include <cstddef>
#include <string>

namespace hocket::peers {

const char* backend_name();

/// Makes this process a rank. interface_address: what the network side binds, empty where all ranks
/// are on one host. rendezvous: a directory of the run, empty at first. False: *error says why.
bool backend_start(const std::string& interface_address, const std::string& rendezvous,
                   std::string* error);
int backend_rank();
int backend_ranks();

/// Page-aligned memory; shared: of the kind the library likes best, where it has one.
void* backend_allocate(std::size_t bytes, bool shared);

/// Out of place, sum, blocking. False: *error says why.
bool backend_all_reduce(const float* in, float* out, std::size_t count, std::string* error);

void backend_stop();

}  // namespace hocket::peers
