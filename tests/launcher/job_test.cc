#include "launcher/job.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/clock.h"

namespace hocket::internal::launch_test {
namespace {

constexpr Nanos patience = 60 * nanos_per_s;
constexpr const char* mark_name = "LAUNCHER_TEST_MARK=";

std::vector<pid_t> all_processes() {
  std::vector<pid_t> list;
  DIR* directory = ::opendir("/proc");
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
      list.push_back(std::atoi(entry->d_name));
  }
  ::closedir(directory);
  return list;
}

std::string proc_file(pid_t pid, const char* name) {
  return slurp("/proc/" + std::to_string(pid) + "/" + name);
}

/// What follows the name in /proc/PID/stat: "S PPID ...".
std::string stat_of(pid_t pid) {
  const std::string text = proc_file(pid, "stat");
  const std::size_t end = text.rfind(')');
  return end == std::string::npos || end + 2 >= text.size() ? "" : text.substr(end + 2);
}

}  // namespace

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string this_program() {
  char path[4096] = {};
  return ::readlink("/proc/self/exe", path, sizeof path - 1) > 0 ? path : "";
}

std::string hocket_run() {
  const std::string self = this_program();
  return self.substr(0, self.rfind('/')) + "/hocket-run";
}

bool eventually(const std::function<bool()>& is_so) {
  const Nanos give_up = monotonic_now() + patience;
  while (!is_so()) {
    if (monotonic_now() > give_up) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

Job::Job(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
         const std::string& setup) {
  static int count = 0;
  mark_ = mark_name + std::to_string(::getpid()) + "." + std::to_string(++count) + ".";
  int in[2], out_pipe[2], err_pipe[2];
  ::signal(SIGPIPE, SIG_IGN);  // a job may end without reading its input
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out_pipe, O_CLOEXEC) != 0 ||
      ::pipe2(err_pipe, O_CLOEXEC) != 0) {
    std::abort();
  }
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), hocket_run());
  if (!setup.empty()) {
    const std::string script = setup + "; exec \"$0\" \"$@\"";
    words.insert(words.begin(), {"/bin/sh", "-c", script});
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(in[0], 0);
    ::dup2(out_pipe[1], 1);
    ::dup2(err_pipe[1], 2);
    ::putenv(mark_.data());
    for (const std::string& entry : environment) ::putenv(::strdup(entry.c_str()));
    ::setpgid(0, 0);
    ::signal(SIGPIPE, SIG_DFL);
    ::signal(SIGHUP, SIG_DFL);  // nohup lets it be ignored, and execv() keeps that
    ::execv(argv[0], argv.data());
    ::_exit(99);
  }
  input_ = UniqueFd(in[1]);
  output_[0] = UniqueFd(out_pipe[0]);
  output_[1] = UniqueFd(err_pipe[0]);
  for (const int fd : {in[0], out_pipe[1], err_pipe[1]}) ::close(fd);
}

Job::~Job() {
  for (const pid_t pid : processes()) ::kill(pid, SIGKILL);
  if (pid_ != 0) ::waitpid(pid_, nullptr, 0);
}

bool Job::read_some(int timeout_ms) {
  pollfd events[] = {{output_[0].get(), POLLIN, 0}, {output_[1].get(), POLLIN, 0}};
  ::poll(events, 2, timeout_ms);
  for (int which = 0; which < 2; ++which) {
    if (events[which].revents == 0) continue;
    char buffer[64 << 10];
    const ssize_t got = ::read(output_[which].get(), buffer, sizeof buffer);
    if (got > 0) {
      (which == 0 ? out : err).append(buffer, static_cast<std::size_t>(got));
    } else {
      output_[which].reset();
    }
  }
  return output_[0] || output_[1];
}

void Job::write_input(const std::string& bytes) {
  ::fcntl(input_.get(), F_SETFL, O_NONBLOCK);
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t written = ::write(input_.get(), bytes.data() + sent, bytes.size() - sent);
    if (written > 0) sent += static_cast<std::size_t>(written);
    if (written < 0 && errno != EAGAIN) return;
    read_some(written < 0 ? 10 : 0);
  }
}

bool Job::wait_for(const std::string& text) {
  const Nanos give_up = monotonic_now() + patience;
  while (out.find(text) == std::string::npos) {
    if (monotonic_now() > give_up || !read_some(1000)) {
      ADD_FAILURE() << "never saw '" << text << "' in: " << out << "\nbut: " << err;
      return false;
    }
  }
  return true;
}

void Job::finish() {
  close_input();
  const Nanos give_up = monotonic_now() + patience;
  while (read_some(1000)) {
    if (monotonic_now() < give_up) continue;
    ADD_FAILURE() << "the job does not end; so far: " << out << err;
    for (const pid_t pid : processes()) ::kill(pid, SIGKILL);
    break;
  }
  int wait_status = 0;
  ::waitpid(pid_, &wait_status, 0);
  pid_ = 0;
  status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -WTERMSIG(wait_status);
}

int Job::unread() const {
  int bytes = 0;
  ::ioctl(output_[0].get(), FIONREAD, &bytes);
  return bytes;
}

bool Job::ended() {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

void Job::signal(int number) const { ::kill(pid_, number); }

std::vector<pid_t> Job::processes() const {
  // Between hosts ssh carries no environment, so an agent has no mark; but there, in the rig's
  // process namespace, every agent is ours.
  const bool between_hosts = std::getenv("HOSTS") != nullptr;
  std::vector<pid_t> found;
  for (const pid_t pid : all_processes()) {
    if (pid == ::getpid() || state_of(pid) == 'Z') continue;
    const std::string command = proc_file(pid, "cmdline");
    if (proc_file(pid, "environ").find(mark_) != std::string::npos ||
        (between_hosts &&
         command.find(std::string("hocket-run\0--agent", 18)) != std::string::npos)) {
      found.push_back(pid);
    }
  }
  return found;
}

bool Job::all_gone() const {
  const bool gone = eventually([this] { return processes().empty(); });
  if (!gone) {
    for (const pid_t pid : processes()) {
      std::string command = proc_file(pid, "cmdline");
      std::ranges::replace(command, '\0', ' ');
      ADD_FAILURE() << "left behind: " << pid << " " << command;
    }
  }
  return gone;
}

Result run(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
           const std::string& setup) {
  Job job(arguments, environment, setup);
  job.finish();
  EXPECT_TRUE(job.all_gone());
  return {job.status, job.out, job.err};
}

TemporaryFile::TemporaryFile() {
  char name[] = "/tmp/hocket-test-XXXXXX";
  const UniqueFd fd(::mkstemp(name));
  path_ = name;
}

TemporaryFile::~TemporaryFile() { ::unlink(path_.c_str()); }

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const pid_t pid : all_processes()) {
    const std::string stat = stat_of(pid);
    if (stat.size() > 2 && std::atoi(stat.c_str() + 2) == parent) found.push_back(pid);
  }
  return found;
}

char state_of(pid_t pid) {
  const std::string stat = stat_of(pid);
  return stat.empty() ? 0 : stat[0];
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> sorted_lines_of(const std::string& text) {
  std::vector<std::string> lines = lines_of(text);
  std::ranges::sort(lines);
  return lines;
}

}  // namespace hocket::internal::launch_test
