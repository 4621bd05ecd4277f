#include "base/settings.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/limits.h"

namespace hocket::internal {
namespace {

constexpr std::string_view prefix = "HOCKET_";

// Sets the member of settings for a variable; value is not empty. False: the value is not allowed.
using Parse = bool (*)(std::string_view value, const SettingInfo& info, Settings* settings);

struct Setting {
  SettingInfo info;
  Parse parse;
};

bool parse_int(std::string_view text, int least, int most, int* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= least && *out <= most;
}

template <std::optional<int> Settings::*member, int least = 1>
bool parse_ms(std::string_view value, const SettingInfo&, Settings* settings) {
  int ms = 0;
  if (!parse_int(value, least, INT_MAX, &ms)) return false;
  settings->*member = ms;
  return true;
}

template <std::optional<bool> Settings::*member>
bool parse_flag(std::string_view value, const SettingInfo&, Settings* settings) {
  if (value != "0" && value != "1") return false;
  settings->*member = value == "1";
  return true;
}

template <bool Settings::*member>
bool parse_switch(std::string_view value, const SettingInfo&, Settings* settings) {
  settings->*member = value == "1";
  return value == "0" || value == "1";
}

template <std::string Settings::*member>
bool parse_text(std::string_view value, const SettingInfo&, Settings* settings) {
  settings->*member = value;
  return true;
}

/// Index of word in a list like "a|b|c"; -1: the list does not have it.
int index_in(std::string_view word, std::string_view list, char separator) {
  for (int index = 0;; ++index) {
    const std::size_t end = list.find(separator);
    if (list.substr(0, end) == word) return index;
    if (end == std::string_view::npos) return -1;
    list.remove_prefix(end + 1);
  }
}

bool parse_log(std::string_view value, const SettingInfo& info, Settings* settings) {
  const int level = index_in(value, info.allowed, '|');  // listed in LogLevel's order
  if (level < 0) return false;
  settings->log = static_cast<LogLevel>(level);
  return true;
}

bool parse_record(std::string_view value, const SettingInfo&, Settings* settings) {
  int operations = 0;
  if (!parse_int(value, 0, most_recorded, &operations)) return false;
  settings->record_operations = operations;
  return true;
}

bool parse_signal(std::string_view value, const SettingInfo& info, Settings* settings) {
  const int index = index_in(value, info.allowed, '|');
  if (index < 0) return false;
  settings->dump_signal = index == 0 ? SIGUSR1 : SIGUSR2;
  return true;
}

bool parse_transport(std::string_view value, const SettingInfo&, Settings* settings) {
  bool shm = false;
  bool tcp = false;
  while (true) {
    const std::size_t end = value.find(',');
    const std::string_view word = value.substr(0, end);
    if (word != "shm" && word != "tcp") return false;
    bool& chosen = word == "shm" ? shm : tcp;
    if (chosen) return false;
    chosen = true;
    if (end == std::string_view::npos) break;
    value.remove_prefix(end + 1);
  }
  settings->use_shm = shm;
  settings->use_tcp = tcp;
  return true;
}

bool parse_nodes(std::string_view value, const SettingInfo&, Settings* settings) {
  std::vector<int> sizes;
  for (std::size_t end = 0; end != std::string_view::npos;) {
    end = value.find(',');
    if (!parse_int(value.substr(0, end), 1, INT_MAX, &sizes.emplace_back())) return false;
    if (end != std::string_view::npos) value.remove_prefix(end + 1);
  }
  settings->nodes = std::move(sizes);
  return true;
}

bool parse_descriptor(std::string_view value, const SettingInfo&, Settings* settings) {
  int fd = -1;
  if (!parse_int(value, 3, INT_MAX, &fd)) return false;
  settings->launch_fd = fd;
  return true;
}

/// For variables that the library does not read.
bool parse_any(std::string_view, const SettingInfo&, Settings*) { return true; }

constexpr const char* a_time = "1 to 2147483647";

constexpr Setting table[] = {
    {{"HOCKET_DEADLINE_MS", SettingKind::milliseconds, a_time, "600000",
      "Longest time that an operation may take, from when it begins to run."},
     parse_ms<&Settings::deadline_ms>},
    {{"HOCKET_JOIN_DEADLINE_MS", SettingKind::milliseconds, a_time, "600000",
      "Longest time that a join may take, until all ranks have joined."},
     parse_ms<&Settings::join_deadline_ms>},
    {{"HOCKET_SILENCE_MS", SettingKind::milliseconds, "100 to 2147483647", "10000",
      "Longest time that a rank may send no heartbeat; a rank that is silent longer (stopped, or "
      "its "
      "host cut off) is an error."},
     parse_ms<&Settings::silence_ms, least_silence_ms>},
    {{"HOCKET_DETERMINISTIC", SettingKind::flag, "0|1", "0",
      "1: results depend only on the inputs and the number of ranks, bit for bit."},
     parse_flag<&Settings::deterministic>},
    {{"HOCKET_INTERFACE", SettingKind::text, "a network interface (eth0) or an address", "",
      "The interface on which ranks listen for other hosts. Unset: the interface that routes to "
      "them."},
     parse_text<&Settings::interface>},
    {{"HOCKET_TRANSPORT", SettingKind::choices, "shm|tcp", "shm,tcp",
      "The transports that may be used, separated by commas, in any order. With tcp alone, ranks "
      "of "
      "a host use TCP too."},
     parse_transport},
    {{"HOCKET_NODES", SettingKind::text, "numbers of ranks: 2,2 or 1,4,2", "",
      "For experiments, equal on all ranks: the ranks of a host are treated as ranks of several "
      "nodes. 1,4,2: rank 0 is alone, ranks 1 to 4 share a node, and ranks 5 and 6. Ranks of "
      "different nodes use TCP."},
     parse_nodes},
    {{"HOCKET_ALGORITHM", SettingKind::choice,
      "inline|one-shot|staged|root-fold|eager|direct|ring|tree|owner-fold|pairs|recursive-doubling|"
      "k-nomial|double-tree|circulant|pat|bruck|two-level|leaders",
      "chosen by measured cost",
      "For experiments: the algorithm to use wherever it is possible; must be equal on all ranks."},
     parse_text<&Settings::algorithm>},  // check_algorithm() checks it
    {{"HOCKET_CHECKSUM", SettingKind::flag, "0|1", "0",
      "1: every frame of a message, over TCP and shared memory, carries a CRC32C of its payload."},
     parse_flag<&Settings::checksum>},
    {{"HOCKET_LOG", SettingKind::choice, "none|error|warn|info|debug", "none",
      "Lines of this level and above go to standard error."},
     parse_log},
    {{"HOCKET_RECORD_OPERATIONS", SettingKind::number, "0 to 1048576", "64",
      "How many of its latest operations a communicator records, for hocketCommDumpRecord and at "
      "an "
      "error; rounded up to a power of two. 0: none."},
     parse_record},
    {{"HOCKET_DUMP_FOLDER", SettingKind::text, "a folder that exists", "",
      "At an error and at the signal of HOCKET_DUMP_SIGNAL the record of operations is appended to "
      "a file in this folder. Unset: it is logged."},
     parse_text<&Settings::dump_folder>},
    {{"HOCKET_DUMP_SIGNAL", SettingKind::choice, "USR1|USR2", "",
      "A signal at which the process dumps the records of operations of all its communicators; a "
      "handler that was set before still runs."},
     parse_signal},
    {{"HOCKET_TRACE", SettingKind::text, "a folder that exists", "",
      "The times of every operation are written to files in this folder, which hocket-trace joins; "
      "must be set on all ranks, or on none."},
     parse_text<&Settings::trace_folder>},
    {{"HOCKET_PLAN_FILES", SettingKind::text, "paths of files, with colons between them", "",
      "Plans of your own (docs/PLANS.md): verified, and then candidates beside the built-in "
      "algorithms; must be equal on all ranks."},
     parse_text<&Settings::plan_files>},
    {{"HOCKET_JOB_KEY_FILE", SettingKind::text, "a file of mode 0600: 64 hexadecimal digits", "",
      "The file with the job key, for launchers other than hocket-run; the same key on all hosts, "
      "in "
      "a file of this user that no other user may read."},
     parse_text<&Settings::job_key_file>},
    {{"HOCKET_TRUST_NETWORK", SettingKind::flag, "0|1", "0",
      "1: under torchrun, srun and RANK with WORLD_SIZE, ranks on several hosts join without a "
      "secret: every process that reaches these hosts over the network may join too."},
     parse_switch<&Settings::trust_network>},
    {{"HOCKET_TLS", SettingKind::flag, "0|1", "0",
      "1: every TCP connection between ranks is encrypted by TLS 1.3 with a key that follows from "
      "the job key; must be equal on all ranks."},
     parse_switch<&Settings::tls>},
    {{"HOCKET_SSH", SettingKind::text, "a command and its options", "ssh",
      "The command that hocket-run starts to reach another host; --ssh overrides it."},
     parse_text<&Settings::ssh>},
    {{"HOCKET_LAUNCH_FD", SettingKind::launcher, "set by hocket-run only", "",
      "The inherited descriptor with the launch record of a rank. Do not set it."},
     parse_descriptor},
    {{"HOCKET_RANK", SettingKind::launcher, "set by hocket-run only", "",
      "The number of this rank, for scripts. The library does not read it."},
     parse_any},
    {{"HOCKET_RANKS", SettingKind::launcher, "set by hocket-run only", "",
      "How many ranks the job has, for scripts. The library does not read it."},
     parse_any},
    {{"HOCKET_LOCAL_RANK", SettingKind::launcher, "set by hocket-run only", "",
      "The number of this rank among those of its host, for scripts. The library does not read "
      "it."},
     parse_any},
    {{"HOCKET_LOCAL_RANKS", SettingKind::launcher, "set by hocket-run only", "",
      "How many ranks this host has, for scripts. The library does not read it."},
     parse_any},
};

constexpr auto infos = [] {
  std::array<SettingInfo, std::size(table)> list{};
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = table[i].info;
  return list;
}();

/// Levenshtein distance: how many letters must be added, removed or changed to turn a into b.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

/// Whether letters can be left out of long_form, but not its first, to get short_form: IFACE and
/// INTER of INTERFACE.
bool abbreviates(std::string_view short_form, std::string_view long_form) {
  if (short_form.empty() || !long_form.starts_with(short_form.front())) return false;
  for (const char c : long_form) {
    if (!short_form.empty() && short_form.front() == c) short_form.remove_prefix(1);
  }
  return short_form.empty();
}

/// The candidate that is nearest to word; empty: none is near. An abbreviation is near, however
/// many letters are missing.
std::string nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  const std::size_t most = word.size() < 4 ? 1 : std::max<std::size_t>(2, word.size() / 3);
  std::size_t least = most + 1;
  for (const std::string_view candidate : candidates) {
    const bool near = abbreviates(word, candidate) || abbreviates(candidate, word);
    const std::size_t distance = near ? 1 : edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return std::string(best);
}

std::string allowed_text(const SettingInfo& info) {
  std::string words;
  for (const char* c = info.allowed; *c != 0; ++c) words += *c == '|' ? ", " : std::string(1, *c);
  switch (info.kind) {
    case SettingKind::milliseconds:
      return "a whole number of milliseconds, " + words;
    case SettingKind::number:
      return "a whole number, " + words;
    case SettingKind::flag:
      return "0 or 1";
    case SettingKind::choice:
      return "one of " + words;
    case SettingKind::choices:
      return words + ", or several separated by commas, each once";
    case SettingKind::text:
    case SettingKind::launcher:
      break;
  }
  return words;
}

Status bad_value(const SettingInfo& info, std::string_view value) {
  std::string text = std::string(info.name) + "=" + std::string(value) + " is not allowed: set " +
                     info.name + " to " + allowed_text(info) + ", or unset it";
  if (info.kind == SettingKind::choice) {
    std::vector<std::string_view> words;
    std::string_view list = info.allowed;
    while (!list.empty()) {
      const std::size_t end = std::min(list.find('|'), list.size());
      words.push_back(list.substr(0, end));
      list.remove_prefix(std::min(end + 1, list.size()));
    }
    std::string lower(value);
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const std::string near = nearest(lower, words);
    if (!near.empty()) text += " (did you mean " + near + "?)";
  }
  return invalid_argument(text);
}

Status read_one(const Setting& setting, const char* const* environment, Settings* settings) {
  const std::string_view name = setting.info.name;
  for (const char* const* entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(name) || text.size() <= name.size() || text[name.size()] != '=') continue;
    const std::string_view value = text.substr(name.size() + 1);
    if (value.empty() || setting.parse(value, setting.info, settings)) return {};
    return bad_value(setting.info, value);
  }
  return {};
}

/// The names of a user's plans are known when the files have been read.
Status check_algorithm(const Settings& settings) {
  if (settings.algorithm.empty() || !settings.plan_files.empty()) return {};
  const auto info = std::ranges::find(infos, std::string_view("HOCKET_ALGORITHM"),
                                      [](const SettingInfo& row) { return row.name; });
  if (index_in(settings.algorithm, info->allowed, '|') >= 0) return {};
  return bad_value(*info, settings.algorithm);
}

}  // namespace

