#include "engine/calibration.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/assert.h"
#include "base/clock.h"
#include "bootstrap/auth/auth.h"
#include "collectives/select/cost.h"
#include "reduce/fold.h"
#include "topology/machine.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace hocket::internal {

/// What rank 0 broadcasts: its figures, and the settings on which all ranks must agree.
struct Calibration::FiguresAndSettings {
  Figures figures;
  std::uint64_t plans_hash = 0;
  char plans[160] = {};  // names and hashes, as far as there is room
  char algorithm[most_name_characters + 1] = {};
  std::uint8_t deterministic = 0, use_shm = 0, use_tcp = 0;
  std::uint8_t version = 4;
  std::uint8_t traces = 0;
  std::uint8_t zero[3] = {};
};

namespace {

constexpr std::size_t touch_elements = 32 << 10;
constexpr std::size_t push_elements = 8 << 10;
constexpr int most_neighbours = 16;
constexpr std::size_t kernel_copy_bytes = 256 << 10;
constexpr std::size_t peer_elements = 16 << 10;  // the least large scratch
constexpr std::size_t small_peer_elements = 1 << 10;
constexpr std::size_t memory_elements = 64 << 10;
// With a sanitizer all times are wrong. So each is taken once, and large messages are no larger
// than a rendezvous needs: tests make thousands of communicators.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool instrumented = true;
#else
constexpr bool instrumented = false;
#endif
constexpr std::size_t large_bytes = instrumented ? 128 << 10 : 512 << 10;
constexpr int repeated(int times) { return instrumented ? 1 : times; }
constexpr int measurements = repeated(5);  // at most, with a pause after one that was disturbed
// On a busy machine all measurements are disturbed, and take a hundred times as long as on an idle
// one. None is begun after this time.
constexpr Nanos last_measurement_ns = 20'000'000;
constexpr int pause_us = 2000;
constexpr double implausible_sync_ns = 20'000;
constexpr double implausible_push_ns = 2;  // per byte

/// Removes the bytes from all caches, where the processor has an instruction for it.
void evict([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef __x86_64__
  constexpr std::size_t line = 64;
  for (std::size_t at = 0; at < bytes; at += line) _mm_clflush(static_cast<const char*>(data) + at);
  _mm_mfence();
#endif
}

/// Nanoseconds per byte that a fold of two arrays in the caches reads or writes, or a copy in
/// memory: the best of a few runs.
double measure_fold(std::size_t elements, bool from_memory) {
  std::vector<float> a(elements, 1.0f), b(elements, 2.0f);
  const FoldSource srcs[] = {{a.data(), false}, {b.data(), false}};
  void* dst = b.data();
  Fold run;
  run.srcs = srcs;
  run.src_count = from_memory ? 1 : 2;
  run.dsts = &dst;
  run.count = elements;
  double best = 1e9;
  for (int i = 0; i < repeated(8); ++i) {
    for (const std::vector<float>* data : {&a, &b}) {
      if (from_memory) evict(data->data(), data->size() * sizeof(float));
    }
    const Nanos begin = monotonic_now();
    fold(run);
    best = std::min(best, static_cast<double>(monotonic_now() - begin));
  }
  const auto touches =
      static_cast<std::size_t>(run.src_count) + static_cast<std::size_t>(run.dst_count);
  return std::max(0.005, best / static_cast<double>(touches * elements * sizeof(float)));
}

}  // namespace

/// Runs a call of a few bytes that is not timed. It names an algorithm that serves any ranks, so
/// that the selector simulates no prices of others.
Status Calibration::tell(const Call& call) {
  const bool one_node = membership_.nodes() == 1;
  const bool gathers = call.collective == Collective::all_gather;
  return run({&call, 1}, one_node ? "staged" : gathers ? "ring" : "tree");
}

/// The cost of a fold into the memory of this rank and of a peer, with all of it in the caches of
/// both, as in programs. It uses large scratches of the board: after the first barrier no rank
/// reads there for an earlier operation. All local ranks measure at once, in pairs.
Status Calibration::measure_push(Stores stores, double* ns_per_byte) {
  const int me = board_.local_rank();
  const int peer = (me ^ 1) < board_.local_ranks() ? me ^ 1 : me;
  const auto in = [&](int rank) {
    return reinterpret_cast<float*>(board_.scratch(ScratchSize::large, rank, 0));
  };
  const auto out = [&](int rank) { return in(rank) + 2 * push_elements; };
  const std::size_t mine = (me & 1) * push_elements;  // of two halves
  const FoldSource srcs[] = {{in(me) + mine, false}, {in(peer) + mine, false}};
  void* const dsts[] = {out(me) + mine, out(peer) + mine};
  Fold push;
  push.srcs = srcs;
  push.src_count = 2;
  push.dsts = dsts;
  push.dst_count = peer == me ? 1 : 2;
  push.count = push_elements;
  push.stores = stores;
  const Call barrier;
  HOCKET_RETURN_IF_ERROR(run({&barrier, 1}));
  double best = 1e12;
  float sum = 0;
  for (int i = 0; i < repeated(5); ++i) {
    std::fill(in(me), out(me), static_cast<float>(i));
    HOCKET_RETURN_IF_ERROR(run({&barrier, 1}));
    const Nanos begin = monotonic_now();
    fold(push);
    HOCKET_RETURN_IF_ERROR(run({&barrier, 1}));
    for (std::size_t e = 0; e < 2 * push_elements; e += 16) sum += out(me)[e];
    best = std::min(best, static_cast<double>(monotonic_now() - begin));
    if (sum < 0) break;  // never true: it keeps the compiler from removing the reads
  }
  *ns_per_byte = best / (push_elements * sizeof(float));
  return {};
}

/// All ranks run the same calls; rank 0's clock counts.
Status Calibration::measure(Figures* out) {
  Figures& figures = *out;
  figures.ranks_per_core = ranks_per_core_;
  static const double touch = measure_fold(touch_elements, false);
  static const double memory = measure_fold(memory_elements, true);
  figures.cached_ns_per_byte = touch;
  figures.memory_ns_per_byte = memory;
  const Caches& caches = machine().caches;
  if (caches.of_core > 0) figures.core_cache_bytes = caches.of_core;
  if (caches.of_node > 0) figures.node_cache_bytes = caches.of_node;
  if (membership_.nodes() == 1) return measure_board(&figures);
  if (membership_.layout()->ranks_of_largest() > 1) {
    HOCKET_RETURN_IF_ERROR(measure_peers(&figures));
  }
  HOCKET_RETURN_IF_ERROR(measure_link(&figures));
  return measure_small(&figures);
}

/// What it takes to write a byte that a peer has just read, and to read a byte that it has just
/// written: half of both. It uses large scratches of the board: after the first barrier no rank
/// reads there for an earlier operation. All local ranks measure at once, in pairs. In the first
/// iteration the peer has not read yet what is written, so that iteration does not count.
Status Calibration::measure_peer(Stores stores, std::size_t elements, double* ns_per_byte) {
  const int me = board_.local_rank();
  const int peer = (me ^ 1) < board_.local_ranks() ? me ^ 1 : me;
  HOCKET_ASSERT(elements * sizeof(float) <= board_.scratch_bytes(), "the copy fits scratch");
  std::vector<float> own(elements);
  const auto time_copy = [elements](const void* from, void* to, Stores stores) {
    const FoldSource source = {from, false};
    Fold copy;
    copy.srcs = &source;
    copy.dsts = &to;
    copy.count = elements;
    copy.stores = stores;
    const Nanos begin = monotonic_now();
    fold(copy);
    return static_cast<double>(monotonic_now() - begin);
  };
  const Call barrier;
  HOCKET_RETURN_IF_ERROR(run({&barrier, 1}));
  std::array<double, 1 + repeated(5)> write, read;
  for (std::size_t i = 0; i < write.size(); ++i) {
    write[i] = time_copy(own.data(), board_.scratch(ScratchSize::large, me, 0), stores);
    HOCKET_RETURN_IF_ERROR(run({&barrier, 1}));
    read[i] = time_copy(board_.scratch(ScratchSize::large, peer, 0), own.data(), Stores::together);
    HOCKET_RETURN_IF_ERROR(run({&barrier, 1}));
  }
  const auto median = [](std::array<double, 1 + repeated(5)>& times) {
    std::sort(times.begin() + 1, times.end());
    return times[times.size() / 2];
  };
  // Two ranks on one core share its caches. Where ranks share cores, the kernel moves them: the
  // mean of all ranks is what a rank finds on average.
  double mean = (median(write) + median(read)) / 2 / (elements * sizeof(float));
  const Call average{Collective::all_reduce, &mean, &mean, 1, Dtype::float64, Op::avg};
  HOCKET_RETURN_IF_ERROR(tell(average));
  *ns_per_byte = mean;
  return {};
}

/// Both ways to store what peers read, if each rank has a core, also in small copies.
Status Calibration::measure_peers(Figures* figures) {
  HOCKET_RETURN_IF_ERROR(measure_peer(Stores::together, peer_elements, &figures->peer_ns_per_byte));
  if (ranks_per_core_ > 1) return {};
  HOCKET_RETURN_IF_ERROR(
      measure_peer(Stores::non_temporal, peer_elements, &figures->peer_non_temporal_ns_per_byte));
  double ordinary = 0, past = 0;
  HOCKET_RETURN_IF_ERROR(measure_peer(Stores::together, small_peer_elements, &ordinary));
  HOCKET_RETURN_IF_ERROR(measure_peer(Stores::non_temporal, small_peer_elements, &past));
  figures->small_non_temporal_ratio = past / ordinary;
  return {};
}

void Calibration::tell_transports(const Figures& figures) const {
  for (Transport* transport : transports_) {
    transport->store_non_temporal(non_temporal_is_faster(figures, false));
    transport->use_kernel_copies(figures.kernel_copy_ns_per_byte > 0);
  }
}

/// Whether the kernel lets each rank read from the memory of all others, and what a byte takes: the
/// mean of all ranks. Security rules may forbid it, and the process number of a rank in another
/// container may be that of another process here. So each rank reads a random word of each other.
Status Calibration::measure_kernel_copy(Figures* figures) {
  const int ranks = membership_.ranks(), me = membership_.rank();
  std::vector<std::uint64_t> mine(kernel_copy_bytes / sizeof(std::uint64_t)), theirs(mine.size());
  HOCKET_RETURN_IF_ERROR(random_bytes(mine.data(), sizeof mine.front()));
  const std::uint64_t told[] = {reinterpret_cast<std::uint64_t>(mine.data()), mine.front()};
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(ranks));
  const Call gather{Collective::all_gather, told, all.data(), 2, Dtype::uint64}, barrier;
  HOCKET_RETURN_IF_ERROR(tell(gather));
  const auto read = [&](int peer, std::size_t bytes) {
    return read_(peer, all[2 * static_cast<std::size_t>(peer)], bytes,
                 reinterpret_cast<std::byte*>(theirs.data())) == static_cast<std::ptrdiff_t>(bytes);
  };
  std::uint8_t may = config_.checksum ? 0 : 1;  // a checksum is of a payload that is sent
  for (int peer = 0; peer < ranks; ++peer) {
    const std::uint64_t word = all[2 * static_cast<std::size_t>(peer) + 1];
    if (peer != me && !(read(peer, sizeof word) && theirs.front() == word)) may = 0;
  }
  const Call least{Collective::all_reduce, &may, &may, 1, Dtype::uint8, Op::min};
  HOCKET_RETURN_IF_ERROR(tell(least));
  if (may == 0) return {};
  const int peer = (me ^ 1) < ranks ? me ^ 1 : me - 1;
  std::array<double, repeated(5)> times;
  for (double& time : times) {
    evict(mine.data(), kernel_copy_bytes);
    evict(theirs.data(), kernel_copy_bytes);
    HOCKET_RETURN_IF_ERROR(run({&barrier, 1}));
    const Nanos begin = monotonic_now();
    read(peer, kernel_copy_bytes);
    time = static_cast<double>(monotonic_now() - begin);
  }
  std::ranges::sort(times);
  double mean = times[times.size() / 2] / static_cast<double>(kernel_copy_bytes);
  const Call average{Collective::all_reduce, &mean, &mean, 1, Dtype::float64, Op::avg};
  HOCKET_RETURN_IF_ERROR(tell(average));
  // A message through shared memory is copied at both of its ends.
  if (mean < 2 * figures->port_ns_per_byte) figures->kernel_copy_ns_per_byte = mean;
  return {};
}

