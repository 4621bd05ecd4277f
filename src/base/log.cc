#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <new>

#include "base/signals.h"

namespace hocket::internal {
namespace {

struct Sink {
  LogSink function = nullptr;
  void* user = nullptr;
};

/// The one mutable state of the library that lies below Process (api/process.h): all modules log,
/// the lowest too. It is made when the library is loaded, and nothing of it needs to be destroyed.
struct Log {
  std::mutex mutex;           // held while a line is written, and while the sink changes
  std::array<Sink, 2> sinks;  // the current one changes by `current` only: whole at every moment
  std::atomic<int> current{0};
  std::atomic<bool> has_sink{false};
  std::atomic<int> stderr_level{0};
};
constinit Log log;

}  // namespace

void set_log_sink(LogSink sink, void* user) {
  std::lock_guard lock(log.mutex);
  const int next = 1 - log.current;
  log.sinks[static_cast<std::size_t>(next)] = {sink, user};
  log.current = next;
  log.has_sink = sink != nullptr;
}

void set_log_level(LogLevel level) { log.stderr_level = static_cast<int>(level); }

bool log_enabled(LogLevel level) {
  return log.has_sink.load(std::memory_order_relaxed) ||
         static_cast<int>(level) <= log.stderr_level.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, const std::string& line) {
  if (!log_enabled(level)) return;
  std::lock_guard lock(log.mutex);
  const Sink sink = log.sinks[static_cast<std::size_t>(log.current)];
  if (sink.function != nullptr) sink.function(static_cast<int>(level), line.c_str(), sink.user);
  if (static_cast<int>(level) <= log.stderr_level.load(std::memory_order_relaxed)) {
    const std::string text = "hocket: " + line + "\n";
    // One write per line, so that the lines of several ranks do not mix. A line is lost if the
    // write fails. The signal of a closed pipe or of the file size limit must not end the process.
    without_signal(SIGXFSZ, [&text] {
      return without_signal(SIGPIPE,
                            [&text] { return ::write(STDERR_FILENO, text.data(), text.size()); });
    });
  }
}

void renew_log_after_fork() { new (&log.mutex) std::mutex; }

}  // namespace hocket::internal
