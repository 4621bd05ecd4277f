#include "blas.h"

#include <dlfcn.h>

#include <filesystem>
#include <memory>
#include <stdexcept>

namespace lab {
namespace {

using Library = std::unique_ptr<void, int (*)(void*)>;

Library loaded(const char* name) {
  return {dlopen(name, RTLD_LAZY | (name == nullptr ? 0 : RTLD_NOLOAD)), dlclose};
}

/// OpenBLAS, BLIS and ATLAS may be called libblas.so too, by Debian's alternatives. Each has one of
/// these functions, in itself or in a library that it loads; the reference BLAS has none.
constexpr const char* functions_of_others[] = {"openblas_get_config", "saxpby_", "ATL_buildinfo"};

}  // namespace

std::string reference_blas(const char* library) {
  Library from = loaded(library);
  if (from == nullptr) from = loaded(nullptr);
  void* const product = dlsym(from.get(), "sgemm_");
  Dl_info where{};
  if (product == nullptr || dladdr(product, &where) == 0 || where.dli_fname == nullptr) return "";
  const std::string file = where.dli_fname;
  if (std::filesystem::path(file).filename().string().rfind("libblas.so", 0) != 0) return "";
  const Library blas = loaded(file.c_str());
  for (const char* const function : functions_of_others) {
    if (blas != nullptr && dlsym(blas.get(), function) != nullptr) return "";
  }
  return file;
}

void require_fast_blas() {
  const std::string file = reference_blas("libtorch_cpu.so");
  if (file.empty()) return;
  throw std::runtime_error("libtorch computes with the reference BLAS (" + file +
                           "), whose matrix products take 13 times as long, so nothing is measured "
                           "here. Install an optimized BLAS (Debian: libopenblas0-pthread), or use "
                           "a libtorch that has one, as that of PyPI");
}

}  // namespace lab
