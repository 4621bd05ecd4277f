#include "bootstrap/auth/auth.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "bootstrap/net/control_messages.h"

namespace hocket::internal {
namespace {

constexpr std::array<std::uint8_t, 6> magic = {'h', 'o', 'c', 'k', 'e', 't'};

template <std::size_t N>
void append(std::vector<std::uint8_t>* out, const std::array<std::uint8_t, N>& bytes) {
  out->insert(out->end(), bytes.begin(), bytes.end());
}

std::vector<std::uint8_t> transcript_bytes(const Credentials& credentials, const Transcript& t) {
  std::vector<std::uint8_t> out;
  append(&out, credentials.job_id);
  append(&out, t.client);
  append(&out, t.server);
  append(&out, t.claim);
  return out;
}

}  // namespace

Status random_bytes(void* out, std::size_t size) {
  auto* bytes = static_cast<std::uint8_t*>(out);
  while (size > 0) {
    const ssize_t got = ::getrandom(bytes, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return system_error("getrandom");
    bytes += got;
    size -= static_cast<std::size_t>(got);
  }
  return {};
}

bool keyed_digest(const Key& key, const std::string& label, const std::vector<std::uint8_t>& data,
                  Digest* out) {
  std::vector<std::uint8_t> input(label.begin(), label.end());
  input.push_back(0);  // ends the label, so that label and data cannot be shifted into each other
  input.insert(input.end(), data.begin(), data.end());
  unsigned int length = 0;
  return ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), input.data(),
                input.size(), out->data(), &length) != nullptr &&
         length == out->size();
}

bool equal_secret(const std::uint8_t* a, const std::uint8_t* b, std::size_t size) {
  return ::CRYPTO_memcmp(a, b, size) == 0;
}

Status make_hello(Hello* out) {
  std::memcpy(out->data(), magic.data(), magic.size());
  (*out)[6] = protocol_version & 0xff;
  (*out)[7] = protocol_version >> 8;
  return random_bytes(out->data() + 8, out->size() - 8);
}

HelloKind check_hello(const Hello& hello, std::uint16_t* version) {
  if (std::memcmp(hello.data(), magic.data(), magic.size()) != 0) return HelloKind::foreign;
  *version = static_cast<std::uint16_t>(hello[6] | hello[7] << 8);
  return *version == protocol_version ? HelloKind::ours : HelloKind::other_version;
}

ClaimBytes encode(const Claim& claim) {
  Writer writer;
  writer.u32(static_cast<std::uint32_t>(claim.purpose));
  writer.i32(claim.rank);
  writer.i32(claim.target);
  writer.u32(claim.index);
  writer.u64(claim.comm_id);
  writer.u64(claim.tls ? 1 : 0);
  ClaimBytes out{};
  std::memcpy(out.data(), writer.bytes().data(), out.size());
  return out;
}

bool decode(const ClaimBytes& bytes, Claim* out) {
  Reader reader(bytes.data(), bytes.size());
  const std::uint32_t purpose = reader.u32();
  out->rank = reader.i32();
  out->target = reader.i32();
  out->index = reader.u32();
  out->comm_id = reader.u64();
  const std::uint64_t flags = reader.u64();
  if (purpose < 1 || purpose > 5 || flags > 1) return false;
  out->tls = flags == 1;
  out->purpose = static_cast<Purpose>(purpose);
  return reader.complete();
}

bool client_proof(const Credentials& credentials, const Transcript& transcript, Digest* out) {
  return keyed_digest(credentials.key, "hocket client", transcript_bytes(credentials, transcript),
                      out);
}

bool server_proof(const Credentials& credentials, const Transcript& transcript, Verdict verdict,
                  Digest* out) {
  std::vector<std::uint8_t> data = transcript_bytes(credentials, transcript);
  data.push_back(static_cast<std::uint8_t>(verdict));
  return keyed_digest(credentials.key, "hocket server", data, out);
}

bool job_proof(const Credentials& credentials, const Transcript& transcript, Digest* out) {
  Key job{};
  std::memcpy(job.data(), credentials.job_id.data(), credentials.job_id.size());
  return keyed_digest(job, "hocket job", transcript_bytes(credentials, transcript), out);
}

bool tls_secret(const Credentials& credentials, const Transcript& transcript, Digest* out) {
  return keyed_digest(credentials.key, "hocket tls", transcript_bytes(credentials, transcript),
                      out);
}

std::string socket_name(const Credentials& credentials, const char* what, int rank) {
  std::vector<std::uint8_t> data(credentials.job_id.begin(), credentials.job_id.end());
  for (int shift = 0; shift < 32; shift += 8) {
    data.push_back(static_cast<std::uint8_t>(static_cast<std::uint32_t>(rank) >> shift));
  }
  // Without a key the user's number keeps the names of different users apart; both ends check the
  // other's user by SO_PEERCRED.
  const std::string label = credentials.keyless ? fmt::format("hocket {} {}", what, ::geteuid())
                                                : fmt::format("hocket {}", what);
  Digest digest{};
  if (!keyed_digest(credentials.key, label, data, &digest)) return {};
  std::string out = "hocket-";
  for (std::size_t i = 0; i < 20; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

}  // namespace hocket::internal
