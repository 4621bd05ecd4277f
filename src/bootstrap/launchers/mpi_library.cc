#include "bootstrap/launchers/mpi_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace hocket::internal {
namespace {

// Open MPI; MPICH of Debian; the MPICH ABI (Intel MPI, Cray MPICH and others); links of developers.
constexpr const char* names[] = {"libmpi.so.40", "libmpich.so.12", "libmpi.so.12", "libmpi.so"};

/// A function of the program itself or of a library that it loaded, for itself alone or not.
template <typename Function>
Function find(const char* symbol) {
  if (void* const found = ::dlsym(RTLD_DEFAULT, symbol)) return reinterpret_cast<Function>(found);
  for (const char* name : names) {
    void* const library = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    void* const found = ::dlsym(library, symbol);
    ::dlclose(library);  // it was loaded before, and stays
    if (found != nullptr) return reinterpret_cast<Function>(found);
  }
  return nullptr;
}

}  // namespace

MpiState mpi_state() {
  const auto initialized = find<int (*)(int* flag)>("MPI_Initialized");
  if (initialized == nullptr) return MpiState::none;
  int flag = 0;
  return initialized(&flag) == 0 && flag != 0 ? MpiState::running : MpiState::loaded;
}

int open_mpi_major() {
  constexpr std::string_view name = "Open MPI v";
  constexpr std::size_t longest =
      8192;  // MPI_MAX_LIBRARY_VERSION_STRING of MPICH; others have less
  const auto version = find<int (*)(char* text, int* length)>("MPI_Get_library_version");
  std::string text(longest, '\0');
  int length = 0;
  if (version == nullptr || version(text.data(), &length) != 0 || !text.starts_with(name)) return 0;
  return std::atoi(text.c_str() + name.size());
}

}  // namespace hocket::internal
