// The library's log lines.
#pragma once

#include <functional>
#include <hocket/cpp/error.hpp>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

namespace hocket {

enum class LogLevel { error = 1, warning = 2, information = 3, debugging = 4 };
using LogCallback = std::function<void(LogLevel, std::string_view line)>;

/// Sets the callback that receives every log line of the process from now on: one line at a time,
/// on any thread. An empty callback receives no lines. The callback must return soon and must not
/// call hocket; an exception that it throws is lost. set_log_callback returns when no thread is
/// inside the callback that was set before; it then destroys that callback.
inline void set_log_callback(LogCallback callback) {
  // Not destroyed at the end of the process, when threads may still log.
  static std::mutex* const mutex = new std::mutex;
  static LogCallback* current = nullptr;
  const auto call = [](int level, const char* line, void* user) {
    try {
      (*static_cast<LogCallback*>(user))(static_cast<LogLevel>(level), line);
    } catch (...) {  // NOLINT: no exception may cross the C library
    }
  };
  auto next = callback ? std::make_unique<LogCallback>(std::move(callback)) : nullptr;
  const std::lock_guard lock(*mutex);
  check(hocketSetLogCallback(next ? +call : nullptr, next.get()), "hocketSetLogCallback");
  const std::unique_ptr<LogCallback> old(std::exchange(current, next.release()));
}

}  // namespace hocket
