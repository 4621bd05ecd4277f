#include "base/types.h"

#include <cstring>

#include "base/collectives.h"
#include "base/mix.h"

namespace hocket::internal {
namespace {

/// Null for a number that a peer has sent and that is no collective.
const CollectiveRow* find_row(Collective collective) {
  const auto index = static_cast<unsigned>(collective);
  return index < std::size(collective_table) ? &collective_table[index] : nullptr;
}

/// A peer may send any bytes.
std::string quoted(const OperatorName& name) {
  std::string text;
  for (const char c : name.text) {
    if (c != 0) text += c >= ' ' && c <= '~' ? c : '?';
  }
  return "'" + text + "'";
}

std::string operator_of(const Signature& s) {
  if (!is_user(s.op)) return name_of(s.op);
  std::string text = name_of(s.op);
  if (s.operator_name != OperatorName()) text += " " + quoted(s.operator_name);
  if (s.op == Op::user_in_order) text += ", not commutative";
  return s.unit > 1 ? text + ", on elements of " + std::to_string(s.unit) : text;
}

bool is_varying(const Signature& signature) {
  return (signature.flags & signature_flag::varying) != 0;
}

}  // namespace

const char* name_of(Dtype dtype) {
  static const char* const names[] = {
      "int8",    "uint8",   "int32",    "uint32",      "int64",       "uint64", "float16",
      "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2", "int16",  "uint16"};
  const auto index = static_cast<unsigned>(dtype);
  return index < dtype_count ? names[index] : "unknown type";
}

const char* name_of(Op op) {
  static const char* const names[] = {"sum", "prod", "max", "min", "avg", "and", "or", "xor"};
  const auto index = static_cast<unsigned>(op);
  if (op == Op::user || op == Op::user_in_order) return "user operator";
  if (op == Op::pre_mul_sum) return "pre-multiplied sum";
  return index < op_count ? names[index] : "unknown operator";
}

const char* name_of(Collective collective) {
  const CollectiveRow* const row = find_row(collective);
  return row != nullptr ? row->name : "unknown collective";
}

std::uint64_t call_hash(const Signature& signature) {
  Signature call = signature;
  call.sequence = 0;
  if (call.op == Op::pre_mul_sum) call.operator_name = {};  // as same_call()
  std::uint64_t words[6];
  std::memcpy(words, &call, sizeof words);
  std::uint64_t hash = 0x686f636b6574ULL;  // "hocket"
  for (std::uint64_t word : words) hash = mix(hash ^ mix(word + 0x9e3779b97f4a7c15ULL));
  return hash;
}

bool has_count(const Signature& signature) {
  const CollectiveRow* const row = find_row(signature.collective);
  return !is_varying(signature) || (row != nullptr && shares_blocks(*row));
}

std::string describe(const Signature& s) {
  static constexpr CollectiveRow unknown{};
  const CollectiveRow* const found = find_row(s.collective);
  const CollectiveRow& row = found != nullptr ? *found : unknown;
  std::string text = name_of(s.collective);
  if (is_varying(s)) text += "-v";
  if (row.input != Blocks::none || row.output != Blocks::none) {
    text += " of " + (has_count(s) ? std::to_string(s.count) + " " : "") + name_of(s.dtype);
    if (is_varying(s) && has_count(s)) text += " in all";
  }
  if (row.reduces) {
    text += ", " + operator_of(s);
    if (s.flags & signature_flag::deterministic) text += ", deterministic";
  }
  if (row.rooted)
    text += (row.output_at_root ? " to root " : " from root ") + std::to_string(s.root);
  // hocket itself runs operations to make and split communicators; users did not call them.
  if (s.sequence == 0) return text + " (an operation that hocket runs itself)";
  return text + " (operation " + std::to_string(s.sequence) + ")";
}

std::string hidden_difference(const Signature& a, const Signature& b) {
  Signature same_plan = b;
  same_plan.plan = a.plan;
  if (a.same_call(same_plan) && a.plan != b.plan) {
    return "; they chose different plans, number " + std::to_string(b.plan) + " and number " +
           std::to_string(a.plan) +
           ", for the same call. This is a defect of hocket: report it. Until then set "
           "HOCKET_ALGORITHM, so that all ranks run the same algorithm";
  }
  const CollectiveRow* const row = find_row(a.collective);
  const bool both = is_varying(a) && is_varying(b) && a.collective == b.collective;
  if (!both || row == nullptr || !shares_blocks(*row) || a.root == b.root) return "";
  return "; their counts of blocks differ";
}

Status disagreement(int rank, const Signature& mine, int peer, const Signature& theirs) {
  return Status(Code::mismatch,
                "ranks disagree: rank " + std::to_string(peer) + " called " + describe(theirs) +
                    ", but rank " + std::to_string(rank) + " called " + describe(mine) +
                    hidden_difference(mine, theirs) +
                    "; all ranks must make the same calls in the same order",
                peer);
}

}  // namespace hocket::internal
