// The interpreter of devices, compiled for the host: a thread stands for a thread block. Every
// load/store plan of 1 to 8 ranks gives the bytes that the collective defines, with 1 to 4 workers
// for each rank, and so the same bytes as the CPU executor, which executor_test.cc holds against
// the same interpreter.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/execute/device_interpreter.h"
#include "cuda/draw.h"
#include "sanitized.h"

namespace hocket::internal {
namespace {

/// A thread that stands for a thread block of one thread.
struct HostWorker {
  static std::size_t thread() { return 0; }
  static std::size_t threads() { return 1; }
  static bool all(bool condition) { return condition; }
  static void meet() {}
  static std::uint64_t load(std::uint64_t* flag) {
    return std::atomic_ref(*flag).load(std::memory_order_acquire);
  }
  static void store(std::uint64_t* flag, std::uint64_t value) {
    std::atomic_ref(*flag).store(value, std::memory_order_release);
  }
  static void pause() { std::this_thread::yield(); }
};

/// The memory of the local ranks of a device, for one operation after another.
class Node {
 public:
  Node(std::uint32_t ranks, std::uint32_t workers) : workers_(workers), flags_(ranks) {
    for (auto& flags : flags_) flags.assign(std::size_t{workers} * device::flags_per_worker, 0);
  }

  void run(const std::vector<Plan>& plans, const RankBuffers& buffers, const DrawnCall& call) {
    ++sequence_;
    const auto ranks = static_cast<std::uint32_t>(plans.size());
    std::vector<Program> programs(ranks);
    std::vector<std::vector<std::byte>> scratch(ranks), lines(ranks);
    std::vector<device::RankMemory> memory(ranks);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      ASSERT_TRUE(lower(plans[r], &programs[r]).ok());
      ASSERT_TRUE(device::can_run(programs[r], call.op)) << print(plans[r]);
      const std::size_t stride =
          scratch_stride_bytes(buffers.sizes[r], call.dtype, plans[r].wide_scratch);
      scratch[r].resize(stride * plans[r].scratch_blocks * plans[r].slots);
      lines[r].resize(line_payload_bytes);
      memory[r] = {static_cast<const std::byte*>(buffers.inputs[r]),
                   static_cast<std::byte*>(buffers.outputs[r]), scratch[r].data(), lines[r].data(),
                   flags_[r].data()};
    }
    std::uint64_t goes_on = 0;
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      for (std::uint32_t q = 0; q < workers_; ++q) {
        threads.emplace_back([&, r, q] {
          device::DeviceCall of_rank{};
          of_rank.program = &programs[r].header();
          of_rank.ranks = memory.data();
          of_rank.local_ranks = ranks;
          of_rank.workers = workers_;
          of_rank.sizes = buffers.sizes[r];
          of_rank.stride =
              scratch_stride_bytes(buffers.sizes[r], call.dtype, plans[r].wide_scratch);
          of_rank.sequence = sequence_;
          of_rank.abort = &goes_on;
          of_rank.dtype = call.dtype;
          of_rank.op = call.op;
          HostWorker worker;
          EXPECT_TRUE(device::Interpreter<HostWorker>(of_rank, q, worker).run());
        });
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  const std::uint32_t workers_;
  std::vector<std::vector<std::uint64_t>> flags_;
  std::uint64_t sequence_ = 0;
};

class EveryDeviceProgram : public ::testing::TestWithParam<Builder> {};

TEST_P(EveryDeviceProgram, gives_the_bytes_that_the_collective_defines) {
  const Builder& builder = GetParam();
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
    // Under a sanitizer one case for each of the larger numbers of ranks.
    const bool once = tests::sanitized && (ranks == 4 || ranks >= 6);
    for (const std::uint32_t workers : {1, 4}) {
      if (once && workers == 1) continue;
      Node node(ranks, workers);
      for (std::uint64_t seed = 1; seed <= (once ? 1 : tests::sanitized ? 2 : 4); ++seed) {
        const DeviceCase drawn = draw_case(builder, ranks, workers, seed, 700, 70);
        SCOPED_TRACE(drawn.text);
        const std::vector<Plan> plans = plans_of(builder, drawn.group);
        RankBuffers buffers(plans, drawn.call);
        ASSERT_NO_FATAL_FAILURE(node.run(plans, buffers, drawn.call));
        ASSERT_EQ(buffers.check(), "");
      }
    }
  }
}

TEST(DeviceProgram, of_a_plan_that_tells_small_blocks_from_large_ones_is_refused) {
  for (const Collective collective :
       {Collective::gather, Collective::scatter, Collective::all_to_all}) {
    const Builder& builder = *find_builder("eager", collective, Medium::node);
    for (const Plan& plan : plans_of(builder, {.ranks = 3, .varying = true})) {
      Program program;
      ASSERT_TRUE(lower(plan, &program).ok());
      EXPECT_FALSE(device::can_run(program, Op::sum)) << print(plan);
    }
  }
}

TEST(DeviceProgram, ends_when_it_is_aborted) {
  Program program;
  ASSERT_TRUE(
      lower(plans_of(*find_builder("inline", Collective::barrier, Medium::node), {.ranks = 2})[0],
            &program)
          .ok());
  std::vector<std::uint64_t> flags(2 * device::flags_per_worker, 0);
  device::RankMemory memory[2] = {};
  memory[0].flags = flags.data();
  memory[1].flags = flags.data() + device::flags_per_worker;  // rank 1 never arrives
  std::uint64_t abort = 0;
  device::DeviceCall call{};
  call.program = &program.header();
  call.ranks = memory;
  call.local_ranks = 2;
  call.workers = 1;
  call.sequence = 1;
  call.abort = &abort;
  bool completed = true;
  std::thread rank_0([&] {
    HostWorker worker;
    completed = device::Interpreter<HostWorker>(call, 0, worker).run();
  });
  while (HostWorker::load(memory[0].flags + device::arrival_flag) == 0) HostWorker::pause();
  HostWorker::store(&abort, 1);
  rank_0.join();
  EXPECT_FALSE(completed);
}

INSTANTIATE_TEST_SUITE_P(builders, EveryDeviceProgram, ::testing::ValuesIn(node_builders()),
                         TestName());

}  // namespace
}  // namespace hocket::internal
