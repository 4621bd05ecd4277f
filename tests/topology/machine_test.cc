#include "topology/machine.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

namespace hocket::internal {
namespace {

CoreSet cores(std::initializer_list<std::size_t> numbers) {
  CoreSet out;
  for (const std::size_t number : numbers) out.set(number);
  return out;
}

double ranks_per_core_of(const std::vector<CoreSet>& ranks) { return ranks_per_core(ranks); }

TEST(RanksPerCore, ranks_that_may_run_anywhere_share_all_cores) {
  const CoreSet four = cores({0, 1, 2, 3});
  EXPECT_EQ(0.25, ranks_per_core_of({four}));
  EXPECT_EQ(1, ranks_per_core_of({four, four, four, four}));
  EXPECT_EQ(2, ranks_per_core_of(std::vector(8, four)));
}

TEST(RanksPerCore, ranks_that_are_bound_to_a_core_each_have_it_to_themselves) {
  EXPECT_EQ(1, ranks_per_core_of({cores({0}), cores({1}), cores({1023})}));
  EXPECT_EQ(1, ranks_per_core_of({cores({0}), cores({0, 1})})) << "the second has a core left";
}

TEST(RanksPerCore, the_most_crowded_cores_count) {
  EXPECT_EQ(2, ranks_per_core_of({cores({0}), cores({0}), cores({4}), cores({5}), cores({6, 7})}));
  EXPECT_EQ(1.5, ranks_per_core_of({cores({0}), cores({1}), cores({0, 1}), cores({2, 3, 4, 5})}));
}

/// A folder like /sys/devices/system/cpu.
class CachesIn : public ::testing::Test {
 protected:
  CachesIn() : cpus_(testing::TempDir() + "cpus." + std::to_string(::getpid())) {
    std::filesystem::create_directories(cpus_);
  }
  ~CachesIn() override { std::filesystem::remove_all(cpus_); }
  void online(const char* list) { std::ofstream(cpus_ / "online") << list << '\n'; }
  void add(int core, int index, const char* type, const char* size, const char* shared) {
    const std::filesystem::path folder =
        cpus_ / ("cpu" + std::to_string(core)) / "cache" / ("index" + std::to_string(index));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "type") << type << '\n';
    std::ofstream(folder / "size") << size << '\n';
    std::ofstream(folder / "shared_cpu_list") << shared << '\n';
  }
  std::filesystem::path cpus_;
};

TEST_F(CachesIn, a_machine_with_two_processors_adds_up_what_their_cores_share) {
  online("0-7,9");  // threads 0 and 1 are of one core; 8 is offline
  for (int thread = 0; thread < 10; ++thread) {
    const bool first = thread < 4;
    const std::string own = std::to_string(thread & ~1) + "-" + std::to_string(thread | 1);
    add(thread, 0, "Data", "32K", own.c_str());
    add(thread, 1, "Instruction", "64M", own.c_str());
    add(thread, 2, "Unified", "2M", own.c_str());
    add(thread, 3, "Unified", first ? "24576K" : "16M", first ? "0-3" : "4-7,9");
  }
  const Caches caches = caches_in(cpus_);
  EXPECT_EQ(caches.of_core, std::size_t{2} << 20);
  EXPECT_EQ(caches.of_node, std::size_t{40} << 20);
}

TEST_F(CachesIn, a_core_has_what_no_other_core_shares) {
  online("0-1");
  for (int core = 0; core < 2; ++core) {
    const std::string own = std::to_string(core);
    add(core, 0, "Data", "32K", own.c_str());
    add(core, 1, "Instruction", "1M", own.c_str());
    add(core, 2, "Unified", "512K", own.c_str());
    add(core, 3, "Unified", "24M", "0-1");
  }
  const Caches caches = caches_in(cpus_);
  EXPECT_EQ(caches.of_core, std::size_t{512} << 10);
  EXPECT_EQ(caches.of_node, std::size_t{24} << 20);
}

/// A virtual machine with 2 cores of a processor whose 8 cores share a cache.
TEST_F(CachesIn, a_quarter_counts_of_a_cache_that_other_guests_must_share) {
  online("0-1");
  add(0, 0, "Unified", "32768K", "0-1");
  EXPECT_EQ(caches_in(cpus_).of_node, std::size_t{8} << 20);
}

TEST_F(CachesIn, a_kernel_that_describes_no_caches_leaves_them_unknown) {
  online("0");
  EXPECT_EQ(caches_in(cpus_).of_node, 0U);
  EXPECT_EQ(caches_in(cpus_ / "nowhere").of_core, 0U);
}

TEST(Machine, has_the_cores_that_the_kernel_allows) {
  // machine() looks once, before any test binds itself.
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(0, ::sched_getaffinity(0, sizeof set, &set)) << "more than 1024 cores";
  for (std::size_t core = 0; core < 1024; ++core) {
    EXPECT_EQ(CPU_ISSET(core, &set) != 0, machine().cores[core]) << "core " << core;
  }
}

}  // namespace
}  // namespace hocket::internal
