// Blocks signals that a system call may raise in the calling thread, because their default action
// ends the process.
#pragma once

#include <signal.h>
#include <time.h>

#include <cerrno>

namespace hocket::internal {

/// Runs call() while a signal is blocked that call() may raise in this thread (SIGXFSZ at the file
/// size limit, SIGPIPE at a closed pipe). If call() raised the signal, discards it: errno says the
/// same. Keeps errno as call() left it.
template <typename Call>
auto without_signal(int signal, Call call) {
  sigset_t one, before, pending;
  ::sigemptyset(&one);
  ::sigaddset(&one, signal);
  ::pthread_sigmask(SIG_BLOCK, &one, &before);
  ::sigpending(&pending);
  const bool was_pending = ::sigismember(&pending, signal) == 1;
  const auto result = call();
  const int error = errno;
  if (result < 0 && !was_pending) {
    const timespec now{};
    while (::sigtimedwait(&one, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return result;
}

}  // namespace hocket::internal