std::span<const SettingInfo> settings_table() { return infos; }

std::string settings_text() {
  std::string text;
  for (const SettingInfo& info : infos) {
    text += std::string(info.name) + "\n    " + info.help + "\n    Allowed: " + allowed_text(info) +
            ".";
    if (*info.standard != 0) text += std::string(" Default: ") + info.standard + ".";
    text += "\n";
  }
  return text;
}

bool set_by_launcher(std::string_view name) {
  return std::ranges::any_of(infos, [&](const SettingInfo& info) {
    return info.kind == SettingKind::launcher && name == info.name;
  });
}

std::string unknown_setting_text(const std::string& name) {
  const auto without_prefix = [](std::string_view full) { return full.substr(prefix.size()); };
  std::vector<std::string_view> names;
  names.reserve(infos.size());
  for (const SettingInfo& info : infos) names.push_back(without_prefix(info.name));
  const std::string near = nearest(without_prefix(name), names);
  return name + " is not a setting of hocket" +
         (near.empty() ? "; `hocket-run --settings` lists them"
                       : "; did you mean " + std::string(prefix) + near + "?");
}

Status read_settings(const char* const* environment, Settings* settings) {
  *settings = Settings();
  for (const Setting& setting : table) {
    HOCKET_RETURN_IF_ERROR(read_one(setting, environment, settings));
  }
  HOCKET_RETURN_IF_ERROR(check_algorithm(*settings));
  for (const char* const* entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(prefix)) continue;
    const std::string_view name = text.substr(0, text.find('='));
    const auto known = [&](const SettingInfo& info) { return name == info.name; };
    if (std::ranges::none_of(infos, known)) settings->unknown.emplace_back(name);
  }
  return {};
}

Status read_settings(Settings* settings) {
  HOCKET_RETURN_IF_ERROR(read_settings(environ, settings));
  if (settings->log != LogLevel::none) set_log_level(settings->log);
  for (const std::string& name : settings->unknown) {
    log_line(LogLevel::warn, unknown_setting_text(name));
  }
  return {};
}

}  // namespace hocket::internal
