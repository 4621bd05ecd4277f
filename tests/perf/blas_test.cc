// ./dev bench training measures nothing over the reference BLAS.
#include "training/blas.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

namespace {

/// What reference_blas() says of a library that is loaded for that.
std::string reference_blas_of(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  const std::string found = lab::reference_blas(library);
  dlclose(handle);
  return found;
}

TEST(Blas, of_the_reference_is_found_behind_the_library_that_computes_with_it) {
  const std::string found = reference_blas_of(COMPUTES_WITH_REFERENCE);
  EXPECT_NE(found.find("/libblas.so.3"), std::string::npos) << found;
}

TEST(Blas, of_others_that_have_its_name_or_that_is_inside_of_the_library_is_not_the_reference) {
  EXPECT_EQ(reference_blas_of(COMPUTES_WITH_OPENBLAS), "");
  EXPECT_EQ(reference_blas_of(CONTAINS_BLAS), "");
}

}  // namespace
