// The checks of a collective's or a message's arguments. An argument that is wrong whatever the
// other ranks do changes nothing. The row of the collective says which buffers a rank has and what
// lies in them (base/collectives.h).
#pragma once

#include <cstddef>

#include "base/status.h"
#include "engine/call.h"
#include "hocket/hocket.h"

namespace hocket::internal::api {

/// The arrays of a v-variant, as the caller gave them, with the names of the parameters.
struct VaryingArguments {
  struct Side {
    const std::size_t* counts = nullptr;
    const std::size_t* displacements = nullptr;  // null: each block follows the block before it
    const char* counts_name = "";
    const char* displacements_name = "";
  };
  Side input = {}, output = {};     // of a buffer with a block for each rank
  const char* own_count_name = "";  // of Call::count
};

/// Sets datatype and operator, and converts count to elements of dtype. Checks enumerators before
/// it narrows them: 263 must not become float32. The parameters are ints, because a C program may
/// pass any int as an enumerator, and a variable of the enum's type cannot hold every int in C++.
Status narrow(int datatype, int op, const hocketComm* comm, Call* call);
/// Checks that root and peer exist.
Status check_root(const Call& call, int ranks);
/// Checks the buffers of a call whose blocks have one size.
Status check_buffers(const Call& call, int rank, int ranks);
/// Checks the buffers of a call whose blocks have different counts, and copies the arrays to
/// call->varying.
Status take_blocks(const VaryingArguments& arguments, int rank, int ranks, Call* call);

}  // namespace hocket::internal::api
