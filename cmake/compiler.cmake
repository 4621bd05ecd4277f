# Compiler options for all targets. No -march: the kernels choose their instruction set at run time,
# so that one binary serves every machine.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
# Installed programs find the library beside them, wherever the prefix is moved.
include(GNUInstallDirs)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Programs are compiled as the library is, so that they share its precompiled headers.
add_compile_options(-fPIC -fvisibility=hidden)
# A product and a sum fused into one rounding would make results depend on the instruction set.
add_compile_options(-ffp-contract=off)
# GCC loads two adjacent words at once, also words that two instructions have just stored: then the
# load waits until the stores are in the cache. A call of 8 bytes took up to 8 % longer.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fno-tree-slp-vectorize>)
add_compile_options(-Wall -Wextra -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Its false alarms on "text" + std::string (GCC bug 105651), and on insertions into strings and
  # vectors (105329), which show where the standard headers are precompiled.
  add_compile_options(-Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
endif()

# CLI11 is a large template library that runs once in a program: with full optimization a source
# that uses it would take half as long again to compile.
function(hocket_parses_options)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
endfunction()

# ccache knows a precompiled header by its contents; what it asks for is not to mind the macros and
# times that such a header may hide. There are none in system headers. Paths in the source tree are
# relative for it, so that another clone of the repository finds in the cache what this one has
# compiled.
find_program(CCACHE ccache)
if(CCACHE)
  set(_ccache env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
              CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${_ccache})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${_ccache})
endif()

# The standard library checks how its containers are used: cheap where nothing is optimized.
add_compile_definitions($<$<CONFIG:Debug,Sanitize>:_GLIBCXX_ASSERTIONS>)
# src/base/assert.h: the library checks what must hold inside.
add_compile_definitions($<$<CONFIG:Debug,Sanitize>:HOCKET_ASSERTS>)

if(HOCKET_SANITIZE)
  string(REPLACE ";" "," _sanitizers "${HOCKET_SANITIZE}")
  # Line tables only: stacks stay readable. A build with a sanitizer is a debug build without
  # optimization, which halves its compile time; CMakeLists.txt names what is optimized in it.
  set(CMAKE_BUILD_TYPE Sanitize)
  set(_optimization -O0)
  if(HOCKET_FUZZ)
    set(_optimization -O1)
  endif()
  set(CMAKE_C_FLAGS_SANITIZE "${_optimization} -g1")
  set(CMAKE_CXX_FLAGS_SANITIZE "${_optimization} -g1")
  add_compile_options(
    -fsanitize=${_sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # Instrumented std::regex is full of its false alarms (GCC bug 105562); Release has it on.
  # Instrumented std::string draws false alarms about reads past its short buffer.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options(-Wno-maybe-uninitialized -Wno-stringop-overread)
  endif()
  if(HOCKET_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)  # libFuzzer sees which branches an input takes
  endif()
  add_link_options(-fsanitize=${_sanitizers})
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    # Clang 14 does not define the macros of GCC, for which the sources ask.
    string(TOUPPER ${_sanitizers} _macro)
    string(REGEX REPLACE ",.*" "" _macro ${_macro})
    add_compile_definitions(__SANITIZE_${_macro}__)
    # Programs in C get the C++ part of the sanitizers too, because the library is in C++.
    add_link_options(-fsanitize-link-c++-runtime)
    string(APPEND CMAKE_C_STANDARD_LIBRARIES " -lstdc++")
  endif()
  # Highway compiles each kernel for every instruction set. The kernels share nothing between
  # threads, so the thread sanitizer gets them for the least set only. The address sanitizer gets
  # one set for each length of vectors: 16, 32 and 64 bytes.
  if(HOCKET_SANITIZE STREQUAL thread)
    add_compile_definitions(HWY_COMPILE_ONLY_STATIC)
  else()
    add_compile_definitions("HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4)")
  endif()
endif()
