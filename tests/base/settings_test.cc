#include "base/settings.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <climits>
#include <string>
#include <vector>

namespace hocket::internal {
namespace {

Status read(const std::vector<std::string>& entries, Settings* settings) {
  std::vector<const char*> list;
  for (const std::string& entry : entries) list.push_back(entry.c_str());
  list.push_back(nullptr);
  return read_settings(list.data(), settings);
}

TEST(Settings, an_environment_without_them_leaves_every_field_unset) {
  Settings settings;
  settings.deadline_ms = 3;  // read_settings must reset it
  ASSERT_TRUE(read({"PATH=/bin", "HOCKET=1", "XHOCKET_LOG=info"}, &settings).ok());
  EXPECT_FALSE(settings.deadline_ms.has_value());
  EXPECT_FALSE(settings.deterministic.has_value());
  EXPECT_FALSE(settings.launch_fd.has_value());
  EXPECT_TRUE(settings.use_shm);
  EXPECT_TRUE(settings.use_tcp);
  EXPECT_EQ(settings.log, LogLevel::none);
  EXPECT_TRUE(settings.unknown.empty());
}

TEST(Settings, every_variable_reaches_its_field) {
  Settings settings;
  const Status status =
      read({"HOCKET_DEADLINE_MS=1", "HOCKET_JOIN_DEADLINE_MS=2147483647", "HOCKET_SILENCE_MS=250",
            "HOCKET_DETERMINISTIC=1", "HOCKET_INTERFACE=eth0", "HOCKET_TRANSPORT=tcp",
            "HOCKET_ALGORITHM=owner-fold", "HOCKET_LOG=debug", "HOCKET_CHECKSUM=0",
            "HOCKET_RECORD_OPERATIONS=0", "HOCKET_DUMP_FOLDER=/d", "HOCKET_DUMP_SIGNAL=USR2",
            "HOCKET_TRACE=/t", "HOCKET_JOB_KEY_FILE=/k", "HOCKET_SSH=ssh -v", "HOCKET_LAUNCH_FD=64",
            "HOCKET_NODES=1,4,2"},
           &settings);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(settings.deadline_ms, 1);
  EXPECT_EQ(settings.join_deadline_ms, INT_MAX);
  EXPECT_EQ(settings.silence_ms, 250);
  EXPECT_EQ(settings.deterministic, true);
  EXPECT_EQ(settings.checksum, false);
  EXPECT_EQ(settings.interface, "eth0");
  EXPECT_FALSE(settings.use_shm);
  EXPECT_TRUE(settings.use_tcp);
  EXPECT_EQ(settings.algorithm, "owner-fold");
  EXPECT_EQ(settings.log, LogLevel::debug);
  EXPECT_EQ(settings.record_operations, 0);
  EXPECT_EQ(settings.dump_folder, "/d");
  EXPECT_EQ(settings.dump_signal, SIGUSR2);
  EXPECT_EQ(settings.trace_folder, "/t");
  EXPECT_EQ(settings.job_key_file, "/k");
  EXPECT_EQ(settings.ssh, "ssh -v");
  EXPECT_EQ(settings.launch_fd, 64);
  EXPECT_EQ(settings.nodes, (std::vector<int>{1, 4, 2}));
}

TEST(Settings, what_the_launcher_sets_for_scripts_is_known_and_not_read) {
  Settings settings;
  const Status status = read({"HOCKET_RANK=x", "HOCKET_RANKS=-1", "HOCKET_LOCAL_RANK=0",
                              "HOCKET_LOCAL_RANKS=2", "HOCKET_LOCAL=1"},
                             &settings);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(settings.unknown, std::vector<std::string>{"HOCKET_LOCAL"});
  EXPECT_TRUE(set_by_launcher("HOCKET_LOCAL_RANKS"));
  EXPECT_TRUE(set_by_launcher("HOCKET_LAUNCH_FD"));
  EXPECT_FALSE(set_by_launcher("HOCKET_LOG"));
}

TEST(Settings, an_empty_value_is_an_unset_variable) {
  for (const SettingInfo& info : settings_table()) {
    Settings settings;
    EXPECT_TRUE(read({std::string(info.name) + "="}, &settings).ok()) << info.name;
    EXPECT_TRUE(settings.unknown.empty()) << info.name;
  }
}

TEST(Settings, a_bad_value_is_refused_by_name_with_what_is_allowed) {
  const struct {
    const char* entry;
    const char* allowed;  // must be in the message, as the entry must
  } rows[] = {
      {"HOCKET_DEADLINE_MS=0", "milliseconds"},
      {"HOCKET_DEADLINE_MS=-1", "1 to 2147483647"},
      {"HOCKET_DEADLINE_MS=2147483648", "1 to 2147483647"},
      {"HOCKET_DEADLINE_MS=99999999999999999999", "milliseconds"},
      {"HOCKET_DEADLINE_MS=10s", "milliseconds"},
      {"HOCKET_DEADLINE_MS= 10", "milliseconds"},
      {"HOCKET_JOIN_DEADLINE_MS=1.5", "milliseconds"},
      {"HOCKET_SILENCE_MS=ten", "milliseconds"},
      {"HOCKET_DETERMINISTIC=yes", "0 or 1"},
      {"HOCKET_CHECKSUM=2", "0 or 1"},
      {"HOCKET_NODES=2,", "numbers of ranks"},
      {"HOCKET_NODES=2,0", "numbers of ranks"},
      {"HOCKET_NODES=2;2", "numbers of ranks"},
      {"HOCKET_TRANSPORT=shm,", "shm, tcp"},
      {"HOCKET_TRANSPORT=tcp,tcp", "each once"},
      {"HOCKET_TRANSPORT=udp", "shm, tcp"},
      {"HOCKET_ALGORITHM=rings", "did you mean ring?"},
      {"HOCKET_ALGORITHM=owner_fold", "did you mean owner-fold?"},
      {"HOCKET_ALGORITHM=ring|tree", "one of inline"},
      {"HOCKET_LOG=INFO", "none, error, warn, info, debug"},
      {"HOCKET_LOG=INFO", "did you mean info?"},
      {"HOCKET_LOG=warning", "did you mean warn?"},
      {"HOCKET_RECORD_OPERATIONS=-1", "a whole number, 0 to 1048576"},
      {"HOCKET_RECORD_OPERATIONS=1048577", "a whole number, 0 to 1048576"},
      {"HOCKET_DUMP_SIGNAL=KILL", "USR1, USR2"},
      {"HOCKET_LAUNCH_FD=2", "hocket-run"},
      {"HOCKET_LAUNCH_FD=x", "hocket-run"},
  };
  for (const auto& row : rows) {
    Settings settings;
    const Status status = read({row.entry}, &settings);
    EXPECT_EQ(status.code(), Code::invalid_argument) << row.entry;
    EXPECT_NE(status.message().find(row.entry), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(row.allowed), std::string::npos) << status.message();
  }
}

TEST(Settings, every_word_that_the_table_allows_is_allowed) {
  for (const SettingInfo& info : settings_table()) {
    if (info.kind == SettingKind::text || info.kind == SettingKind::milliseconds ||
        info.kind == SettingKind::number || info.kind == SettingKind::launcher) {
      continue;
    }
    std::string list = info.allowed;
    while (!list.empty()) {
      const std::size_t end = std::min(list.find('|'), list.size());
      const std::string entry = std::string(info.name) + "=" + list.substr(0, end);
      Settings settings;
      EXPECT_TRUE(read({entry}, &settings).ok()) << entry;
      list.erase(0, end + 1);
    }
  }
}

TEST(Settings, the_transports_may_come_in_any_order) {
  const struct {
    const char* value;
    bool shm, tcp;
  } rows[] = {
      {"shm,tcp", true, true},
      {"tcp,shm", true, true},
      {"shm", true, false},
      {"tcp", false, true},
  };
  for (const auto& row : rows) {
    Settings settings;
    ASSERT_TRUE(read({std::string("HOCKET_TRANSPORT=") + row.value}, &settings).ok()) << row.value;
    EXPECT_EQ(settings.use_shm, row.shm) << row.value;
    EXPECT_EQ(settings.use_tcp, row.tcp) << row.value;
  }
}

TEST(Settings, unknown_variables_are_returned_and_the_nearest_name_is_offered) {
  Settings settings;
  ASSERT_TRUE(
      read({"HOCKET_DEADLIN_MS=5", "HOCKET_LOG=warn", "HOCKET_WHATEVER=1"}, &settings).ok());
  EXPECT_EQ(settings.unknown, (std::vector<std::string>{"HOCKET_DEADLIN_MS", "HOCKET_WHATEVER"}));
  const struct {
    const char* name;
    const char* offered;
  } rows[] = {
      {"HOCKET_DEADLIN_MS", "did you mean HOCKET_DEADLINE_MS?"},
      {"HOCKET_DEADLINE", "did you mean HOCKET_DEADLINE_MS?"},
      {"HOCKET_TRANSPORTS", "did you mean HOCKET_TRANSPORT?"},
      {"HOCKET_IFACE", "did you mean HOCKET_INTERFACE?"},
      {"HOCKET_SSG", "did you mean HOCKET_SSH?"},
      {"HOCKET_FOO", "hocket-run --settings"},  // 2 of 3 letters differ from LOG
      {"HOCKET_", "hocket-run --settings"},
      {"HOCKET_XYZXYZXYZXYZXYZXYZ", "hocket-run --settings"},
  };
  for (const auto& row : rows) {
    const std::string text = unknown_setting_text(row.name);
    EXPECT_NE(text.find(row.name), std::string::npos) << text;
    EXPECT_NE(text.find(row.offered), std::string::npos) << text;
  }
}

TEST(Settings, the_log_hears_of_unknown_variables) {
  std::string heard;
  set_log_sink([](int, const char* line, void* user) { *static_cast<std::string*>(user) += line; },
               &heard);
  ::setenv("HOCKET_CHECKSUMS", "1", 1);
  Settings settings;
  const Status status = read_settings(&settings);
  ::unsetenv("HOCKET_CHECKSUMS");
  set_log_sink(nullptr, nullptr);
  EXPECT_TRUE(status.ok());
  EXPECT_NE(heard.find("HOCKET_CHECKSUM?"), std::string::npos) << heard;
}

TEST(Settings, the_printed_table_has_every_variable_and_its_help) {
  const std::string text = settings_text();
  for (const SettingInfo& info : settings_table()) {
    EXPECT_NE(text.find(std::string(info.name) + "\n"), std::string::npos) << info.name;
    EXPECT_NE(text.find(info.help), std::string::npos) << info.name;
  }
}

}  // namespace
}  // namespace hocket::internal
