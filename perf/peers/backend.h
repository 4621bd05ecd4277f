// The one thing that differs between the programs build/bin/peers/peer-NAME: which library runs the
// collective. Each NAME_backend.cc defines these functions; everything else is peer_bench.cc,
// compiled alike for all.
#pragma once

#include <cstddef>
#include <string>

#include "../options.h"

namespace hocket::peers {

using perf::Collective;

const char* backend_name();

/// Makes this process a rank. False: *error says why.
bool backend_start(std::string* error);
/// The library's own words for its version; valid after backend_start.
std::string backend_version();
int backend_rank();
int backend_ranks();

/// Page-aligned memory; shared: from the library's own allocator, where it has one.
void* backend_allocate(std::size_t bytes, bool shared);

/// Must the input of this collective lie where its output is? (Broadcast: in all backends.)
bool backend_in_place(Collective collective);

/// fp32, sums, root 0, blocking; count as in hocket.h: the elements of a rank's block. in == out
/// where backend_in_place says so. False: *error says why.
bool backend_run(Collective collective, float* in, float* out, std::size_t count,
                 std::string* error);

/// Lets the library go on with what a call that has returned left to do; a rank that waits for the
/// others outside of the library calls it meanwhile.
void backend_progress();

void backend_stop();

}  // namespace hocket::peers
