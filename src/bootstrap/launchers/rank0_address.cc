#include "bootstrap/launchers/rank0_address.h"

#include <cstring>

#include "bootstrap/auth/auth.h"
#include "bootstrap/launchers/resolve.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/control_messages.h"

namespace hocket::internal {
namespace {

constexpr int lowest_port = 20'000;
constexpr int jobs_with_own_ports = 2'500;  // up to port 29,999
constexpr char magic[9] = "hocketR0";
constexpr std::size_t magic_bytes = 8;
constexpr std::uint8_t version = 1;

Status digest_of(const char* label, std::string_view text, Digest* out) {
  return keyed_digest(Key{}, label, {text.begin(), text.end()}, out)
             ? Status()
             : internal_error("HMAC-SHA256 is not available from OpenSSL");
}

}  // namespace

std::uint16_t first_port(std::string_view job) {
  Digest digest{};
  static_cast<void>(digest_of("hocket port", job, &digest));
  const int number = digest[0] << 8 | digest[1];
  return static_cast<std::uint16_t>(lowest_port + number % jobs_with_own_ports * ports_per_job);
}

Status job_id_of(std::string_view job, JobId* out) {
  Digest digest{};
  HOCKET_RETURN_IF_ERROR(digest_of("hocket job id", job, &digest));
  std::memcpy(out->data(), digest.data(), out->size());
  return {};
}

std::vector<std::uint8_t> encode(const Rank0Answer& answer) {
  Writer w;
  w.raw(reinterpret_cast<const std::uint8_t*>(magic), magic_bytes);
  w.u8(version);
  w.u8(static_cast<std::uint8_t>(answer.key_from));
  w.raw(answer.job_id.data(), answer.job_id.size());
  w.address(answer.coordinator);
  w.text(answer.credential, longest_answer / 2);
  return w.take();
}

bool decode(const std::vector<std::uint8_t>& bytes, Rank0Answer* out) {
  Reader r(bytes);
  std::uint8_t found[magic_bytes];
  r.raw(found, magic_bytes);
  if (std::memcmp(found, magic, magic_bytes) != 0 || r.u8() != version) return false;
  const std::uint8_t key_from = r.u8();
  r.raw(out->job_id.data(), out->job_id.size());
  out->coordinator = r.address();
  out->credential = r.text(longest_answer / 2);
  if (!r.complete() || key_from < 1 || key_from > 3) return false;
  out->key_from = static_cast<Rank0Answer::KeyFrom>(key_from);
  return true;
}

Status coordinator_address(const std::string& interface, bool one_host,
                           const std::vector<std::string>& hosts, Address* out) {
  if (!interface.empty()) return interface_address(interface, false, out);
  *out = loopback(false);
  if (one_host) return {};
  for (const std::string& host : hosts) {
    std::vector<Address> addresses;
    if (!resolve_all(host, &addresses).ok()) continue;
    for (const Address& address : addresses) {
      if (is_loopback(address) || !is_own(address)) continue;
      *out = address;
      return {};
    }
  }
  *out = default_address();
  if (is_loopback(*out)) static_cast<void>(first_outward_address(out));
  return {};
}

}  // namespace hocket::internal
