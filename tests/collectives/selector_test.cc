// The selections of the selector for given measurements.
#include "collectives/select/selector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "collectives/algorithms/builders.h"
#include "selector_options.h"

namespace hocket::internal {
namespace {

CallKey all_reduce_of(std::size_t bytes) {
  return {.collective = Collective::all_reduce, .dtype = Dtype::float32, .count = bytes / 4};
}

/// The selector owns the selection and its program.
const Selection& selection_of(Selector& selector, std::size_t bytes) {
  const Selection* selection = nullptr;
  EXPECT_TRUE(selector.select(all_reduce_of(bytes), &selection).ok());
  return *selection;
}

std::string algorithm_of(const SelectorOptions& options, std::size_t bytes) {
  Selector selector(options);
  return selection_of(selector, bytes).program->algorithm();
}

bool uses_node(const SelectorOptions& options, std::size_t bytes) {
  Selector selector(options);
  return selection_of(selector, bytes).program->header().uses_node;
}

bool has_non_temporal_scratch(const SelectorOptions& options, std::size_t bytes) {
  Selector selector(options);
  return selection_of(selector, bytes).non_temporal_scratch;
}

Stores stores_of(const SelectorOptions& options, std::size_t bytes) {
  Selector selector(options);
  return selection_of(selector, bytes).stores;
}

TEST(Selector, results_are_stored_by_where_their_lines_lie_and_by_what_was_measured) {
  SelectorOptions options = two_ranks();
  options.figures.push_ns_per_byte = 0.10;
  options.figures.push_non_temporal_ns_per_byte = 0.09;
  EXPECT_EQ(Stores::first_cached, stores_of(options, 128 << 10));
  EXPECT_EQ(Stores::one_by_one, stores_of(options, 512 << 10)) << "no longer all in the core's own";
  EXPECT_EQ(Stores::together, stores_of(options, 2 << 20)) << "in the shared cache";
  EXPECT_EQ(Stores::non_temporal, stores_of(options, (2 << 20) + 4)) << "longer than the cache";
  options.figures.push_non_temporal_ns_per_byte = 0.11;
  EXPECT_EQ(Stores::one_by_one, stores_of(options, 128 << 10));
  options.figures.node_cache_bytes = 300 << 20;
  EXPECT_EQ(Stores::together, stores_of(options, 8 << 20));
  EXPECT_EQ(Stores::non_temporal, stores_of(options, 9 << 20))
      << "other programs use a large cache too";
  options.one_node = false;
  EXPECT_EQ(Stores::together, stores_of(options, 64 << 20)) << "sent on from there";
}

TEST(Selector, results_between_nodes_go_past_the_caches_if_the_ranks_of_a_node_hold_more) {
  SelectorOptions options = two_by_two_ranks();
  options.algorithm = "two-level";
  EXPECT_EQ(Stores::together, stores_of(options, 2 << 20));
  EXPECT_EQ(Stores::non_temporal, stores_of(options, (2 << 20) + 4));
  options.algorithm = "ring";
  EXPECT_EQ(Stores::together, stores_of(options, 64 << 20)) << "sent on from there";
}

TEST(Selector, chunks_that_go_to_other_nodes_are_longer_than_those_that_stay) {
  const auto chunk_bytes = [](const SelectorOptions& options) {
    Selector selector(options);
    const CallKey key{
        .collective = Collective::all_gather, .dtype = Dtype::float32, .count = 2 << 20};
    const Selection* selection = nullptr;
    EXPECT_TRUE(selector.select(key, &selection).ok());
    EXPECT_TRUE(selection->program->header().uses_node);
    return selector.chunk_elements(*selection->program, key) * sizeof(float);
  };
  SelectorOptions options = two_by_two_ranks();
  options.figures.core_cache_bytes = 512 << 10;
  options.algorithm = "two-level";
  EXPECT_EQ(128 << 10, chunk_bytes(options)) << "of 8 slots, which would fit with 64 KiB";
  options = two_ranks();
  options.figures.core_cache_bytes = 256 << 10;
  options.algorithm = "staged";
  EXPECT_EQ(64 << 10, chunk_bytes(options));
}

TEST(Selector, uses_many_scratches_if_ranks_share_cores_or_are_far_apart) {
  SelectorOptions options = two_ranks();
  options.figures.sync_ns = 80;
  Selector near(options);
  EXPECT_FALSE(selection_of(near, 1000).many_scratches);
  options.figures.ranks_per_core = 1.5;
  Selector crowded(options);
  EXPECT_TRUE(selection_of(crowded, 1000).many_scratches);
  options.figures.ranks_per_core = 1;
  options.figures.sync_ns = 250;
  Selector far(options);
  EXPECT_TRUE(selection_of(far, 1000).many_scratches);
}

/// The algorithm of a call whose ranks do not know all blocks, or (varying: false) of one with
/// blocks of two elements.
std::string algorithm_of_blocks(const SelectorOptions& options, Collective collective,
                                bool varying) {
  Selector selector(options);
  const Selection* selection = nullptr;
  const bool rooted = row_of(collective).rooted;
  EXPECT_TRUE(selector
                  .select({.collective = collective,
                           .dtype = Dtype::float32,
                           .root = rooted ? 1 : -1,
                           .count = varying ? 0U : 2U,
                           .varying = varying},
                          &selection)
                  .ok());
  return selection->program->algorithm();
}

TEST(Selector, blocks_that_not_all_ranks_know_are_told_apart_only_within_a_node) {
  for (const Collective collective :
       {Collective::gather, Collective::scatter, Collective::all_to_all}) {
    SCOPED_TRACE(name_of(collective));
    SelectorOptions options = two_ranks();
    EXPECT_EQ("eager", algorithm_of_blocks(options, collective, true));
    options.algorithm = "pairs";
    EXPECT_EQ("pairs", algorithm_of_blocks(options, collective, true));
    options.algorithm = "eager";
    EXPECT_NE("eager", algorithm_of_blocks(options, collective, false)) << "all know the count";
    options.one_node = false;
    EXPECT_EQ("pairs", algorithm_of_blocks(options, collective, true));
  }
}

TEST(Selector, blocks_of_too_many_ranks_for_the_counts_in_a_line_are_messages) {
  SelectorOptions options = two_ranks();
  options.algorithm = "eager";
  for (const std::uint32_t ranks : {13, 14, 40}) {
    options.ranks = static_cast<int>(ranks);
    const char* const expected = ranks <= 13 ? "eager" : "pairs";
    EXPECT_EQ(expected, algorithm_of_blocks(options, Collective::scatter, true)) << ranks;
    EXPECT_EQ(expected, algorithm_of_blocks(options, Collective::all_to_all, true)) << ranks;
    EXPECT_EQ("eager", algorithm_of_blocks(options, Collective::gather, true)) << ranks;
  }
}

TEST(Selector, the_price_of_a_choice_is_that_of_the_algorithm_that_was_chosen) {
  for (const bool one_node : {false, true}) {
    SelectorOptions options = two_ranks();
    options.one_node = one_node;
    std::vector<Selector::Priced> candidates;
    ASSERT_TRUE(Selector(options).candidates(all_reduce_of(100'000), &candidates).ok());
    ASSERT_GT(candidates.size(), 3U);
    std::set<std::string> names;  // the cheapest of a name comes first
    for (const Selector::Priced& candidate : candidates) {
      options.algorithm = candidate.builder->algorithm;
      if (!names.insert(options.algorithm).second) continue;
      Selector forced(options);
      EXPECT_EQ(selection_of(forced, 100'000).price_ps, candidate.price_ps) << options.algorithm;
    }
  }
}

TEST(Selector, simulates_no_price_but_that_of_the_algorithm_that_is_named) {
  SelectorOptions options = two_ranks();
  options.algorithm = "staged";
  Selector named(options);
  selection_of(named, 96);  // a count that needs no interpolation
  EXPECT_EQ(named.simulated_prices(), 1U);
  // No mapping of buffers is chosen without a price of the algorithm that replaces it.
  named.force("direct");
  EXPECT_EQ(selection_of(named, 100'000).program->header().maps_input, true);
  EXPECT_GT(named.simulated_prices(), 2U);
}

bool maps(const Selection& selection) {
  return selection.program->header().maps_input || selection.program->header().maps_output;
}

TEST(Selector, after_a_call_without_mapped_buffers_prefers_programs_that_map_none_for_a_while) {
  constexpr std::size_t bytes = 128 << 10;
  Selector selector(two_ranks());
  ASSERT_TRUE(maps(selection_of(selector, bytes)));
  const std::uint16_t kind = selection_of(selector, bytes).kind;
  selector.fell_back(kind);
  const Selection* looked = nullptr;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(selector.look(all_reduce_of(bytes), false, &looked).ok());
    EXPECT_FALSE(maps(*looked)) << "looking is no operation";
  }
  ASSERT_TRUE(selector.look(all_reduce_of(bytes), true, &looked).ok());
  EXPECT_TRUE(maps(*looked));
  EXPECT_TRUE(maps(selection_of(selector, 4 * bytes))) << "another size";
  int without = 0;
  while (without < 1000 && !maps(selection_of(selector, bytes + 4))) ++without;
  EXPECT_EQ(31, without);
  EXPECT_TRUE(maps(selection_of(selector, bytes))) << "nothing was said since";
  // The cheapest of those that map none, not only of those that begin alike.
  std::vector<Selector::Priced> candidates;
  ASSERT_TRUE(selector.candidates(all_reduce_of(bytes), &candidates).ok());
  selector.fell_back(kind);
  const Selection& chosen = selection_of(selector, bytes);
  for (const Selector::Priced& candidate : candidates) {
    if (std::string(candidate.builder->algorithm) == "direct") continue;
    EXPECT_LE(chosen.price_ps, candidate.price_ps + candidate.price_ps / 20);
  }
  constexpr std::size_t large = 64 << 20;
  ASSERT_STREQ(selection_of(selector, large).staged->algorithm().c_str(), "staged");
  selector.fell_back(selection_of(selector, large).kind);
  EXPECT_TRUE(maps(selection_of(selector, large))) << "a large call looks each time";
  ASSERT_TRUE(selector.look(all_reduce_of(large), false, &looked).ok());
  EXPECT_FALSE(maps(*looked));
  SelectorOptions options = two_ranks();
  options.algorithm = "direct";
  Selector forced(options);
  forced.fell_back(kind);
  EXPECT_TRUE(maps(selection_of(forced, bytes))) << "what is forced stays";
}

TEST(Selector, small_scratch_is_prefetched_where_lines_come_late) {
  SelectorOptions options = two_ranks();
  const auto prefetches = [&](std::size_t count) {
    Selector selector(options);
    const CallKey gather{
        .collective = Collective::gather, .dtype = Dtype::float32, .root = 0, .count = count};
    const Selection* selection = nullptr;
    EXPECT_TRUE(selector.select(gather, &selection).ok());
    return selection->prefetches_scratch;
  };
  options.figures.sync_ns = 80;
  EXPECT_FALSE(prefetches(128));
  options.figures.sync_ns = 250;
  EXPECT_TRUE(prefetches(128));
  EXPECT_TRUE(prefetches(512)) << "2 blocks of 2 KiB";
  EXPECT_FALSE(prefetches(1024)) << "a message of more than 4 KiB";
  options.figures.ranks_per_core = 2;
  EXPECT_FALSE(prefetches(128)) << "the ranks share cores";
}

TEST(Selector, cores_that_share_no_cache_hand_over_through_memory) {
  SelectorOptions options = two_ranks();
  options.figures.peer_ns_per_byte = 0.10;
  EXPECT_FALSE(has_non_temporal_scratch(options, 1 << 20)) << "not measured";
  options.figures.peer_non_temporal_ns_per_byte = 0.095;
  EXPECT_FALSE(has_non_temporal_scratch(options, 1 << 20)) << "too small a gain";
  options.figures.peer_non_temporal_ns_per_byte = 0.08;
  EXPECT_TRUE(has_non_temporal_scratch(options, 1 << 20));
  EXPECT_FALSE(has_non_temporal_scratch(options, 1 << 10)) << "too little";
  options.figures.small_non_temporal_ratio = 0.95;
  EXPECT_FALSE(has_non_temporal_scratch(options, 1 << 20)) << "no gain in small copies";
  Selector selector(options);
  const Selection* rooted = nullptr;
  CallKey gather{
      .collective = Collective::gather, .dtype = Dtype::float32, .root = 0, .count = 1 << 11};
  ASSERT_TRUE(selector.select(gather, &rooted).ok());
  ASSERT_TRUE(rooted->program->header().uses_node);
  EXPECT_TRUE(rooted->non_temporal_scratch) << "data that goes one way";
  --gather.count;
  ASSERT_TRUE(selector.select(gather, &rooted).ok());
  EXPECT_FALSE(rooted->non_temporal_scratch) << "of less than 16 KiB";
  options.figures.small_non_temporal_ratio = 0.85;
  EXPECT_TRUE(has_non_temporal_scratch(options, 1 << 20));
  options.figures.push_ns_per_byte = 0.20;
  options.figures.push_non_temporal_ns_per_byte = 0.21;
  EXPECT_EQ(Stores::one_by_one, stores_of(options, 128 << 10));
  EXPECT_EQ(Stores::first_cached, stores_of(options, 2 << 20)) << "no shared cache";
  EXPECT_EQ(Stores::non_temporal, stores_of(options, 64 << 20));
  options.figures.push_non_temporal_ns_per_byte = 0.09;
  EXPECT_EQ(Stores::first_cached, stores_of(options, 512 << 10));
  options.one_node = false;
  EXPECT_FALSE(has_non_temporal_scratch(options, 1 << 20)) << "scratch is the rank's own";
}

TEST(Selector, an_algorithm_carries_what_fits_and_no_byte_more) {
  SelectorOptions options = two_ranks();
  options.algorithm = "inline";
  EXPECT_EQ("inline", algorithm_of(options, line_payload_bytes));
  EXPECT_NE("inline", algorithm_of(options, line_payload_bytes + 4));
  options.algorithm = "one-shot";
  const std::size_t most = options.board_scratch_bytes;
  EXPECT_EQ("one-shot", algorithm_of(options, most));
  EXPECT_TRUE(uses_node(options, most));
  EXPECT_FALSE(algorithm_of(options, most + 4) == "one-shot" && uses_node(options, most + 4))
      << "beyond the scratch it goes by messages";
}

/// The builders that may serve an operator of the user.
std::vector<const Builder*> candidates_for(const SelectorOptions& options, Op op,
                                           std::uint32_t unit) {
  Selector selector(options);
  std::vector<Selector::Priced> priced;
  const CallKey key{.collective = Collective::all_reduce,
                    .dtype = Dtype::uint8,
                    .op = op,
                    .count = std::size_t{100} * unit,
                    .unit = unit};
  EXPECT_TRUE(selector.candidates(key, &priced).ok());
  std::vector<const Builder*> builders;
  for (const Selector::Priced& one : priced) builders.push_back(one.builder);
  return builders;
}

TEST(Selector, keeps_operands_in_the_order_of_ranks_if_they_do_not_commute) {
  const auto all_in_order = [](const std::vector<const Builder*>& builders) {
    return std::ranges::all_of(builders, [](const Builder* one) { return one->rank_order; });
  };
  EXPECT_TRUE(all_in_order(candidates_for(two_ranks(), Op::user_in_order, 1)));
  EXPECT_FALSE(all_in_order(candidates_for(two_ranks(), Op::user, 1)));
}

TEST(Selector, partial_results_are_wide_only_where_the_operator_rounds) {
  SelectorOptions options;
  options.ranks = 4;
  options.one_node = false;
  options.algorithm = "ring";
  Selector selector(options);
  const auto is_wide = [&](Dtype dtype, Op op) {
    const CallKey key{
        .collective = Collective::all_reduce, .dtype = dtype, .op = op, .count = 1000};
    const Selection* selection = nullptr;
    EXPECT_TRUE(selector.select(key, &selection).ok());
    return selection->program->header().wide_scratch;
  };
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16, Dtype::float8_e4m3}) {
    for (const Op op : {Op::sum, Op::prod, Op::avg, Op::pre_mul_sum}) {
      EXPECT_TRUE(is_wide(dtype, op)) << name_of(dtype) << " " << name_of(op);
    }
    EXPECT_FALSE(is_wide(dtype, Op::min)) << name_of(dtype);
    EXPECT_FALSE(is_wide(dtype, Op::max)) << name_of(dtype);
  }
  EXPECT_FALSE(is_wide(Dtype::float32, Op::sum));
}

TEST(Selector, gives_an_element_that_scratch_cannot_hold_to_messages) {
  const SelectorOptions options = two_ranks();
  const auto size = static_cast<std::uint32_t>(options.board_scratch_bytes) + 1;
  Selector selector(options);
  for (const std::uint32_t unit : {4096U, size}) {
    const Selection* selection = nullptr;
    const CallKey key{.collective = Collective::all_reduce,
                      .dtype = Dtype::uint8,
                      .op = Op::user_in_order,
                      .count = std::size_t{100} * unit,
                      .unit = unit};
    ASSERT_TRUE(selector.select(key, &selection).ok());
    EXPECT_EQ(selection->program->header().uses_node, unit != size);
    EXPECT_EQ(selection->sizes.chunk_elements % unit, 0U);
  }
}

TEST(Selector, keeps_choices_for_different_calls_apart) {
  // More calls than selections are kept, all of one count: some must take the place of others.
  Selector selector(two_ranks());
  std::set<std::uint64_t> hashes;
  int calls = 0;
  for (int round = 0; round < 2; ++round) {
    for (int dtype = 0; dtype < dtype_count; ++dtype) {
      for (int op = 0; op < op_count; ++op) {
        if (!computes(static_cast<Op>(op), static_cast<Dtype>(dtype))) continue;
        for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter}) {
          const Selection* selection = nullptr;
          const CallKey key{.collective = collective,
                            .dtype = static_cast<Dtype>(dtype),
                            .op = static_cast<Op>(op),
                            .count = 100};
          ASSERT_TRUE(selector.select(key, &selection).ok());
          hashes.insert(selection->call_hash);
          calls += round;
        }
      }
    }
  }
  EXPECT_EQ(static_cast<std::size_t>(calls), hashes.size());
}

// If two ranks choose different plans for one call, the hashes that they exchange differ.
TEST(Selector, tells_calls_by_different_plans_apart) {
  const CallKey key{
      .collective = Collective::all_reduce, .dtype = Dtype::int32, .op = Op::sum, .count = 100};
  std::set<std::uint64_t> hashes;
  std::set<std::uint16_t> plans;
  const std::vector<std::string> algorithms = {"one-shot", "staged", "ring"};
  for (const std::string& algorithm : algorithms) {
    SelectorOptions options = two_ranks();
    options.algorithm = algorithm;
    Selector selector(options);
    const Selection* selection = nullptr;
    ASSERT_TRUE(selector.select(key, &selection).ok());
    ASSERT_EQ(algorithm, selection->program->algorithm());
    hashes.insert(selection->call_hash);
    plans.insert(selection->plan);
  }
  EXPECT_EQ(algorithms.size(), hashes.size());
  EXPECT_EQ(algorithms.size(), plans.size());
  EXPECT_FALSE(plans.contains(0)) << "the number of a message";
}

TEST(Selector, numbers_no_two_plans_alike) {
  std::set<std::uint16_t> numbers;
  for (const Builder& builder : builders()) numbers.insert(number_of(builder));
  EXPECT_EQ(builders().size(), numbers.size());
}

/// The candidates of 16 ranks on as many nodes.
std::vector<Selector::Priced> candidates_between_nodes(double message_overhead_ns,
                                                       double link_ns_per_byte, std::size_t bytes) {
  SelectorOptions options = two_ranks();
  options.ranks = 16;
  options.one_node = false;
  options.figures.message_ns = 20'000;
  options.figures.message_overhead_ns = message_overhead_ns;
  options.figures.link_ns_per_byte = link_ns_per_byte;
  Selector selector(options);
  std::vector<Selector::Priced> candidates;
  EXPECT_TRUE(selector.candidates(all_reduce_of(bytes), &candidates).ok());
  return candidates;
}

TEST(Selector, what_a_message_and_a_byte_cost_decides_between_nodes) {
  const auto first = [](double message_overhead_ns, double link_ns_per_byte, std::size_t bytes) {
    return candidates_between_nodes(message_overhead_ns, link_ns_per_byte, bytes)
        .front()
        .builder->algorithm;
  };
  EXPECT_STREQ("one-shot", first(100, 0.1, 4 << 10)) << "messages for next to nothing";
  EXPECT_STREQ("recursive-doubling", first(50'000, 0.1, 4 << 10)) << "few messages";
  EXPECT_STREQ("owner-fold", first(1000, 8, 16 << 10)) << "few bytes, few rounds";
}

TEST(Selector, sends_few_messages_between_nodes_if_that_costs_little_more) {
  SelectorOptions options = two_by_two_ranks();
  options.figures.message_ns = 100;
  options.figures.message_overhead_ns = 25'000;
  options.figures.sync_ns = 3000;
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    EXPECT_EQ("leaders", algorithm_of_blocks(options, collective, false)) << name_of(collective);
  }
  EXPECT_EQ("leaders", algorithm_of(options, 8)) << "the price of no call within a node";
  options.figures.sync_ns = 8000;
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    EXPECT_EQ("two-level", algorithm_of_blocks(options, collective, false)) << name_of(collective);
  }
}

TEST(Selector, candidates_come_cheapest_first_with_their_prices) {
  const std::vector<Selector::Priced> all = candidates_between_nodes(1000, 1, 64 << 10);
  ASSERT_GT(all.size(), 2U);
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_LE(all[i - 1].price_ps, all[i].price_ps);
  EXPECT_GE(all[0].price_ps, 20'000'000) << "no less than one message, in picoseconds";
}

/// The bytes of a chunk of a plan of 2 ranks in a call whose blocks have so many bytes.
std::size_t chunk_bytes(const SelectorOptions& options, const char* algorithm,
                        Collective collective, std::size_t bytes) {
  const Shape shape{.collective = collective, .ranks = 2, .root = 0};
  Program program;
  const Builder& builder = *find_builder(algorithm, collective, Medium::node);
  EXPECT_TRUE(lower(builder.build(shape), &program).ok());
  const CallKey key{
      .collective = collective, .dtype = Dtype::float32, .root = 0, .count = bytes / 4};
  return 4 * Selector(options).chunk_elements(program, key);
}

TEST(Selector, a_block_that_is_copied_from_buffer_to_buffer_is_one_chunk_unless_it_is_long) {
  constexpr std::size_t MiB = 1 << 20;
  for (const Collective collective : {Collective::all_gather, Collective::scatter}) {
    EXPECT_EQ(chunk_bytes(two_ranks(), "direct", collective, 4 * MiB), 4 * MiB);
    EXPECT_EQ(chunk_bytes(two_ranks(), "direct", collective, 4 * MiB + 4096), MiB / 4);
  }
  EXPECT_EQ(chunk_bytes(two_ranks(), "direct", Collective::broadcast, 8 * MiB), 4 * MiB)
      << "each of two ranks copies half";
}

/// The core's own cache has 1 MiB. An all-reduce between 2 ranks has 2 blocks and 4 slots.
TEST(Selector, slots_of_long_staged_messages_without_a_root_fit_into_the_core_s_own_cache) {
  constexpr std::size_t KiB = 1024, MiB = 1 << 20;
  SelectorOptions options = two_ranks();
  const auto chunk_of = [&](Collective collective, std::size_t bytes) {
    return chunk_bytes(options, "staged", collective, bytes);
  };
  EXPECT_EQ(chunk_of(Collective::all_reduce, MiB), 512 * KiB) << "all scratch";
  EXPECT_EQ(chunk_of(Collective::all_reduce, MiB + 4), 128 * KiB);
  EXPECT_EQ(chunk_of(Collective::all_gather, MiB / 2), MiB) << "of a block";
  EXPECT_EQ(chunk_of(Collective::all_gather, MiB), 256 * KiB);
  EXPECT_EQ(chunk_of(Collective::all_gather, 2 * MiB), 128 * KiB) << "of a long block";
  EXPECT_EQ(chunk_of(Collective::all_to_all, 2 * MiB), 128 * KiB);
  options.figures.core_cache_bytes = 256 * KiB;
  EXPECT_EQ(chunk_of(Collective::all_to_all, 2 * MiB), 64 * KiB) << "at least";
  options.figures.ranks_per_core = 2;
  EXPECT_EQ(chunk_of(Collective::all_to_all, 2 * MiB), 512 * KiB) << "as few turns as possible";
}

TEST(Selector, a_rooted_staged_message_has_a_few_chunks_unless_ranks_share_cores) {
  SelectorOptions options = two_ranks();
  const auto chunk_of = [&](const char* algorithm, Collective collective, std::size_t bytes) {
    return chunk_bytes(options, algorithm, collective, bytes);
  };
  constexpr std::size_t KiB = 1024;
  for (const char* algorithm : {"staged", "root-fold"}) {
    const Collective collective = *algorithm == 's' ? Collective::broadcast : Collective::reduce;
    EXPECT_EQ(chunk_of(algorithm, collective, 16 * KiB), 32 * KiB) << "one chunk";
    EXPECT_EQ(chunk_of(algorithm, collective, 256 * KiB), 64 * KiB) << "a quarter";
    EXPECT_EQ(chunk_of(algorithm, collective, 2 << 20), 128 * KiB) << "at most";
    EXPECT_EQ(chunk_of(algorithm, collective, 3 << 20), 192 * KiB) << "a sixteenth";
    EXPECT_EQ(chunk_of(algorithm, collective, 64 << 20), 256 * KiB) << "of a long block at most";
  }
  for (const Collective collective : {Collective::gather, Collective::scatter}) {
    EXPECT_EQ(chunk_of("staged", collective, 96 * KiB), 96 * KiB) << "a whole block";
    EXPECT_EQ(chunk_of("staged", collective, 256 * KiB), 128 * KiB) << "at most";
    EXPECT_EQ(chunk_of("staged", collective, 64 << 20), 256 * KiB) << "of a long block at most";
  }
  options.figures.ranks_per_core = 2;
  EXPECT_EQ(chunk_of("root-fold", Collective::reduce, 256 * KiB), (4 << 20) / 4U) << "all scratch";
}

/// Six ranks, of which each is a node.
SelectorOptions six_nodes() {
  SelectorOptions options;
  options.ranks = 6;
  options.one_node = false;
  return options;
}

TEST(Selector, interpolates_between_the_counts_that_were_simulated) {
  const SelectorOptions options = six_nodes();
  Selector selector(options);
  const Shape shape{.collective = Collective::all_reduce, .ranks = 6};
  // The counts after 8 are powers of two and quarters between them, and counts between these.
  for (const std::size_t count : {1UL, 5UL, 8UL, 9UL, 11UL, 1000UL, 40'960UL, 45'000UL, 49'152UL,
                                  1'000'003UL, 99'999'999UL}) {
    std::vector<Selector::Priced> candidates;
    ASSERT_TRUE(selector.candidates(all_reduce_of(4 * count), &candidates).ok());
    for (const Selector::Priced& candidate : candidates) {
      Program program;
      ASSERT_TRUE(lower(candidate.builder->build(shape), &program).ok());
      Effects effects;
      const std::int64_t exact = price(*candidate.builder, shape, count, Dtype::float32,
                                       selector.chunk_elements(program, all_reduce_of(4 * count)),
                                       options.figures, {}, &effects);
      SCOPED_TRACE(candidate.builder->algorithm + (" " + std::to_string(count)));
      const bool simulated = count <= 8 || count == 40'960 || count == 49'152;
      const double most = simulated ? 1 : 1.02;
      EXPECT_LE(candidate.price_ps, exact * most);
      EXPECT_GE(candidate.price_ps, exact / most);
      EXPECT_LE(candidate.effects.work_ps, effects.work_ps * most);
      EXPECT_GE(candidate.effects.work_ps, effects.work_ps / most);
    }
  }
}

TEST(Selector, simulates_few_of_many_counts_and_roots) {
  Selector selector(six_nodes());
  std::vector<Selector::Priced> candidates;
  ASSERT_TRUE(selector.candidates(all_reduce_of(4), &candidates).ok());
  const std::size_t algorithms = candidates.size();
  for (std::size_t count = 1; count < 1 << 20; count += 1 + count / 100) {
    selection_of(selector, 4 * count);
  }
  const std::size_t prices = selector.simulated_prices();
  EXPECT_LE(prices, algorithms * (8 + 4 * 18)) << "4 between two powers of two";
  const auto broadcast_from = [&](int root) {
    const Selection* selection = nullptr;
    const CallKey key{.collective = Collective::broadcast, .root = root, .count = 1000};
    EXPECT_TRUE(selector.select(key, &selection).ok());
    EXPECT_EQ(selection->program->header().root, root);
    return selector.simulated_prices();
  };
  const std::size_t of_one_root = broadcast_from(0);
  EXPECT_GT(of_one_root, prices);
  for (int root = 1; root < 6; ++root) EXPECT_EQ(broadcast_from(root), of_one_root);
}

}  // namespace
}  // namespace hocket::internal