/// True on all ranks if the ranks of a node, of which each has a core, share a core now: the kernel
/// may start two processes on one core, and moves them a moment later.
Status Calibration::share_a_core(bool* shared) {
  const int ranks = membership_.ranks();
  const std::int32_t mine = ::sched_getcpu();
  std::vector<std::int32_t> cores(static_cast<std::size_t>(ranks));
  const Call gather{Collective::all_gather, &mine, cores.data(), 1, Dtype::int32};
  HOCKET_RETURN_IF_ERROR(tell(gather));
  std::ranges::sort(cores);
  *shared = std::ranges::adjacent_find(cores) != cores.end();
  return {};
}

/// Even if there is a core for each rank, two ranks may run on one core for a moment, or a foreign
/// process may disturb them. The communicator keeps its figures for its life, so a measurement that
/// was disturbed is repeated.
Status Calibration::measure_board(Figures* figures) {
  const Nanos begin = monotonic_now();
  for (int again = measurements; again > 0; --again) {
    bool shared = false, shared_later = false;
    if (figures->ranks_per_core <= 1) HOCKET_RETURN_IF_ERROR(share_a_core(&shared));
    HOCKET_RETURN_IF_ERROR(measure_peers(figures));
    if (figures->ranks_per_core <= 1) tell_transports(*figures);
    HOCKET_RETURN_IF_ERROR(measure_link(figures));
    HOCKET_RETURN_IF_ERROR(measure_small(figures));
    // If ranks share cores, the cache holds data of other ranks in between.
    if (figures->ranks_per_core > 1) return measure_kernel_copy(figures);
    HOCKET_RETURN_IF_ERROR(measure_push(Stores::one_by_one, &figures->push_ns_per_byte));
    HOCKET_RETURN_IF_ERROR(
        measure_push(Stores::first_cached, &figures->push_non_temporal_ns_per_byte));
    HOCKET_RETURN_IF_ERROR(share_a_core(&shared_later));
    std::uint8_t disturbed =
        shared || shared_later || figures->sync_ns + figures->call_ns > implausible_sync_ns ||
        figures->message_ns + figures->message_overhead_ns > implausible_sync_ns ||
        std::min(figures->push_ns_per_byte, figures->push_non_temporal_ns_per_byte) >
            implausible_push_ns;
    if (monotonic_now() - begin > last_measurement_ns) disturbed = 0;
    const Call again_or_not{Collective::broadcast, &disturbed, &disturbed, 1,
                            Dtype::uint8,          Op::sum,    0};
    HOCKET_RETURN_IF_ERROR(tell(again_or_not));
    if (disturbed == 0) return {};
    ::usleep(pause_us);
  }
  return {};
}

