// Files, with errors that name the path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace hocket::training::storage {

/// An open file. Calls throw Failure.
class File {
 public:
  /// A new file; an error if the path exists.
  static File create(const std::string& path);
  /// An existing regular file, for reading.
  static File open(const std::string& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t bytes() const;
  void write(const void* data, std::size_t bytes, std::uint64_t offset);
  /// Reads exactly so many bytes; an end of the file before them is damage.
  void read(void* data, std::size_t bytes, std::uint64_t offset) const;
  /// Returns when the contents are on the disk, and closes the file.
  void sync_and_close();

 private:
  File(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  std::string path_;
  int descriptor_ = -1;
};

/// The names in a directory are on the disk when the call returns.
void sync_directory(const std::string& path);
void rename_path(const std::string& from, const std::string& to);
/// The contents of a file of at most most_bytes; a larger file is damage.
std::string contents_of(const std::string& path, std::uint64_t most_bytes);
/// A new file with these contents, which are on the disk when the call returns.
void write_file(const std::string& path, const std::string& contents);

}  // namespace hocket::training::storage
