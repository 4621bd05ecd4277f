// Parts of a communicator by themselves, each against a peer that the test plays.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/algorithms/builders.h"
#include "engine/binder.h"
#include "engine/calibration.h"
#include "engine/peer_memory.h"
#include "topology/machine.h"
#include "two_ranks.h"

namespace hocket::internal {
namespace {

TEST(Calibration, gives_all_ranks_the_figures_of_rank_0) {
  std::promise<std::vector<std::byte>> told;  // what rank 0 broadcasts
  std::promise<Figures> of_rank_0;
  run_two(false, [&](int rank, const std::shared_ptr<Session>& session) {
    const Membership membership(*session, {0, 1}, 1 << 16, "two");
    // Nothing is moved but the broadcast; each rank measures what its own clock says of that.
    const Calibration::Run run = [&](std::span<const Call> calls, const char*) -> Status {
      const Call& call = calls.front();
      if (call.collective != Collective::broadcast) return {};
      EXPECT_EQ(0, call.root);
      auto* const bytes = static_cast<std::byte*>(call.output);
      if (rank == 0) {
        told.set_value({bytes, bytes + call.count});
      } else {
        const std::vector<std::byte> came = told.get_future().get();
        EXPECT_EQ(came.size(), call.count);
        std::memcpy(bytes, came.data(), came.size());
      }
      return {};
    };
    const Board none;
    const CommConfig config;
    Figures figures;
    const LoadedPlans no_plans;
    const auto refuse = [](int, std::uint64_t, std::size_t, std::byte*) { return -1; };
    Calibration calibration(*session, membership, none, config, no_plans, {}, run, refuse);
    const Status status = calibration.agree(&figures);
    EXPECT_TRUE(status.ok()) << status.message();
    if (rank == 0) return of_rank_0.set_value(figures);
    const Figures expected = of_rank_0.get_future().get();
    EXPECT_EQ(0, std::memcmp(&expected, &figures, sizeof figures));
    EXPECT_NE(Figures().cached_ns_per_byte, expected.cached_ns_per_byte) << "measured, not assumed";
    const Caches& caches = machine().caches;
    const Figures unknown;
    EXPECT_EQ(expected.core_cache_bytes,
              caches.of_core > 0 ? caches.of_core : unknown.core_cache_bytes);
    EXPECT_EQ(expected.node_cache_bytes,
              caches.of_node > 0 ? caches.of_node : unknown.node_cache_bytes);
  });
}

/// The prices of small all-reduces by algorithm, in nanoseconds.
std::map<std::string, double> prices_for(int ranks, const Figures& figures) {
  SelectorOptions options;
  options.ranks = ranks;
  options.one_node = false;
  options.figures = figures;
  Selector selector(options);
  std::vector<Selector::Priced> candidates;
  const CallKey key{Collective::all_reduce, Dtype::uint64, Op::sum, -1, 1};
  EXPECT_TRUE(selector.candidates(key, &candidates).ok());
  std::map<std::string, double> prices;
  for (const Selector::Priced& candidate : candidates) {
    prices[candidate.builder->algorithm] = static_cast<double>(candidate.price_ps) / 1000;
  }
  return prices;
}

/// A layout in which each rank is on a node of its own.
Layout apart(int ranks) {
  std::vector<std::uint32_t> node_of(static_cast<std::size_t>(ranks));
  std::iota(node_of.begin(), node_of.end(), 0);
  return Layout(node_of);
}

TEST(Calibration, makes_the_prices_of_small_messages_the_times_that_were_measured) {
  const auto expect_prices = [](int ranks, const MessageTimes& times, double ranks_per_core = 1) {
    SCOPED_TRACE(ranks);
    Figures figures;
    figures.link_ns_per_byte = figures.cached_ns_per_byte = 0;
    figures.ranks_per_core = ranks_per_core;
    set_message_costs(apart(ranks), times, &figures);
    std::map<std::string, double> prices = prices_for(ranks, figures);
    if (ranks_per_core > 1) {
      EXPECT_GT(figures.turn_ns, 0);
      EXPECT_NEAR(prices["recursive-doubling"], times.doubling_ns, times.doubling_ns / 100);
      // No figure is fitted to these two times; the prices are near them nevertheless.
      EXPECT_NEAR(prices["one-shot"], times.exchange_ns, times.exchange_ns / 2);
      EXPECT_NEAR(prices["tree"], times.tree_ns, times.tree_ns / 2);
    } else {
      EXPECT_EQ(figures.turn_ns, 0);
      EXPECT_NEAR(prices["one-shot"], times.exchange_ns, times.exchange_ns / 100);
      EXPECT_NEAR(prices["tree"], times.tree_ns, times.tree_ns / 100);
    }
  };
  for (const int ranks : {2, 3}) expect_prices(ranks, {ranks - 1, 40e3, 80e3});
  for (const int ranks : {5, 8, 16}) expect_prices(ranks, {ranks - 1, 40e3, 120e3});
  // Measured over TCP between 8 ranks on 2 cores.
  expect_prices(8, {7, 278.6e3, 108.7e3, 141.3e3, 8e3}, 4);
  expect_prices(8, {7, 318.4e3, 180.4e3, 187.6e3, 8e3}, 4);
  expect_prices(8, {7, 278.6e3, 108.7e3, 141.3e3, 26e3}, 4);  // the two ranks were on one core
}

TEST(Calibration, makes_no_figure_of_messages_0_whatever_the_noise) {
  for (const double ranks_per_core : {1, 4}) {
    Figures figures;
    figures.ranks_per_core = ranks_per_core;
    set_message_costs(apart(8), {7, 1000, 1e9, 1e9, 1e9}, &figures);
    EXPECT_GT(figures.message_overhead_ns, 0);
    EXPECT_GT(figures.message_ns, 0);
    set_message_costs(apart(8), {7, 1e9, 1000, 1000, -1000}, &figures);
    EXPECT_GT(figures.message_overhead_ns, 0);
    EXPECT_GT(figures.message_ns, 0);
    EXPECT_GE(figures.turn_ns, 0);
  }
}

constexpr std::size_t most_regions = 256;  // how many regions of the peer stay mapped

/// Rank 1 of two offers regions 1, 2, ... of so many bytes each, under numbers that no region of
/// this process has; rank 0 maps them in `body`.
template <typename Body>
void map_from_a_peer(int regions, std::size_t bytes, Body body) {
  std::promise<void> done;
  run_two(true, [&](int rank, const std::shared_ptr<Session>& session) {
    const Membership membership(*session, {0, 1}, 1 << 16, "two");
    if (rank == 1) {
      for (int number = 1; number <= regions; ++number) {
        UniqueFd fd;
        ASSERT_TRUE(make_memfd("of-a-peer", bytes, &fd).ok());
        const auto region = static_cast<std::uint64_t>(number);
        ASSERT_TRUE(session->offer({DescriptorName::memory_space, region}, fd.get()).ok());
      }
      return done.get_future().wait();
    }
    std::vector<std::byte> memory(Board::bytes(2) + 4096);
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
    Doorbells doorbells(*session, membership);
    EXPECT_TRUE(doorbells.open(Board(memory.data() + (4096 - at % 4096), 2, 0)).ok());
    SharedParts shared;
    PeerMemory peers(*session, membership, doorbells, shared, most_regions);
    body([&](RegionOffset offset, std::size_t size, std::uint64_t operation, std::byte** out) {
      Status status;
      do {
        status = peers.map_remote(1, offset, size, operation, out);
      } while (status.code() == Code::in_progress);
      return status;
    });
    done.set_value();
  });
}

/// A rank's own blocks count where not all ranks know all blocks.
TEST(Binder, stores_long_varying_blocks_past_the_caches) {
  SelectorOptions options;
  options.ranks = 2;
  options.board_scratch_bytes = 4 << 20;
  options.figures.node_cache_bytes = 8 << 20;
  Binder binder(std::make_unique<Selector>(options));
  const auto stores_of = [&](const VaryingBlocks& varying, Call call) {
    call.dtype = Dtype::int8;
    call.varying = std::make_shared<const VaryingBlocks>(varying);
    BoundCall bound;
    EXPECT_TRUE(binder.bind(call, bound).ok());
    return bound.binding.stores;
  };
  const std::size_t MiB = 1 << 20;
  const VaryingBlocks::Side long_blocks{{2 * MiB, MiB}, {0, 2 * MiB}}, none;
  const VaryingBlocks::Side short_blocks{{MiB, 1}, {0, MiB}};
  const Call all_to_all{.collective = Collective::all_to_all};
  EXPECT_EQ(Stores::non_temporal, stores_of({long_blocks, long_blocks}, all_to_all));
  EXPECT_NE(Stores::non_temporal, stores_of({short_blocks, short_blocks}, all_to_all));
  EXPECT_NE(Stores::non_temporal, stores_of({long_blocks, none}, all_to_all)) << "held: 3 MiB";
  const Call gather{.collective = Collective::gather, .count = 2 * MiB, .root = 0};
  EXPECT_EQ(Stores::non_temporal, stores_of({none, long_blocks}, gather)) << "held: 5 MiB";
  EXPECT_NE(Stores::non_temporal, stores_of({none, short_blocks}, gather)) << "held: 3 MiB";
  // All ranks know all blocks, so that these count, on each rank alike.
  const Call all_gather{.collective = Collective::all_gather, .count = 1};
  EXPECT_EQ(Stores::non_temporal, stores_of({none, long_blocks, 2 * MiB, 3 * MiB}, all_gather));
}

TEST(PeerMemory, of_a_peer_that_names_more_than_it_has_is_an_error) {
  constexpr std::size_t bytes = 8192;
  map_from_a_peer(1, bytes, [](const auto& map) {
    std::byte* out = nullptr;
    EXPECT_TRUE(map({1, 0}, bytes, 1, &out).ok());
    EXPECT_TRUE(map({1, bytes - 8}, 8, 1, &out).ok());
    for (const auto& [offset, size] : {std::pair<std::uint64_t, std::size_t>{bytes - 8, 9},
                                       {0, bytes + 1},
                                       {bytes + 1, 0},
                                       {~0ull - 3, 8}}) {
      const Status status = map({1, offset}, size, 1, &out);
      EXPECT_EQ(Code::remote_error, status.code()) << offset << ", " << size;
      EXPECT_EQ(1, status.culprit());
    }
  });
}

TEST(PeerMemory, of_many_buffers_is_mapped_in_turn_and_stays_while_it_is_in_use) {
  map_from_a_peer(300, 4096, [](const auto& map) {
    std::byte *out = nullptr, *other = nullptr, *first = nullptr;
    for (std::uint64_t region = 1; region <= 255; ++region) {
      ASSERT_TRUE(map({region, 0}, 4096, region, &out).ok());
    }
    // One operation maps three buffers, of which one was used long ago. The last one is one too
    // many.
    ASSERT_TRUE(map({1, 0}, 4096, most_regions, &first).ok());
    ASSERT_TRUE(map({1, 0}, 4096, 0, &out).ok());  // for a message
    ASSERT_TRUE(map({256, 0}, 4096, most_regions, &out).ok());
    ASSERT_TRUE(map({257, 0}, 4096, most_regions, &other).ok());
    *first = std::byte{3};
    *out = std::byte{1};
    *other = std::byte{2};
    EXPECT_EQ(std::byte{1}, *out);
    EXPECT_EQ(std::byte{3}, *first);
    std::ifstream maps("/proc/self/maps");
    std::size_t mapped = 0;
    for (std::string line; std::getline(maps, line);)
      mapped += line.ends_with("of-a-peer (deleted)");
    EXPECT_EQ(most_regions / 2 + 1, mapped) << "what was used longest ago is gone";
  });
}

}  // namespace
}  // namespace hocket::internal