namespace {

/// Sets the figures of operations of a node so that their prices are the times of two small
/// all-reduces: in one of them the ranks look once at the flags of all ranks, in the other several
/// times.
void set_operation_costs(int ranks, double once_ns, double often_ns, Figures* figures) {
  constexpr double least_ns = 20;
  const Shape shape{.collective = Collective::all_reduce,
                    .ranks = static_cast<std::uint32_t>(ranks)};
  const auto price_ns = [&](const char* algorithm, double sync_ns) {
    figures->sync_ns = sync_ns;
    const Builder& builder = *find_builder(algorithm, shape.collective, Medium::node);
    return static_cast<double>(price(builder, shape, 1, Dtype::uint64, 1, *figures)) / 1000;
  };
  figures->call_ns = 0;
  const double more = (price_ns("staged", 1000) - price_ns("inline", 1000)) / 1000;
  const double sync_ns =
      std::clamp((often_ns - once_ns) / more, least_ns, std::max(least_ns, once_ns));
  figures->call_ns = std::max(0.0, once_ns - price_ns("inline", sync_ns));
}

/// Between the ranks of a node, where there are several nodes: what a barrier of leaders takes
/// beside its messages.
void set_sync(const Layout& layout, double leaders_ns, Figures* figures) {
  constexpr double least_ns = 50;
  const Shape shape{.collective = Collective::barrier, .ranks = layout.ranks(), .layout = &layout};
  const Builder& builder = *find_builder("leaders", shape.collective, Medium::both);
  const auto price_ns = [&](double sync_ns) {
    figures->sync_ns = sync_ns;
    return static_cast<double>(price(builder, shape, 0, Dtype::uint8, 0, *figures)) / 1000;
  };
  const double messages_ns = price_ns(0), each = (price_ns(1000) - messages_ns) / 1000;
  figures->sync_ns = std::max(least_ns, (leaders_ns - messages_ns) / std::max(1.0, each));
}

/// The value from least to most at which a function that grows with it is 0.
template <typename Function>
double zero_of(double least, double most, int halvings, Function function) {
  for (int i = 0; i < halvings; ++i) {
    const double middle = (least + most) / 2;
    (function(middle) < 0 ? least : most) = middle;
  }
  return (least + most) / 2;
}

}  // namespace

