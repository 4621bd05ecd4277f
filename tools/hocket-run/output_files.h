// The files of --output-dir: standard output and standard error of each rank.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace hocket::internal::launch {

class OutputFiles {
 public:
  /// Makes the directory if it does not exist, and in it rank.R.out and rank.R.err for each rank.
  /// An error if the directory has such a file already: the output of two jobs must not mix.
  Status create(const std::string& directory, int ranks);
  bool in_use() const { return !directory_.empty(); }
  /// Appends to the file of a rank; descriptor: 1 or 2. A file is open only for the time of this
  /// call, so that the number of ranks is not limited by the limit of open files.
  Status append(int rank, int descriptor, std::string_view bytes);
  /// Removes the files if all are empty, so that the user can repeat a job that did not start.
  void remove_if_empty();

 private:
  std::string path_of(int rank, int descriptor) const;

  std::string directory_;  // empty: there are no files
  int ranks_ = 0;
  bool empty_ = true;
};

}  // namespace hocket::internal::launch
