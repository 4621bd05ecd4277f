// The messages of the control plane, and the codec of claims. The first byte selects the type.
#include "bootstrap/auth/auth.h"
#include "bootstrap/net/control_messages.h"
#include "fuzz/fuzz.h"

namespace hocket::internal {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// decode: bool(const Bytes&, T*). What was decoded is encoded to bytes that give the same again.
template <typename T, typename Decode>
bool check_codec(const Bytes& bytes, const Decode& decode_as) {
  T value{};
  if (!decode_as(bytes, &value)) return false;
  const Bytes canonical = encode(value);
  T again{};
  FUZZ_CHECK(decode_as(canonical, &again));
  FUZZ_CHECK(encode(again) == canonical);
  FUZZ_CHECK(canonical.size() <= bytes.size());
  return true;
}

/// The messages whose form does not depend on the number of ranks.
template <typename T>
bool check_plain(const Bytes& bytes) {
  return check_codec<T>(bytes, [](const Bytes& b, T* out) { return decode(b, out); });
}

template <typename T>
bool check_for(int ranks, const Bytes& bytes) {
  return check_codec<T>(bytes, [&](const Bytes& b, T* out) { return decode(b, ranks, out); });
}

void check_table(int ranks, const Bytes& bytes) {
  if (!check_for<Table>(ranks, bytes)) return;
  Table table;
  FUZZ_CHECK(decode(bytes, ranks, &table));
  FUZZ_CHECK(table.members.size() == static_cast<std::size_t>(ranks));
  FUZZ_CHECK(encode(table).size() <= body_cap(ranks));
  for (std::size_t node = 0; node < table.leaders.size(); ++node) {
    FUZZ_CHECK(table.members.at(static_cast<std::size_t>(table.leaders[node])).node ==
               static_cast<int>(node));
  }
}

FUZZ_TARGET(control_message, input) {
  const std::uint8_t type = input.byte();
  const int ranks = 1 + input.byte() % 64;
  const Bytes bytes = input.vector();
  switch (type % 6) {
    case 0:
      check_plain<JoinRequest>(bytes);
      break;
    case 1:
      check_plain<Failure>(bytes);
      break;
    case 2:
      check_plain<TreePosition>(bytes);
      break;
    case 3:
      check_table(ranks, bytes);
      break;
    case 4:
      check_for<Fault>(ranks, bytes);
      break;
    default:
      Claim claim;
      const auto raw = input.bytes<claim_bytes>();
      if (decode(raw, &claim)) FUZZ_CHECK(encode(claim) == raw);
  }
}

}  // namespace
}  // namespace hocket::internal
