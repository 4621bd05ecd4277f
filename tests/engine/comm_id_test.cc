#include "engine/comm_id.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace hocket::internal {
namespace {

TEST(CommId, is_another_one_for_each_communicator_of_a_job_and_each_part_of_a_split) {
  const JobId job{1, 2, 3, 4, 5, 6, 7, 8};
  std::set<std::uint64_t> seen;
  std::size_t made = 0;
  const auto add = [&](std::uint64_t comm_id) {
    EXPECT_GT(comm_id, DescriptorName::memory_space);
    EXPECT_EQ(++made, seen.insert(comm_id).second ? seen.size() : 0) << comm_id;
  };
  for (std::uint64_t number = 0; number < 20; ++number) {
    const std::uint64_t whole = comm_id_of_job(job, number);
    add(whole);
    for (std::uint64_t split = 1; split <= 20; ++split) {
      for (const int color : {-2, 0, 1, 2, 3, 1000, 0x7fffffff}) {
        const std::uint64_t part = comm_id_of_split(whole, split, color);
        add(part);
        add(comm_id_of_split(part, split, color));
      }
    }
  }
}

TEST(CommId, is_another_one_for_each_list_of_members_tag_and_call) {
  std::set<std::uint64_t> seen;
  std::size_t made = 0;
  const std::vector<std::vector<int>> lists{{0},    {1},       {0, 1}, {1, 0},
                                            {0, 0}, {0, 1, 2}, {2, 1}, {1, 2}};
  for (const std::uint64_t parent : {0x10000ULL, 0x10001ULL, ~0ULL}) {
    for (const std::vector<int>& members : lists) {
      for (const int tag : {0, 1, 2, 0x7fffffff}) {
        for (std::uint64_t number = 0; number < 4; ++number) {
          const std::uint64_t comm_id = comm_id_of_group(parent, members, tag, number);
          EXPECT_GT(comm_id, DescriptorName::memory_space);
          EXPECT_EQ(++made, seen.insert(comm_id).second ? seen.size() : 0) << comm_id;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hocket::internal
