// Memory that a rank may not lock.
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "faults/processes.h"

namespace faults {
namespace {

/// For this process and those that it forks. Root is above the limit by a capability.
void forbid_locked_pages() {
  const rlimit none{};
  ASSERT_EQ(0, ::setrlimit(RLIMIT_MEMLOCK, &none));
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  ASSERT_EQ(0, ::syscall(SYS_capget, &header, data));
  data[0].effective &= ~(1U << CAP_IPC_LOCK);
  ASSERT_EQ(0, ::syscall(SYS_capset, &header, data));
  alignas(4096) static char page[4096];
  // A sanitizer's mlock does nothing.
  ASSERT_NE(0, ::syscall(SYS_mlock, page, sizeof page)) << "the limit has no effect";
}

/// hocket locks no pages.
TEST(LockedMemory, limit_of_nothing_does_not_matter) {
  constexpr int ranks = 3;
  for (const char* transport : {"shm", "tcp"}) {
    const ranks::Env env{{{"HOCKET_TRANSPORT", transport}}};
    in_a_child([] {
      ASSERT_NO_FATAL_FAILURE(forbid_locked_pages());
      Job job(ranks);
      job.start(ranks::patient_config(), [](Process& self) {
        constexpr std::size_t count = 500'000;
        std::vector<float> plain(count, 1);
        void* memory = nullptr;
        ASSERT_HOCKET(hocketMemAlloc(&memory, count * sizeof(float)));
        auto* const shared = static_cast<float*>(memory);
        std::fill_n(shared, count, 2.0F);
        for (float* const x : {plain.data(), shared}) {
          const float expected = ranks * *x;
          EXPECT_HOCKET(hocketAllReduce(x, x, count, hocketFloat32, hocketSum, self.comm, nullptr));
          EXPECT_EQ(count, static_cast<std::size_t>(std::count(x, x + count, expected)));
        }
        EXPECT_HOCKET(hocketMemFree(memory));
      });
      job.finish();
    });
  }
}

}  // namespace
}  // namespace faults
