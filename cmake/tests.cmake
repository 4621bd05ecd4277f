# tests/FOLDER/*_test.cc make the program test_FOLDER, which ctest runs as the test FOLDER. A
# CMakeLists.txt in the folder adds to that (scripts, definitions). Exit status 77: skipped.
find_package(GTest REQUIRED)
# Optimized for what they do not do often, tests would take half as long again to compile. Those
# that compute little are not optimized at all.
set(_computing collectives cuda matrix memory reduce rules)
set(_options_computing $<$<CONFIG:Release,Sanitize>:-O1>)
set(_options_other -O0)
foreach(_kind computing other)
  hocket_precompiled(precompiled_tests_${_kind} "fmt::fmt;GTest::gtest" <fstream> <gtest/gtest.h>
                     <random> <sstream>)
  if(TARGET precompiled_tests_${_kind})
    target_compile_options(precompiled_tests_${_kind} PRIVATE ${_options_${_kind}})
  endif()
endforeach()

# This source compiles three times as fast without optimization, and its tests compute little.
set_source_files_properties(tests/collectives/json_test.cc PROPERTIES
  COMPILE_OPTIONS -O0 SKIP_PRECOMPILE_HEADERS ON)

# The label `once` marks tests whose result no sanitizer can change: they run in Release only. So do
# tests that read nothing but sources. The thread sanitizer finds nothing in folders whose tests run
# in one thread, or start programs that do.
set(_left_out)
if(HOCKET_SANITIZE)
  set(_left_out rules launchers)
endif()
# The tests of exhaustion replace malloc, as the sanitizers do.
if(HOCKET_SANITIZE)
  list(APPEND _left_out exhaustion)
endif()
# Without optimization and on an emulated processor the tests of the library's parts run.
if(CMAKE_BUILD_TYPE STREQUAL "Debug" OR CMAKE_CROSSCOMPILING)
  set(_left_out exhaustion faults rules install launcher launchers matrix perf)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  list(APPEND _left_out collectives cuda)  # minutes; the address sanitizer runs all of it, with -O1
endif()
if(CMAKE_CROSSCOMPILING)
  list(APPEND _left_out engine)  # its ranks have a second for some calls: the emulator is slower
endif()
if(HOCKET_SANITIZE STREQUAL "thread")
  list(APPEND _left_out base collectives fuzz launcher memory perf reduce topo topology)
endif()

# The ranks of these tests compute all the time: beside another test that computes they take three
# times as long. They leave one of the places of ctest to a test whose processes sleep.
set(_whole_machine matrix)
if(NOT HOCKET_SANITIZE)
  list(APPEND _whole_machine engine)
endif()
cmake_host_system_information(RESULT _cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR _places_but_one "2 * ${_cores} - 1")
# ctest begins with these, so that none of them runs alone at the end.
set(_longest_first matrix engine collectives training rules_headers faults transport bootstrap
    launcher)

# Their processes sleep most of the time: two of them take the place of one other test. So ./dev
# lets tests take two places for each core (PROCESSORS).
set(_waiting bootstrap engine_deadlines exhaustion launcher launcher_between_hosts launchers_local
    launchers_hosts launchers_slurm)

# Cases of a program that mostly wait for a deadline are a test of their own.
set(_deadlines_engine "Culprit.*:*Endings.*:Levels.name_*:*CreateGroup.*:LateThread.*")

set(_limit_s 900)
if(CMAKE_CROSSCOMPILING)
  set(_limit_s 3600)
endif()

function(hocket_test_defaults)
  foreach(_test ${ARGN})
    set_tests_properties(${_test} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${_limit_s})
    list(FIND _longest_first ${_test} _place)
    if(_place GREATER_EQUAL 0)
      math(EXPR _cost "100 - ${_place}")
      set_tests_properties(${_test} PROPERTIES COST ${_cost})
    endif()
    if(_test IN_LIST _whole_machine)
      set_tests_properties(${_test} PROPERTIES PROCESSORS ${_places_but_one})
    elseif(NOT _test IN_LIST _waiting)
      set_tests_properties(${_test} PROPERTIES PROCESSORS 2)
    endif()
  endforeach()
endfunction()

# The test NAME: the model checker Spin checks the protocol of the .pml file MODEL in the current
# folder, with a program that it writes and compiles. Without any of the parts after MODEL the
# protocol must have an error.
function(hocket_model_test NAME MODEL)
  if(NOT CMAKE_CROSSCOMPILING)
    add_test(NAME ${NAME} COMMAND ${CMAKE_SOURCE_DIR}/tests/check_model.sh ${CMAKE_C_COMPILER}
                                  ${CMAKE_CURRENT_SOURCE_DIR}/${MODEL} ${ARGN})
    hocket_test_defaults(${NAME})
    set_tests_properties(${NAME} PROPERTIES LABELS once)
  endif()
endfunction()

add_library(test_source_root OBJECT tests/source_root.cc)
target_compile_definitions(test_source_root PRIVATE SOURCE_ROOT="${CMAKE_SOURCE_DIR}")

file(GLOB _folders CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/tests tests/*)
list(REMOVE_ITEM _folders ${_left_out})
foreach(_folder ${_folders})
  file(GLOB _sources CONFIGURE_DEPENDS tests/${_folder}/*_test.cc)
  # They start programs of this build, which only the emulator could. It can fork.
  if(CMAKE_CROSSCOMPILING)
    list(FILTER _sources EXCLUDE REGEX "/(launched|checkpoint_process|processes)_test.cc$")
  endif()
  if(_sources)
    add_executable(test_${_folder} ${_sources})
    target_include_directories(test_${_folder} PRIVATE tests)
    # The training layer uses the library as a program does.
    set(_tested hocket_core)
    if(_folder STREQUAL "training")
      set(_tested hocket_training fmt::fmt hwy::hwy)
      target_include_directories(test_${_folder} PRIVATE src)
    endif()
    target_link_libraries(test_${_folder} PRIVATE ${_tested} test_source_root GTest::gtest
                                                  GTest::gtest_main)
    set(_kind other)
    if(_folder IN_LIST _computing)
      set(_kind computing)
    endif()
    target_compile_options(test_${_folder} PRIVATE ${_options_${_kind}})
    hocket_precompile(precompiled_tests_${_kind} test_${_folder})
    set(_others)
    if(_deadlines_${_folder})
      add_test(NAME ${_folder}_deadlines
        COMMAND test_${_folder} --gtest_filter=${_deadlines_${_folder}})
      hocket_test_defaults(${_folder}_deadlines)
      set(_others --gtest_filter=-${_deadlines_${_folder}})
    endif()
    add_test(NAME ${_folder} COMMAND test_${_folder} ${_others})
    hocket_test_defaults(${_folder})
  endif()
  if(EXISTS ${CMAKE_SOURCE_DIR}/tests/${_folder}/CMakeLists.txt)
    add_subdirectory(tests/${_folder})
  endif()
  if(TARGET test_${_folder})
    hocket_join_tests(test_${_folder})
  endif()
endforeach()

if(NOT CMAKE_CROSSCOMPILING)
  add_subdirectory(examples)
endif()
