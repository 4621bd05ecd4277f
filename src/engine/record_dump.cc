#include "engine/record_dump.h"

#include <fmt/format.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
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
// How long a communicator, or the process, that ends waits for the dumps that signals asked for.
constexpr std::chrono::seconds write_limit{5};

Status write_lines(const std::string& file, const std::vector<std::string>& lines) {
  if (file.empty()) {
    for (const std::string& line : lines) log_line(LogLevel::warn, line);
    return {};
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return append_file(file, text);
}

}  // namespace

/// Never destroyed: the thread and the handlers last as long as the process. A handler stays after
/// the last communicator has gone, because the default action of its signal ends the process.
///
/// The thread takes the lines of all records with the mutex held, and writes them without it: a
/// file may block the thread, but neither a communicator that ends nor a fork.
struct RecordDumps {
  std::mutex mutex;
  std::vector<const RecordDump*> live;  // with a signal
  bool has_thread = false;
  std::array<bool, NSIG> handled{};
  std::array<struct sigaction, NSIG> before{};  // written before the handler is set
  sem_t wake;                                   // the handler may post it
  std::atomic<std::uint64_t> requests{0};       // signals so far; the handler counts them
  std::uint64_t served = 0;                     // requests whose dumps are written or have failed
  bool is_blocked = false;  // the thread has passed write_limit, and has served nothing since then
  std::vector<std::condition_variable*> waiters;  // are notified when `served` grows

  static RecordDumps& get() {
    static auto* dumps = new RecordDumps;
    return *dumps;
  }
  RecordDumps() {
    ::sem_init(&wake, 0, 0);
    std::atexit([] { get().finish_requests(); });
    ::pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                     [] {
                       // The communicators and the thread are the parent's.
                       get().live.clear();
                       get().has_thread = false;
                       get().is_blocked = false;
                       get().waiters.clear();
                       get().served = get().requests;
                       get().mutex.unlock();
                     });
  }

  static void on_signal(int number, siginfo_t* info, void* context) {
    const int error = errno;
    RecordDumps& dumps = get();
    ++dumps.requests;
    ::sem_post(&dumps.wake);
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
      while (::sem_wait(&dumps.wake) != 0) {
      }
      dumps.serve();
    }
  }

  struct Taken {
    std::string file;
    std::vector<std::string> lines;
  };

  /// Dumps all records if a signal has asked for it since the last dump.
  void serve() {
    std::vector<Taken> taken;
    std::unique_lock lock(mutex);
    const std::uint64_t request = requests;
    if (request == served) return;
    const Status status = status_of_call([&]() -> Status {
      for (const RecordDump* dump : live) {
        taken.push_back({dump->target_.file, dump->lines_(all_entries)});
      }
      return {};
    });
    lock.unlock();
    log_error(status);
    for (const Taken& dump : taken) {
      log_error(status_of_call([&] { return write_lines(dump.file, dump.lines); }));
    }
    lock.lock();
    served = request;
    is_blocked = false;
    for (std::condition_variable* waiter : waiters) waiter->notify_all();
  }

  static void log_error(const Status& status) {
    if (!status.ok()) best_effort([&] { log_line(LogLevel::error, status.message()); });
  }

  /// Waits until the thread has served the requests that were made before this call, at most for
  /// write_limit.
  void finish_requests() {
    best_effort([this] {
      std::unique_lock lock(mutex);
      const std::uint64_t request = requests;
      if (!has_thread || is_blocked || served >= request) return;
      std::condition_variable changed;
      waiters.push_back(&changed);
      const auto limit = std::chrono::steady_clock::now() + write_limit;
      const bool in_time = changed.wait_until(lock, limit, [&] { return served >= request; });
      std::erase(waiters, &changed);
      if (in_time) return;
      is_blocked = true;
      const std::string file = live.empty() ? "" : live.front()->target_.file;
      lock.unlock();
      // Without a file the log itself is blocked.
      if (file.empty()) return;
      log_line(LogLevel::error,
               fmt::format("the dump of the record that a signal asked for is not written after {} "
                           "s, and is lost if the process ends now: see what blocks '{}'",
                           write_limit.count(), file));
    });
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
  finish_requests();
  RecordDumps& dumps = RecordDumps::get();
  const std::lock_guard lock(dumps.mutex);
  std::erase(dumps.live, this);
}

void RecordDump::finish_requests() const {
  if (target_.signal != 0) RecordDumps::get().finish_requests();
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
  return write_lines(file, lines_(all_entries));
}

}  // namespace hocket::internal
