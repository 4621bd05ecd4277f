# The shared heap: a library that stands in front of malloc (LD_PRELOAD). It is loaded into programs
# of any kind, so it brings its C++ library along and shows none of it. The sanitizers replace
# malloc themselves: with them only its core exists, for tests.
add_library(hocket_heap_core STATIC src/heap/shared_heap.cc src/heap/wrong_pointer.cc)
target_include_directories(hocket_heap_core PUBLIC src)
if(NOT HOCKET_SANITIZE)
  add_library(hocket_heap SHARED src/heap/malloc.cc)
  # Without -fno-builtin the compiler may take malloc and memset for a call of calloc.
  target_compile_options(hocket_heap PRIVATE -fno-builtin)
  target_link_libraries(hocket_heap PRIVATE hocket_heap_core ${CMAKE_DL_LIBS})
  target_link_options(hocket_heap PRIVATE -static-libstdc++ -static-libgcc
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/heap.map)
  set_target_properties(hocket_heap PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/heap.map)
endif()
