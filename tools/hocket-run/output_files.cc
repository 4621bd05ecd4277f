#include "output_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/unique_fd.h"

namespace hocket::internal::launch {
namespace {

/// True for rank.R.out and rank.R.err.
bool is_output_file(std::string_view name) {
  if (!name.starts_with("rank.") || !(name.ends_with(".out") || name.ends_with(".err")))
    return false;
  if (name.size() < 10) return false;
  const std::string_view number = name.substr(5, name.size() - 9);
  return std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
}

Status bad_directory(const std::string& directory, const std::error_code& error) {
  return invalid_argument("--output-dir: cannot use " + directory + ": " + error.message() +
                          "; name a directory that you may write to");
}

Status check_unused(const std::string& directory) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!is_output_file(name)) continue;
    return invalid_argument("--output-dir: " + directory + " has the output of another job (" +
                            name +
                            "); name another directory, or remove rank.*.out and rank.*.err there");
  }
  return error ? bad_directory(directory, error) : Status();
}

}  // namespace

std::string OutputFiles::path_of(int rank, int descriptor) const {
  return directory_ + "/rank." + std::to_string(rank) + (descriptor == 2 ? ".err" : ".out");
}

Status OutputFiles::create(const std::string& directory, int ranks) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return bad_directory(directory, error);
  HOCKET_RETURN_IF_ERROR(check_unused(directory));
  directory_ = directory;
  for (; ranks_ < ranks; ++ranks_) {
    for (const int descriptor : {1, 2}) {
      const std::string path = path_of(ranks_, descriptor);
      const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      if (!file) return bad_directory(directory, {errno, std::generic_category()});
    }
  }
  return {};
}

Status OutputFiles::append(int rank, int descriptor, std::string_view bytes) {
  const std::string path = path_of(rank, descriptor);
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) return system_error("cannot write " + path);
  empty_ = false;
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("cannot write " + path);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

void OutputFiles::remove_if_empty() {
  if (!in_use() || !empty_) return;
  for (int rank = 0; rank < ranks_; ++rank) {
    for (const int descriptor : {1, 2}) ::unlink(path_of(rank, descriptor).c_str());
  }
}

}  // namespace hocket::internal::launch
