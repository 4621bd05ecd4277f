#include "engine/record_dump.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include <array>
#include <cerrno>
#include <limits>
#include <memory>
#include <mutex>

#include "base/append_file.h"
#include "base/log.h"

namespace hocket::internal {
namespace {

constexpr std::size_t all_entries = std::numeric_limits<std::size_t>::max();
// At an error the log gets so many operations that have ended.
constexpr std::size_t logged_at_error = 8;

}  // namespace

/// Never destroyed: the thread and the handlers last as long as the process. A handler stays after
/// the last communicator has gone, because the default action of its signal ends the process.
struct RecordDumps {
  std::mutex mutex;
  std::vector<const RecordDump*> live;  // with a signal
  bool has_thread = false;
  std::array<bool, NSIG> handled{};
  std::array<struct sigaction, NSIG> before{};  // written before the handler is set
  sem_t requests;                               // the handler may post it

  static RecordDumps& get() {
    static auto* dumps = new RecordDumps;
    return *dumps;
  }
  RecordDumps() {
    ::sem_init(&requests, 0, 0);
    ::pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                     [] {
                       // The communicators and the thread are the parent's.
                       get().live.clear();
                       get().has_thread = false;
                       get().mutex.unlock();
                     });
  }

  static void on_signal(int number, siginfo_t* info, void* context) {
    const int error = errno;
    RecordDumps& dumps = get();
    ::sem_post(&dumps.requests);
    const struct sigaction& before = dumps.before[static_cast<std::size_t>(number)];
    if ((before.sa_flags & SA_SIGINFO) != 0) {
      before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
      before.sa_handler(number);
    }
    errno = error;
  }

  /// With the mutex held.
  Status handle(int number) {
    bool& is_handled = handled[static_cast<std::size_t>(number)];
    if (is_handled) return {};
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    if (::sigaction(number, nullptr, &before[static_cast<std::size_t>(number)]) != 0 ||
        ::sigaction(number, &action, nullptr) != 0) {
      return system_error("cannot handle the signal of HOCKET_DUMP_SIGNAL");
    }
    is_handled = true;
    return {};
  }

  /// With the mutex held.
  Status start_thread() {
    if (has_thread) return {};
    sigset_t all, mask;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &mask);  // the new thread inherits it
    pthread_t thread{};
    const int error = ::pthread_create(&thread, nullptr, work, this);
    ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    if (error != 0) return system_error("cannot start the thread of HOCKET_DUMP_SIGNAL", error);
    ::pthread_setname_np(thread, "hocket-dump");
    ::pthread_detach(thread);
    has_thread = true;
    return {};
  }

  static void* work(void* self) {
    auto& dumps = *static_cast<RecordDumps*>(self);
    for (;;) {
      while (::sem_wait(&dumps.requests) != 0) {
      }
      const std::lock_guard lock(dumps.mutex);
      for (const RecordDump* dump : dumps.live) {
        const Status status = status_of_call([&] { return dump->write(dump->target_.file); });
        if (!status.ok()) best_effort([&] { log_line(LogLevel::error, status.message()); });
      }
    }
  }
};

RecordDump::RecordDump(DumpTarget target, Lines lines)
    : target_(std::move(target)), lines_(std::move(lines)) {}

Status RecordDump::start(DumpTarget target, Lines lines, std::unique_ptr<RecordDump>* out) {
  std::unique_ptr<RecordDump> made(new RecordDump(std::move(target), std::move(lines)));
  if (made->target_.signal != 0) {
    RecordDumps& dumps = RecordDumps::get();
    const std::lock_guard lock(dumps.mutex);
    HOCKET_RETURN_IF_ERROR(dumps.start_thread());
    HOCKET_RETURN_IF_ERROR(dumps.handle(made->target_.signal));
    dumps.live.push_back(made.get());
  }
  *out = std::move(made);
  return {};
}

RecordDump::~RecordDump() {
  if (target_.signal == 0) return;
  RecordDumps& dumps = RecordDumps::get();
  const std::lock_guard lock(dumps.mutex);
  std::erase(dumps.live, this);
}

void RecordDump::at_error() const {
  best_effort([this] {
    if (!target_.file.empty()) {
      const Status status = write(target_.file);
      if (!status.ok()) log_line(LogLevel::error, status.message());
    }
    if (!log_enabled(LogLevel::warn)) return;
    for (const std::string& line : lines_(logged_at_error)) log_line(LogLevel::warn, line);
  });
}

Status RecordDump::write(const std::string& file) const {
  const std::vector<std::string> lines = lines_(all_entries);
  if (file.empty()) {
    for (const std::string& line : lines) log_line(LogLevel::warn, line);
    return {};
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return append_file(file, text);
}

}  // namespace hocket::internal
