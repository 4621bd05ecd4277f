// The messages between hocket-run and its agents, over the standard input and output of the agent:
// frames of a length, a type and a payload (docs/protocol/launch.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "binding.h"
#include "bootstrap/net/control_messages.h"
#include "programs.h"
#include "pseudo_terminal.h"

namespace hocket::internal::launch {

inline constexpr std::uint32_t protocol_version = 8;
/// The first bytes from an agent. Bytes before them are skipped: a login shell may print a banner.
inline constexpr std::string_view greeting = "\x01HOCKET-AGENT\x02\r\n";
inline constexpr std::size_t max_payload = 16u << 20;
/// Limit of bytes of standard input that are sent to rank 0 and not yet read by it.
inline constexpr std::uint32_t input_window = 256u << 10;

enum class Type : std::uint8_t {
  // launcher to agent
  listen = 1,
  start = 2,
  signal = 3,
  end = 4,
  input = 5,
  input_end = 6,
  count = 7,
  first_exited = 8,
  // agent to launcher
  hello = 64,
  listening = 65,
  output = 66,
  exited = 67,
  input_taken = 68,
  failed = 69,
  note = 70,
  counted = 71,
};

/// A reader that parses a payload.
Reader reader_of(std::string_view payload);
/// Payloads of one value.
std::string payload_of(std::uint32_t value);
std::string payload_of(const Address& address);
bool decode(std::string_view payload, Address* address);

/// Asks an agent how many parts of its host have cores on which ranks may run.
struct CountRequest {
  Part part = Part::core;
  std::string encode() const;
  bool decode(std::string_view payload);
};

struct Counted {
  std::int32_t parts = 0;  // at least 1
  std::string encode() const;
  bool decode(std::string_view payload);
};

/// Asks the agent of rank 0's host for the listening socket of the join.
struct ListenRequest {
  std::string interface;                // name or address; empty: choose
  bool local_only = true;               // all ranks are on this host
  std::vector<std::string> candidates;  // addresses to try first, if they are this host's
  std::vector<std::string> route_to;    // hosts that must be able to reach it
  std::string encode() const;
  bool decode(std::string_view payload);
};

/// Starts the ranks of one host.
struct StartRequest {
  Key key{};
  JobId job_id{};
  Address coordinator;
  std::vector<int> here;  // the ranks of this host, in ascending order
  std::int32_t ranks = 0;
  bool tag_output = false;
  bool pty = false;  // the standard output and standard error of a rank are a pseudo terminal
  TerminalSize terminal_size;
  BindingRules binding;
  bool report_bindings = false;
  bool show_placement = false;  // report the bindings, and start no rank
  std::string directory;
  std::vector<Program> programs;         // of the ranks of this host, in their order
  std::vector<std::string> environment;  // NAME=value; overrides the agent's environment
  std::string encode() const;
  bool decode(std::string_view payload);
};

struct Hello {
  std::uint32_t version = protocol_version;
  std::int32_t pid = 0;
  std::string host;            // the host's name for itself; only for messages
  std::string ssh_connection;  // "client port server port"; empty: not started by ssh
  std::string encode() const;
  bool decode(std::string_view payload);
};

struct Exited {
  std::int32_t rank = 0;
  std::int32_t pid = 0;
  std::int32_t wait_status = 0;  // as from waitpid
  std::string reason;            // why the program could not be started; empty: it was started
  std::string encode() const;
  bool decode(std::string_view payload);
};

}  // namespace hocket::internal::launch