void set_message_costs(const Layout& layout, const MessageTimes& times, Figures* figures) {
  constexpr double least_ns = 100;  // the times are noisy: no figure may become 0 or less
  constexpr double most_of_exchange = 0.75;
  const auto price_ns = [&](const char* algorithm, std::uint32_t of_ranks) {
    const Shape shape{.collective = Collective::all_reduce,
                      .ranks = of_ranks,
                      .layout = of_ranks == layout.ranks() ? &layout : nullptr};
    const Builder& builder = *find_builder(algorithm, shape.collective, Medium::messages);
    return static_cast<double>(price(builder, shape, 1, Dtype::uint64, 0, *figures)) / 1000;
  };
  const double exchange_ns = times.exchange_ns;
  if (figures->ranks_per_core > 1) {
    // Half of a message between two ranks is work, and the rest of what an operation takes is
    // turns, of which recursive doubling has the most for its messages. Two ranks that were on one
    // core took too long for their message: it needs less than its part of the exchange.
    const double part_ns = exchange_ns / times.neighbours / figures->ranks_per_core;
    const double half_ns = std::min(times.pair_ns / 2, most_of_exchange * part_ns);
    figures->message_ns = std::max(least_ns, half_ns);
    figures->message_overhead_ns =
        figures->ranks_per_core * figures->message_ns;  // while all ranks send
    const auto error_ns = [&](double turn_ns) {
      figures->turn_ns = turn_ns;
      return price_ns("recursive-doubling", layout.ranks()) - times.doubling_ns;
    };
    figures->turn_ns = zero_of(0, exchange_ns / 2, 12, error_ns);
    return;
  }
  figures->turn_ns = 0;
  const auto exchanging = static_cast<std::uint32_t>(times.neighbours + 1);
  // Each amount of work gives the time until a message arrives, by the exchange. The more work, the
  // less of that time, and the lower the price of the tree, which has fewer messages and more
  // rounds.
  const double least = least_ns, most = std::max(least_ns, exchange_ns / times.neighbours);
  const auto set_work = [&](double work_ns) {
    figures->message_overhead_ns = work_ns;
    figures->message_ns = 0;
    figures->message_ns = std::max(least_ns, exchange_ns - price_ns("one-shot", exchanging));
  };
  const auto tree_price_ns = [&](double work_ns) {
    set_work(work_ns);
    return price_ns("tree", layout.ranks());
  };
  // With two or three ranks both operations have the same messages, and tell nothing about the
  // work.
  if (std::abs(tree_price_ns(least) - tree_price_ns(most)) < exchange_ns / 2) {
    return set_work(most / 2);
  }
  set_work(zero_of(least, most, 24,
                   [&](double work_ns) { return times.tree_ns - tree_price_ns(work_ns); }));
}

