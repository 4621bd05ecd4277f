#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <mutex>

#include "base/signals.h"

namespace hocket::internal {
namespace {
std::mutex sink_mutex;
LogSink user_sink = nullptr;
void* user_data = nullptr;
std::atomic<bool> has_sink{false};
std::atomic<int> stderr_level{0};
}  // namespace

void set_log_sink(LogSink sink, void* user) {
  std::lock_guard lock(sink_mutex);
  user_sink = sink;
  user_data = user;
  has_sink = sink != nullptr;
}

void set_log_level(LogLevel level) { stderr_level = static_cast<int>(level); }

bool log_enabled(LogLevel level) {
  return has_sink.load(std::memory_order_relaxed) ||
         static_cast<int>(level) <= stderr_level.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, const std::string& line) {
  if (!log_enabled(level)) return;
  std::lock_guard lock(sink_mutex);
  if (user_sink != nullptr) user_sink(static_cast<int>(level), line.c_str(), user_data);
  if (static_cast<int>(level) <= stderr_level.load(std::memory_order_relaxed)) {
    const std::string text = "hocket: " + line + "\n";
    // One write per line, so that the lines of several ranks do not mix. A line is lost if the
    // write fails. The signal of a closed pipe or of the file size limit must not end the process.
    without_signal(SIGXFSZ, [&text] {
      return without_signal(SIGPIPE,
                            [&text] { return ::write(STDERR_FILENO, text.data(), text.size()); });
    });
  }
}

}  // namespace hocket::internal
