#include "topology/machine.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <initializer_list>
#include <iterator>
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

TEST(Machine, is_a_guest_if_the_kernel_says_so) {
  std::ifstream file("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(machine().is_guest, text.find(" hypervisor") != std::string::npos);
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