struct Calibration::Timed {
  std::span<const Call> calls;
  const char* algorithm = "";
  double ns = 0;
};

/// Times calls that follow one another, as in a program: the least mean of a few runs. Where ranks
/// share cores the least is luck, which no later run has: the median. Everything is timed a second
/// time, and the lesser time counts: a disturbance of some milliseconds spoils one of the two.
Status Calibration::time_twice(std::span<Timed> all) {
  constexpr int in_sequence = repeated(4);
  for (const bool again : {false, true}) {
    if (again && instrumented) break;
    for (Timed& timed : all) {
      HOCKET_RETURN_IF_ERROR(run(timed.calls, timed.algorithm));  // opens connections, finds prices
      std::array<double, repeated(7)> means;
      for (double& mean : means) {
        const Nanos begin = monotonic_now();
        for (int j = 0; j < in_sequence; ++j) {
          HOCKET_RETURN_IF_ERROR(run(timed.calls, timed.algorithm));
        }
        mean = static_cast<double>(monotonic_now() - begin) / in_sequence;
      }
      std::ranges::sort(means);
      const double ns = ranks_per_core_ > 1 ? means[means.size() / 2] : means[0];
      timed.ns = again ? std::min(timed.ns, ns) : ns;
    }
  }
  return {};
}

