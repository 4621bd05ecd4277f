# The training layer is a user of the library: it calls hocket.hpp only. Its core is a shared
# library; the adapter for libtorch is a static library, which programs outside of this tree compile
# from installed sources, because libtorch has no stable ABI.
set(HOCKET_TORCH "" CACHE STRING
    "Folder of libtorch's CMake packages: builds the adapter for libtorch; empty: without it")

file(GLOB _training CONFIGURE_DEPENDS src/training/*.cc)
add_library(hocket_training SHARED ${_training})
add_library(hocket::training ALIAS hocket_training)
target_include_directories(hocket_training PUBLIC ${CMAKE_SOURCE_DIR}/include PRIVATE src)
target_link_libraries(hocket_training PUBLIC hocket
  PRIVATE fmt::fmt hwy::hwy nlohmann_json::nlohmann_json Threads::Threads)
target_compile_options(hocket_training PRIVATE -fvisibility=default)
hocket_join_sources_if_sanitized(hocket_training)
# A precompiled header of its own, because the symbols of this library are visible.
hocket_precompiled(precompiled_training fmt::fmt)
if(TARGET precompiled_training)
  target_compile_options(precompiled_training PRIVATE -fvisibility=default)
endif()
hocket_precompile(precompiled_training hocket_training)
set_source_files_properties(src/training/adamw_vectors.cc src/training/range_math.cc PROPERTIES
  SKIP_PRECOMPILE_HEADERS ON)  # see precompile.cmake
# JSON is a large template library, and is written once a step or less.
set_source_files_properties(
  src/training/report.cc src/training/safetensors_header.cc src/training/trace.cc PROPERTIES
  COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
set_target_properties(hocket_training PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})

if(HOCKET_TORCH)
  set(CMAKE_POLICY_DEFAULT_CMP0074 NEW)
  find_package(Torch REQUIRED PATHS ${HOCKET_TORCH} NO_DEFAULT_PATH)
  if(Torch_VERSION VERSION_LESS 2.7)
    message(FATAL_ERROR "hocket::torch needs libtorch 2.7 or newer, not ${Torch_VERSION}")
  endif()
  file(GLOB _adapter CONFIGURE_DEPENDS src/training/torch/*.cc)
  add_library(hocket_torch STATIC ${_adapter})
  add_library(hocket::torch ALIAS hocket_torch)
  target_include_directories(hocket_torch PRIVATE src)
  # libtorch's headers take 10 s of processor time to compile, and 6 s where they are precompiled:
  # GCC makes the templates that they use anew for each source.
  hocket_join_sources(hocket_torch 100)
  target_link_libraries(hocket_torch PUBLIC hocket_training torch_cpu c10)
  target_include_directories(hocket_torch SYSTEM PUBLIC ${TORCH_INCLUDE_DIRS})
endif()

# A program that includes libtorch's headers. They are compiled once for all such programs, with the
# first of these: without optimization, because what these programs compute is inside of libtorch.
function(hocket_uses_torch target)
  target_link_libraries(${target} PRIVATE hocket_torch torch)
  target_compile_options(${target} PRIVATE -O0)
  get_property(_first GLOBAL PROPERTY hocket_first_of_torch)
  if(HOCKET_PCH AND NOT _first)
    target_precompile_headers(${target} PRIVATE <torch/torch.h> <hocket/hocket.hpp>)
    set_property(GLOBAL PROPERTY hocket_first_of_torch ${target})
  else()
    hocket_precompile("${_first}" ${target})
  endif()
endfunction()
