// AdamW over parameters that no cache holds, beside the memory's own speed: a loop with the same
// reads and writes and one addition an element.
#include <benchmark/benchmark.h>

#include <hocket/training/adamw.hpp>
#include <vector>

namespace {

using hocket::training::AdamWData;

constexpr std::size_t elements = std::size_t{16} << 20;

/// bytes: of traffic an element.
void report(benchmark::State& state, double bytes) {
  state.counters["GB/s"] = benchmark::Counter(
      bytes * 1e-9 * static_cast<double>(elements) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

void adamw_float32(benchmark::State& state) {
  std::vector<float> parameter(elements, 1), gradient(elements, 0.1f), first(elements),
      second(elements);
  std::int64_t step = 0;
  for (auto _ : state) {
    hocket::training::adamw({.elements = elements,
                             .parameter = parameter.data(),
                             .gradient = gradient.data(),
                             .exp_avg = first.data(),
                             .exp_avg_sq = second.data()},
                            {}, ++step);
  }
  report(state, 28);
}
BENCHMARK(adamw_float32)->Unit(benchmark::kMillisecond)->UseRealTime();

void adamw_bfloat16_with_master(benchmark::State& state) {
  std::vector<std::uint16_t> parameter(elements, 0x3f80), gradient(elements, 0x3dcd);
  std::vector<float> master(elements, 1), first(elements), second(elements);
  std::int64_t step = 0;
  for (auto _ : state) {
    hocket::training::adamw({.elements = elements,
                             .dtype = hocketBfloat16,
                             .gradient_dtype = hocketBfloat16,
                             .parameter = parameter.data(),
                             .gradient = gradient.data(),
                             .master = master.data(),
                             .exp_avg = first.data(),
                             .exp_avg_sq = second.data()},
                            {}, ++step);
  }
  report(state, 28);  // three float32 read and written, a gradient read, a parameter written
}
BENCHMARK(adamw_bfloat16_with_master)->Unit(benchmark::kMillisecond)->UseRealTime();

void memory_with_the_same_traffic(benchmark::State& state) {
  std::vector<float> parameter(elements, 1), gradient(elements, 0.1f), first(elements),
      second(elements);
  float* const __restrict p = parameter.data();
  float* const __restrict m = first.data();
  float* const __restrict v = second.data();
  const float* const __restrict g = gradient.data();
  for (auto _ : state) {
    for (std::size_t i = 0; i < elements; ++i) {
      p[i] += g[i];
      m[i] += g[i];
      v[i] += g[i];
    }
    benchmark::ClobberMemory();
  }
  report(state, 28);
}
BENCHMARK(memory_with_the_same_traffic)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
