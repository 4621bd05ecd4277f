// The interpreter of devices on a GPU: every load/store plan of 1 to 8 ranks gives the bytes that
// the collective defines. All ranks are on one GPU: thread block b is worker b % R of rank b / R.
// tests/cuda/run_on_gpu builds and runs this program; tests/cuda/device_test.cc is the same
// on the host.
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "collectives/execute/device_interpreter.h"
#include "cuda/draw.h"

namespace hocket::internal {
namespace {

constexpr int threads_per_block = 128;

/// A thread block.
struct Block {
  __device__ static std::size_t thread() { return threadIdx.x; }
  __device__ static std::size_t threads() { return blockDim.x; }
  __device__ static bool all(bool condition) { return __syncthreads_and(condition) != 0; }
  __device__ static void meet() { __syncthreads(); }
  __device__ static std::uint64_t load(std::uint64_t* flag) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
  }
  __device__ static void store(std::uint64_t* flag, std::uint64_t value) {
    __threadfence_system();
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
  }
  __device__ static void pause() { __nanosleep(20); }
};

__global__ void run_ranks(const device::DeviceCall* calls, std::uint32_t workers) {
  Block block;
  device::Interpreter<Block> interpreter(calls[blockIdx.x / workers], blockIdx.x % workers, block);
  interpreter.run();
}

/// Memory that host and GPU share.
template <typename T>
class Managed {
 public:
  explicit Managed(std::size_t count) : bytes_((count + 1) * sizeof(T)) {
    if (cudaMallocManaged(&data_, bytes_) != cudaSuccess) std::abort();
    cudaMemset(data_, 0, bytes_);
    cudaDeviceSynchronize();
  }
  Managed(Managed&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Managed(const Managed&) = delete;
  ~Managed() { cudaFree(data_); }
  T* data() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t bytes_;
};

/// The ranks of one GPU, for one operation after another.
class Node {
 public:
  Node(std::uint32_t ranks, std::uint32_t workers)
      : ranks_(ranks), workers_(workers), memory_(ranks), calls_(ranks), abort_(1) {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      flags_.emplace_back(std::size_t{workers} * device::flags_per_worker);
    }
  }

  /// Returns milliseconds.
  float run(const std::vector<Plan>& plans, RankBuffers& buffers, const DrawnCall& call) {
    ++sequence_;
    std::vector<Managed<std::byte>> images, scratch, lines, programs;
    for (std::uint32_t r = 0; r < ranks_; ++r)
      prepare(r, plans[r], buffers, call, images, scratch, lines, programs);
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    cudaEventRecord(begin);
    run_ranks<<<ranks_ * workers_, threads_per_block>>>(calls_.data(), workers_);
    cudaEventRecord(end);
    const cudaError_t error = cudaDeviceSynchronize();
    EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, begin, end);
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      std::vector<std::byte>& image = buffers.memory_of(r);
      std::memcpy(image.data(), images[r].data(), image.size());
    }
    return milliseconds;
  }

 private:
  void prepare(std::uint32_t r, const Plan& plan, RankBuffers& buffers, const DrawnCall& call,
               std::vector<Managed<std::byte>>& images, std::vector<Managed<std::byte>>& scratch,
               std::vector<Managed<std::byte>>& lines, std::vector<Managed<std::byte>>& programs) {
    Program program;
    ASSERT_TRUE(lower(plan, &program).ok());
    ASSERT_TRUE(device::can_run(program, call.op)) << print(plan);
    const Sizes& sizes = buffers.sizes[r];
    const std::size_t stride = scratch_stride_bytes(sizes, call.dtype, plan.wide_scratch);
    const std::vector<std::byte>& image = buffers.memory_of(r);
    images.emplace_back(image.size());
    std::memcpy(images[r].data(), image.data(), image.size());
    scratch.emplace_back(stride * plan.scratch_blocks * plan.slots);
    lines.emplace_back(line_payload_bytes);
    programs.emplace_back(program.bytes().size());  // the program as it lies
    std::memcpy(programs[r].data(), program.bytes().data(), program.bytes().size());
    const auto place = [&](const void* host) -> std::byte* {
      return host == nullptr
                 ? nullptr
                 : images[r].data() + (static_cast<const std::byte*>(host) - image.data());
    };
    memory_[r] = {place(buffers.inputs[r]), place(buffers.outputs[r]), scratch[r].data(),
                  lines[r].data(), flags_[r].data()};
    device::DeviceCall& of_rank = calls_[r];
    of_rank.program = reinterpret_cast<const ProgramHeader*>(programs[r].data());
    of_rank.ranks = memory_.data();
    of_rank.local_ranks = ranks_;
    of_rank.workers = workers_;
    of_rank.sizes = sizes;
    of_rank.stride = stride;
    of_rank.sequence = sequence_;
    of_rank.abort = abort_.data();
    of_rank.dtype = call.dtype;
    of_rank.op = call.op;
  }

  const std::uint32_t ranks_, workers_;
  Managed<device::RankMemory> memory_;
  Managed<device::DeviceCall> calls_;
  Managed<std::uint64_t> abort_;
  std::vector<Managed<std::uint64_t>> flags_;
  std::uint64_t sequence_ = 0;
};

class EveryProgramOnAGpu : public ::testing::TestWithParam<Builder> {};

TEST_P(EveryProgramOnAGpu, gives_the_bytes_that_the_collective_defines) {
  const Builder& builder = GetParam();
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
    for (const std::uint32_t workers : {1, 4, 16}) {
      Node node(ranks, workers);
      for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        const DeviceCase drawn = draw_case(builder, ranks, workers, seed, 5000, 500);
        SCOPED_TRACE(drawn.text);
        const std::vector<Plan> plans = plans_of(builder, drawn.group);
        RankBuffers buffers(plans, drawn.call);
        node.run(plans, buffers, drawn.call);
        ASSERT_FALSE(HasFatalFailure());
        ASSERT_EQ(buffers.check(), "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(builders, EveryProgramOnAGpu, ::testing::ValuesIn(node_builders()),
                         TestName());

/// No promise, a first figure: 8 ranks on one GPU all-reduce fp32.
TEST(Speed, of_all_reduce_is_printed) {
  constexpr std::uint32_t ranks = 8, workers = 16;
  for (const char* algorithm : {"direct", "staged"}) {
    const std::vector<Plan> plans =
        plans_of(*find_builder(algorithm, Collective::all_reduce, Medium::node), {.ranks = ranks});
    DrawnCall call;
    call.count = 4 << 20;
    call.chunk_elements = 64 << 10;
    Node node(ranks, workers);
    float least = 1e9;
    for (int i = 0; i < 5; ++i) {
      RankBuffers buffers(plans, call);
      least = std::min(least, node.run(plans, buffers, call));
      if (i == 0) {
        ASSERT_EQ(buffers.check(), "");
      }
    }
    std::printf(
        "%s: %u ranks x %u blocks, 16 MiB: %.3f ms (memory moves from and to the host in it)\n",
        algorithm, ranks, workers, least);
  }
}

}  // namespace
}  // namespace hocket::internal
