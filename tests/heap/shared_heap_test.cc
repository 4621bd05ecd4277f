#include "heap/shared_heap.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "sanitized.h"
#include "seed.h"

namespace hocket::heap {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;

/// A heap whose first segment has 64 MiB.
struct SmallHeap : SharedHeap {
  SmallHeap() : SharedHeap(64 * MiB, 64 * GiB) {}
  std::byte* take(std::size_t bytes, std::size_t alignment = 1, bool zeroed = false) {
    return static_cast<std::byte*>(allocate(bytes, alignment, zeroed));
  }
};

bool holds(const std::byte* block, std::size_t bytes, int value) {
  return block[0] == std::byte(value) && std::memcmp(block, block + 1, bytes - 1) == 0;
}

/// Runs `child` in a child of fork, with the heap's handlers. Returns the exit status of the child.
template <typename Child, typename Parent>
int fork_with(SharedHeap& heap, Child child, Parent parent) {
  int go[2];
  EXPECT_EQ(::pipe(go), 0);
  heap.before_fork();
  const pid_t pid = ::fork();
  if (pid == 0) {
    heap.after_fork_in_child();
    char word;
    static_cast<void>(!::read(go[0], &word, 1));  // until the parent has done its part
    ::_exit(child() ? 0 : 1);
  }
  heap.after_fork_in_parent();
  parent();
  EXPECT_EQ(::write(go[1], "g", 1), 1);
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  ::close(go[0]);
  ::close(go[1]);
  return status;
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
  return count;
}

TEST(SharedHeap, blocks_are_apart_aligned_and_its_own) {
  SmallHeap heap;
  std::byte* const a = heap.take(100);
  std::byte* const b = heap.take(5000);
  std::byte* const c = heap.take(16 * KiB, MiB);
  for (std::byte* const block : {a, b, c}) {
    ASSERT_TRUE(heap.owns(block));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 4096, 0u);
  }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(c) % MiB, 0u);
  EXPECT_GE(heap.usable_bytes(b), 5000u);
  std::memset(a, 1, heap.usable_bytes(a));
  std::memset(b, 2, heap.usable_bytes(b));
  std::memset(c, 3, heap.usable_bytes(c));
  EXPECT_TRUE(holds(a, heap.usable_bytes(a), 1) && holds(b, heap.usable_bytes(b), 2));
  int local = 0;
  EXPECT_FALSE(heap.owns(&local));
  EXPECT_FALSE(heap.owns(nullptr));
  EXPECT_EQ(heap.allocate(0, 1, false), nullptr);
  EXPECT_EQ(heap.allocate(SIZE_MAX - 10, 1, false), nullptr);
  EXPECT_EQ(heap.allocate(4096, std::size_t{1} << 62, false), nullptr);
  EXPECT_EQ(heap.allocate(128 * GiB, 1, false), nullptr);
}

TEST(SharedHeap, a_freed_block_is_used_again_and_zeroed_only_if_asked) {
  SmallHeap heap;
  std::byte* const first = heap.take(MiB);
  std::byte* const guard = heap.take(4 * KiB);
  EXPECT_TRUE(holds(first, MiB, 0));
  std::memset(first, 7, MiB);
  heap.free(first);
  EXPECT_EQ(heap.kept_bytes(), MiB);
  ASSERT_EQ(heap.take(MiB), first);
  EXPECT_TRUE(holds(first, MiB, 7));
  heap.free(first);
  ASSERT_EQ(heap.take(MiB / 2, 1, true), first);
  EXPECT_TRUE(holds(first, MiB / 2, 0));
  EXPECT_EQ(heap.take(MiB / 2), first + MiB / 2);
  EXPECT_EQ(heap.kept_bytes(), 0u);
  EXPECT_TRUE(holds(guard, 4 * KiB, 0));
}

TEST(SharedHeap, neighbours_that_are_free_become_one_block) {
  SmallHeap heap;
  std::byte* const blocks[] = {heap.take(MiB), heap.take(MiB), heap.take(MiB), heap.take(MiB)};
  heap.free(blocks[0]);
  heap.free(blocks[2]);
  EXPECT_NE(heap.take(2 * MiB), blocks[0]);
  heap.free(blocks[1]);
  EXPECT_EQ(heap.take(3 * MiB), blocks[0]);
}

