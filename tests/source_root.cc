#include "source_root.h"

namespace tests {

const std::filesystem::path& source_root() {
  static const std::filesystem::path root = SOURCE_ROOT;
  return root;
}

}  // namespace tests
