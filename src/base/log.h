// Log lines. The library passes them to the callback of the user, and writes them to standard error
// only if HOCKET_LOG says so.
#pragma once

#include <string>

namespace hocket::internal {

enum class LogLevel : int { none = 0, error = 1, warn = 2, info = 3, debug = 4 };
using LogSink = void (*)(int level, const char* line, void* user);

void set_log_sink(LogSink sink, void* user);
void set_log_level(LogLevel level);  // of the lines on standard error
bool log_enabled(LogLevel level);
void log_line(LogLevel level, const std::string& line);

/// To be called in a forked child, before it has a second thread. Callback and level stay; the lock
/// is free, even if a thread of the parent held it.
void renew_log_after_fork();

}  // namespace hocket::internal
