// A unique id, and the same as the text that rank 0 publishes by PMI. The first byte selects the
// form, and whether the checksum is made right, as an attacker can make it: it is no secret.
#include "bootstrap/join/unique_id.h"

#include "bootstrap/auth/auth.h"
#include "bootstrap/launchers/published.h"
#include "fuzz/fuzz.h"

namespace hocket::internal {
namespace {

bool equal(const UniqueId& a, const UniqueId& b) {
  return a.job_id == b.job_id && a.key == b.key && a.coordinator == b.coordinator;
}

void correct_check(UniqueIdBytes* bytes) {
  Digest check{};
  FUZZ_CHECK(keyed_digest(Key{}, "hocket unique id", {bytes->begin(), bytes->end() - 16}, &check));
  std::copy_n(check.begin(), 16, bytes->end() - 16);
}

void check_text(std::string_view text) {
  UniqueId id;
  id.job_id = {9};
  const UniqueId before = id;
  bool with_key = true;
  if (const Status status = parse_published(text, &id, &with_key); !status.ok()) {
    FUZZ_CHECK(equal(id, before));
    return;
  }
  UniqueId again;
  bool again_with_key = !with_key;
  FUZZ_CHECK(parse_published(published_text(id, with_key), &again, &again_with_key).ok());
  FUZZ_CHECK(equal(id, again) && with_key == again_with_key);
}

FUZZ_TARGET(unique_id, input) {
  const std::uint8_t form = input.byte();
  if (form % 4 == 0) return check_text(input.text());
  auto bytes = input.bytes<unique_id_bytes>();
  if (form % 4 > 1) correct_check(&bytes);
  UniqueId id;
  id.job_id = {9};
  const UniqueId before = id;
  if (!decode(bytes, &id).ok()) {
    FUZZ_CHECK(equal(id, before));
    return;
  }
  UniqueId again;
  FUZZ_CHECK(decode(encode(id), &again).ok());
  FUZZ_CHECK(equal(id, again));
  FUZZ_CHECK(encode(id) == bytes);
  std::string text(1, form % 4 == 2 ? 'k' : 'f');
  for (const std::uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  check_text(text);
}

}  // namespace
}  // namespace hocket::internal
