// The library never prints: it hands lines to the callback that the user set. HOCKET_LOG=LEVEL asks
// for lines on stderr without touching code.
#pragma once

#include <string>

namespace hocket::internal {

enum class LogLevel : int { none = 0, error = 1, warn = 2, info = 3, debug = 4 };
using LogSink = void (*)(int level, const char* line, void* user);

void set_log_sink(LogSink sink, void* user);
void set_log_level(LogLevel level);  // for the stderr sink that HOCKET_LOG asks for
bool log_enabled(LogLevel level);
void log_line(LogLevel level, const std::string& line);

}  // namespace hocket::internal
