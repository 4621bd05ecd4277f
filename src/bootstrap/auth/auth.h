// The handshake in which the two ends of a connection prove to each other that they know the job's
// key, before anything else is read. Its bytes are in docs/protocol/bootstrap.md. With HOCKET_TLS=1
// it ends inside TLS, which begins when both ends have proved the key.
//
//   client                      server
//   hello: magic, nonce   --->
//                         <---  hello: magic, nonce
//   claim, two proofs     --->                        (claim: the client's rank and purpose)
//                         <---  verdict, proof
//
//                         with TLS:
//                         <---  verdict start_tls, proof
//   TLS handshake         <-->
//                         <---  over TLS: verdict, proof
//
// A proof is HMAC-SHA256(key, role, job id, both hellos, claim[, verdict]): it is valid for one
// connection, one direction, one job and one claim, so that a replay of any part proves nothing.
// The client's second proof has the job id in place of the key: if the first proof is wrong and the
// second one is right, the client belongs to this job and has another key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bootstrap/types.h"

namespace hocket::internal {

inline constexpr std::uint16_t protocol_version = 5;
inline constexpr std::size_t hello_bytes = 40;
inline constexpr std::size_t claim_bytes = 32;
inline constexpr std::size_t proof_bytes = 32;
inline constexpr std::size_t claim_message_bytes = claim_bytes + 2 * proof_bytes;
inline constexpr std::size_t verdict_bytes = 8;
inline constexpr std::size_t verdict_message_bytes = verdict_bytes + proof_bytes;

using Hello = std::array<std::uint8_t, hello_bytes>;
using ClaimBytes = std::array<std::uint8_t, claim_bytes>;
using Digest = std::array<std::uint8_t, proof_bytes>;

/// The job id and the key, which the processes of a job have in common.
struct Credentials {
  Key key{};
  JobId job_id{};
  bool keyless = false;  // Unix sockets only, between processes of one user
  bool tls = false;      // the TCP connections of the job use TLS
};

enum class Purpose : std::uint8_t { coordinator = 1, node = 2, tree = 3, fetch = 4, data = 5 };

/// The rank that opens a connection, and the purpose of the connection.
struct Claim {
  Purpose purpose = Purpose::coordinator;
  std::int32_t rank = -1;    // the connecting rank
  std::int32_t target = -1;  // the rank it wants to reach; -1: the coordinator or the leader
  std::uint64_t comm_id = 0;
  std::uint32_t index = 0;
  bool tls = false;  // the connection goes on with TLS
};

enum class Verdict : std::uint8_t {
  accepted = 0,
  duplicate = 1,  // the server has this connection already, or is opening it itself
  refused = 2,    // the proof is right, but the connection is not expected here
  wrong_key = 3,  // the client's proof is wrong; the answer has no proof
  start_tls = 4,  // the proof is right; the TLS handshake begins, and another verdict follows it
};

Status random_bytes(void* out, std::size_t size);
/// HMAC-SHA256 of label, a zero byte and data. Returns false if OpenSSL failed.
bool keyed_digest(const Key& key, const std::string& label, const std::vector<std::uint8_t>& data,
                  Digest* out);
/// Compares in constant time.
bool equal_secret(const std::uint8_t* a, const std::uint8_t* b, std::size_t size);

Status make_hello(Hello* out);
enum class HelloKind { ours, other_version, foreign };
HelloKind check_hello(const Hello& hello, std::uint16_t* version);

ClaimBytes encode(const Claim& claim);
bool decode(const ClaimBytes& bytes, Claim* out);  // false: unknown purpose or nonzero padding

/// The messages of one handshake that the proofs cover.
struct Transcript {
  Hello client{};
  Hello server{};
  ClaimBytes claim{};
};
bool client_proof(const Credentials& credentials, const Transcript& transcript, Digest* out);
bool server_proof(const Credentials& credentials, const Transcript& transcript, Verdict verdict,
                  Digest* out);
/// Proves the job id alone.
bool job_proof(const Credentials& credentials, const Transcript& transcript, Digest* out);
/// The pre-shared key for TLS on one connection.
bool tls_secret(const Credentials& credentials, const Transcript& transcript, Digest* out);

/// The name of an abstract Unix socket. A process without the key cannot compute it, and so can
/// neither bind it first nor find the socket.
std::string socket_name(const Credentials& credentials, const char* what, int rank);

}  // namespace hocket::internal
