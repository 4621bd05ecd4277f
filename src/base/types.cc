#include "base/types.h"

#include <cstring>

#include "base/mix.h"

namespace hocket::internal {

const char* name_of(Dtype dtype) {
  static const char* const names[] = {"int8",    "uint8",    "int32",       "uint32",
                                      "int64",   "uint64",   "float16",     "float32",
                                      "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
  const auto index = static_cast<unsigned>(dtype);
  return index < dtype_count ? names[index] : "unknown type";
}

const char* name_of(Op op) {
  static const char* const names[] = {"sum", "prod", "max", "min", "avg"};
  const auto index = static_cast<unsigned>(op);
  return index < op_count ? names[index] : "unknown operator";
}

const char* name_of(Collective collective) {
  static const char* const names[] = {"all-reduce", "broadcast", "all-gather", "reduce-scatter",
                                      "barrier",    "send",      "recv",       "reduce",
                                      "gather",     "scatter",   "all-to-all"};
  const auto index = static_cast<unsigned>(collective);
  return index < std::size(names) ? names[index] : "unknown collective";
}

std::uint64_t call_hash(const Signature& signature) {
  Signature call = signature;
  call.sequence = 0;
  std::uint64_t words[3];
  std::memcpy(words, &call, sizeof words);
  std::uint64_t hash = 0x686f636b6574ULL;  // "hocket"
  for (std::uint64_t word : words) hash = mix(hash ^ mix(word + 0x9e3779b97f4a7c15ULL));
  return hash;
}

std::uint64_t fingerprint(std::uint64_t call_hash, std::uint64_t sequence) {
  const std::uint64_t hash = mix(call_hash + sequence * 0x9e3779b97f4a7c15ULL);
  return hash != 0 ? hash : 1;
}

std::string describe(const Signature& s) {
  std::string text = name_of(s.collective);
  if (s.collective != Collective::barrier) {
    text += " of " + std::to_string(s.count) + " " + name_of(s.dtype);
  }
  if (s.collective == Collective::all_reduce || s.collective == Collective::reduce_scatter) {
    text += std::string(", ") + name_of(s.op);
    if (s.flags & 1) text += ", deterministic";
  }
  if (s.root >= 0) text += " from root " + std::to_string(s.root);
  // hocket itself runs operations to make and split communicators; users did not call them.
  if (s.sequence == 0) return text + " (an operation that hocket runs itself)";
  return text + " (operation " + std::to_string(s.sequence) + ")";
}

Status disagreement(int rank, const Signature& mine, int peer, const Signature& theirs) {
  return Status(Code::mismatch,
                "ranks disagree: rank " + std::to_string(peer) + " called " + describe(theirs) +
                    ", but rank " + std::to_string(rank) + " called " + describe(mine) +
                    "; all ranks must make the same calls in the same order",
                peer);
}

}  // namespace hocket::internal
