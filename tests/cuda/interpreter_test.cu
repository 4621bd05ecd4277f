// The interpreter of devices on a GPU: every load/store plan of 1 to 8 ranks gives the bytes that
// the collective defines. All ranks are on one GPU: thread block b is worker b % R of rank b / R.
// tests/cuda/run_on_gpu builds and runs this program; tests/cuda/device_test.cc is the same
// on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
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

void expect(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::abort();
}

/// Memory of the GPU, all bytes 0.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : bytes_((count + 1) * sizeof(T)) {
    expect(cudaMalloc(&data_, bytes_));
    expect(cudaMemset(data_, 0, bytes_));
  }
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  DeviceArray(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  void take(const void* host, std::size_t bytes) {
    expect(cudaMemcpy(data_, host, bytes, cudaMemcpyHostToDevice));
  }
  void give(void* host, std::size_t bytes) const {
    expect(cudaMemcpy(host, data_, bytes, cudaMemcpyDeviceToHost));
  }

 private:
  T* data_ = nullptr;
  std::size_t bytes_;
};

/// The ranks of one GPU, for one operation after another.
class Node {
 public:
  Node(std::uint32_t ranks, std::uint32_t workers)
      : ranks_(ranks),
        workers_(workers),
        memory_(ranks),
        calls_(ranks),
        device_memory_(ranks),
        device_calls_(ranks),
        goes_on_(1) {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      flags_.emplace_back(std::size_t{workers} * device::flags_per_worker);
    }
    expect(cudaEventCreate(&begin_));
    expect(cudaEventCreate(&end_));
  }
  ~Node() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }

  /// Runs the plans `times` times, one operation after another, and returns the least time of an
  /// operation in microseconds, from the start of its kernel to the kernel's end. The outputs are
  /// those of the last.
  double run(const std::vector<Plan>& plans, RankBuffers& buffers, const DrawnCall& call,
             int times = 1) {
    std::vector<DeviceArray<std::byte>> images, scratch, lines, programs;
    for (std::uint32_t r = 0; r < ranks_; ++r)
      prepare(r, plans[r], buffers, call, images, scratch, lines, programs);
    device_memory_.take(memory_.data(), ranks_ * sizeof memory_[0]);
    double least_us = 1e9;
    for (int i = 0; i < times; ++i) {
      ++sequence_;
      for (device::DeviceCall& of_rank : calls_) of_rank.sequence = sequence_;
      device_calls_.take(calls_.data(), ranks_ * sizeof calls_[0]);
      expect(cudaEventRecord(begin_));
      run_ranks<<<ranks_ * workers_, threads_per_block>>>(device_calls_.data(), workers_);
      expect(cudaEventRecord(end_));
      expect(cudaDeviceSynchronize());
      float milliseconds = 0;
      expect(cudaEventElapsedTime(&milliseconds, begin_, end_));
      least_us = std::min(least_us, milliseconds * 1e3);
    }
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      std::vector<std::byte>& image = buffers.memory_of(r);
      images[r].give(image.data(), image.size());
    }
    return least_us;
  }

 private:
  void prepare(std::uint32_t r, const Plan& plan, RankBuffers& buffers, const DrawnCall& call,
               std::vector<DeviceArray<std::byte>>& images,
               std::vector<DeviceArray<std::byte>>& scratch,
               std::vector<DeviceArray<std::byte>>& lines,
               std::vector<DeviceArray<std::byte>>& programs) {
    Program program;
    ASSERT_TRUE(lower(plan, &program).ok());
    ASSERT_TRUE(device::can_run(program, call.op)) << print(plan);
    const Sizes& sizes = buffers.sizes[r];
    const std::size_t stride = scratch_stride_bytes(sizes, call.dtype, plan.wide_scratch);
    const std::vector<std::byte>& image = buffers.memory_of(r);
    images.emplace_back(image.size());
    images[r].take(image.data(), image.size());
    scratch.emplace_back(stride * plan.scratch_blocks * plan.slots);
    lines.emplace_back(line_payload_bytes);
    programs.emplace_back(program.bytes().size());  // the program as it lies
    programs[r].take(program.bytes().data(), program.bytes().size());
    const auto place = [&](const void* host) -> std::byte* {
      return host == nullptr
                 ? nullptr
                 : images[r].data() + (static_cast<const std::byte*>(host) - image.data());
    };
    memory_[r] = {place(buffers.inputs[r]), place(buffers.outputs[r]), scratch[r].data(),
                  lines[r].data(), flags_[r].data()};
    device::DeviceCall& of_rank = calls_[r];
    of_rank.program = reinterpret_cast<const ProgramHeader*>(programs[r].data());
    of_rank.ranks = device_memory_.data();
    of_rank.local_ranks = ranks_;
    of_rank.workers = workers_;
    of_rank.sizes = sizes;
    of_rank.stride = stride;
    of_rank.abort = goes_on_.data();
    of_rank.dtype = call.dtype;
    of_rank.op = call.op;
  }

  const std::uint32_t ranks_, workers_;
  std::vector<device::RankMemory> memory_;
  std::vector<device::DeviceCall> calls_;
  DeviceArray<device::RankMemory> device_memory_;
  DeviceArray<device::DeviceCall> device_calls_;
  DeviceArray<std::uint64_t> goes_on_;  // stays 0: nobody aborts
  std::vector<DeviceArray<std::uint64_t>> flags_;
  std::uint64_t sequence_ = 0;
  cudaEvent_t begin_, end_;
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

/// No promise, figures: 8 ranks on one GPU all-reduce fp32. The limit is that of copying as many
/// bytes within the GPU's memory as a plan that maps buffers must move: every input is read once,
/// and every output is written once.
TEST(Speed, of_all_reduce_is_printed) {
  constexpr std::uint32_t ranks = 8;
  std::printf("%-10s %8s %6s %12s %12s\n", "algorithm", "bytes", "blocks", "time us", "copy us");
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{256} << 10, std::size_t{16} << 20}) {
    DeviceArray<std::byte> from(ranks * bytes), to(ranks * bytes);
    cudaEvent_t begin, end;
    expect(cudaEventCreate(&begin));
    expect(cudaEventCreate(&end));
    float copy_ms = 1e9;
    for (int i = 0; i < 10; ++i) {
      float milliseconds = 0;
      expect(cudaEventRecord(begin));
      expect(cudaMemcpyAsync(to.data(), from.data(), ranks * bytes, cudaMemcpyDeviceToDevice));
      expect(cudaEventRecord(end));
      expect(cudaDeviceSynchronize());
      expect(cudaEventElapsedTime(&milliseconds, begin, end));
      copy_ms = std::min(copy_ms, milliseconds);
    }
    for (const Builder& builder : node_builders()) {
      if (builder.collective != Collective::all_reduce) continue;
      if (std::string(builder.algorithm) == "inline" && bytes > 8) continue;
      for (const std::uint32_t workers : {1, 16}) {
        DrawnCall call;
        call.count = bytes / 4;
        call.chunk_elements = 64 << 10;
        const std::vector<Plan> plans = plans_of(builder, {.ranks = ranks});
        RankBuffers buffers(plans, call);
        Node node(ranks, workers);
        const double least_us = node.run(plans, buffers, call, 10);
        ASSERT_FALSE(HasFatalFailure());
        ASSERT_EQ(buffers.check(), "");
        std::printf("%-10s %8zu %6u %12.1f %12.1f\n", builder.algorithm, bytes, workers, least_us,
                    copy_ms * 1e3);
      }
    }
  }
}

}  // namespace
}  // namespace hocket::internal
