# Unity builds. Several sources of a folder are compiled as one, so that the headers and templates
# that they have in common are compiled once. Builds with a sanitizer take little more than half the
# time this way; continuous integration makes two of them. The other builds join tests only, in
# smaller groups, and compile each source of the library and of the programs alone, because a
# changed source is compiled faster then.
#
# The sources that are compiled as one have one unnamed namespace. A source is compiled alone, and
# is in this list, if it declares a name there that another source of its folder declares too.
set(HOCKET_ALONE
  src/bootstrap/launchers/pmix.cc src/bootstrap/launchers/rank0_port.cc
  src/collectives/algorithms/pat.cc src/collectives/algorithms/ring.cc
  src/collectives/algorithms/root_fold.cc src/collectives/algorithms/staged.cc
  src/collectives/algorithms/tree.cc src/collectives/algorithms/trees.cc
  src/collectives/algorithms/two_level.cc src/collectives/algorithms/two_level_blocks.cc
  src/collectives/algorithms/two_level_rooted.cc tests/api/bad_input_test.cc
  tests/api/operators_test.cc tests/rules/dependencies_test.cc tests/rules/lengths_test.cc
  tests/rules/paths_test.cc)
# Highway includes these sources again for each instruction set.
file(GLOB _kernels RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS src/reduce/*.cc)
list(APPEND HOCKET_ALONE src/training/adamw_vectors.cc src/training/range_math.cc ${_kernels})

# Compiles up to `most` sources of a folder as one.
function(hocket_join_sources target most)
  get_target_property(_sources ${target} SOURCES)
  get_target_property(_base ${target} SOURCE_DIR)
  foreach(_source ${_sources})
    get_filename_component(_path ${_source} ABSOLUTE BASE_DIR ${_base})
    file(RELATIVE_PATH _path ${CMAKE_SOURCE_DIR} ${_path})
    if(NOT _path MATCHES "\\.cc$" OR _path IN_LIST HOCKET_ALONE)
      continue()
    endif()
    get_filename_component(_folder ${_path} DIRECTORY)
    string(MAKE_C_IDENTIFIER ${_folder} _folder)
    math(EXPR _number "${_count_${_folder}} + 0")
    math(EXPR _count_${_folder} "${_number} + 1")
    math(EXPR _group "${_number} / ${most}")
    set_source_files_properties(${_source} TARGET_DIRECTORY ${target} PROPERTIES
      UNITY_GROUP ${_folder}_${_group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC takes the sources for headers, in which a type of an unnamed namespace is suspicious.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

function(hocket_join_sources_if_sanitized)
  if(HOCKET_SANITIZE)
    foreach(_target ${ARGN})
      hocket_join_sources(${_target} 8)
    endforeach()
  endif()
endfunction()

function(hocket_join_tests target)
  if(HOCKET_SANITIZE)
    hocket_join_sources(${target} 8)
  else()
    hocket_join_sources(${target} 4)
  endif()
endfunction()
