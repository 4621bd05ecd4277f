// Which BLAS a library computes with.
#pragma once

#include <string>

namespace lab {

/// The file of the reference BLAS, if the matrix product of this loaded library comes from there;
/// else empty. library: as in dlopen; if it is not loaded, the program itself.
std::string reference_blas(const char* library);

/// Throws std::runtime_error if libtorch computes with the reference BLAS: then steps take so long
/// that communication beside them says nothing.
void require_fast_blas();

}  // namespace lab
