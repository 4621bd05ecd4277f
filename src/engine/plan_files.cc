#include "engine/plan_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/unique_fd.h"
#include "collectives/plan/json.h"

namespace hocket::internal {
namespace {

constexpr std::size_t most_files = 64;

Status read_file(const std::string& path, std::string* out) {
  // Of a pipe without a writer, open() would wait.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return system_error("cannot open " + path);
  if (!S_ISREG(info.st_mode)) return invalid_argument(path + " is no regular file");
  out->resize(most_file_bytes + 1);  // read_plan() refuses a text of that length
  std::size_t filled = 0;
  while (filled < out->size()) {
    const ssize_t got = ::read(file.get(), out->data() + filled, out->size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read " + path);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  out->resize(filled);
  return {};
}

}  // namespace

Status read_plan_files(const std::string& paths, std::vector<PlanFile>* out) {
  out->clear();
  for (std::size_t begin = 0; begin < paths.size();) {
    const std::size_t end = std::min(paths.find(':', begin), paths.size());
    const std::string path = paths.substr(begin, end - begin);
    begin = end + 1;
    if (path.empty()) continue;
    if (out->size() == most_files) return invalid_argument("there are more than 64 files");
    std::string text;
    HOCKET_RETURN_IF_ERROR(read_file(path, &text));
    HOCKET_RETURN_IF_ERROR(read_plan(text, path, &out->emplace_back()));
  }
  return {};
}

}  // namespace hocket::internal
