// The interpreter of devices, compiled for the host: a thread stands for a thread block. Every
// load/store plan of 1 to 8 ranks gives the bytes that the collective defines, with 1 to 4 workers
// for each rank, and so the same bytes as the CPU executor, which executor_test.cc holds against
// the same interpreter.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/data.h"
#include "collectives/execute/device_interpreter.h"
#include "collectives/plans.h"
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
      ASSERT_TRUE(device::can_run(programs[r])) << print(plans[r]);
      const std::size_t stride =
          scratch_stride_bytes(buffers.sizes[r], call.dtype, plans[r].wide_scratch);
      scratch[r].resize(stride * plans[r].scratch_blocks * plans[r].slots);
      lines[r].resize(line_payload_bytes);
      memory[r] = {static_cast<const std::byte*>(buffers.inputs[r]),
                   static_cast<std::byte*>(buffers.outputs[r]), scratch[r].data(), lines[r].data(),
                   flags_[r].data()};
    }
    const std::uint32_t goes_on = 0;
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

std::vector<Builder> node_builders() {
  std::vector<Builder> found;
  for (const Builder& builder : group_builders()) {
    if (builder.in_node) found.push_back(builder);
  }
  return found;
}

class EveryDeviceProgram : public ::testing::TestWithParam<Builder> {};

TEST_P(EveryDeviceProgram, gives_the_bytes_that_the_collective_defines) {
  const Builder& builder = GetParam();
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
    if (tests::sanitized && (ranks == 4 || ranks >= 6)) continue;
    for (const std::uint32_t workers : {1, 4}) {
      Node node(ranks, workers);
      for (std::uint64_t seed = 1; seed <= (tests::sanitized ? 2 : 4); ++seed) {
        std::mt19937_64 random(seed * 64 + ranks * 8 + workers);
        DrawnCall call;
        call.seed = seed;
        call.any_bits = true;
        call.dtype = static_cast<Dtype>(random() % dtype_count);
        call.op = static_cast<Op>(random() % op_count);
        call.count = random() % 700;
        call.chunk_elements = random() % 3 == 0 ? 0 : 1 + random() % 70;
        call.in_place = builder.collective != Collective::all_to_all && random() % 2 == 0;
        if (std::string(builder.algorithm) == "inline") {
          call.count = std::min(call.count, line_payload_bytes / size_of(call.dtype) / ranks);
        }
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(workers) + " workers, " +
                     std::to_string(call.count) + " " + internal::name_of(call.dtype) + ", " +
                     internal::name_of(call.op) + ", seed " + std::to_string(seed));
        Group group;
        group.ranks = ranks;
        group.root = static_cast<std::uint32_t>(random() % ranks);
        group.widened = is_widened(call.dtype);
        const std::vector<Plan> plans = plans_of(builder, group);
        RankBuffers buffers(plans, call);
        ASSERT_NO_FATAL_FAILURE(node.run(plans, buffers, call));
        ASSERT_EQ(buffers.check(), "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(builders, EveryDeviceProgram, ::testing::ValuesIn(node_builders()),
                         TestName());

}  // namespace
}  // namespace hocket::internal
