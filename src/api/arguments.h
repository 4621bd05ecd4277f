// The checks of a collective's or a message's arguments. An argument that is wrong whatever the
// other ranks do changes nothing. The row of the collective says which buffers a rank has and what
// lies in them (base/collectives.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "engine/call.h"
#include "hocket/hocket.h"

namespace hocket::internal::api {

/// What the user gave to a call.
struct Arguments {
  Collective collective = Collective::barrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  int root = -1;
  // An int is no enumerator: see narrow().
  int datatype = hocketInt8;
  int op = hocketSum;
};

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

/// The call of these arguments: all of it but datatype, operator and blocks.
inline Call call_of(const Arguments& a) {
  return {.collective = a.collective,
          .input = a.input,
          .output = a.output,
          .count = a.count,
          .root = a.root};
}
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

/// The latest call of a communicator that passed its checks. If the next call differs from it only
/// in the buffers, only these are checked: in a loop of small calls the other checks would take a
/// tenth of the time, and of a v-variant almost half.
class CheckedCall {
 public:
  /// To be called after the checks of a call outside of a group. varying: of a v-variant, else
  /// null. A call with a datatype or an operator of the user is not kept.
  void keep(const Arguments& arguments, const VaryingArguments* varying, const Call& call, int rank,
            int ranks);
  /// True if the arguments pass all checks; then call() is their call. False: the checks decide.
  bool take(const Arguments& arguments, const VaryingArguments* varying) {
    if (!valid_ || arguments.collective != call_.collective || arguments.count != count_ ||
        arguments.root != call_.root || arguments.datatype != datatype_ || arguments.op != op_) {
      return false;
    }
    if (varying != nullptr || call_.varying != nullptr) {
      if (varying == nullptr || call_.varying == nullptr || !has_blocks_of(*varying)) return false;
    }
    const auto in = reinterpret_cast<std::uintptr_t>(arguments.input);
    const auto out = reinterpret_cast<std::uintptr_t>(arguments.output);
    if (in - 1 > most_input_ || out - 1 > most_output_) return false;
    const bool apart = in + input_bytes_ <= out || out + output_bytes_ <= in;
    if (!apart && !(in_place_ && out == in + *in_place_)) return false;
    call_.input = arguments.input;
    call_.output = arguments.output;
    return true;
  }
  Call& call() { return call_; }

 private:
  /// True if the arrays say what those of call_ said.
  bool has_blocks_of(const VaryingArguments& varying) const;

  bool valid_ = false;
  Call call_;
  int datatype_ = 0, op_ = 0;  // as the user gave them
  std::size_t count_ = 0;
  bool input_displaced_ = false, output_displaced_ = false;  // displacements were given
  std::uint64_t input_bytes_ = 0, output_bytes_ = 0;  // from the buffer's address to the last block
  // The greatest address of a buffer that is not NULL and ends within the address space, less 1.
  std::uintptr_t most_input_ = 0, most_output_ = 0;
  // In place: the address of the output less that of the input. Empty: never in place.
  std::optional<std::uint64_t> in_place_;
};

/// The latest collective of a communicator, its latest send and its latest receive: in programs
/// that exchange messages, sends and receives take turns.
class LatestCalls {
 public:
  CheckedCall& of(Collective collective) {
    return collective == Collective::send   ? send_
           : collective == Collective::recv ? recv_
                                            : collective_;
  }

 private:
  CheckedCall collective_, send_, recv_;
};

}  // namespace hocket::internal::api
