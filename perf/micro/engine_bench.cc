// The cost of a call apart from its bytes: the flag line (the inline plan between two ranks),
// building and lowering plans, looking up a lowered program, and putting work on a stream.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "collectives/algorithms/builders.h"
#include "collectives/execute/executor.h"
#include "collectives/select/selector.h"
#include "engine/stream.h"

namespace hocket::internal {
namespace {

Shape shape_of(std::uint32_t rank, std::uint32_t ranks) {
  return {.collective = Collective::all_reduce, .rank = rank, .ranks = ranks};
}

/// One of two ranks, which repeat an all-reduce of two floats.
struct Rank {
  void prepare(std::byte* base, int rank) {
    board = Board(base, 2, rank);
    links.rank = rank;
    links.board = &board;
    links.ranks_of_node = {0, 1};
    const Builder* builder = find_builder("inline", Collective::all_reduce, Medium::node);
    const Plan plan = builder->build(shape_of(static_cast<std::uint32_t>(rank), 2));
    if (!lower(plan, &program).ok()) std::abort();
    binding.input = reinterpret_cast<const std::byte*>(values);
    binding.output = reinterpret_cast<std::byte*>(values);
    binding.sizes = sizes_of(plan, 2, Dtype::float32, 0);
    binding.dtype = Dtype::float32;
    binding.op = Op::max;
    hash = call_hash(binding.signature);
  }
  void start() {
    ++binding.board_sequence;
    binding.signature.sequence = binding.board_sequence;
    binding.fingerprint = fingerprint(hash, binding.board_sequence);
    execution.start(program, nullptr, binding, links);
    execution.advance();
  }
  bool done() {
    if (execution.failed()) std::abort();
    return execution.done() || (execution.advance() && execution.done());
  }

  float values[2] = {1, 2};
  Board board;
  Links links;
  Program program;
  Binding binding;
  Execution execution;
  std::uint64_t hash = 0;
};

struct Pair {
  Pair() {
    base = static_cast<std::byte*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (base == MAP_FAILED) std::abort();
    for (int rank = 0; rank < 2; ++rank) ranks[rank].prepare(base, rank);
  }
  ~Pair() { ::munmap(base, bytes); }
  Pair(const Pair&) = delete;

  const std::size_t bytes = Board::bytes(2);
  std::byte* base;
  Rank ranks[2];
};

// One thread runs both ranks: the work of two ranks per operation, without the latency between
// cores.
void flag_line_alternate(benchmark::State& state) {
  Pair pair;
  for (auto _ : state) {
    pair.ranks[0].start();
    pair.ranks[1].start();
    while (!pair.ranks[0].done() || !pair.ranks[1].done()) {
    }
  }
}

constexpr unsigned polls_before_yield = 10'000;

// A thread for each rank, both spinning: the time of an all-reduce of 8 bytes, without the engine.
void flag_line_threads(benchmark::State& state) {
  Pair pair;
  std::atomic<bool> stop{false};
  std::thread other([&] {
    for (;;) {
      pair.ranks[1].start();
      for (unsigned polls = 0; !pair.ranks[1].done();) {
        if (stop.load(std::memory_order_relaxed)) return;
        if (++polls > polls_before_yield) std::this_thread::yield();
      }
    }
  });
  for (auto _ : state) {
    pair.ranks[0].start();
    // If another process uses a core, the two ranks must share the other core.
    for (unsigned polls = 0; !pair.ranks[0].done();) {
      if (++polls > polls_before_yield) std::this_thread::yield();
    }
  }
  stop = true;
  other.join();
}

void build_staged(benchmark::State& state) {
  const Shape shape = shape_of(1, static_cast<std::uint32_t>(state.range(0)));
  const Builder* builder = find_builder("staged", Collective::all_reduce, Medium::node);
  for (auto _ : state) benchmark::DoNotOptimize(builder->build(shape));
}

void lower_staged(benchmark::State& state) {
  const Shape shape = shape_of(1, static_cast<std::uint32_t>(state.range(0)));
  const Plan plan = find_builder("staged", Collective::all_reduce, Medium::node)->build(shape);
  Program program;
  for (auto _ : state) {
    if (!lower(plan, &program).ok()) state.SkipWithError("a plan cannot be lowered");
    benchmark::DoNotOptimize(program.bytes().data());
  }
}

// The same call again; and calls that evict each other from the table, so that each is priced anew.
void choose(benchmark::State& state) {
  SelectorOptions options;
  options.ranks = 2;
  options.board_scratch_bytes = 2 << 20;
  Selector selector(options);
  const auto kinds = static_cast<std::size_t>(state.range(0));
  CallKey key;
  key.collective = Collective::all_reduce;
  key.dtype = Dtype::float32;
  const Selection* selection = nullptr;
  std::size_t next = 0;
  for (auto _ : state) {
    next = next + 1 == kinds ? 0 : next + 1;
    key.count = 2 + next;
    if (!selector.select(key, &selection).ok()) state.SkipWithError("nothing serves this call");
    benchmark::DoNotOptimize(selection);
  }
}

// Several tasks that do nothing: the time from the first push until the last has run.
void host_stream(benchmark::State& state) {
  HostStream stream;
  const std::int64_t tasks = state.range(0);
  for (auto _ : state) {
    for (std::int64_t i = 0; i < tasks; ++i) {
      if (!stream.push([] { return Status(); }).ok()) state.SkipWithError("no thread");
    }
    if (!stream.synchronize().ok()) state.SkipWithError("a task failed");
  }
  state.SetItemsProcessed(tasks * state.iterations());
}

BENCHMARK(flag_line_alternate);
BENCHMARK(flag_line_threads)->UseRealTime();
BENCHMARK(build_staged)->Arg(8)->Arg(64);
BENCHMARK(lower_staged)->Arg(8)->Arg(64);
BENCHMARK(choose)->Arg(1)->Arg(10'000);
BENCHMARK(host_stream)->Arg(1)->Arg(64)->UseRealTime();

}  // namespace
}  // namespace hocket::internal

BENCHMARK_MAIN();
