// The supervisor: the parent of the agent, and of all processes of the job whose parent has died.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "descendants.h"

namespace hocket::internal::launch {
namespace {

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}) sigaddset(&set, number);
  return set;
}

/// Raises the limit of open files, because the agent needs up to five descriptors for each rank.
/// Returns the old limit, which the ranks get back.
unsigned long raise_file_limit() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const unsigned long old = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return old;
}

[[noreturn]] void become_agent(pid_t supervisor) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != supervisor) ::_exit(1);
  adopt_orphans();
  const sigset_t set = ending_signals();
  UniqueFd signals(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  // Move 0 and 1, so that no process that the agent starts inherits the pipes to the launcher.
  UniqueFd in(::fcntl(0, F_DUPFD_CLOEXEC, 3));
  UniqueFd out(::fcntl(1, F_DUPFD_CLOEXEC, 3));
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), 0);
  ::dup2(null.get(), 1);
  if (!signals || !in || !out) ::_exit(1);
  Agent(Stream(std::move(in), std::move(out)), std::move(signals), raise_file_limit()).run();
  ::_exit(0);
}

}  // namespace

int agent_main() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  const sigset_t set = ending_signals();
  ::sigprocmask(SIG_SETMASK, &set, nullptr);
  ::setsid();  // the terminal sends signals only to the launcher, which passes them on
  adopt_orphans();
  const pid_t supervisor = ::getpid();
  const pid_t agent = ::fork();
  if (agent < 0) return 1;
  if (agent == 0) become_agent(supervisor);

  // Close the pipes here, so that the launcher reads the end of the agent's output when the agent
  // ends.
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), 0);
  ::dup2(null.get(), 1);
  int status = 0;
  while (true) {
    int number = 0;
    ::sigwait(&set, &number);
    if (number != SIGCHLD) {
      ::kill(agent, SIGTERM);
      continue;
    }
    pid_t pid = 0;
    while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
      if (pid != agent) continue;
      kill_descendants(10 * nanos_per_s);
      // As in a shell; ssh passes this status to the launcher.
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
  }
}

}  // namespace hocket::internal::launch
