// The types that all parts of src/bootstrap use: keys, members, faults.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/byte_stream.h"
#include "base/core_set.h"
#include "base/status.h"
#include "base/stop.h"

namespace hocket::internal {

using Key = std::array<std::uint8_t, 32>;
using JobId = std::array<std::uint8_t, 16>;

struct JoinOptions {
  Key key{};
  bool has_key = true;  // false: only ranks of one user on one host may join (SO_PEERCRED)
  JobId job_id{};
  Address coordinator;  // where the coordinator listens
  int rank = 0;
  int ranks = 1;
  /// The interface on which this rank listens: a name or an address; empty: that of the route to
  /// the coordinator.
  std::string interface;
  bool tls = false;          // TCP connections use TLS (HOCKET_TLS); equal on all ranks
  bool share_memory = true;  // false: every rank is a node of its own (HOCKET_TRANSPORT=tcp)
  /// Ranks of a host share a node only if they have the same number; -1: a host is one node.
  int node_of_host = -1;
  std::int64_t join_deadline_ms = 600'000;
  std::int64_t silence_ms = 10'000;
  std::uint64_t machine = 0;    // equal for ranks whose processes one kernel runs
  CoreSet cores;                // on which this rank may run
  StopRequest* stop = nullptr;  // ends the join before its deadline; outlives the join
};

struct Member {
  int node = 0;               // nodes are numbered by their lowest rank
  int local_rank = 0;         // by rank within the node
  int pid = 0;                // for messages
  std::string host;           // for messages
  Address address;            // where this rank accepts data connections
  std::uint64_t machine = 0;  // what the rank gave as JoinOptions::machine
  CoreSet cores;              // what the rank gave as JoinOptions::cores
};

/// An event that ends operations. Every member learns of it once.
struct Fault {
  enum class Kind : std::uint8_t {
    dead,     // the process ended without leaving
    silent,   // no sign of life within the silence limit: stopped or cut off
    left,     // left in order: an error only for an operation that waits for the rank
    aborted,  // called abort
    failed,   // an operation failed there: mismatch, deadline, a lost link
    exited,   // the process ended by exit() or a return from main without leaving; like `left`
    overdue,  // no error yet: `rank` asks which ranks have not begun that collective; each of these
              // ranks answers with `failed`
  };
  Kind kind = Kind::dead;
  int rank = -1;               // the culprit, as a session rank
  std::uint64_t comm_id = 0;   // of the communicator; 0: all communicators of the rank
  std::uint64_t sequence = 0;  // of the collective that failed; 0: unknown
  Code code = Code::remote_error;
  std::string text;   // a sentence for the user
  int reporter = -1;  // failed: the session rank that saw it; -1: unknown
};

/// Says which faults concern a communicator.
struct FaultScope {
  std::uint64_t comm_id = 0;
  /// While a communicator is made from another one: the comm id of the other one, whose abort
  /// concerns the new communicator too. Else 0.
  std::uint64_t parent = 0;
  std::vector<int> members;  // session ranks
  /// The sequence number of the collective that runs; 0: none. A failure in a later collective does
  /// not end it.
  std::uint64_t operation = 0;

  /// True if the fault concerns the communicator. FaultLog::concerns() checks in addition that
  /// the rank had not left the communicator before.
  bool covers(const Fault& fault) const;
};

/// The name of a descriptor that local peers may fetch.
struct DescriptorName {
  std::uint64_t space = 0;  // a comm_id, or the reserved space below
  std::uint64_t number = 0;
  bool operator==(const DescriptorName&) const = default;
  static constexpr std::uint64_t memory_space = 1;  // number: region number of the offering process
};

/// "3, 5-9 and 12", for messages: at most a few runs of ranks, then the number of further ranks.
std::string ranks_text(const std::vector<int>& ascending);

/// Takes a new data connection to peer, number `index` of a communicator: its handshake has
/// succeeded, and it is non-blocking and has TCP_NODELAY. If dialling failed, status is an error
/// and stream is empty.
using AdoptConnection =
    std::function<void(int peer, int index, ByteStream stream, const Status& status)>;

}  // namespace hocket::internal
