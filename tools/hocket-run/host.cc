#include "host.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace hocket::internal::launch {
namespace {

// Quotes text for the login shell of the remote host.
std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> ssh_command(const std::vector<std::string>& ssh,
                                     const std::string& executable, const std::string& host) {
  std::vector<std::string> words = ssh;
  const std::string program = ssh[0].substr(ssh[0].rfind('/') + 1);
  if (program == "ssh") {
    // No terminal, no X11 forwarding, and ssh ends if the host does not answer.
    for (const char* word : {"-T", "-x", "-o", "ServerAliveInterval=15"}) words.push_back(word);
  }
  words.push_back(host);
  words.push_back("exec " + shell_quoted(executable) + " --agent");
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

[[noreturn]] void become(const std::vector<std::string>& words, bool is_ssh, pid_t launcher, int in,
                         int out) {
  sigset_t none;
  sigemptyset(&none);
  if (is_ssh) {
    // The launcher sends signals to the ranks as messages. A signal that a terminal sends to the
    // whole process group must not end or stop ssh itself.
    for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP, SIGUSR1, SIGUSR2}) {
      ::signal(number, SIG_IGN);
    }
    ::signal(SIGPIPE, SIG_DFL);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(1);
  }
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(is_ssh ? arguments[0] : "/proc/self/exe", arguments.data());
  ::_exit(127);
}

}  // namespace

std::string Host::title() const { return name.empty() ? hello.host : name; }

std::optional<std::size_t> Host::local_rank(int rank) const {
  const auto place = std::ranges::lower_bound(ranks, rank);
  if (place == ranks.end() || *place != rank) return {};
  return static_cast<std::size_t>(place - ranks.begin());
}

Status start_agent(const std::vector<std::string>& ssh, const std::string& executable, Host* host) {
  std::vector<std::string> words = {executable, "--agent"};
  if (host->remote) words = ssh_command(ssh, executable, host->name);
  int to_agent[2];
  int from_agent[2];
  if (::pipe2(to_agent, O_CLOEXEC) != 0) return system_error("cannot make a pipe");
  UniqueFd child_in(to_agent[0]), out(to_agent[1]);
  if (::pipe2(from_agent, O_CLOEXEC) != 0) return system_error("cannot make a pipe");
  UniqueFd in(from_agent[0]), child_out(from_agent[1]);

  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("cannot start a process");
  if (pid == 0) become(words, host->remote, launcher, child_in.get(), child_out.get());
  host->pid = pid;
  host->stream = Stream(std::move(in), std::move(out));
  host->stream.expect_greeting();
  return {};
}

std::string no_agent_text(const std::vector<std::string>& ssh, const std::string& executable,
                          const Host& host) {
  if (!host.remote) return "cannot start the local agent: it " + describe_end(host.wait_status);
  const std::string base = joined(ssh) + " " + host.name;
  const int status = exit_status_of(host.wait_status);
  if (status == 127) {
    return "no agent on host " + host.name + ": either there is no command `" + ssh[0] +
           "` here, or no program " + executable + " on " + host.name +
           " (hocket-run must be at the same path on all hosts)";
  }
  return "no agent on host " + host.name + ": `" + joined(ssh_command(ssh, executable, host.name)) +
         "` " + describe_end(host.wait_status) + "; check that `" + base +
         " true` works and asks no question";
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(number);
}

std::string describe_end(int wait_status) {
  if (WIFEXITED(wait_status)) {
    return "exited with status " + std::to_string(WEXITSTATUS(wait_status));
  }
  const int number = WTERMSIG(wait_status);
  const char* name = ::sigabbrev_np(number);
  return "was killed by signal " + std::to_string(number) + " (" +
         (name != nullptr ? "SIG" + std::string(name) + ", " : "") + ::strsignal(number) + ")" +
         (WCOREDUMP(wait_status) ? ", core dumped" : "");
}

int exit_status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace hocket::internal::launch
