// Types that the API, the plans and the kernels share: element types, operators, collectives, and
// the signature by which ranks check that they make the same call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/mix.h"
#include "base/status.h"

namespace hocket::internal {

/// Up to float8_e5m2 the same numbers as hocketDataType_t (and ncclDataType_t); the types that NCCL
/// does not have follow.
enum class Dtype : std::uint8_t {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
  float8_e4m3 = 10,
  float8_e5m2 = 11,
  int16 = 12,
  uint16 = 13,
};
inline constexpr int dtype_count = 14;

/// Up to avg the same numbers as hocketRedOp_t (and ncclRedOp_t); the operators that NCCL does not
/// have follow.
enum class Op : std::uint8_t {
  sum = 0,
  prod = 1,
  max = 2,
  min = 3,
  avg = 4,
  bit_and = 5,
  bit_or = 6,
  bit_xor = 7,
  pre_mul_sum = 8,     // sum of the inputs, each multiplied by the scalar of its rank
  user = 9,            // an operator of the user that is commutative
  user_in_order = 10,  // an operator of the user that is not: operands keep the order of ranks
};
inline constexpr int op_count = 8;  // without PreMulSum and user operators, which the user makes
constexpr bool is_user(Op op) { return op >= Op::user; }

enum class Collective : std::uint8_t {
  all_reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  barrier,
  send,
  recv,
  reduce,
  gather,
  scatter,
  all_to_all,
};
constexpr bool is_p2p(Collective collective) {
  return collective == Collective::send || collective == Collective::recv;
}

constexpr std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::int8:
    case Dtype::uint8:
    case Dtype::float8_e4m3:
    case Dtype::float8_e5m2:
      return 1;
    case Dtype::float16:
    case Dtype::bfloat16:
    case Dtype::int16:
    case Dtype::uint16:
      return 2;
    case Dtype::int32:
    case Dtype::uint32:
    case Dtype::float32:
      return 4;
    case Dtype::int64:
    case Dtype::uint64:
    case Dtype::float64:
      return 8;
  }
  return 0;
}

/// Size of an element while partial results travel ("wide"): fp32 for the types below 32 bits of
/// floating point, the type itself otherwise.
constexpr std::size_t wide_size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float16:
    case Dtype::bfloat16:
    case Dtype::float8_e4m3:
    case Dtype::float8_e5m2:
      return 4;
    default:
      return size_of(dtype);
  }
}
/// True if a partial result has a wider type than the data.
constexpr bool is_widened(Dtype dtype) { return wide_size_of(dtype) != size_of(dtype); }
/// True if plans must distinguish partial results ("wide") from inputs: because partial results
/// have a wider type, or because inputs must still be multiplied by a scalar. User operators know
/// only the type of the data; min and max give one of their operands and round nothing.
constexpr bool tells_partial_results(Dtype dtype, Op op) {
  if (op == Op::pre_mul_sum) return true;
  return is_widened(dtype) && !is_user(op) && op != Op::min && op != Op::max;
}

constexpr bool is_integer(Dtype dtype) {
  return dtype <= Dtype::uint64 || dtype == Dtype::int16 || dtype == Dtype::uint16;
}
/// True if hocket has the operator for elements of that type: bitwise operators only for integers.
constexpr bool computes(Op op, Dtype dtype) {
  return op <= Op::avg || op == Op::pre_mul_sum || (!is_user(op) && is_integer(dtype));
}

const char* name_of(Dtype dtype);
const char* name_of(Op op);
const char* name_of(Collective collective);

namespace signature_flag {
inline constexpr std::uint8_t deterministic = 1;
inline constexpr std::uint8_t varying = 2;  // blocks have different counts
}  // namespace signature_flag

/// The name of a user operator, padded with zeros; for an operator of hocket all zeros. PreMulSum
/// has its scalar there (Signature::scalar).
struct OperatorName {
  char text[18] = {};
  bool operator==(const OperatorName&) const = default;
};

/// The call of a rank, as peers see it. Plain bytes: it travels in frames and lies in shared
/// memory. All ranks of an operation must have the same signature, except for `sequence`, which
/// counts the calls of its own rank and is used in error messages.
struct Signature {
  /// The count of elements that the caller gave. In a varying call the sum over all blocks, if all
  /// ranks know all blocks; else 0.
  std::uint64_t count = 0;
  std::uint64_t sequence = 0;  // number of the user's call on the communicator; 0: hocket's call
  /// In a rooted collective the root. In a varying call whose ranks know all blocks, 31 bits of a
  /// hash of the counts of the blocks. Else -1.
  std::int32_t root = -1;
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::int8;
  Op op = Op::sum;
  std::uint8_t flags = 0;  // signature_flag; others 0
  /// With an operator of the user: how many elements of dtype an element of the user has; else 0.
  std::uint32_t unit = 0;
  /// The number of the plan by which the rank runs the collective (number_of() in builders.h). All
  /// ranks choose the same; if they did not, the call would not end. 0: a message.
  std::uint16_t plan = 0;
  OperatorName operator_name;
  bool operator==(const Signature&) const = default;
  bool same_call(const Signature& other) const {
    return count == other.count && root == other.root && collective == other.collective &&
           dtype == other.dtype && op == other.op && flags == other.flags && unit == other.unit &&
           plan == other.plan && (op == Op::pre_mul_sum || operator_name == other.operator_name);
  }
  /// True if all but `sequence` is equal.
  bool differs_in_sequence_only(const Signature& other) const {
    return std::memcmp(this, &other, offsetof(Signature, sequence)) == 0 &&
           std::memcmp(&root, &other.root, sizeof *this - offsetof(Signature, root)) == 0;
  }
  /// PreMulSum: the scalar of this rank, in the type of partial results. Each rank has its own.
  std::uint64_t scalar() const {
    std::uint64_t bits;
    std::memcpy(&bits, operator_name.text, sizeof bits);
    return bits;
  }
  void set_scalar(std::uint64_t bits) { std::memcpy(operator_name.text, &bits, sizeof bits); }
};
static_assert(sizeof(Signature) == 48);

/// 64-bit hash of the signature without `sequence`.
std::uint64_t call_hash(const Signature& signature);
/// 64-bit hash of signature and sequence number: equal for equal calls, and in practice only then.
/// Never 0.
inline std::uint64_t fingerprint(std::uint64_t call_hash, std::uint64_t sequence) {
  const std::uint64_t hash = mix(call_hash + sequence * 0x9e3779b97f4a7c15ULL);
  return hash != 0 ? hash : 1;
}
/// True if the signature has a count of elements. That of a varying call whose ranks know only some
/// of the blocks has none.
bool has_count(const Signature& signature);
/// "all-reduce of 1024 float32, sum (operation 7)".
std::string describe(const Signature& signature);
/// A difference that the descriptions of two signatures do not show: "; their counts of blocks
/// differ", or that the ranks chose different plans; "" if there is none.
std::string hidden_difference(const Signature& a, const Signature& b);
/// The error for a rank whose peer makes a different call. The culprit is the peer.
Status disagreement(int rank, const Signature& mine, int peer, const Signature& theirs);

}  // namespace hocket::internal
