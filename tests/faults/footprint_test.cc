// The cost of a job before its first operation: time to join, memory of a rank, shared memory.
#include <fstream>
#include <map>
#include <sstream>

#include "faults/processes.h"

namespace faults {
namespace {

std::uint64_t private_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::uint64_t bytes = 0;
  for (std::string line; std::getline(rollup, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t kib = 0;
    words >> name >> kib;
    if (name == "Private_Clean:" || name == "Private_Dirty:") bytes += kib * 1024;
  }
  return bytes;
}

/// Bytes by inode of the anonymous shared files that this process has mapped.
std::map<std::uint64_t, std::uint64_t> mapped_memfds() {
  std::map<std::uint64_t, std::uint64_t> out;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:") == std::string::npos) continue;
    std::istringstream words(line);
    std::string range, flags, offset, device;
    std::uint64_t inode = 0;
    words >> range >> flags >> offset >> device >> inode;
    const std::size_t dash = range.find('-');
    const std::uint64_t end = std::stoull(offset, nullptr, 16) +
                              std::stoull(range.substr(dash + 1), nullptr, 16) -
                              std::stoull(range.substr(0, dash), nullptr, 16);
    out[inode] = std::max(out[inode], end);
  }
  return out;
}

TEST(Footprint, of_eight_idle_ranks_is_small) {
  if (ranks::sanitized) GTEST_SKIP() << "a sanitizer's memory is no measure";
  constexpr int ranks = 8;
  Job job(ranks);
  const auto body = [](Process& self) {
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
    Report& report = self.report();
    report.figures[0] = private_bytes();
    std::size_t at = 2;
    for (const auto& [inode, bytes] : mapped_memfds()) {
      ASSERT_LT(at + 1, std::size(report.figures));
      report.figures[at++] = inode;
      report.figures[at++] = bytes;
    }
    report.figures[1] = at;
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
  };
  ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
  job.finish();
  std::map<std::uint64_t, std::uint64_t> shared;
  std::uint64_t largest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& figures = job.report(rank).figures;
    largest = std::max(largest, figures[0]);
    for (std::size_t at = 2; at < figures[1]; at += 2) {
      shared[figures[at]] = std::max(shared[figures[at]], figures[at + 1]);
    }
  }
  std::uint64_t sum = 0;
  for (const auto& [inode, bytes] : shared) sum += bytes;
  std::printf(
      "largest private memory of an idle rank: %.1f MiB; all memfds: %.1f MB in %zu files\n",
      static_cast<double>(largest) / (1 << 20), static_cast<double>(sum) / 1e6, shared.size());
  EXPECT_GT(sum, 0U);
  EXPECT_LT(largest, 16U << 20);
  EXPECT_LT(sum, 64'000'000U);
}

TEST(Footprint, sixty_four_ranks_join) {
  const int ranks = ranks::sanitized ? 16 : 64;
  Job job(ranks);
  hocketConfig_t config = ranks::patient_config();
  // The promise, held by the library's own deadline; a busy machine is no reason to fail.
  if (ranks::long_tests()) config.join_deadline_ms = 2000;
  const std::int64_t begin = now_ns();
  ASSERT_NO_FATAL_FAILURE(
      job.start(config, [](Process& self) { EXPECT_HOCKET(hocketBarrier(self.comm, nullptr)); }));
  job.finish();
  std::int64_t last = 0;
  for (int rank = 0; rank < ranks; ++rank) last = std::max(last, job.report(rank).joined_ns);
  std::printf("%d ranks joined in %.0f ms, from the first fork\n", ranks,
              static_cast<double>(last - begin) / 1e6);
}

TEST(Late, ranks_are_logged_and_are_no_error) {
  if (!ranks::long_tests()) GTEST_SKIP() << "it takes a minute: LONG_TESTS=1";
  Job job(3);
  const auto body = [](Process& self) {
    struct Lines {
      std::atomic<int> found{0};
    } lines;
    hocketSetLogCallback(
        [](int, const char* line, void* user) {
          if (std::strstr(line, "late") != nullptr && std::strstr(line, "rank 1") != nullptr) {
            ++static_cast<Lines*>(user)->found;
          }
        },
        &lines);
    if (self.rank == 1) ::sleep(60);  // the late rank of this test
    float x = 1;
    EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketFloat32, hocketSum, self.comm, nullptr));
    EXPECT_EQ(3, x);
    if (self.rank != 1) {
      EXPECT_LE(4, lines.found.load()) << "a line every ten seconds";
    }
    hocketSetLogCallback(nullptr, nullptr);
  };
  hocketConfig_t config = ranks::patient_config();
  config.deadline_ms = 120'000;  // twice the time of the late rank
  ASSERT_NO_FATAL_FAILURE(job.start(config, body));
  job.finish();
}

}  // namespace
}  // namespace faults
