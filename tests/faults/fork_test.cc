// A rank that forks: the child cannot use the communicator, and its exit does not affect the
// parent.
#include "faults/processes.h"

namespace faults {
namespace {

/// With all that the library does at a process's end. The leak sanitizer would find what OpenSSL
/// keeps for the parent's monitor thread, which the child does not have and cannot free.
[[noreturn]] void end_child(int status) {
#if defined(__SANITIZE_ADDRESS__)
  ::_exit(status);
#else
  std::exit(status);
#endif
}

TEST(Fork, leaves_the_child_without_communicators_and_the_parent_unharmed) {
  for (const char* transport : {"shm", "tcp"}) {
    const ranks::Env env{{{"HOCKET_TRANSPORT", transport}}};
    Job job(2);
    const auto body = [](Process& self) {
      float x = 1;
      EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketFloat32, hocketSum, self.comm, nullptr));
      const pid_t child = ::fork();
      if (child == 0) {
        const bool refused = hocketAllReduce(&x, &x, 1, hocketFloat32, hocketSum, self.comm,
                                             nullptr) == hocketInvalidUsage &&
                             hocketBarrier(self.comm, nullptr) == hocketInvalidUsage &&
                             hocketCommAbort(self.comm) == hocketInvalidUsage;
        hocketCommDestroy(self.comm);
        end_child(refused ? 0 : 1);
      }
      int status = 0;
      ASSERT_EQ(child, ::waitpid(child, &status, 0));
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      for (int i = 0; i < 100; ++i) {
        EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketFloat32, hocketMax, self.comm, nullptr));
      }
      std::vector<float> large(100'000, 1);
      EXPECT_HOCKET(hocketAllReduce(large.data(), large.data(), large.size(), hocketFloat32,
                                    hocketSum, self.comm, nullptr));
      EXPECT_EQ(2, large.back());
    };
    ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
    job.finish();
  }
}

}  // namespace
}  // namespace faults
