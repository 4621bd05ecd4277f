#include "bootstrap/join/unique_id.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "bootstrap/auth/auth.h"
#include "bootstrap/net/control_messages.h"

namespace hocket::internal {
namespace {

constexpr char magic[9] = "hocketID";
constexpr std::size_t magic_bytes = 8;
constexpr std::uint16_t id_version = 1;
constexpr std::uint16_t has_key_flag = 1;
constexpr std::size_t check_bytes = 16;
constexpr std::size_t checked_bytes = unique_id_bytes - check_bytes;

bool check_of(const std::uint8_t* bytes, Digest* out) {
  // Not a secret: it finds ids that were cut or mixed up on their way.
  return keyed_digest(Key{}, "hocket unique id", {bytes, bytes + checked_bytes}, out);
}

}  // namespace

Status make_unique_id(UniqueId* out) {
  HOCKET_RETURN_IF_ERROR(random_bytes(out->job_id.data(), out->job_id.size()));
  HOCKET_RETURN_IF_ERROR(random_bytes(out->key.data(), out->key.size()));
  return {};
}

UniqueIdBytes encode(const UniqueId& id) {
  Writer w;
  w.raw(reinterpret_cast<const std::uint8_t*>(magic), magic_bytes);
  w.u16(id_version);
  w.u16(has_key_flag);
  w.raw(id.job_id.data(), id.job_id.size());
  w.raw(id.key.data(), id.key.size());
  w.address(id.coordinator);
  UniqueIdBytes out{};
  std::memcpy(out.data(), w.bytes().data(), w.bytes().size());
  Digest check{};
  if (check_of(out.data(), &check))
    std::memcpy(out.data() + checked_bytes, check.data(), check_bytes);
  return out;
}

Status decode(const UniqueIdBytes& bytes, UniqueId* out) {
  if (std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; })) {
    return invalid_argument(
        "the unique id is all zeros: one rank fills it with hocketGetUniqueId and sends it to the "
        "others, before any of them joins");
  }
  Reader r(bytes.data(), checked_bytes);
  std::uint8_t found[magic_bytes];
  r.raw(found, magic_bytes);
  if (std::memcmp(found, magic, magic_bytes) != 0) {
    return invalid_argument(
        "the unique id was not made by hocketGetUniqueId: was another buffer sent?");
  }
  const std::uint16_t version = r.u16();
  if (version != id_version) {
    return invalid_argument(
        fmt::format("the unique id is of version {}, this library knows {}: use the same library "
                    "for all ranks",
                    version, id_version));
  }
  Digest check{};
  if (!check_of(bytes.data(), &check) ||
      !equal_secret(check.data(), bytes.data() + checked_bytes, check_bytes)) {
    return invalid_argument(fmt::format(
        "the unique id was cut or damaged on its way: send all {} bytes of it, as bytes "
        "and not as a string",
        unique_id_bytes));
  }
  UniqueId id;
  const std::uint16_t flags = r.u16();
  r.raw(id.job_id.data(), id.job_id.size());
  r.raw(id.key.data(), id.key.size());
  id.coordinator = r.address();
  bool unused_are_zero = true;
  while (r.good() && r.left() > 0) unused_are_zero &= r.u8() == 0;
  if (!r.good() || !unused_are_zero || (flags & ~has_key_flag) != 0) {
    return invalid_argument("the unique id is damaged");
  }
  if (flags != has_key_flag) {
    return invalid_argument(
        "the unique id has no job key, so no rank can join with it: make the id with "
        "hocketGetUniqueId of the same library");
  }
  *out = id;
  return {};
}

}  // namespace hocket::internal
