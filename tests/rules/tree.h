// The files of the repository, and sources without comments and strings, for the tests of the
// rules.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace rules {

using Complaints = std::vector<std::string>;  // "path:line: what is wrong"

inline std::filesystem::path root() { return SOURCE_ROOT; }

inline std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct File {
  std::string path;  // from the root: "src/base/log.h"
  std::string text;
};

inline bool is_source(std::string_view path) {
  return path.ends_with(".h") || path.ends_with(".hpp") || path.ends_with(".cc") ||
         path.ends_with(".c");
}

/// All files people wrote: no build folders, nothing of git's, no inputs of the fuzz targets.
inline const std::vector<File>& files() {
  static const std::vector<File> all = [] {
    std::vector<File> found;
    namespace fs = std::filesystem;
    for (auto entry = fs::recursive_directory_iterator(root()); entry != fs::end(entry); ++entry) {
      const std::string path = fs::relative(entry->path(), root()).string();
      const bool top_folder = entry->is_directory() && entry.depth() == 0;
      if (path == ".git" || path == ".cache" || path == "tests/fuzz/corpus" ||
          (top_folder && path.starts_with("build"))) {
        entry.disable_recursion_pending();
      } else if (entry->is_regular_file()) {
        found.push_back({path, read(entry->path())});
      }
    }
    std::sort(found.begin(), found.end(),
              [](const File& a, const File& b) { return a.path < b.path; });
    return found;
  }();
  return all;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline std::string at(const std::string& path, std::size_t line, const std::string& what) {
  return path + ":" + std::to_string(line) + ": " + what;
}

/// The text with comments, literals' contents and preprocessor lines blanked, newlines kept.
std::string code_of(const std::string& text);

inline std::string join(const Complaints& complaints) {
  std::string all;
  for (const std::string& complaint : complaints) all += complaint + "\n";
  return all;
}

}  // namespace rules