/// What small operations and messages cost. All ranks send at the same time: ranks that share
/// cores, known to each other or not, then do the work for messages in turns.
Status Calibration::measure_small(Figures* figures) {
  const int ranks = membership_.ranks(), nodes = membership_.nodes();
  const Layout& layout = *membership_.layout();
  MessageTimes times;
  times.neighbours = std::min(ranks - 1, most_neighbours);
  std::vector<std::uint64_t> words(2 * static_cast<std::size_t>(times.neighbours));
  std::vector<Call> exchange;
  for (int n = 1; n <= times.neighbours; ++n) {
    std::uint64_t* const word = &words[2 * static_cast<std::size_t>(n - 1)];
    const int to = (membership_.rank() + n) % ranks;
    const int from = (membership_.rank() - n + ranks) % ranks;
    exchange.push_back({Collective::send, word, word, 1, Dtype::uint64, Op::sum, to});
    exchange.push_back({Collective::recv, word + 1, word + 1, 1, Dtype::uint64, Op::sum, from});
  }
  std::uint64_t in = 0, out = 0;
  const Call all_reduce{Collective::all_reduce, &in, &out, 1, Dtype::uint64}, barrier;
  const char* const second = ranks_per_core_ > 1 ? "recursive-doubling" : "tree";
  std::vector<Timed> all = {{exchange}, {{&all_reduce, 1}, second}};
  const bool levels = nodes > 1 && layout.ranks_of_largest() > 1;
  if (nodes == 1) all.push_back({{&all_reduce, 1}, "inline"});
  if (nodes == 1) all.push_back({{&all_reduce, 1}, "staged"});
  if (levels) all.push_back({{&barrier, 1}, "leaders"});
  HOCKET_RETURN_IF_ERROR(time_twice(all));
  if (membership_.rank() != 0) return {};  // its figures count
  times.exchange_ns = all[0].ns;
  (ranks_per_core_ > 1 ? times.doubling_ns : times.tree_ns) = all[1].ns;
  times.pair_ns = pair_ns_;
  if (nodes == 1) set_operation_costs(ranks, all[2].ns, all[3].ns, figures);
  set_message_costs(layout, times, figures);
  // The price of leaders needs what messages cost, and that of messages within a node needs what
  // flags cost.
  for (int again = levels ? 2 : 0; again > 0; --again) {
    set_sync(layout, all[2].ns, figures);
    set_message_costs(layout, times, figures);
  }
  return {};
}