TEST(SharedHeap, a_block_grows_and_shrinks_in_place) {
  SmallHeap heap;
  std::byte* const block = heap.take(MiB);
  std::memset(block, 5, MiB);
  ASSERT_TRUE(heap.resize(block, 3 * MiB));
  EXPECT_EQ(heap.usable_bytes(block), 3 * MiB);
  EXPECT_TRUE(holds(block, MiB, 5) && holds(block + MiB, 2 * MiB, 0));
  ASSERT_TRUE(heap.resize(block, 2 * MiB));
  EXPECT_EQ(heap.take(MiB), block + 2 * MiB);
  EXPECT_FALSE(heap.resize(block, 4 * MiB)) << "another block is in the way";
  EXPECT_EQ(heap.usable_bytes(block), 2 * MiB);
  EXPECT_FALSE(heap.resize(block, SIZE_MAX));
  EXPECT_FALSE(heap.resize(block, 128 * MiB)) << "beyond the segment";
  EXPECT_TRUE(holds(block, MiB, 5));
}

TEST(SharedHeap, segments_are_sealed_files_with_the_bytes_of_the_blocks) {
  SmallHeap heap;
  hocket_heap_segment found[4];
  EXPECT_EQ(heap.segments(found, 0, 4), 0u);
  std::byte* const block = heap.take(MiB);
  std::byte* const longer = heap.take(100 * MiB);
  std::memset(block, 3, MiB);
  std::memset(longer, 4, 8);
  ASSERT_EQ(heap.segments(found, 0, 4), 2u);
  for (const auto& [memory, fd, bytes] :
       {std::tuple{block, found[0].fd, found[0].bytes}, {longer, found[1].fd, found[1].bytes}}) {
    const bool second = memory == longer;
    const auto* const base = static_cast<std::byte*>(found[second].base);
    ASSERT_TRUE(base <= memory && memory < base + bytes);
    std::byte read[8];
    ASSERT_EQ(::pread(fd, read, 8, memory - base), 8);
    EXPECT_TRUE(holds(read, 8, second ? 4 : 3));
    EXPECT_NE(::ftruncate(fd, 4096), 0) << "a peer could make this process crash";
  }
  EXPECT_EQ(heap.segments(found, 1, 4), 1u);
  EXPECT_EQ(heap.segments(found, 2, 4), 0u);
}

TEST(SharedHeap, no_block_spans_two_segments) {
  SmallHeap heap;
  std::byte* const first = heap.take(64 * MiB);  // the first segment
  std::byte* const second = heap.take(MiB);
  ASSERT_EQ(second, first + 64 * MiB) << "segments lie side by side";
  heap.free(first);
  heap.free(second);
  std::byte* const longer = heap.take(65 * MiB);
  EXPECT_NE(longer, first);
  heap.free(longer);
  std::byte* const again = heap.take(64 * MiB);
  EXPECT_EQ(again, first);
  EXPECT_FALSE(heap.resize(again, 64 * MiB + 4096));
  hocket_heap_segment found[4];
  EXPECT_EQ(heap.segments(found, 0, 4), 3u);
}

TEST(SharedHeap, free_pages_beyond_the_limit_return_to_the_system) {
  SmallHeap heap;
  std::byte* const block = heap.take(SharedHeap::most_kept_bytes + MiB);
  std::memset(block, 1, MiB);
  hocket_heap_segment found[4];
  const std::size_t segments = heap.segments(found, 0, 4);
  const auto data = [&] { return ::lseek(found[segments - 1].fd, 0, SEEK_DATA); };
  EXPECT_EQ(data(), 0);
  heap.free(block);
  EXPECT_EQ(heap.kept_bytes(), 0u);
  EXPECT_EQ(data(), -1) << "the file has no pages";
  std::byte* const again = heap.take(MiB, 1, true);
  EXPECT_TRUE(holds(again, MiB, 0));
  std::byte* const shortened = heap.take(SharedHeap::most_kept_bytes + 2 * MiB);
  ASSERT_TRUE(heap.resize(shortened, 4 * KiB));
  EXPECT_EQ(heap.kept_bytes(), 0u);
}

