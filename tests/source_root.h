// The folder of the repository, for tests that read its files. Its path is compiled into one object
// alone, so that clones of the repository share all others in the compiler's cache.
#pragma once

#include <filesystem>

namespace tests {

const std::filesystem::path& source_root();

}  // namespace tests