/// Between rank 0 and the first rank of another node, if there is one; the other ranks do nothing.
/// If both send at once and it takes twice as long, the ports of their processors are what is busy.
Status Calibration::measure_link(Figures* figures) {
  const auto node = [this](int rank) { return membership_.member(rank).node; };
  int far = 1;
  while (membership_.nodes() > 1 && node(far) == node(0)) ++far;
  // All ranks send at once: those that share a processor displace one another's data in its caches.
  double together_ns = 0;
  if (ranks_per_core_ > 1) HOCKET_RETURN_IF_ERROR(time_large_messages(far, &together_ns));
  if (membership_.rank() != 0 && membership_.rank() != far) return {};
  constexpr std::size_t bytes = large_bytes;
  double small = 0, large = 0, both_small = 0, both_large = 0;
  HOCKET_RETURN_IF_ERROR(time_message(far, 8, true, &both_small));
  HOCKET_RETURN_IF_ERROR(time_message(far, bytes, true, &both_large));
  HOCKET_RETURN_IF_ERROR(time_message(far, 8, false, &small));
  HOCKET_RETURN_IF_ERROR(time_message(far, bytes, false, &large));
  pair_ns_ = std::min(small / 2, both_small);
  const auto per_byte = [](double ns) { return ns / static_cast<double>(bytes); };
  // A difference of two noisy times can be 0 or less, and would make bytes free.
  figures->link_ns_per_byte = std::max(0.001, per_byte(large - small));
  figures->port_ns_per_byte = std::max(
      {0.0, per_byte(both_large - both_small) / 2, per_byte(together_ns) / 2 / ranks_per_core_});
  return {};
}

/// While each rank sends a large message to rank + distance: how much longer that takes than with
/// a small one, the median of a few. The bytes lie in memory.
Status Calibration::time_large_messages(int distance, double* median) {
  const int ranks = membership_.ranks();
  const int to = (membership_.rank() + distance) % ranks;
  const int from = (membership_.rank() + ranks - distance) % ranks;
  std::vector<std::byte> in(large_bytes), out(large_bytes);
  const Call barrier;
  const auto time = [&](std::size_t bytes, double* ns) -> Status {
    const Call exchange[] = {
        {Collective::send, in.data(), in.data(), bytes, Dtype::uint8, Op::sum, to},
        {Collective::recv, out.data(), out.data(), bytes, Dtype::uint8, Op::sum, from}};
    evict(in.data(), bytes);
    evict(out.data(), bytes);
    HOCKET_RETURN_IF_ERROR(run({&barrier, 1}));
    const Nanos begin = monotonic_now();
    HOCKET_RETURN_IF_ERROR(run(exchange));
    HOCKET_RETURN_IF_ERROR(run({&barrier, 1}));
    *ns = static_cast<double>(monotonic_now() - begin);
    return {};
  };
  std::array<double, repeated(5)> more;
  for (double& ns : more) {
    double small = 0, large = 0;
    HOCKET_RETURN_IF_ERROR(time(8, &small));
    HOCKET_RETURN_IF_ERROR(time(large_bytes, &large));
    ns = large - small;
  }
  std::ranges::sort(more);
  *median = more[more.size() / 2];
  return {};
}

/// The time of a message from rank 0 to `far`, with an answer, or of one each way at once: the
/// median of a few. The bytes lie in memory.
Status Calibration::time_message(int far, std::size_t bytes, bool both_ways, double* median) {
  const int other = membership_.rank() == 0 ? far : 0;
  std::vector<std::byte> in(bytes), out(bytes);
  const auto send = [&](std::size_t count) {
    return Call{Collective::send, in.data(), in.data(), count, Dtype::uint8, Op::sum, other};
  };
  const auto recv = [&](std::size_t count) {
    return Call{Collective::recv, out.data(), out.data(), count, Dtype::uint8, Op::sum, other};
  };
  const Call meet[] = {send(1), recv(1)}, exchange[] = {send(bytes), recv(bytes)};
  const Call there = membership_.rank() == 0 ? send(bytes) : recv(bytes);
  const Call back = membership_.rank() == 0 ? recv(1) : send(1);
  std::array<double, repeated(5)> times;
  for (double& time : times) {
    evict(in.data(), bytes);
    evict(out.data(), bytes);
    HOCKET_RETURN_IF_ERROR(run(meet));
    const Nanos begin = monotonic_now();
    if (both_ways) {
      HOCKET_RETURN_IF_ERROR(run(exchange));
    } else {
      HOCKET_RETURN_IF_ERROR(run({&there, 1}));
      HOCKET_RETURN_IF_ERROR(run({&back, 1}));
    }
    time = static_cast<double>(monotonic_now() - begin);
  }
  std::ranges::sort(times);
  *median = times[times.size() / 2];
  return {};
}

