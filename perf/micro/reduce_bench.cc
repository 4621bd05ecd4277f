// The speed of fold(), compared with memcpy and with a simple loop. bytes_per_second counts bytes
// read and bytes written; "bytes" is the size of a buffer.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "reduce/fold.h"

namespace hocket::internal {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<void, Free>;

Buffer make_buffer(std::size_t bytes) {
  const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
  Buffer buffer(std::aligned_alloc(4096, rounded));
  std::memset(buffer.get(), 0, rounded);  // touch every page
  return buffer;
}

struct Buffers {
  std::vector<Buffer> memory;
  std::vector<FoldSource> srcs;
  std::vector<void*> dsts;
  Buffers(int src_count, int dst_count, std::size_t bytes) {
    for (int i = 0; i < src_count + dst_count; ++i) memory.push_back(make_buffer(bytes));
    for (int i = 0; i < src_count; ++i) srcs.push_back({memory[i].get(), false});
    for (int i = 0; i < dst_count; ++i) dsts.push_back(memory[src_count + i].get());
  }
};

void set_rate(benchmark::State& state, int streams, std::size_t bytes) {
  state.SetBytesProcessed(state.iterations() * streams * static_cast<std::int64_t>(bytes));
}

void fold_of(benchmark::State& state, Dtype dtype, Op op, int src_count, int dst_count,
             Stores stores) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Buffers buffers(src_count, dst_count, bytes);
  Fold f;
  f.srcs = buffers.srcs.data();
  f.src_count = src_count;
  f.dsts = buffers.dsts.data();
  f.dst_count = dst_count;
  f.count = bytes / size_of(dtype);
  f.dtype = dtype;
  f.op = op;
  f.divisor = static_cast<std::uint32_t>(src_count);
  f.stores = stores;
  for (auto _ : state) {
    fold(f);
    benchmark::ClobberMemory();
  }
  set_rate(state, src_count + dst_count, bytes);
  state.SetLabel(fold_target());
}

void memcpy_of(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Buffers buffers(1, 1, bytes);
  for (auto _ : state) {
    std::memcpy(buffers.dsts[0], buffers.srcs[0].data, bytes);
    benchmark::ClobberMemory();
  }
  set_rate(state, 2, bytes);
}

void plain_loop_sum_2_to_1(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Buffers buffers(2, 1, bytes);
  const auto* a = static_cast<const float*>(buffers.srcs[0].data);
  const auto* b = static_cast<const float*>(buffers.srcs[1].data);
  auto* to = static_cast<float*>(buffers.dsts[0]);
  for (auto _ : state) {
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) to[i] = a[i] + b[i];
    benchmark::ClobberMemory();
  }
  set_rate(state, 3, bytes);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (std::int64_t bytes : {4 << 10, 128 << 10, 2 << 20, 64 << 20}) benchmark->Arg(bytes);
}

BENCHMARK(memcpy_of)->Apply(sizes);
BENCHMARK(plain_loop_sum_2_to_1)->Apply(sizes);

#define HOCKET_FOLD(name, ...) BENCHMARK_CAPTURE(fold_of, name, __VA_ARGS__)->Apply(sizes)
HOCKET_FOLD(copy, Dtype::float32, Op::sum, 1, 1, Stores::together);
HOCKET_FOLD(copy_streamed, Dtype::float32, Op::sum, 1, 1, Stores::non_temporal);
HOCKET_FOLD(fp32_sum_2_to_1, Dtype::float32, Op::sum, 2, 1, Stores::together);
HOCKET_FOLD(fp32_sum_2_to_1_streamed, Dtype::float32, Op::sum, 2, 1, Stores::non_temporal);
HOCKET_FOLD(fp32_sum_2_to_2, Dtype::float32, Op::sum, 2, 2, Stores::together);
HOCKET_FOLD(fp32_sum_2_to_2_streamed, Dtype::float32, Op::sum, 2, 2, Stores::non_temporal);
HOCKET_FOLD(fp32_sum_2_to_2_one_by_one, Dtype::float32, Op::sum, 2, 2, Stores::one_by_one);
HOCKET_FOLD(fp32_sum_2_to_2_first_cached, Dtype::float32, Op::sum, 2, 2, Stores::first_cached);
HOCKET_FOLD(fp32_sum_4_to_1, Dtype::float32, Op::sum, 4, 1, Stores::together);
HOCKET_FOLD(fp32_sum_8_to_1, Dtype::float32, Op::sum, 8, 1, Stores::together);
HOCKET_FOLD(fp32_sum_8_to_8_streamed, Dtype::float32, Op::sum, 8, 8, Stores::non_temporal);
HOCKET_FOLD(fp32_max_2_to_1, Dtype::float32, Op::max, 2, 1, Stores::together);
HOCKET_FOLD(fp32_avg_2_to_1, Dtype::float32, Op::avg, 2, 1, Stores::together);
HOCKET_FOLD(fp64_sum_2_to_1, Dtype::float64, Op::sum, 2, 1, Stores::together);
HOCKET_FOLD(bf16_sum_2_to_1, Dtype::bfloat16, Op::sum, 2, 1, Stores::together);
HOCKET_FOLD(fp16_sum_2_to_1, Dtype::float16, Op::sum, 2, 1, Stores::together);
HOCKET_FOLD(e4m3_sum_2_to_1, Dtype::float8_e4m3, Op::sum, 2, 1, Stores::together);
HOCKET_FOLD(e5m2_sum_2_to_1, Dtype::float8_e5m2, Op::sum, 2, 1, Stores::together);
HOCKET_FOLD(int32_sum_2_to_1, Dtype::int32, Op::sum, 2, 1, Stores::together);
HOCKET_FOLD(int8_sum_2_to_1, Dtype::int8, Op::sum, 2, 1, Stores::together);
HOCKET_FOLD(int32_avg_2_to_1, Dtype::int32, Op::avg, 2, 1, Stores::together);
HOCKET_FOLD(int64_avg_2_to_1, Dtype::int64, Op::avg, 2, 1, Stores::together);
#undef HOCKET_FOLD

#define HOCKET_TINY(name, dtype, ...)                                                    \
  BENCHMARK_CAPTURE(fold_of, name, Dtype::dtype, Op::sum, __VA_ARGS__, Stores::together) \
      ->Arg(8)                                                                           \
      ->Arg(16)                                                                          \
      ->Arg(64)                                                                          \
      ->Arg(256)                                                                         \
      ->Arg(1024)
HOCKET_TINY(tiny_fp32_2_to_1, float32, 2, 1);
HOCKET_TINY(tiny_fp32_2_to_2, float32, 2, 2);
HOCKET_TINY(tiny_fp32_8_to_1, float32, 8, 1);
HOCKET_TINY(tiny_bf16_2_to_1, bfloat16, 2, 1);
HOCKET_TINY(tiny_copy, float32, 1, 1);
#undef HOCKET_TINY

}  // namespace
}  // namespace hocket::internal

BENCHMARK_MAIN();
