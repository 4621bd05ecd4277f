#include "rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "stream.h"

namespace hocket::internal::launch {
namespace {

struct Pipe {
  UniqueFd read, write;
};

Status make_pipe(Pipe* pipe) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return system_error("cannot make a pipe for a rank");
  pipe->read = UniqueFd(fds[0]);
  pipe->write = UniqueFd(fds[1]);
  return {};
}

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void keep_over_exec(int fd) {
  if (fd >= 0) ::fcntl(fd, F_SETFD, 0);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

/// Runs in the child after fork(). The agent has a single thread, so nearly every call is safe
/// here.
[[noreturn]] void become_rank(const Command& command, char** arguments, char** environment,
                              pid_t agent, int input, int output, int error, int exec_error) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != agent) ::_exit(1);  // the agent died before prctl()
  reset_signals();
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = command.file_limit;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  const bool ready = ::dup2(input, 0) == 0 && ::dup2(output, 1) == 1 && ::dup2(error, 2) == 2;
  keep_over_exec(command.record);
  keep_over_exec(command.listener);
  environ = environment;
  if (ready) ::execvp(arguments[0], arguments);
  const int reason = errno;
  [[maybe_unused]] const ssize_t told = ::write(exec_error, &reason, sizeof reason);
  ::_exit(reason == ENOENT || reason == ENOTDIR ? 127 : 126);
}

}  // namespace

Status start_rank(const Command& command, RankProcess* process) {
  Pipe input, output, error, exec_error;
  const bool has_terminal = command.terminal >= 0;
  if (!has_terminal) {
    HOCKET_RETURN_IF_ERROR(make_pipe(&output));
    HOCKET_RETURN_IF_ERROR(make_pipe(&error));
  }
  HOCKET_RETURN_IF_ERROR(make_pipe(&exec_error));
  if (command.wants_input) {
    HOCKET_RETURN_IF_ERROR(make_pipe(&input));
  } else {
    input.read = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!input.read) return system_error("cannot open /dev/null");
  }
  const std::vector<char*> arguments = pointers(command.arguments);
  const std::vector<char*> environment = pointers(command.environment);

  Affinity affinity;  // the child inherits it
  HOCKET_RETURN_IF_ERROR(affinity.set(command.cpus));
  const pid_t agent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("cannot start a process");
  if (pid == 0) {
    become_rank(command, const_cast<char**>(arguments.data()),
                const_cast<char**>(environment.data()), agent, input.read.get(),
                has_terminal ? command.terminal : output.write.get(),
                has_terminal ? command.terminal : error.write.get(), exec_error.write.get());
  }
  ::setpgid(pid, pid);  // here too, because the child may not have called it when a signal comes
  process->program = command.arguments.front();
  process->pid = pid;
  process->running = true;
  if (!has_terminal) {
    process->output[0] = std::move(output.read);
    process->output[1] = std::move(error.read);
  }
  process->exec_error = std::move(exec_error.read);
  process->input = std::move(input.write);
  for (const UniqueFd* fd :
       {&process->output[0], &process->output[1], &process->exec_error, &process->input}) {
    if (*fd) set_nonblocking(fd->get());
  }
  return {};
}

std::string exec_failure(const RankProcess& process) {
  int reason = 0;
  if (::read(process.exec_error.get(), &reason, sizeof reason) !=
      static_cast<ssize_t>(sizeof reason)) {
    return {};
  }
  return "cannot run '" + process.program + "': " + std::generic_category().message(reason);
}

}  // namespace hocket::internal::launch
