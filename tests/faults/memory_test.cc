// Memory that a rank may not lock, and addresses at which it has none.
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

/// Memory that was freed, or that only a device reaches: nothing tells it from other memory before
/// the processor touches it, or the kernel for a socket.
TEST(MemoryOutOfReach, ends_that_process_or_its_call_and_the_others_are_told) {
  for (const std::string transport : {"shm", "tcp", "tls"}) {
    SCOPED_TRACE(transport);
    const ranks::Env env({{"HOCKET_TRANSPORT", transport == "tls" ? "tcp" : transport},
                          {"HOCKET_TLS", transport == "tls" ? "1" : "0"}});
    Job job(3);
    job.start(ranks::patient_config(), [](Process& self) {
      constexpr std::size_t bytes = 2'000'000;
      std::vector<std::uint8_t> data(bytes);
      void* memory = data.data();
      if (self.rank == 1) {
        ::signal(SIGSEGV, SIG_DFL);  // a sanitizer would report it
        memory = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      }
      // Rank 1 must not die before the other ranks have joined.
      hocketResult_t result = hocketBarrier(self.comm, nullptr);
      if (result == hocketSuccess) {
        result = hocketBcast(memory, bytes, hocketUint8, 1, self.comm, nullptr);
      }
      if (result == hocketSuccess) result = hocketBarrier(self.comm, nullptr);
      self.keep(result);
    });
    const int status = job.wait(1);
    job.finish();
    const bool dies = transport != "tcp";  // TLS reads the memory to encrypt it
    if (dies) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
    }
    for (int rank = 0; rank < 3; ++rank) {
      if (dies && rank == 1) continue;
      const Report& report = job.report(rank);
      EXPECT_EQ(dies ? hocketRemoteError : hocketSystemError, report.result) << report.text;
      EXPECT_EQ(1, report.culprit) << report.text;
      const char* const part = dies ? "rank 1" : "this process has no memory";
      EXPECT_NE(nullptr, std::strstr(report.text, part)) << report.text;
    }
  }
}

}  // namespace
}  // namespace faults
