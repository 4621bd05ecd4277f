// The memory, registrations and log lines of hocket.hpp.
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
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
