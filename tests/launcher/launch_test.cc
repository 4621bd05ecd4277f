#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "bootstrap/launchers/launcher.h"

namespace hocket::internal {
namespace {

LaunchInfo some_place(int rank, int ranks) {
  LaunchInfo info;
  for (std::size_t i = 0; i < info.key.size(); ++i) info.key[i] = static_cast<std::uint8_t>(i * 7);
  for (std::size_t i = 0; i < info.job_id.size(); ++i) info.job_id[i] = 200 + i;
  info.coordinator.ip = {10, 1, 2, 3};
  info.coordinator.port = 40001;
  info.rank = rank;
  info.ranks = ranks;
  return info;
}

Settings naming(int fd) {
  Settings settings;
  settings.launch_fd = fd;
  return settings;
}

UniqueFd listening_socket() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  ::listen(fd.get(), 1);
  return fd;
}

void expect_refused(int fd, const std::string& why) {
  LaunchInfo info;
  const Status status = detect_launch(naming(fd), &info);
  EXPECT_EQ(status.code(), Code::invalid_usage) << why;
  EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("hocket-run"), std::string::npos) << status.message();
}

TEST(Launch, a_record_says_what_was_put_into_it_again_and_again) {
  const LaunchInfo given = some_place(5, 9);
  UniqueFd record;
  ASSERT_TRUE(make_launch_record(given, -1, &record).ok());
  for (int again = 0; again < 3; ++again) {
    LaunchInfo info;
    const Status status = detect_launch(naming(record.get()), &info);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(info.has_key);
    EXPECT_EQ(info.key, given.key);
    EXPECT_EQ(info.job_id, given.job_id);
    EXPECT_EQ(info.coordinator.ip, given.coordinator.ip);
    EXPECT_EQ(info.coordinator.port, given.coordinator.port);
    EXPECT_FALSE(info.coordinator.v6);
    EXPECT_EQ(info.rank, 5);
    EXPECT_EQ(info.ranks, 9);
    EXPECT_FALSE(info.coordinator_listener);
    EXPECT_EQ(info.source, "hocket-run");
  }
}