TEST(SharedHeap, private_pages_are_zero_after_they_returned_to_the_system) {
  SmallHeap heap;
  std::byte* const block = heap.take(SharedHeap::most_kept_bytes + MiB);
  ASSERT_NE(
      ::mmap(block, MiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      MAP_FAILED);
  heap.has_private_pages();
  std::memset(block, 9, MiB);
  heap.free(block);
  std::byte* const again = heap.take(SharedHeap::most_kept_bytes + MiB, 1, true);
  ASSERT_EQ(again, block);
  EXPECT_TRUE(holds(again, MiB, 0));
}

TEST(SharedHeap, under_a_limit_of_the_system_there_is_no_block_and_no_signal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 8 * MiB;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  SmallHeap heap;
  errno = 77;
  EXPECT_EQ(heap.allocate(16 * MiB, 1, false), nullptr);
  EXPECT_EQ(errno, 77);
  std::byte* const fits = heap.take(MiB);
  EXPECT_NE(fits, nullptr) << "a shorter segment";
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::memset(fits, 1, MiB);

  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  limit = before;
  limit.rlim_cur = 0;
  SmallHeap other;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(other.allocate(MiB, 1, false), nullptr);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_NE(other.allocate(MiB, 1, false), nullptr);
}

TEST(SharedHeap, takes_a_quarter_of_limited_addresses) {
  if (tests::sanitized) GTEST_SKIP() << "the sanitizers need more addresses than the limit";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 32 * GiB;
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  SmallHeap heap;
  EXPECT_NE(heap.allocate(6 * GiB, 1, false), nullptr);
  EXPECT_EQ(heap.allocate(3 * GiB, 1, false), nullptr);
  void* const others =
      ::mmap(nullptr, 20 * GiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(others, MAP_FAILED);
  ::munmap(others, 20 * GiB);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
}

TEST(SharedHeapDeathTest, a_wrong_pointer_ends_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SmallHeap heap;
  std::byte* const block = heap.take(MiB);
  EXPECT_DEATH(heap.free(block + 4096), "no block in use");
  heap.free(block);
  EXPECT_DEATH(heap.free(block), "no block in use");
}

TEST(SharedHeap, a_child_of_fork_has_a_copy_as_if_memory_was_private) {
  SmallHeap heap;
  std::byte* const used = heap.take(MiB);
  std::byte* const sparse = heap.take(30 * MiB);  // one page of it has data
  std::byte* const freed = heap.take(MiB);
  std::byte* const in_second = heap.take(100 * MiB);
  std::memset(used, 1, MiB);
  std::memset(sparse + 20 * MiB, 2, 100);
  std::memset(freed, 3, MiB);
  std::memset(in_second, 4, MiB);
  heap.free(freed);
  const int before = open_descriptors();
  const auto child = [&] {
    bool good = holds(used, MiB, 1) && holds(sparse, 20 * MiB, 0) &&
                holds(sparse + 20 * MiB, 100, 2) && holds(in_second, MiB, 4);
    std::memset(used, 5, MiB);  // the parent must not see it
    std::byte* const own = heap.take(2 * MiB, 1, true);
    good &= own != nullptr && holds(own, 2 * MiB, 0);
    heap.free(own);
    heap.free(in_second);
    hocket_heap_segment found[4];
    return good && heap.segments(found, 0, 4) == 0;
  };
  EXPECT_EQ(fork_with(heap, child, [&] { std::memset(used, 6, MiB); }), 0);
  EXPECT_TRUE(holds(used, MiB, 6) && holds(in_second, MiB, 4));
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_NE(heap.take(MiB), nullptr);
}

TEST(SharedHeap, a_grandchild_has_a_copy_too) {
  SmallHeap heap;
  std::byte* const block = heap.take(MiB);
  std::memset(block, 1, MiB);
  const auto grandchild = [&] { return holds(block, MiB, 2); };
  const auto child = [&] {
    std::memset(block, 2, MiB);
    return fork_with(heap, grandchild, [&] { std::memset(block, 3, MiB); }) == 0;
  };
  EXPECT_EQ(fork_with(heap, child, [] {}), 0);
}

TEST(SharedHeap, fork_copies_private_pages_from_memory_and_not_from_the_file) {
  SmallHeap heap;
  std::byte* const block = heap.take(MiB);
  std::memset(block + 64 * KiB, 1, MiB - 64 * KiB);  // the file has no more
  ASSERT_NE(::mmap(block, 64 * KiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0),
            MAP_FAILED);
  heap.has_private_pages();
  std::memset(block, 2, 64 * KiB);
  const auto child = [&] {
    return holds(block, 64 * KiB, 2) && holds(block + 64 * KiB, MiB - 64 * KiB, 1);
  };
  EXPECT_EQ(fork_with(heap, child, [&] { std::memset(block, 3, 64 * KiB); }), 0);
}

TEST(SharedHeap, fork_waits_for_the_copy_though_no_descriptor_is_left) {
  SmallHeap heap;
  std::byte* const block = heap.take(32 * MiB);
  std::memset(block, 1, 32 * MiB);
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<int> all;
  for (int fd; (fd = ::dup(go[0])) >= 0;) all.push_back(fd);
  ASSERT_EQ(errno, EMFILE);
  heap.before_fork();
  const pid_t pid = ::fork();
  if (pid == 0) {
    heap.after_fork_in_child();
    ::_exit(holds(block, 32 * MiB, 1) ? 0 : 1);
  }
  heap.after_fork_in_parent();
  std::memset(block, 2, 32 * MiB);
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  for (const int fd : all) ::close(fd);
  ::close(go[0]);
  ::close(go[1]);
}

TEST(SharedHeap, closed_standard_streams_are_not_its_files) {
  const int input = ::dup(STDIN_FILENO);
  ASSERT_GE(input, 0);
  ::close(STDIN_FILENO);
  SmallHeap heap;
  std::byte* const block = heap.take(MiB);
  hocket_heap_segment found[1];
  ASSERT_EQ(heap.segments(found, 0, 1), 1u);
  EXPECT_GT(found[0].fd, STDERR_FILENO);
  EXPECT_EQ(fork_with(
                heap, [&] { return holds(block, MiB, 0); }, [] {}),
            0);
  EXPECT_LT(::fcntl(STDIN_FILENO, F_GETFD), 0);
  ASSERT_EQ(::dup2(input, STDIN_FILENO), STDIN_FILENO);
  ::close(input);
}

struct Held {
  std::byte* memory;
  std::size_t bytes;
  int value;
};

/// Allocates, resizes and frees at random. The first and last bytes of a block tell its value.
void use_at_random(SmallHeap& heap, std::uint64_t seed, int turns) {
  std::mt19937_64 random(seed);
  std::vector<Held> held;
  const auto mark = [](const Held& block) {
    std::memset(block.memory, block.value, 64);
    std::memset(block.memory + block.bytes - 64, block.value, 64);
  };
  for (int turn = 0; turn < turns; ++turn) {
    const std::uint64_t choice = random() % 8;
    if (held.size() < 4 || (choice < 3 && held.size() < 40)) {
      const std::size_t bytes = 64 + (random() % (std::size_t{1} << (10 + random() % 13)));
      const std::size_t alignment = std::size_t{1} << (random() % 18);
      const bool zeroed = random() % 2 == 0;
      Held block{heap.take(bytes, alignment, zeroed), bytes, static_cast<int>(random() % 256)};
      ASSERT_NE(block.memory, nullptr);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block.memory) % alignment, 0u);
      ASSERT_TRUE(!zeroed || holds(block.memory, bytes, 0));
      mark(block);
      held.push_back(block);
      continue;
    }
    const std::size_t place = random() % held.size();
    Held& block = held[place];
    ASSERT_TRUE(holds(block.memory, 64, block.value));
    ASSERT_TRUE(holds(block.memory + block.bytes - 64, 64, block.value));
    const std::size_t bytes = std::max<std::size_t>(128, block.bytes * (random() % 16) / 8);
    if (choice < 5 && heap.resize(block.memory, bytes)) {
      ASSERT_TRUE(holds(block.memory, 64, block.value));
      block.bytes = bytes;
      mark(block);
    } else {
      heap.free(block.memory);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(place));
    }
  }
  for (const Held& block : held) heap.free(block.memory);
}

TEST(SharedHeap, random_use_keeps_every_block) {
  SmallHeap heap;
  const std::size_t turns = tests::sanitized ? 3000 : 30000;
  use_at_random(heap, tests::seed(), static_cast<int>(turns));
  const std::size_t kept = heap.kept_bytes();
  EXPECT_LE(kept, SharedHeap::most_kept_bytes);
  EXPECT_NE(heap.take(60 * MiB), nullptr);
  hocket_heap_segment found[8];
  EXPECT_LE(heap.segments(found, 0, 8), 3u) << "free blocks were not joined";
}

TEST(SharedHeap, threads_use_it_at_once) {
  SmallHeap heap;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&heap, i] { use_at_random(heap, tests::seed() + i, 1000); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hocket::heap
