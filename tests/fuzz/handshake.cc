// The server of the handshake: only a client that knows the key, sends a hello of this version and
// claims what the server expects gets through.
#include "bootstrap/auth/acceptor.h"
#include "bootstrap/simulated_loop.h"
#include "fuzz/listener.h"

namespace hocket::internal {
namespace {

FUZZ_TARGET(handshake, input) {
  Credentials credentials;
  credentials.key = {1, 2, 3};
  const std::uint8_t knows = input.byte();
  const bool knows_key = knows % 4 != 0, knows_job = knows == 4;
  const std::size_t cut =
      input.byte() % claim_message_bytes;  // the client sends its claim in two parts
  Transcript sent;
  sent.client = input.bytes<hello_bytes>();
  sent.claim = input.bytes<claim_bytes>();
  Digest proof = input.bytes<proof_bytes>(), of_job = input.bytes<proof_bytes>();

  Nanos clock = nanos_per_s;
  testing::SimulatedLoop loop(clock);
  Listener listener;
  int accepted = 0, other_keys = 0;
  Claim claim;
  Acceptor acceptor(
      loop, UniqueFd(::dup(listener.fd.get())), credentials,
      [](const Claim& asked) { return asked.index < 4 ? Verdict::accepted : Verdict::refused; },
      [&](const Claim& asked, ByteStream) { ++accepted, claim = asked; }, [](const Status&) {});
  acceptor.on_other_key([&](const Claim&, const std::string&) { ++other_keys; });
  const UniqueFd client = listener.connect();
  send(client, sent.client.data(), hello_bytes);
  while (loop.step()) continue;
  const bool greeted = ::recv(client.get(), sent.server.data(), hello_bytes, 0) == hello_bytes;
  if (knows_key) FUZZ_CHECK(client_proof(credentials, sent, &proof));
  if (knows_job) FUZZ_CHECK(job_proof(credentials, sent, &of_job));
  std::uint8_t message[claim_message_bytes];
  auto* const proofs = std::ranges::copy(sent.claim, message).out;
  std::ranges::copy(of_job, std::ranges::copy(proof, proofs).out);
  send(client, message, cut);
  while (loop.step()) continue;
  send(client, message + cut, sizeof message - cut);
  while (loop.step()) continue;
  const std::vector<std::uint8_t> rest = input.vector();  // of a client that has begun with TLS
  send(client, rest.data(), rest.size());
  while (loop.step()) continue;

  std::uint16_t version = 0;
  Claim expected;
  const HelloKind kind = check_hello(sent.client, &version);
  const bool is_ours = kind == HelloKind::ours && decode(sent.claim, &expected);
  const bool is_expected = is_ours && expected.index < 4 && !expected.tls;
  FUZZ_CHECK(greeted == (kind != HelloKind::foreign));
  FUZZ_CHECK(accepted == (knows_key && is_expected ? 1 : 0));
  FUZZ_CHECK(other_keys == (knows_job && is_ours ? 1 : 0));
  if (accepted == 1) FUZZ_CHECK(encode(claim) == sent.claim);
}

}  // namespace
}  // namespace hocket::internal