TEST(Launch, every_reading_gets_a_listener_of_its_own) {
  const UniqueFd listener = listening_socket();
  UniqueFd record;
  ASSERT_TRUE(make_launch_record(some_place(0, 2), listener.get(), &record).ok());
  for (int again = 0; again < 2; ++again) {
    LaunchInfo info;
    ASSERT_TRUE(detect_launch(naming(record.get()), &info).ok());
    ASSERT_TRUE(info.coordinator_listener);
    EXPECT_NE(info.coordinator_listener.get(), listener.get());
    int listening = 0;
    socklen_t size = sizeof listening;
    ASSERT_EQ(
        ::getsockopt(info.coordinator_listener.get(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &size),
        0);
    EXPECT_EQ(listening, 1);
    EXPECT_NE(::fcntl(info.coordinator_listener.get(), F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(Launch, children_of_a_rank_inherit_neither_key_nor_listener) {
  const UniqueFd listener = listening_socket();
  UniqueFd record;
  ASSERT_TRUE(make_launch_record(some_place(0, 2), listener.get(), &record).ok());
  ::fcntl(record.get(), F_SETFD, 0);  // as it is in a rank
  LaunchInfo info;
  ASSERT_TRUE(detect_launch(naming(record.get()), &info).ok());
  EXPECT_NE(::fcntl(record.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(::fcntl(listener.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Launch, a_record_cannot_be_changed) {
  UniqueFd record;
  ASSERT_TRUE(make_launch_record(some_place(0, 1), -1, &record).ok());
  EXPECT_LT(::pwrite(record.get(), "x", 1, 0), 0);
  EXPECT_NE(::ftruncate(record.get(), 0), 0);
}

TEST(Launch, what_is_not_a_sealed_record_is_refused) {
  expect_refused(900, "is not open");
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  expect_refused(null.get(), "holds no launch record");
  const UniqueFd open_file(::memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  expect_refused(open_file.get(), "is not sealed");
}

// A sealed file with these bytes of a sound record changed.
UniqueFd forged(std::size_t at, const std::string& bytes, std::size_t length) {
  UniqueFd sound;
  EXPECT_TRUE(make_launch_record(some_place(1, 4), -1, &sound).ok());
  std::string record(512, '\0');
  const ssize_t size = ::pread(sound.get(), record.data(), record.size(), 0);
  EXPECT_GT(size, 0);
  record.replace(at, bytes.size(), bytes);
  if (length == 0) length = static_cast<std::size_t>(size);
  UniqueFd fd(::memfd_create("forged", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), record.data(), length), static_cast<ssize_t>(length));
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  return fd;
}

TEST(Launch, an_unsound_record_is_refused_with_the_reason) {
  const std::string big("\xff\xff\xff\x7f", 4);
  const struct {
    std::size_t at;
    std::string bytes;
    std::size_t length;
    const char* why;
  } rows[] = {
      {0, "X", 0, "holds no launch record"},
      {0, "", 8, "holds no launch record"},
      {0, "", 0 + 1, "holds no launch record"},
      {8, std::string("\2", 1), 0, "version 2"},
      {12, std::string("\1", 1), 0, "different releases"},
      {0, "", 100, "different releases"},
      {0, "", 300, "different releases"},
      {16, big, 0, "rank 2147483647 of 4"},
      {16, std::string("\4", 1), 0, "rank 4 of 4"},
      {16, std::string("\xff\xff\xff\xff", 4), 0, "rank -1 of 4"},
      {20, std::string("\0\0\0\0", 4), 0, "rank 1 of 0"},
      {20, big, 0, "of 2147483647"},
      {24, std::string("\x84\3\0\0", 4), 0, "listening socket, descriptor 900, was closed"},
  };
  for (const auto& row : rows) {
    const UniqueFd fd = forged(row.at, row.bytes, row.length);
    expect_refused(fd.get(), row.why);
  }
}

class Variables {
 public:
  ~Variables() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }

 private:
  std::vector<std::string> names_;
};

TEST(Launch, hocket_run_counts_beside_variables_that_a_program_or_its_mpi_library_may_set) {
  Variables environment;
  for (const char* name : {"PMIX_RANK", "PMIX_NAMESPACE", "RANK", "WORLD_SIZE", "MASTER_ADDR"}) {
    environment.set(name, "3");
  }
  UniqueFd record;
  ASSERT_TRUE(make_launch_record(some_place(1, 2), -1, &record).ok());
  LaunchInfo info;
  ASSERT_TRUE(detect_launch(naming(record.get()), &info).ok());
  EXPECT_EQ(info.source, "hocket-run");
}

class KeyFile : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hocket-key-XXXXXX";
    const UniqueFd fd(::mkstemp(name));
    ASSERT_TRUE(fd);
    path_ = name;
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  void put(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string path_;
};

TEST_F(KeyFile, sixty_four_digits_are_a_key) {
  for (const char* end : {"", "\n", "\r\n"}) {
    put("00ff10" + std::string(56, 'a') + "eE" + end);
    Key key{};
    const Status status = read_key_file(path_, &key);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(key[0], 0x00);
    EXPECT_EQ(key[1], 0xff);
    EXPECT_EQ(key[2], 0x10);
    EXPECT_EQ(key[31], 0xee);
  }
}

TEST_F(KeyFile, anything_else_is_refused) {
  for (const std::string& text :
       {std::string(), std::string(63, 'a'), std::string(65, 'a'), std::string(63, 'a') + "g",
        std::string(64, 'a') + "\nb", std::string(200, 'a')}) {
    put(text);
    Key key{};
    const Status status = read_key_file(path_, &key);
    EXPECT_EQ(status.code(), Code::invalid_argument) << text;
    EXPECT_NE(status.message().find(path_), std::string::npos);
    EXPECT_NE(status.message().find("64 hexadecimal digits"), std::string::npos);
  }
}

TEST_F(KeyFile, a_file_that_others_may_use_is_refused) {
  put(std::string(64, 'a'));
  for (const mode_t mode : {0640, 0604, 0660, 0610, 0644, 0777}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    Key key{};
    const Status status = read_key_file(path_, &key);
    EXPECT_EQ(status.code(), Code::invalid_argument) << std::oct << mode;
    EXPECT_NE(status.message().find("chmod 600"), std::string::npos) << status.message();
  }
  ASSERT_EQ(::chmod(path_.c_str(), 0400), 0);
  Key key{};
  EXPECT_TRUE(read_key_file(path_, &key).ok());
}

TEST_F(KeyFile, a_file_of_another_user_is_refused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  put(std::string(64, 'a'));
  ASSERT_EQ(::chown(path_.c_str(), 1, 1), 0);
  Key key{};
  const Status status = read_key_file(path_, &key);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find(path_ + " belongs to another user"), std::string::npos)
      << status.message();
  EXPECT_EQ(key, Key{}) << "the key was read";
}

TEST_F(KeyFile, a_missing_file_or_a_directory_is_refused) {
  Key key{};
  EXPECT_EQ(read_key_file(path_ + ".no", &key).code(), Code::system_error);
  EXPECT_EQ(read_key_file("/tmp", &key).code(), Code::invalid_argument);
}

}  // namespace
}  // namespace hocket::internal
