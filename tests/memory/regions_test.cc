#include "memory/regions.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace hocket::internal {
namespace {

struct Allocation {
  Allocation(Regions& regions, std::size_t size) : regions(regions) {
    EXPECT_TRUE(regions.allocate(size, &data).ok());
  }
  ~Allocation() { EXPECT_TRUE(regions.free(data).ok()); }
  Regions& regions;
  void* data = nullptr;
};

TEST(Regions, allocated_memory_is_zero_and_found_by_any_part_of_it) {
  Regions regions;
  Allocation memory(regions, 10000);
  auto* bytes = static_cast<unsigned char*>(memory.data);
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(bytes[i], 0);
  RegionOffset place;
  ASSERT_TRUE(regions.find(bytes + 100, 900, &place));
  EXPECT_EQ(place.offset, 100u);
  EXPECT_FALSE(regions.find(bytes + 100, 1 << 20, &place));
  int local = 0;
  EXPECT_FALSE(regions.find(&local, sizeof local, &place));
}

TEST(Regions, a_buffer_that_leaves_its_region_by_a_byte_is_not_found) {
  Regions regions;
  Allocation memory(regions, 8192);
  auto* const bytes = static_cast<std::byte*>(memory.data);
  RegionOffset place;
  ASSERT_TRUE(regions.find(bytes, 8192, &place));
  EXPECT_TRUE(regions.find(bytes + 8000, 192, &place));
  EXPECT_EQ(bytes + 8000, regions.address(place, 192));
  EXPECT_EQ(nullptr, regions.address(place, 193));
  EXPECT_EQ(nullptr, regions.address({place.region, 8193}, 0));
  EXPECT_EQ(nullptr, regions.address({place.region, ~0ull - 4}, 8));
  EXPECT_FALSE(regions.find(bytes + 8000, 193, &place));
  EXPECT_FALSE(regions.find(bytes - 1, 10, &place));
}

TEST(Regions, free_refuses_what_it_did_not_make) {
  Regions regions;
  int local = 0;
  EXPECT_EQ(regions.free(&local).code(), Code::invalid_argument);
  void* data = nullptr;
  ASSERT_TRUE(regions.allocate(0, &data).ok());
  EXPECT_EQ(regions.free(static_cast<char*>(data) + 1).code(), Code::invalid_argument);
  EXPECT_TRUE(regions.free(data).ok());
  EXPECT_EQ(regions.free(data).code(), Code::invalid_argument);
}

TEST(Regions, freed_memory_is_allocated_again_with_zeros_in_the_region_that_peers_know) {
  Regions regions;
  RegionOffset first, second;
  std::uint64_t generation = 0;
  for (const std::size_t size : {300'000, 280'000, 300'000}) {
    Allocation memory(regions, size);
    auto* const bytes = static_cast<unsigned char*>(memory.data);
    EXPECT_TRUE(std::all_of(bytes, bytes + size, [](unsigned char byte) { return byte == 0; }));
    std::memset(memory.data, 7, size);
    ASSERT_TRUE(regions.find(memory.data, size, &second));
    if (first.region == 0) {
      first = second;
      generation = regions.generation();
    }
    EXPECT_EQ(first.region, second.region);
    EXPECT_EQ(generation, regions.generation()) << "what was looked up before still holds";
    Allocation other(regions, size);
    ASSERT_TRUE(regions.find(other.data, size, &second));
    EXPECT_NE(first.region, second.region) << "the first one is in use";
    generation = regions.generation();
  }
  Allocation longer(regions, 400'000);
  ASSERT_TRUE(regions.find(longer.data, 400'000, &second));
  EXPECT_NE(first.region, second.region);
}

/// Of these regions, those that still exist.
std::size_t existing(Regions& regions, const std::vector<RegionOffset>& all) {
  return static_cast<std::size_t>(std::ranges::count_if(
      all, [&](const RegionOffset& one) { return regions.is_offered(one.region); }));
}

/// Allocates and then frees that many buffers.
std::vector<RegionOffset> freed(Regions& regions, int number, std::size_t size) {
  std::vector<void*> all;
  std::vector<RegionOffset> places;
  for (int i = 0; i < number; ++i) {
    EXPECT_TRUE(regions.allocate(size, &all.emplace_back()).ok());
    EXPECT_TRUE(regions.find(all.back(), size, &places.emplace_back()));
  }
  for (void* one : all) EXPECT_TRUE(regions.free(one).ok());
  for (void* one : all) EXPECT_EQ(Code::invalid_argument, regions.free(one).code());
  return places;
}

TEST(Regions, little_freed_memory_is_kept) {
  Regions regions;
  const std::vector<RegionOffset> small = freed(regions, 100, 4096);
  EXPECT_EQ(Regions::most_kept, existing(regions, small));
  EXPECT_FALSE(regions.is_offered(small[0].region)) << "freed longest ago";
  const std::vector<RegionOffset> longer = freed(regions, 20, 8 << 20);
  EXPECT_EQ(Regions::most_kept_bytes / (8 << 20), existing(regions, longer));
  EXPECT_EQ(0U, existing(regions, small));
  const std::vector<RegionOffset> long_ones = freed(regions, 2, (16 << 20) + 1);
  EXPECT_EQ(0U, existing(regions, long_ones));
}

TEST(Regions, revoked_memory_is_not_used_again) {
  Regions regions;
  RegionOffset place, other;
  {
    Allocation memory(regions, 8192);
    ASSERT_TRUE(regions.find(memory.data, 8192, &place));
    ASSERT_TRUE(regions.revoke(memory.data, 8192).ok());
  }
  Allocation memory(regions, 8192);
  ASSERT_TRUE(regions.find(memory.data, 8192, &other));
  EXPECT_NE(place.region, other.region);
}

TEST(Regions, kept_memory_ends_where_no_descriptor_is_left_for_new_memory) {
#ifdef __SANITIZE_ADDRESS__  // with it, the undefined behavior sanitizer
  GTEST_SKIP() << "the sanitizer needs a pipe to check the type of an object";
#endif
  Regions regions;
  const std::vector<RegionOffset> kept = freed(regions, 3, 4096);
  EXPECT_EQ(3U, existing(regions, kept));
  rlimit before{};
  ASSERT_EQ(0, ::getrlimit(RLIMIT_NOFILE, &before));
  const UniqueFd next(::dup(STDIN_FILENO));
  const rlimit none_is_left{static_cast<rlim_t>(next.get()) + 1, before.rlim_max};
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &none_is_left));
  {
    Allocation memory(regions, 1 << 20);
    EXPECT_NE(nullptr, memory.data);
    EXPECT_EQ(0U, existing(regions, kept));
  }
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &before));
}

TEST(Regions, a_late_peers_write_is_not_seen_after_revocation) {
  Regions regions;
  Allocation memory(regions, 1 << 20);
  auto* bytes = static_cast<unsigned char*>(memory.data);
  std::memset(bytes, 7, 1 << 20);
  RegionOffset place;
  ASSERT_TRUE(regions.find(bytes, 1 << 20, &place));
  const UniqueFd fd = regions.descriptor(place.region);
  ASSERT_TRUE(fd);
  // The peer's view of the same memory, as another process would have it.
  void* peer = ::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(peer, MAP_FAILED);
  static_cast<unsigned char*>(peer)[5000] = 8;
  EXPECT_EQ(bytes[5000], 8);
  ASSERT_TRUE(regions.revoke(bytes + 4500, 3000).ok());
  static_cast<unsigned char*>(peer)[5000] = 9;
  EXPECT_EQ(bytes[5000], 8);
  EXPECT_EQ(bytes[4000], 7);
  EXPECT_FALSE(regions.find(bytes, 1, &place));
  EXPECT_FALSE(regions.descriptor(place.region));
  ::munmap(peer, 1 << 20);
}

TEST(Regions, a_page_that_is_revoked_again_keeps_what_was_written_since) {
  const UniqueFd fd(::memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr std::size_t page = 4096, bytes = 4 * page;
  ASSERT_EQ(0, ::ftruncate(fd.get(), bytes));
  void* const mapped =
      ::mmap(nullptr, bytes - page, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), page);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const memory = static_cast<unsigned char*>(mapped);
  std::memset(memory, 1, bytes - page);
  Regions regions;
  std::uint64_t number = 0;
  // The region begins within a page, and has the second page of the file as its first.
  ASSERT_TRUE(regions.add(memory + 100, 2 * page, fd.get(), page + 100, &number).ok());
  ASSERT_TRUE(regions.revoke(memory + 200, 10).ok());
  EXPECT_EQ(std::vector<unsigned char>(page, 1), std::vector<unsigned char>(memory, memory + page));
  memory[50] = 2;
  memory[page + 50] = 3;
  ASSERT_TRUE(regions.revoke(memory + 100, page + 10).ok());
  EXPECT_EQ(2, memory[50]) << "written to private memory";
  EXPECT_EQ(3, memory[page + 50]) << "written to the file";
  EXPECT_EQ(1, memory[page + 51]);
  unsigned char in_file = 0;
  ASSERT_EQ(1, ::pread(fd.get(), &in_file, 1, page + 50));
  EXPECT_EQ(1, in_file) << "the first revocation took the page out of the file's mapping";
  memory[page + 51] = 4;
  ASSERT_EQ(1, ::pread(fd.get(), &in_file, 1, 2 * page + 51));
  EXPECT_EQ(1, in_file);
  ASSERT_TRUE(regions.remove(number).ok());
  ::munmap(mapped, bytes - page);
}

/// A shared heap with up to two segments of 64 KiB.
struct FakeHeap {
  static constexpr std::size_t bytes = 64 << 10;
  static inline std::vector<hocket_heap_segment> all;
  static inline int private_pages = 0;
  static std::size_t segments(hocket_heap_segment* out, std::size_t first, std::size_t most) {
    std::size_t copied = 0;
    for (; first + copied < all.size() && copied < most; ++copied)
      out[copied] = all[first + copied];
    return copied;
  }
  static void has_private_pages() { ++private_pages; }
  static std::byte* grow() {
    UniqueFd fd;
    EXPECT_TRUE(make_memfd("heap", bytes, &fd).ok());
    void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    EXPECT_NE(base, MAP_FAILED);
    all.push_back({base, bytes, fd.release()});
    return static_cast<std::byte*>(base);
  }
  FakeHeap() { private_pages = 0; }
  ~FakeHeap() {
    for (const hocket_heap_segment& segment : all) {
      ::munmap(segment.base, segment.bytes);
      ::close(segment.fd);
    }
    all.clear();
  }
};

TEST(Regions, blocks_of_the_shared_heap_are_found_as_it_grows) {
  FakeHeap heap;
  Regions regions;
  regions.use_heap(FakeHeap::segments, FakeHeap::has_private_pages);
  RegionOffset first, second;
  int local = 0;
  EXPECT_FALSE(regions.find(&local, sizeof local, &first));
  std::byte* const block = FakeHeap::grow();
  EXPECT_TRUE(regions.find(block + 5000, 100, &first));
  EXPECT_EQ(5000U, first.offset);
  EXPECT_TRUE(regions.descriptor(first.region));
  EXPECT_FALSE(regions.find(block, FakeHeap::bytes + 1, &second)) << "beyond the segment";
  EXPECT_TRUE(regions.find(FakeHeap::grow(), FakeHeap::bytes, &second));
  EXPECT_NE(first.region, second.region);
  EXPECT_FALSE(regions.find(&local, sizeof local, &first));
}

TEST(Regions, of_a_segment_of_the_shared_heap_only_the_revoked_pages_are_staged) {
  FakeHeap heap;
  Regions regions;
  regions.use_heap(FakeHeap::segments, FakeHeap::has_private_pages);
  std::byte* const block = FakeHeap::grow();
  RegionOffset place;
  ASSERT_TRUE(regions.find(block + 8192, 100, &place));
  ASSERT_TRUE(regions.revoke(block + 8192, 100).ok());
  EXPECT_EQ(1, FakeHeap::private_pages);
  EXPECT_TRUE(regions.was_revoked(block + 8192, 100));
  EXPECT_FALSE(regions.find(block + 8000, 200, &place));
  EXPECT_EQ(nullptr, regions.address({place.region, 8192}, 1));
  ASSERT_TRUE(regions.find(block, 8192, &place));
  EXPECT_EQ(block, regions.address(place, 8192));
  ASSERT_TRUE(regions.find(block + 12288, 100, &place));
  EXPECT_TRUE(regions.is_offered(place.region));
  EXPECT_TRUE(regions.descriptor(place.region));
}

TEST(Regions, of_two_processes_know_nothing_of_one_another) {
  Regions first, second;
  Allocation memory(first, 8192);
  RegionOffset place;
  EXPECT_FALSE(second.find(memory.data, 8192, &place));
  ASSERT_TRUE(first.find(memory.data, 8192, &place));
  EXPECT_EQ(nullptr, second.address(place, 8192));
  EXPECT_FALSE(second.descriptor(place.region));
  EXPECT_EQ(second.free(memory.data).code(), Code::invalid_argument);
  Allocation other(second, 8192);
  RegionOffset of_other;
  ASSERT_TRUE(second.find(other.data, 8192, &of_other));
  EXPECT_NE(place.region, of_other.region) << "numbers start at random";
}

TEST(Regions, a_registered_descriptor_is_checked_and_found) {
  UniqueFd fd;
  ASSERT_TRUE(make_memfd("test", 8192, &fd).ok());
  void* base = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  Regions regions;
  std::uint64_t number = 0;
  EXPECT_EQ(regions.add(base, 8192, fd.get(), 4096, &number).code(), Code::invalid_argument);
  ASSERT_TRUE(regions.add(static_cast<char*>(base) + 4096, 4096, fd.get(), 4096, &number).ok());
  std::uint64_t again = 0;
  EXPECT_EQ(regions.add(base, 8192, fd.get(), 0, &again).code(), Code::invalid_usage);
  RegionOffset place;
  ASSERT_TRUE(regions.find(static_cast<char*>(base) + 5000, 8, &place));
  EXPECT_EQ(place.offset, 5000u);
  EXPECT_EQ(regions.add(base, 10, STDIN_FILENO, 0, &again).code(), Code::invalid_argument);
  EXPECT_TRUE(regions.remove(number).ok());
  EXPECT_EQ(regions.remove(number).code(), Code::invalid_argument);
  ::munmap(base, 8192);
}

/// A file that its owner can still shrink is refused: a process that reads it could be killed.
TEST(Regions, a_file_that_could_shrink_is_sealed_or_refused) {
  Regions regions;
  std::uint64_t number = 0;
  const UniqueFd open(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const UniqueFd unsealable(::memfd_create("unsealable", MFD_CLOEXEC));
  const UniqueFd closed(::memfd_create("closed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  for (const UniqueFd* fd : {&open, &unsealable, &closed}) {
    ASSERT_EQ(0, ::ftruncate(fd->get(), 8192));
  }
  ASSERT_EQ(0, ::fcntl(closed.get(), F_ADD_SEALS, F_SEAL_SEAL));
  void* base = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, open.get(), 0);
  for (const UniqueFd* fd : {&unsealable, &closed}) {
    const Status status = regions.add(base, 8192, fd->get(), 0, &number);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find("sealed"), std::string::npos) << status.message();
  }
  EXPECT_EQ(0, ::ftruncate(open.get(), 8192));  // nothing has been done to it so far
  ASSERT_TRUE(regions.add(base, 8192, open.get(), 0, &number).ok());
  EXPECT_EQ(-1, ::ftruncate(open.get(), 4096));
  EXPECT_EQ(EPERM, errno);
  EXPECT_TRUE(regions.remove(number).ok());
  ::munmap(base, 8192);
}

TEST(Regions, allocated_memory_cannot_shrink) {
  Regions regions;
  Allocation memory(regions, 8192);
  RegionOffset place;
  ASSERT_TRUE(regions.find(memory.data, 8192, &place));
  const UniqueFd fd = regions.descriptor(place.region);
  EXPECT_EQ(-1, ::ftruncate(fd.get(), 4096));
  EXPECT_EQ(EPERM, errno);
}

TEST(Mapping, of_a_file_that_could_shrink_is_refused) {
  const UniqueFd open(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(0, ::ftruncate(open.get(), 4096));
  std::shared_ptr<Mapping> mapping;
  EXPECT_EQ(Mapping::of(open.get(), &mapping).code(), Code::invalid_argument);
  EXPECT_EQ(mapping, nullptr);
  ASSERT_EQ(0, ::fcntl(open.get(), F_ADD_SEALS, F_SEAL_SHRINK));
  EXPECT_TRUE(Mapping::of(open.get(), &mapping).ok());
}

TEST(Mapping, a_file_is_mapped_once_per_process) {
  Mappings mappings, of_another_process;
  UniqueFd fd;
  ASSERT_TRUE(make_memfd("test", 4096, &fd).ok());
  const UniqueFd other(::dup(fd.get()));
  std::shared_ptr<Mapping> first, second;
  ASSERT_TRUE(mappings.of(fd.get(), &first).ok());
  ASSERT_TRUE(mappings.of(other.get(), &second).ok());
  EXPECT_EQ(first->data(), second->data());
  ASSERT_TRUE(of_another_process.of(fd.get(), &second).ok());
  EXPECT_NE(first->data(), second->data());
  EXPECT_FALSE(mappings.of(STDIN_FILENO, &second).ok());
}

TEST(Mapping, of_a_file_that_has_grown_covers_all_of_it) {
  Mappings mappings;
  const UniqueFd fd(::memfd_create("grows", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(0, ::ftruncate(fd.get(), 4096));
  ASSERT_EQ(0, ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK));
  std::shared_ptr<Mapping> before, after, again;
  ASSERT_TRUE(mappings.of(fd.get(), &before).ok());
  ASSERT_EQ(0, ::ftruncate(fd.get(), 8192));
  ASSERT_TRUE(mappings.of(fd.get(), &after).ok());
  ASSERT_EQ(8192u, after->size());
  before->data()[7] = std::byte{5};
  EXPECT_EQ(std::byte{5}, after->data()[7]) << "both map one file";
  after->data()[8191] = std::byte{6};
  ASSERT_TRUE(mappings.of(fd.get(), &again).ok());
  EXPECT_EQ(after, again);
}

}  // namespace
}  // namespace hocket::internal
