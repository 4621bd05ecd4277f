// Limits of descriptors, file sizes and address space (ulimit -n, -f, -v).
#include <fcntl.h>
#include <sys/resource.h>

#include "exhaustion/scenario.h"
#include "seed.h"

namespace exhaustion {
namespace {

void lower(__rlimit_resource resource, rlim_t value) {
  rlimit limit{};
  ::getrlimit(resource, &limit);
  limit.rlim_cur = std::min(value, limit.rlim_max);
  ::setrlimit(resource, &limit);
}

Injection limit_to(__rlimit_resource resource, rlim_t value) {
  return {[=] { lower(resource, value); }, [] {}};
}

/// So many descriptors may be open beside those that are.
Injection leave_descriptors(unsigned long more) {
  return {[=] {
            const int next = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
            ::close(next);
            lower(RLIMIT_NOFILE, static_cast<rlim_t>(next) + more);
          },
          [] {}};
}

class OutOfDescriptors : public testing::TestWithParam<Scenario> {};

TEST_P(OutOfDescriptors, however_few_there_are_is_an_error_with_a_reason) {
  Injections limits;
  const unsigned long most = 24;
  const unsigned long stride = ranks::long_tests() ? 1 : 3;
  for (unsigned long at = tests::seed() % stride; at < most; at += stride) {
    limits.emplace_back(std::to_string(at) + " descriptors", leave_descriptors(at));
  }
  const int errors = run_all(GetParam(), limits, "Too many open files");
  std::printf("%zu limits, %d errors\n", limits.size(), errors);
  EXPECT_LT(0, errors);
  EXPECT_GT(static_cast<int>(limits.size()), errors) << "the scenario needs more than that";
}

INSTANTIATE_TEST_SUITE_P(Scenarios, OutOfDescriptors,
                         testing::Values(Scenario{"leader", 2, 0}, Scenario{"follower", 3, 1},
                                         Scenario{"tcp_root", 2, 0, "tcp"},
                                         Scenario{"tcp", 3, 2, "tcp"}),
                         [](const auto& info) { return info.param.name; });

/// The node leader shares memory by descriptors. If a rank has no room for them, all ranks get an
/// error that names the rank and its host.
TEST(Descriptors, that_a_rank_cannot_take_are_told_with_its_name) {
  const Scenario scenario{"follower", 3, 1};
  int told = 0;
  std::vector<std::unique_ptr<Job>> jobs;
  for (unsigned long more = 4; more < 12; ++more) {
    jobs.push_back(std::make_unique<Job>(scenario, leave_descriptors(more), deadline_ms));
  }
  for (const auto& job : jobs) {
    job->judge("few descriptors");
    told = std::max(told, job->told_who());
  }
  EXPECT_LE(2, told);
}

/// The kernel's signal at the limit of a file's size would end the process.
TEST(FileSize, limit_is_an_error_that_names_it) {
  for (const int victim : {0, 1}) {
    const Scenario scenario{"ulimit -f", 2, victim};
    Job job(scenario, limit_to(RLIMIT_FSIZE, 1 << 10), deadline_ms);
    job.judge("1 KiB");
    if (victim == 0) {
      EXPECT_EQ(hocketSystemError, job.victim().result);
      EXPECT_NE(nullptr, std::strstr(job.victim().text, "ulimit -f")) << job.victim().text;
    }
  }
}

TEST(FileSize, limit_for_memory_of_the_library_is_an_error_too) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    constexpr std::size_t limit = (1 << 20) + (64 << 10);  // the size of no kept region
    lower(RLIMIT_FSIZE, limit);
    void* memory = nullptr;
    const bool refused = hocketMemAlloc(&memory, limit + 1) == hocketSystemError &&
                         std::strstr(hocketGetLastError(nullptr), "ulimit -f") != nullptr;
    const bool given = hocketMemAlloc(&memory, limit) == hocketSuccess;
    std::_Exit(refused && given ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(pid, ::waitpid(pid, &status, 0));
  EXPECT_EQ(0, status);
}

/// Uses the stack that the main thread will need: the kernel ends a process whose stack cannot
/// grow.
void grow_stack() {
  volatile char bytes[512 << 10];
  for (std::size_t at = 0; at < sizeof bytes; at += 4096) bytes[at] = 0;
}

/// The address space that the process has, and so many MiB.
TEST(AddressSpace, limit_is_an_error_with_a_reason) {
  if (ranks::sanitized) GTEST_SKIP() << "a sanitizer reserves address space";
  const auto limited = [](unsigned long mib) -> Injection {
    return {[mib] {
              grow_stack();
              std::FILE* file = std::fopen("/proc/self/statm", "r");
              unsigned long pages = 0;
              if (file == nullptr || std::fscanf(file, "%lu", &pages) != 1) std::abort();
              std::fclose(file);
              lower(RLIMIT_AS, pages * 4096 + (mib << 20));
            },
            [] {}};
  };
  for (const int victim : {0, 1}) {
    const Scenario scenario{"ulimit -v", 2, victim};
    Injections limits;
    for (const unsigned long mib : {0, 1, 4, 8, 9, 12, 16, 20, 24, 32, 48, 64, 80, 100}) {
      limits.emplace_back(std::to_string(mib) + " MiB", limited(mib));
    }
    EXPECT_LT(0, run_all(scenario, limits));
  }
}

}  // namespace
}  // namespace exhaustion
