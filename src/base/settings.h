// The table of all HOCKET_* environment variables. The library and hocket-run parse and check the
// variables by it, and `hocket-run --settings` prints it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace hocket::internal {

/// The values of the variables. An empty optional or string: the variable is unset or empty, and
/// the value of the configuration or the default applies.
struct Settings {
  std::optional<int> deadline_ms;
  std::optional<int> join_deadline_ms;
  std::optional<int> silence_ms;
  std::optional<bool> deterministic;
  std::optional<bool> checksum;
  std::string interface;  // a network interface or an address of this host
  bool use_shm = true;    // HOCKET_TRANSPORT: which transports may be used
  bool use_tcp = true;
  std::vector<int> nodes;  // the sizes of the nodes that share a host; empty: a host is one node
  std::string algorithm;   // one of the names in the table; with plan_files, any name
  LogLevel log = LogLevel::none;
  std::optional<int> record_operations;
  std::string dump_folder;
  int dump_signal = 0;  // 0: none
  std::string trace_folder;
  std::string plan_files;  // with colons between them
  std::string job_key_file;
  bool trust_network = false;
  bool tls = false;
  std::string ssh;
  std::optional<int> launch_fd;
  std::vector<std::string> unknown;  // HOCKET_* variables that the table does not have
};

/// launcher: only hocket-run sets the variable, for its ranks.
enum class SettingKind { milliseconds, number, flag, text, choice, choices, launcher };

struct SettingInfo {
  const char* name;
  SettingKind kind;
  const char* allowed;   // choice, choices: the words, separated by '|'; else a description
  const char* standard;  // the default
  const char* help;
};

std::span<const SettingInfo> settings_table();
/// The table as text, a paragraph for each variable.
std::string settings_text();

/// Reads the environment. A bad value is an error that names the variable, the value and the values
/// that are allowed. Unknown HOCKET_* variables are no error: settings->unknown lists them, and a
/// warning for each is logged with the nearest name. If HOCKET_LOG is set, sets the log level.
Status read_settings(Settings* settings);
/// The same for any "NAME=value" list that ends with a null pointer, but logs no warnings and does
/// not set the log level.
Status read_settings(const char* const* environment, Settings* settings);

/// True for the variables that hocket-run sets for its ranks.
bool set_by_launcher(std::string_view name);

/// "HOCKET_DEADLIN is not a setting of hocket; did you mean HOCKET_DEADLINE_MS?"
std::string unknown_setting_text(const std::string& name);

}  // namespace hocket::internal
