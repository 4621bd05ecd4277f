// The client of the handshake: what listens may be anything. Only a server that knows the key,
// sends a hello of this version and a verdict with a right proof gets the connection.
#include "bootstrap/auth/dialer.h"

#include "bootstrap/simulated_loop.h"
#include "fuzz/listener.h"

namespace hocket::internal {
namespace {

FUZZ_TARGET(dialer, input) {
  const bool knows_key = input.byte() % 4 != 0;
  const std::size_t cut = input.byte() % verdict_message_bytes;  // the verdict comes in two parts
  const std::uint8_t verdict = input.byte() % 5;
  Dialer::Options options;
  options.credentials.key = {1, 2, 3};
  options.claim.index = input.byte();
  options.name = "the other end";
  Transcript sent;
  sent.server = input.bytes<hello_bytes>();
  auto answer = input.bytes<verdict_message_bytes>();
  answer[0] = verdict;

  Nanos clock = nanos_per_s;
  testing::SimulatedLoop loop(clock);
  Listener listener;
  options.endpoint.unix_name = listener.name();
  options.deadline = clock + nanos_per_s;
  Dialer::Result result;
  int ended = 0;
  const auto dialer = Dialer::start(loop, options, [&](Dialer::Result got) {
    ++ended;
    result = std::move(got);
  });
  while (loop.step()) continue;
  const UniqueFd client = listener.accept();
  FUZZ_CHECK(::recv(client.get(), sent.client.data(), hello_bytes, 0) == hello_bytes);
  send(client, sent.server.data(), hello_bytes);
  while (loop.step()) continue;
  std::uint16_t version = 0;
  const bool is_ours = check_hello(sent.server, &version) == HelloKind::ours;
  std::uint8_t message[claim_message_bytes];
  FUZZ_CHECK((::recv(client.get(), message, sizeof message, 0) == sizeof message) == is_ours);
  if (is_ours) std::copy_n(message, claim_bytes, sent.claim.begin());
  if (knows_key) {
    Digest proof;
    FUZZ_CHECK(server_proof(options.credentials, sent, static_cast<Verdict>(verdict), &proof));
    std::ranges::copy(proof, answer.begin() + verdict_bytes);
  }
  send(client, answer.data(), cut);
  while (loop.step()) continue;
  send(client, answer.data() + cut, answer.size() - cut);
  while (loop.step()) continue;

  FUZZ_CHECK(ended == 1);
  const bool accepted = knows_key && is_ours && verdict == 0;
  FUZZ_CHECK(result.status.ok() == accepted && static_cast<bool>(result.stream) == accepted);
  FUZZ_CHECK(result.duplicate == (knows_key && is_ours && verdict == 1));
}

}  // namespace
}  // namespace hocket::internal
