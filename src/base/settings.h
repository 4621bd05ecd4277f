// Every HOCKET_* environment variable, in one table: what the library and hocket-run read, what
// they refuse, and what `hocket-run --settings` prints all come from it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace hocket::internal {

/// What the environment asks for. An empty optional or string: the variable is unset (or empty),
/// and the caller's own value or the default holds.
struct Settings {
  std::optional<int> deadline_ms;
  std::optional<int> join_deadline_ms;
  std::optional<int> silence_ms;
  std::optional<bool> deterministic;
  std::optional<bool> checksum;
  std::string interface;  // a network interface or an address of this host
  bool use_shm = true;    // HOCKET_TRANSPORT: which transports may be used
  bool use_tcp = true;
  std::string algorithm;  // one of the names in the table
  LogLevel log = LogLevel::none;
  std::string job_key_file;
  std::string ssh;
  std::optional<int> launch_fd;
  std::vector<std::string> unknown;  // HOCKET_* variables that the table does not have
};

/// launcher: hocket-run sets it for its ranks, never a person.
enum class SettingKind { milliseconds, flag, text, choice, choices, launcher };

struct SettingInfo {
  const char* name;
  SettingKind kind;
  const char* allowed;   // choice, choices: the words, separated by '|'; else for people
  const char* standard;  // what holds when it is unset
  const char* help;
};

std::span<const SettingInfo> settings_table();
/// The table as text, a paragraph for each variable.
std::string settings_text();

/// Reads the environment. A bad value is an error that names the variable, the value and what is
/// allowed. Unknown HOCKET_* variables are no error: they are returned, and logged as warnings
/// with the nearest name. Also puts HOCKET_LOG into effect (set_log_level), if it is set.
Status read_settings(Settings* settings);
/// Only reads: from any "NAME=value" list that ends with a null pointer. Unknown names are not
/// logged, and HOCKET_LOG is not put into effect.
Status read_settings(const char* const* environment, Settings* settings);

/// True for the variables that hocket-run sets for its ranks.
bool set_by_launcher(std::string_view name);

/// "HOCKET_DEADLIN is not a setting of hocket; did you mean HOCKET_DEADLINE_MS?"
std::string unknown_setting_text(const std::string& name);

}  // namespace hocket::internal
