# What a user gets: the C headers, the C++ headers, libhocket.so, the programs (perf/ installs its
# own), a CMake package and a pkg-config file. All of it may be moved to another prefix.
include(CMakePackageConfigHelpers)

install(FILES include/hocket/hocket.h include/hocket/collectives.h
        include/hocket/communicators.h include/hocket/operators.h include/hocket/hocket.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hocket)
install(DIRECTORY include/hocket/cpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hocket)
install(FILES examples/plans/cube.json examples/plans/chain.json examples/plans/rails.json
        docs/plan.schema.json
        DESTINATION ${CMAKE_INSTALL_DATADIR}/hocket/plans)
install(TARGETS hocket hocket_training LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET hocket_heap)
  install(TARGETS hocket_heap LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# The training layer. Its adapter for libtorch is compiled by the programs that use it: see
# hocket-config.cmake.in.
install(DIRECTORY include/hocket/training DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hocket)
file(GLOB _headers_for_adapter CONFIGURE_DEPENDS src/training/*.h)
install(FILES ${_headers_for_adapter} DESTINATION ${CMAKE_INSTALL_DATADIR}/hocket/adapter/training)
install(DIRECTORY src/training/torch DESTINATION ${CMAKE_INSTALL_DATADIR}/hocket/adapter/training)
if(TARGET hocket-run)
  install(TARGETS hocket-run hocket-topo hocket-trace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

if(TARGET hocket-train-gpt)
  get_target_property(_libtorch torch_cpu LOCATION)
  get_filename_component(_libtorch ${_libtorch} DIRECTORY)
  set_target_properties(hocket-train-gpt PROPERTIES
    INSTALL_RPATH "${CMAKE_INSTALL_RPATH};${_libtorch}")
  install(TARGETS hocket-train-gpt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/hocket)
configure_package_config_file(cmake/hocket-config.cmake.in ${CMAKE_BINARY_DIR}/hocket-config.cmake
  INSTALL_DESTINATION ${_package}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_BINDIR
            CMAKE_INSTALL_DATADIR
  NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/hocket-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/hocket-config.cmake
              ${CMAKE_BINARY_DIR}/hocket-config-version.cmake
        DESTINATION ${_package})

# pkg-config finds the prefix from where the file lies.
file(RELATIVE_PATH HOCKET_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" HOCKET_PC_PREFIX "${HOCKET_PC_PREFIX}")
configure_file(cmake/hocket.pc.in ${CMAKE_BINARY_DIR}/hocket.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/hocket.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
