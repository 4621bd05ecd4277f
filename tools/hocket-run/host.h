// A host of the job, as the launcher sees it, with the process that connects to its agent.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "message.h"
#include "stream.h"

namespace hocket::internal::launch {

struct Host {
  std::string name;  // as in --hosts; empty: this host
  bool remote = false;
  std::vector<int> ranks;  // that run there, in ascending order
  int parts = 0;           // that its agent has counted; 0: none yet
  pid_t pid = 0;           // the agent's supervisor, or ssh; 0: reaped, or never started
  int wait_status = 0;     // once pid is reaped
  Stream stream;
  bool gone = false;  // the agent has closed its output
  Nanos gone_at = 0;
  bool greeted = false;
  Hello hello;
  std::vector<bool> ended;    // by local rank
  int running = 0;            // ranks that were started and have not ended
  std::string title() const;  // for messages
  /// The local rank of a rank of this host; empty: the rank is not here.
  std::optional<std::size_t> local_rank(int rank) const;
};

/// Starts the agent: as a child of this process, or by ssh. The command contains no secret.
Status start_agent(const std::vector<std::string>& ssh, const std::string& executable, Host* host);

/// The error of a host whose agent did not answer: names the host, how the process ended, and what
/// to try.
std::string no_agent_text(const std::vector<std::string>& ssh, const std::string& executable,
                          const Host& host);

/// "exited with status 3", "was killed by signal 9 (Killed)".
std::string describe_end(int wait_status);
/// "SIGKILL".
std::string signal_name(int number);
/// The exit status, or 128 + signal, as in a shell.
int exit_status_of(int wait_status);

}  // namespace hocket::internal::launch
