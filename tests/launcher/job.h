// Starts hocket-run for a test, and finds processes that remain of it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace hocket::internal::launch_test {

/// Paths of the programs built beside this one.
std::string hocket_run();
std::string this_program();

/// Waits until it is so, checking now and then; false after a minute, which is a failure.
bool eventually(const std::function<bool()>& is_so);

class Job {
 public:
  /// Starts hocket-run with these arguments. Everything that comes of it on this host carries a
  /// mark in its environment. With a setup, a shell runs that first: "exec 2>&-; ulimit -n 20".
  explicit Job(const std::vector<std::string>& arguments,
               const std::vector<std::string>& environment = {}, const std::string& setup = "");
  ~Job();  // kills what is left
  Job(const Job&) = delete;

  pid_t pid() const { return pid_; }
  void write_input(const std::string& bytes);  // in turn with reading what comes back
  void close_input() { input_.reset(); }
  void close_output() { output_[0].reset(); }
  /// Bytes of standard output that wait to be read.
  int unread() const;
  /// Whether hocket-run has ended, read or not.
  bool ended();
  /// Reads until standard output holds the text.
  bool wait_for(const std::string& text);
  /// Closes the input, reads both outputs to their end, and waits.
  void finish();
  void signal(int number) const;

  std::string out, err;
  int status = -1;  // exit status; -signal where one killed hocket-run itself

  /// Running processes with the mark (and agents, where they cannot have it).
  std::vector<pid_t> processes() const;
  /// Waits until there are none.
  bool all_gone() const;

 private:
  bool read_some(int timeout_ms);

  std::string mark_;
  pid_t pid_ = 0;
  UniqueFd input_;
  UniqueFd output_[2];
};

/// Starts, closes the input, and waits for the end.
struct Result {
  int status;
  std::string out, err;
};
Result run(const std::vector<std::string>& arguments,
           const std::vector<std::string>& environment = {}, const std::string& setup = "");

/// An empty file, for as long as this lives.
class TemporaryFile {
 public:
  TemporaryFile();
  ~TemporaryFile();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<pid_t> children_of(pid_t parent);
char state_of(pid_t pid);  // as in /proc/PID/stat; 0: there is no such process
std::string slurp(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);
std::vector<std::string> sorted_lines_of(const std::string& text);

/// The arguments, and a program: a shell that runs the script.
inline std::vector<std::string> shell(std::vector<std::string> arguments,
                                      const std::string& script) {
  for (const char* word : {"sh", "-c"}) arguments.push_back(word);
  arguments.push_back(script);
  return arguments;
}

}  // namespace hocket::internal::launch_test
