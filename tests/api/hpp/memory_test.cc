// The memory, registrations and log lines of hocket.hpp.
#include <sys/mman.h>
#include <unistd.h>

#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <ranges>

#include "hpp/job.h"

namespace {

using hocket::Communicator;
using hocket::Memory;

static_assert(std::ranges::contiguous_range<Memory<int>> &&
              std::ranges::sized_range<const Memory<int>>);

TEST(CppMemory, is_a_range_and_empty_after_a_move) {
  Memory<int> memory(100);
  EXPECT_EQ(100U, memory.size());
  EXPECT_FALSE(memory.empty());
  EXPECT_EQ(0, std::accumulate(memory.begin(), memory.end(), 0)) << "zeroed";
  std::iota(memory.begin(), memory.end(), 0);
  const Memory<int>& view = memory;
  EXPECT_EQ(99, view[99]);
  EXPECT_EQ(view.data() + 100, view.end());
  memory[0] = 7;

  Memory<int> moved = std::move(memory);
  // NOLINTBEGIN: what a move leaves is promised
  EXPECT_TRUE(memory.empty());
  EXPECT_EQ(0U, memory.size());
  EXPECT_EQ(nullptr, memory.data());
  EXPECT_EQ(memory.begin(), memory.end());
  // NOLINTEND
  EXPECT_EQ(7, moved[0]);
  Memory<int> none(0);
  EXPECT_TRUE(none.empty());
  none = std::move(moved);
  EXPECT_EQ(100U, none.size());
  EXPECT_EQ(7, none[0]);
  const auto error = job::thrown_by<hocket::InvalidArgument>([] { Memory<int> all(SIZE_MAX); });
  EXPECT_STREQ("hocketMemAlloc", error.operation());
}

template <typename T>
using Mapped = std::vector<T, hocket::allocator<T>>;

TEST(CppMemory, of_a_standard_container_is_a_mapped_buffer) {
  job::run(2, [](Communicator& comm) {
    Mapped<float> data(100'000, 1.0f);
    EXPECT_EQ(hocketPathMapped, comm.memory_path(data));
    comm.all_reduce(data, hocketSum);
    EXPECT_EQ(Mapped<float>(100'000, 2.0f), data);
    data.resize(200'000, 3.0f);  // moves the elements to other memory
    EXPECT_EQ(2.0f, data[99'999]);
    EXPECT_EQ(3.0f, data[100'000]);
    EXPECT_EQ(hocketPathMapped, comm.memory_path(data));
    const Mapped<float> copy = data;
    const float* const memory = data.data();
    Mapped<float> moved = std::move(data);
    EXPECT_EQ(memory, moved.data());
    Mapped<float> assigned;
    assigned = std::move(moved);
    EXPECT_EQ(memory, assigned.data());
    EXPECT_EQ(copy, assigned);
    Mapped<float> all(2 * copy.size());
    comm.all_gather(copy, all);
    EXPECT_EQ(2.0f, all[copy.size()]);
  });
}

/// More alignment than malloc gives.
struct alignas(256) Wide {
  char bytes[256];
};

TEST(CppMemory, of_the_allocator_is_the_standards) {
  using Allocator = hocket::allocator<int>;
  using Traits = std::allocator_traits<Allocator>;
  static_assert(std::is_same_v<hocket::allocator<Wide>, Traits::rebind_alloc<Wide>>);
  static_assert(Traits::is_always_equal::value);
  EXPECT_TRUE(Allocator() == hocket::allocator<Wide>());
  EXPECT_FALSE(Allocator() != Allocator(hocket::allocator<Wide>()));
  std::list<int, Allocator> nodes{1, 2, 3};  // rebinds it to its nodes
  nodes.push_front(0);
  EXPECT_EQ(6, std::accumulate(nodes.begin(), nodes.end(), 0));
  Mapped<Wide> wide(3);
  EXPECT_EQ(0U, reinterpret_cast<std::uintptr_t>(wide.data()) % alignof(Wide));
  Allocator allocator;
  int* const nothing = allocator.allocate(0);
  EXPECT_NE(nullptr, nothing);
  allocator.deallocate(nothing, 0);
}

TEST(CppMemory, that_does_not_exist_is_bad_alloc) {
  hocket::allocator<double> allocator;
  EXPECT_THROW(static_cast<void>(allocator.allocate(SIZE_MAX / 8 + 1)), std::bad_array_new_length);
  EXPECT_THROW(static_cast<void>(allocator.allocate(SIZE_MAX / 16)), std::bad_alloc);
  const std::string sentence = hocketGetLastError(nullptr);
  EXPECT_TRUE(sentence.starts_with("hocketMemAlloc: ")) << sentence;
  EXPECT_THROW(Mapped<double>(SIZE_MAX / 64), std::bad_alloc);
}

TEST(CppMemory, path_and_registrations) {
  job::run(2, [](Communicator& comm) {
    Memory<float> shared(100'000);
    std::vector<float> own(100'000);
    EXPECT_EQ(hocketPathMapped, comm.memory_path(shared));
    EXPECT_EQ(hocketPathStaged, comm.memory_path(own));
    const hocket::Registration plain = comm.register_memory(own);

    const std::size_t size = 1 << 20;
    const int fd = ::memfd_create("test", MFD_ALLOW_SEALING);
    ASSERT_EQ(0, ::ftruncate(fd, size));
    void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(MAP_FAILED, mapped);
    const std::span<double> data(static_cast<double*>(mapped), size / sizeof(double));
    EXPECT_EQ(hocketPathStaged, comm.memory_path(data));
    {
      hocket::Registration registration = comm.register_memory(data, fd);
      hocket::Registration moved = std::move(registration);
      EXPECT_EQ(hocketPathMapped, comm.memory_path(data));
      moved = std::move(registration);  // NOLINT: ends what it had
      EXPECT_EQ(hocketPathStaged, comm.memory_path(data));
    }
    {
      const hocket::Registration again = comm.register_memory(data, fd, 0);
      std::fill(data.begin(), data.end(), 1.0);
      comm.all_reduce(data, hocketSum);
      EXPECT_EQ(2.0, data.back());
    }
    EXPECT_EQ(hocketPathStaged, comm.memory_path(data));
    job::thrown_by<hocket::InvalidArgument>([&] { auto no = comm.register_memory(data, -1); });
    ::munmap(mapped, size);
    ::close(fd);
  });
}

TEST(CppMemory, a_registration_may_outlive_its_communicator) {
  std::vector<float> own(100);
  auto comm = std::make_unique<Communicator>(Communicator::from_environment());
  const hocket::Registration registration = comm->register_memory(own);
  comm.reset();
}

TEST(CppLog, lines_come_to_a_function_with_captures_until_it_is_replaced) {
  std::mutex mutex;
  std::vector<std::string> lines;
  const auto watched = std::make_shared<int>(0);
  hocket::set_log_callback([&, watched](hocket::LogLevel level, std::string_view line) {
    const std::lock_guard lock(mutex);
    EXPECT_GE(level, hocket::LogLevel::error);
    EXPECT_LE(level, hocket::LogLevel::debugging);
    lines.emplace_back(line);
    throw 1;  // may not harm the library
  });
  job::run(2, [](Communicator& comm) { comm.barrier(); });
  hocket::set_log_callback({});
  EXPECT_EQ(1, watched.use_count()) << "the captures are destroyed";
  const std::size_t heard = lines.size();
  EXPECT_GT(heard, 0U);
  job::run(2, [](Communicator& comm) { comm.barrier(); });
  EXPECT_EQ(heard, lines.size());
}

}  // namespace
