// The programs build/bin/peers/peer-NAME differ only in the library that runs the collective. Each
// NAME_backend.cc defines these functions for a library; all share peer_bench.cc.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../check.h"

namespace hocket::peers {

using perf::Collective;

/// fp32, sums, root 0; count as in hocket.h: the elements of a rank's block. in == out if
/// backend_in_place says so. varying: blocks of different lengths.
struct Call {
  Collective collective = Collective::all_reduce;
  std::size_t count = 1;
  bool varying = false;
  std::size_t own_count = 1;  // varying: of this rank's own block
  perf::Blocks blocks;        // varying: all ranks' blocks, at the rank that has them all
  // varying: the longest block of any rank; where this rank's block begins in the input of each
  // rank, if inputs have blocks.
  std::size_t longest = 1;
  std::vector<std::size_t> input_starts;
  std::vector<int> int_counts, int_starts;  // of the blocks, for MPI
  float* in = nullptr;
  float* out = nullptr;
};

const char* backend_name();

/// Makes this process a rank. Returns false and sets *error if it cannot.
bool backend_start(std::string* error);
/// The version text of the library; valid after backend_start.
std::string backend_version();
int backend_rank();
int backend_ranks();

/// Page-aligned memory; shared: from the allocator of the library, if it has one.
void* backend_allocate(std::size_t bytes, bool shared);

/// True if this collective must run in place (broadcast: in all backends).
bool backend_in_place(Collective collective);

/// Blocking. Returns false and sets *error if it fails.
bool backend_run(const Call& call, std::string* error);

/// Lets the library progress calls that have returned but still send data. A rank that waits for
/// the others outside of the library calls it in its waiting loop.
void backend_progress();

void backend_stop();

}  // namespace hocket::peers