Calibration::FiguresAndSettings Calibration::own_settings() const {
  static_assert(sizeof(Figures) == 144 && sizeof(FiguresAndSettings) == 352,
                "docs/PROTOCOL.md has the sizes");
  FiguresAndSettings mine;
  std::strncpy(mine.algorithm, config_.algorithm.c_str(), sizeof mine.algorithm - 1);
  mine.plans_hash = plans_.hash();
  std::strncpy(mine.plans, plans_.text().c_str(), sizeof mine.plans - 1);
  mine.deterministic = config_.deterministic;
  mine.use_shm = config_.use_shm;
  mine.use_tcp = config_.use_tcp;
  mine.traces = !config_.trace_folder.empty();
  return mine;
}

Status Calibration::compare(const FiguresAndSettings& mine,
                            const FiguresAndSettings& theirs) const {
  std::string differs;
  if (theirs.version != mine.version) differs = "versions of hocket";
  if (theirs.deterministic != mine.deterministic) {
    differs = "values of deterministic (" + std::to_string(theirs.deterministic) + " and " +
              std::to_string(mine.deterministic) +
              ", by config.deterministic or by HOCKET_DETERMINISTIC)";
  }
  if (std::strncmp(theirs.algorithm, mine.algorithm, sizeof mine.algorithm) != 0) {
    differs =
        "HOCKET_ALGORITHM ('" + std::string(theirs.algorithm) + "' and '" + mine.algorithm + "')";
  }
  if (theirs.use_shm != mine.use_shm || theirs.use_tcp != mine.use_tcp)
    differs = "HOCKET_TRANSPORT";
  if (theirs.plans_hash != mine.plans_hash) {
    differs =
        "plans of HOCKET_PLAN_FILES (" + std::string(theirs.plans) + "; and " + mine.plans + ")";
  }
  if (theirs.traces != mine.traces) differs = "HOCKET_TRACE (set, and not set)";
  if (differs.empty()) return {};
  const int rank = membership_.rank();
  return {Code::mismatch,
          "rank 0 and rank " + std::to_string(rank) + " have different " + differs +
              ": give all ranks the same",
          rank};
}

Status Calibration::agree(Figures* figures, bool known) {
  const FiguresAndSettings mine = own_settings();
  FiguresAndSettings theirs = mine;
  // No rank goes on, and perhaps leaves, before all have come. A rank with other settings than the
  // rest may know no figures: then all measure.
  std::uint8_t all_know = known ? 1 : 0;
  const Call least{Collective::all_reduce, &all_know, &all_know, 1, Dtype::uint8, Op::min};
  HOCKET_RETURN_IF_ERROR(tell(least));
  if (all_know != 0) {
    theirs.figures = *figures;
  } else {
    HOCKET_RETURN_IF_ERROR(measure(&theirs.figures));
  }
  Call call;
  call.collective = Collective::broadcast;
  call.input = call.output = &theirs;
  call.count = sizeof theirs;
  call.dtype = Dtype::uint8;
  call.root = 0;
  HOCKET_RETURN_IF_ERROR(tell(call));
  HOCKET_RETURN_IF_ERROR(compare(mine, theirs));
  *figures = theirs.figures;
  tell_transports(*figures);
  return {};
}

}  // namespace hocket::internal
