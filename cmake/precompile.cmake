# System headers that many sources include are parsed once. Each source still includes what it uses:
# builds by Clang do without this, but for those with a sanitizer, which compile several sources as
# one anyway.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT HOCKET_SANITIZE)
  set(HOCKET_PCH OFF)
endif()

function(hocket_precompiled name libraries)
  if(NOT HOCKET_PCH)
    return()
  endif()
  if(NOT EXISTS ${CMAKE_BINARY_DIR}/precompiled.cc)
    file(WRITE ${CMAKE_BINARY_DIR}/precompiled.cc "")
  endif()
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled.cc)
  target_link_libraries(${name} PRIVATE ${libraries})
  target_precompile_headers(${name} PRIVATE
    <algorithm> <array> <atomic> <bit> <cerrno> <chrono> <condition_variable> <cstdint> <cstdlib>
    <cstring> <deque> <functional> <map> <memory> <mutex> <set> <span> <string> <thread> <tuple>
    <vector> <fmt/format.h> ${ARGN})
  # Else ccache would not find what was compiled with the precompiled header of another tree.
  target_compile_options(${name} PRIVATE
    "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endfunction()

function(hocket_precompile name)
  if(HOCKET_PCH)
    foreach(_target ${ARGN})
      target_precompile_headers(${_target} REUSE_FROM ${name})
    endforeach()
  endif()
endfunction()

hocket_precompiled(precompiled fmt::fmt)

# GCC 12 for Arm crashes where arm_sve.h follows a precompiled header.
file(GLOB _kernels CONFIGURE_DEPENDS src/reduce/kernels_*.cc)
set_source_files_properties(${_kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
# With them Clang takes more than 5 minutes for one of these sources. Other trees sanitize them.
if(HOCKET_FUZZ)
  set_source_files_properties(${_kernels} PROPERTIES
    COMPILE_OPTIONS "-fno-sanitize=address,undefined,fuzzer-no-link")
endif()
