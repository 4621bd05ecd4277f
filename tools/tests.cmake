# Run at the end of the root CMakeLists.txt, where the test programs are known.
if(NOT TARGET test_launcher)
  return()
endif()
add_dependencies(test_launcher hocket-run)
set_tests_properties(launcher PROPERTIES TIMEOUT 600)
# The same program on a host of the rig, with more hosts around it.
add_test(NAME launcher_between_hosts
         COMMAND ${CMAKE_SOURCE_DIR}/tests/rig/hosts --sshd --hosts 3 --nics 2 --loopback-name --
                 $<TARGET_FILE:test_launcher> --gtest_filter=*BetweenHosts*)
set_tests_properties(launcher_between_hosts PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
