// The job key in a credential of MUNGE. Every test runs a munged of its own, with a /run of its
// own, which needs root.
#include "bootstrap/launchers/munge.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>

#include "base/unique_fd.h"

namespace hocket::internal {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr uid_t other_user = 1;
constexpr char socket_path[] = "/run/munge/munge.socket.2";  // libmunge's default

/// What a program prints, without the end of the line.
std::string output_of(const std::string& command) {
  std::string text;
  FILE* const from = ::popen(command.c_str(), "r");
  for (int c = std::getc(from); c != EOF; c = std::getc(from)) text += static_cast<char>(c);
  ::pclose(from);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

/// What the function returns in a process of another user.
std::string as_other_user(const std::function<std::string()>& make) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const bool changed = ::setgroups(0, nullptr) == 0 &&
                         ::setresgid(other_user, other_user, other_user) == 0 &&
                         ::setresuid(other_user, other_user, other_user) == 0;
    const std::string text = changed ? make() : "cannot change the user";
    static_cast<void>(!::write(ends[1], text.data(), text.size()));
    ::_exit(0);
  }
  ::close(ends[1]);
  const UniqueFd from(ends[0]);
  std::string text;
  char part[512];
  for (ssize_t size; (size = ::read(from.get(), part, sizeof part)) > 0;) {
    text.append(part, static_cast<std::size_t>(size));
  }
  ::waitpid(child, nullptr, 0);
  return text;
}

std::string error_of_opening(const std::string& credential) {
  Bytes bytes;
  const Status status = open_by_munge(credential, &bytes);
  return status.ok() ? "opened" : status.message();
}

class Munge : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "munged with a /run of its own needs root";
    if (::access("/usr/sbin/munged", X_OK) != 0) GTEST_SKIP() << "munged is not installed";
    folder_ = UniqueFd(::open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    outside_ = UniqueFd(::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
    if (::unshare(CLONE_NEWNS) != 0) GTEST_SKIP() << "no mount namespaces here";
    inside_ = true;
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(::mount("tmpfs", "/run", "tmpfs", 0, "mode=755"), 0);
    ASSERT_EQ(::mkdir("/run/munge", 0755), 0);
  }

  void TearDown() override {
    if (munged_ > 0) {
      ::kill(munged_, SIGKILL);
      ::waitpid(munged_, nullptr, 0);
    }
    if (!inside_) return;
    EXPECT_EQ(::setns(outside_.get(), CLONE_NEWNS), 0);
    EXPECT_EQ(::fchdir(folder_.get()), 0);
  }

  void start_munged() {
    std::ofstream("/run/key") << std::string(64, 'k');
    ASSERT_EQ(::chmod("/run/key", 0600), 0);
    munged_ = ::fork();
    if (munged_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
      ::dup2(nowhere, STDOUT_FILENO);
      ::dup2(nowhere, STDERR_FILENO);
      ::execl("/usr/sbin/munged", "munged", "--foreground", "--force", "--key-file=/run/key",
              "--seed-file=/run/seed", "--log-file=/run/log", "--pid-file=/run/pid", nullptr);
      ::_exit(127);
    }
    while (!answers()) {
      ASSERT_EQ(::waitpid(munged_, nullptr, WNOHANG), 0) << "munged has ended";
      ::usleep(1'000);
    }
  }

 private:
  static bool answers() {
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
    return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }

  pid_t munged_ = -1;
  UniqueFd folder_;
  UniqueFd outside_;
  bool inside_ = false;
};

TEST_F(Munge, that_does_not_run_is_an_error_that_says_so) {
  std::string credential;
  const Status sealed = seal_by_munge({1, 2, 3}, &credential);
  EXPECT_EQ(sealed.code(), Code::system_error);
  const std::string why = sealed.message();
  EXPECT_NE(why.find("MUNGE cannot make a credential: "), std::string::npos) << why;
  EXPECT_NE(why.find("munged does not answer on this host"), std::string::npos) << why;
  const std::string opened = error_of_opening("MUNGE:AwQDAAA=:");
  EXPECT_NE(opened.find("MUNGE cannot open rank 0's credential: "), std::string::npos) << opened;
}

TEST_F(Munge, gives_the_bytes_back_to_this_user_once_and_to_no_other) {
  start_munged();
  const Bytes key = {0, 1, 255, 0, 7};
  std::string credential;
  const Status sealed = seal_by_munge(key, &credential);
  ASSERT_TRUE(sealed.ok()) << sealed.message();
  const std::string error = as_other_user([&] { return error_of_opening(credential); });
  EXPECT_NE(error.find("MUNGE cannot open rank 0's credential: Unauthorized"), std::string::npos)
      << error;
  Bytes bytes;
  const Status opened = open_by_munge(credential, &bytes);
  ASSERT_TRUE(opened.ok()) << opened.message();
  EXPECT_EQ(bytes, key);
  EXPECT_NE(error_of_opening(credential).find("Replayed"), std::string::npos);
}

TEST_F(Munge, credential_that_another_user_made_for_this_one_is_refused) {
  start_munged();
  const std::string credential =
      as_other_user([] { return output_of("munge --restrict-uid=0 --string=key"); });
  ASSERT_TRUE(credential.starts_with("MUNGE:")) << credential;
  const std::string error = error_of_opening(credential);
  EXPECT_NE(error.find("was made by user 1, and this process belongs to user 0"), std::string::npos)
      << error;
}

TEST_F(Munge, credential_that_was_damaged_is_refused) {
  start_munged();
  std::string credential;
  ASSERT_TRUE(seal_by_munge(Bytes(32, 5), &credential).ok());
  for (std::size_t at = 6; at + 8 < credential.size(); at += 9) {  // behind "MUNGE:"
    std::string damaged = credential;
    damaged[at] = damaged[at] == 'A' ? 'B' : 'A';
    const std::string error = error_of_opening(damaged);
    EXPECT_NE(error.find("MUNGE cannot open rank 0's credential: "), std::string::npos)
        << at << ": " << error;
  }
  for (const std::string& text : {std::string(), std::string("MUNGE:"), credential.substr(0, 40)}) {
    EXPECT_NE(error_of_opening(text), "opened") << text;
  }
  EXPECT_EQ(error_of_opening(credential), "opened");
}

/// munged says that a credential is opened again as long as it has not expired. The clock of munged
/// cannot be set: the credential lives for the least time that MUNGE has, a second.
TEST_F(Munge, credential_that_has_expired_is_refused) {
  start_munged();
  const std::string credential = output_of("munge --restrict-uid=0 --ttl=1 --string=key");
  std::string error;
  do {
    ::usleep(1'000);
    error = error_of_opening(credential);
  } while (error == "opened" || error.find("Replayed") != std::string::npos);
  EXPECT_NE(error.find("MUNGE cannot open rank 0's credential: Expired"), std::string::npos)
      << error;
}

}  // namespace
}  // namespace hocket::internal
