#include "memory/regions.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace hocket {
namespace {

struct Allocation {
  explicit Allocation(std::size_t size) {
    EXPECT_TRUE(Regions::instance().allocate(size, &data).ok());
  }
  ~Allocation() { EXPECT_TRUE(Regions::instance().free(data).ok()); }
  void* data = nullptr;
};

TEST(Regions, allocated_memory_is_zero_and_found_by_any_part_of_it) {
  Allocation memory(10000);
  auto* bytes = static_cast<unsigned char*>(memory.data);
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(bytes[i], 0);
  Place place;
  ASSERT_TRUE(Regions::instance().find(bytes + 100, 900, &place));
  EXPECT_EQ(place.offset, 100u);
  EXPECT_FALSE(Regions::instance().find(bytes + 100, 1 << 20, &place));
  int local = 0;
  EXPECT_FALSE(Regions::instance().find(&local, sizeof local, &place));
}

TEST(Regions, free_refuses_what_it_did_not_make) {
  int local = 0;
  EXPECT_EQ(Regions::instance().free(&local).code(), Code::invalid_argument);
  void* data = nullptr;
  ASSERT_TRUE(Regions::instance().allocate(0, &data).ok());
  EXPECT_EQ(Regions::instance().free(static_cast<char*>(data) + 1).code(), Code::invalid_argument);
  EXPECT_TRUE(Regions::instance().free(data).ok());
  EXPECT_EQ(Regions::instance().free(data).code(), Code::invalid_argument);
}

TEST(Regions, a_late_peers_write_is_not_seen_after_revocation) {
  Allocation memory(1 << 20);
  auto* bytes = static_cast<unsigned char*>(memory.data);
  std::memset(bytes, 7, 1 << 20);
  Place place;
  ASSERT_TRUE(Regions::instance().find(bytes, 1 << 20, &place));
  const UniqueFd fd = Regions::instance().descriptor(place.region);
  ASSERT_TRUE(fd);
  // The peer's view of the same memory, as another process would have it.
  void* peer = ::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(peer, MAP_FAILED);
  static_cast<unsigned char*>(peer)[5000] = 8;
  EXPECT_EQ(bytes[5000], 8);
  ASSERT_TRUE(Regions::instance().revoke(bytes + 4500, 3000).ok());
  static_cast<unsigned char*>(peer)[5000] = 9;
  EXPECT_EQ(bytes[5000], 8);
  EXPECT_EQ(bytes[4000], 7);
  EXPECT_FALSE(Regions::instance().find(bytes, 1, &place));
  EXPECT_FALSE(Regions::instance().descriptor(place.region));
  ::munmap(peer, 1 << 20);
}

TEST(Regions, a_registered_descriptor_is_checked_and_found) {
  UniqueFd fd;
  ASSERT_TRUE(make_memfd("test", 8192, &fd).ok());
  void* base = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  auto& regions = Regions::instance();
  std::uint64_t number = 0;
  EXPECT_EQ(regions.add(base, 8192, fd.get(), 4096, &number).code(), Code::invalid_argument);
  ASSERT_TRUE(regions.add(static_cast<char*>(base) + 4096, 4096, fd.get(), 4096, &number).ok());
  std::uint64_t again = 0;
  EXPECT_EQ(regions.add(base, 8192, fd.get(), 0, &again).code(), Code::invalid_usage);
  Place place;
  ASSERT_TRUE(regions.find(static_cast<char*>(base) + 5000, 8, &place));
  EXPECT_EQ(place.offset, 5000u);
  EXPECT_EQ(regions.add(base, 10, STDIN_FILENO, 0, &again).code(), Code::invalid_argument);
  EXPECT_TRUE(regions.remove(number).ok());
  EXPECT_EQ(regions.remove(number).code(), Code::invalid_argument);
  ::munmap(base, 8192);
}

TEST(Mapping, a_file_is_mapped_once_per_process) {
  UniqueFd fd;
  ASSERT_TRUE(make_memfd("test", 4096, &fd).ok());
  const UniqueFd other(::dup(fd.get()));
  std::shared_ptr<Mapping> first, second;
  ASSERT_TRUE(Mapping::of(fd.get(), &first).ok());
  ASSERT_TRUE(Mapping::of(other.get(), &second).ok());
  EXPECT_EQ(first->data(), second->data());
  EXPECT_FALSE(Mapping::of(STDIN_FILENO, &second).ok());
}

}  // namespace
}  // namespace hocket
