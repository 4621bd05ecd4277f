#include "collectives/select/cost.h"

#include <gtest/gtest.h>

#include <optional>

#include "collectives/select/selector.h"
#include "plans.h"

namespace hocket::internal {
namespace {

constexpr std::size_t chunk_elements = 16 << 10;

/// Nanoseconds that add up in the head.
Figures round_figures() {
  Figures figures;
  figures.sync_ns = 1000;
  figures.cached_ns_per_byte = 1;
  figures.message_ns = 10'000;
  figures.message_overhead_ns = 100;
  figures.link_ns_per_byte = 2;
  return figures;
}

Figures shared_memory() {
  Figures figures;
  figures.sync_ns = 300;
  figures.cached_ns_per_byte = 0.05;
  return figures;
}

Figures tcp() {
  Figures figures;
  figures.cached_ns_per_byte = 0.05;
  figures.message_ns = 15'000;
  figures.link_ns_per_byte = 0.8;
  figures.message_overhead_ns = 3'000;
  return figures;
}

Shape shape_of(const Builder& builder, std::uint32_t ranks) {
  return {.collective = builder.collective,
          .ranks = ranks,
          .root = row_of(builder.collective).rooted ? 0 : -1};
}

/// Of a call with `count` bytes.
std::int64_t price_of(const Builder& builder, std::uint32_t ranks, std::size_t count,
                      const Figures& figures, const Effort& effort = {}) {
  return price(builder, shape_of(builder, ranks), count, Dtype::uint8, chunk_elements, figures,
               effort);
}

std::int64_t nanoseconds(const char* algorithm, Collective collective, Medium medium,
                         std::uint32_t ranks, std::size_t count) {
  const Builder* builder = find_builder(algorithm, collective, medium);
  return price_of(*builder, ranks, count, round_figures()) / 1000;
}

TEST(Price, agrees_with_the_sums_of_small_plans_within_a_node) {
  // Copy to the line, see all, fold four lines.
  EXPECT_EQ(nanoseconds("inline", Collective::all_reduce, Medium::node, 4, 40), 80 + 1000 + 200);
  EXPECT_EQ(nanoseconds("inline", Collective::barrier, Medium::node, 4, 0), 1000);
  // Stage one block of 64 bytes; see it; fold two into two; see the result; copy it.
  EXPECT_EQ(nanoseconds("staged", Collective::all_reduce, Medium::node, 2, 128),
            128 + 1000 + 256 + 1000 + 128);
  // See all, find the own regions and map those of three peers, copy four blocks, see that the
  // peers have.
  EXPECT_EQ(nanoseconds("direct", Collective::all_gather, Medium::node, 4, 10),
            1000 + 60 + 3 * 20 + 80 + 1000);
  // A peer stages 64 bytes; the root sees it, folds two into one.
  EXPECT_EQ(nanoseconds("root-fold", Collective::reduce, Medium::node, 2, 64), 128 + 1000 + 192);
  // The root copies to scratch, a peer sees it and copies it.
  EXPECT_EQ(nanoseconds("one-shot", Collective::broadcast, Medium::node, 3, 10), 20 + 1000 + 20);
}

TEST(Price, has_beside_it_the_mean_over_the_ranks) {
  const auto mean_of = [](const char* algorithm, Collective collective, std::uint32_t ranks,
                          std::size_t count, const Effort& effort = {}) {
    const Builder& builder = *find_builder(algorithm, collective, Medium::node);
    Effects effects;
    price(builder, shape_of(builder, ranks), count, Dtype::uint8, chunk_elements, round_figures(),
          effort, &effects);
    return effects.mean_ps / 1000;
  };
  // The root ends when it has copied to scratch and to its output, the others when they have copied
  // from scratch.
  const std::int64_t broadcast = (40 + 2 * (20 + 1000 + 20)) / 3;
  EXPECT_EQ(mean_of("one-shot", Collective::broadcast, 3, 10), broadcast);
  EXPECT_EQ(mean_of("one-shot", Collective::broadcast, 3, 10, {.most_ranks = 2}), broadcast)
      << "one rank stands for both that are not the root";
  // The others end when they have copied to scratch. The root copies its own block meanwhile, then
  // three from scratch.
  EXPECT_EQ(mean_of("one-shot", Collective::gather, 4, 10), (20 + 1000 + 3 * 20 + 3 * 20) / 4);
  EXPECT_EQ(mean_of("inline", Collective::all_reduce, 4, 40), 80 + 1000 + 200);
}

TEST(Price, agrees_with_the_sums_of_small_plans_over_messages) {
  const std::int64_t latency = 10'000, work = 100;
  // The block of the peer crosses, is folded with the own one, and crosses back.
  EXPECT_EQ(nanoseconds("ring", Collective::all_reduce, Medium::messages, 2, 128),
            work + 128 + latency + 3 * 64 + work + 128 + latency);
  // Two sends follow one another; the last one's bytes cross; three inputs are folded.
  EXPECT_EQ(nanoseconds("one-shot", Collective::all_reduce, Medium::messages, 3, 10),
            2 * work + 20 + latency + 4 * 10);
  // The root sends to rank 2 first, which sends to rank 3.
  EXPECT_EQ(nanoseconds("tree", Collective::broadcast, Medium::messages, 4, 10),
            work + 20 + latency + work + 20 + latency);
  // Rank 3 to rank 2, which folds two, to rank 0, which folds three; and back.
  EXPECT_EQ(nanoseconds("tree", Collective::all_reduce, Medium::messages, 4, 10),
            (work + 20 + latency) * 4 + 30 + 40);
  // The root's link takes the three blocks one behind another.
  EXPECT_EQ(nanoseconds("pairs", Collective::gather, Medium::messages, 4, 1000),
            work + 3 * 2000 + latency);
  // Or, if they are short, the root works for one after another.
  EXPECT_EQ(nanoseconds("pairs", Collective::gather, Medium::messages, 4, 10),
            work + 20 + 2 * work + latency);
}

// Round 0 sends two of four blocks in one message, round 1 one. Three blocks are copied or folded
// from two places before they are sent, and the own one from three.
TEST(Price, of_a_message_of_several_blocks_counts_all_of_them) {
  const std::int64_t latency = 10'000, work = 100, block = 64;
  EXPECT_EQ(nanoseconds("circulant", Collective::reduce_scatter, Medium::messages, 4, 64),
            2 * 2 * block + work + 2 * 2 * block + latency + 3 * block + work + 2 * block +
                latency + 4 * block);
}

TEST(Price, counts_the_ranks_that_share_a_processor) {
  Figures figures = round_figures();
  figures.ranks_per_core = 2;
  const Builder& in_line = *find_builder("inline", Collective::all_reduce, Medium::node);
  EXPECT_EQ(price_of(in_line, 4, 40, figures) / 1000, 2 * (80 + 200) + 1000);
  // In a tree rank 1 has the processor alone while it sends, and then rank 0 while it folds: the
  // work of 100 ns was measured while both sent.
  const Builder& tree = *find_builder("tree", Collective::reduce, Medium::messages);
  EXPECT_EQ(price_of(tree, 2, 10, figures) / 1000, 50 + 20 + 10'000 + 30);
}

TEST(Price, counts_where_the_bytes_lie) {
  Figures figures = round_figures();
  figures.peer_ns_per_byte = 3;
  figures.memory_ns_per_byte = 10;
  const Builder& one_shot = *find_builder("one-shot", Collective::broadcast, Medium::node);
  // The root reads its buffer, in its caches, and writes where the peer has read; the peer reads
  // that and writes its buffer.
  EXPECT_EQ(price_of(one_shot, 2, 10, figures) / 1000, 10 + 30 + 1000 + 30 + 10);
  // Buffers of more than 4 KiB are in memory, where writing takes twice as long as reading. The
  // peer ends last: the root, which copies to its own output too, has its input in its cache then.
  EXPECT_EQ(price_of(one_shot, 2, 8192, figures) / 1000, 8192 * (10 + 3 + 3 + 20) + 1000);
  const Builder& reduced = *find_builder("one-shot", Collective::all_reduce, Medium::node);
  EXPECT_EQ(price_of(reduced, 2, 8192, figures) / 1000, 8192 * (10 + 3 + 1 + 3 + 20) + 1000);
  // Scratch too, if it does not fit into the cache of a core.
  figures.core_cache_bytes = 8 << 10;
  EXPECT_EQ(price_of(one_shot, 2, 8193, figures) / 1000, 8193 * 2 * (10 + 20) + 1000);
  // It has to hold two of them: two operations write two scratches in turn, and what is copied
  // between the write and the read of one needs room too.
  figures.core_cache_bytes = 2 * 8192;
  EXPECT_EQ(price_of(one_shot, 2, 8192, figures) / 1000, 8192 * (10 + 3 + 3 + 20) + 1000);
  figures.core_cache_bytes = 2 * 8192 - 1;
  EXPECT_EQ(price_of(one_shot, 2, 8192, figures) / 1000, 8192 * 2 * (10 + 20) + 1000);
  EXPECT_EQ(price_of(reduced, 2, 8192, figures) / 1000, 8192 * (10 + 20 + 1 + 10 + 20) + 1000);
  figures.core_cache_bytes = 8191;
  EXPECT_EQ(price_of(reduced, 2, 8192, figures) / 1000, 8192 * (10 + 20 + 10 + 10 + 20) + 1000)
      << "the input has left the cache when it is read again";
  figures.call_ns = 500;
  EXPECT_EQ(price_of(one_shot, 2, 8193, figures) / 1000, 8193 * 2 * (10 + 20) + 1000 + 500);
}

/// Chunks that fit into the cache are read there, also if the message does not fit.
TEST(Price, of_a_message_larger_than_the_cache_favours_chunks) {
  Figures figures = shared_memory();
  figures.memory_ns_per_byte = 0.1;
  figures.core_cache_bytes = 4 * chunk_elements;
  for (const Collective collective : {Collective::all_gather, Collective::gather}) {
    const Builder& one_shot = *find_builder("one-shot", collective, Medium::node);
    const Builder& staged = *find_builder("staged", collective, Medium::node);
    const std::size_t bytes = 8 * chunk_elements;
    EXPECT_LT(price_of(staged, 2, bytes, figures), price_of(one_shot, 2, bytes, figures));
    EXPECT_EQ(price_of(staged, 2, 100, figures), price_of(one_shot, 2, 100, figures));
  }
}

TEST(Price, of_messages_counts_the_processors_at_both_ends) {
  Figures figures = round_figures();
  figures.cached_ns_per_byte = figures.message_ns = 0;
  figures.port_ns_per_byte = 2;
  const Builder& gather = *find_builder("pairs", Collective::gather, Medium::messages);
  const Builder& exchange = *find_builder("pairs", Collective::all_to_all, Medium::messages);
  // One way the port is as fast as the link; both ways at once take it twice.
  const std::int64_t one_way = 100 + 2 * 1000;
  EXPECT_EQ(price_of(gather, 2, 1000, figures) / 1000, one_way);
  EXPECT_EQ(price_of(exchange, 2, 1000, figures) / 1000, one_way + 2 * 1000);
  // Unless the message comes after the other has left.
  figures.message_ns = 10'000;
  EXPECT_EQ(price_of(exchange, 2, 1000, figures) / 1000, one_way + 10'000);
  figures.message_ns = 0;
  figures.port_ns_per_byte = 1;
  EXPECT_EQ(price_of(exchange, 2, 1000, figures) / 1000, one_way);
  // The root copies its own block (2 x 1000 bytes touched) while the message comes.
  figures.cached_ns_per_byte = 0.5;
  EXPECT_EQ(price_of(gather, 2, 1000, figures) / 1000, one_way);
  figures.cached_ns_per_byte = 1;
  EXPECT_EQ(price_of(gather, 2, 1000, figures) / 1000, one_way + 2000 + 1000 - 2100);
}

TEST(Price, of_ranks_that_share_processors_lets_any_of_them_take_the_next_rank) {
  Figures figures = round_figures();
  figures.cached_ns_per_byte = figures.link_ns_per_byte = 0;
  figures.message_ns = 0;
  figures.message_overhead_ns = 4000;  // while 8 ranks send; 1000 for a rank alone on a processor
  figures.ranks_per_core = 4;
  // The tree of 8 ranks: 4 to {2, 6} to {1, 3}, {5, 7}. The four leaves are odd, and are on both
  // processors nevertheless: 2 + 1 + 1 messages up, one after another, and 1 + 2 + 2 down.
  const Builder& tree = *find_builder("tree", Collective::all_reduce, Medium::messages);
  EXPECT_EQ(price_of(tree, 8, 1, figures) / 1000, 9 * 1000);
}

TEST(Price, of_ranks_that_share_processors_has_all_copies_of_a_rank_one_after_another) {
  Figures figures = round_figures();
  figures.cached_ns_per_byte = figures.link_ns_per_byte = 0;
  figures.message_ns = figures.message_overhead_ns = 0;
  figures.port_ns_per_byte = 2;
  figures.ranks_per_core = 4;
  // 8 ranks on 2 processors. Both processors run 3 senders each. Then the root takes one of them
  // and copies 7 messages there, although the other processor becomes idle.
  const Builder& gather = *find_builder("pairs", Collective::gather, Medium::messages);
  EXPECT_EQ(price_of(gather, 8, 1000, figures) / 1000, 3 * 2000 + 7 * 2000);
}

TEST(Price, of_ranks_that_share_processors_leaves_none_idle_while_a_rank_waits_for_one) {
  Figures figures = round_figures();
  figures.ranks_per_core = 2;
  // The root copies on one processor from 60 ns on, and its second lane waits. The others begin
  // when they have seen the root and mapped its input: one on the other processor, and one after
  // each.
  const Builder& direct = *find_builder("direct", Collective::broadcast, Medium::node);
  const std::int64_t begin = 1000 + 60 + 20, copy = 2 * 1000;
  Shape shape = shape_of(direct, 4);
  shape.shares_cores = true;
  EXPECT_EQ(price(direct, shape, 1000, Dtype::uint8, chunk_elements, figures, {}) / 1000,
            begin + copy + copy + 1000);
}

TEST(Price, of_ranks_that_share_processors_has_a_turn_for_each_rank_that_waited) {
  Figures figures = round_figures();
  figures.cached_ns_per_byte = figures.link_ns_per_byte = 0;
  const Builder& ring = *find_builder("ring", Collective::all_gather, Medium::messages);
  const std::int64_t before = price_of(ring, 4, 1, figures);
  figures.turn_ns = 5000;
  EXPECT_EQ(price_of(ring, 4, 1, figures), before) << "each rank has a core";
  figures.ranks_per_core = 2;
  figures.turn_ns = 0;
  const std::int64_t shared = price_of(ring, 4, 1, figures);
  figures.turn_ns = 5000;
  // Two ranks on each core, and two rounds: a turn of both before each round and after the last.
  EXPECT_EQ(price_of(ring, 4, 1, figures) / 1000, shared / 1000 + 3 * 2 * 5000);
}

TEST(Price, of_a_message_within_a_node_counts_what_its_receiver_reads_and_writes) {
  Figures figures = round_figures();
  figures.cached_ns_per_byte = 0;
  figures.peer_ns_per_byte = 1;
  figures.memory_ns_per_byte = 3;
  // The message of the other node costs little, and the root is busy when it comes.
  figures.link_ns_per_byte = 0;
  figures.message_ns = 1;
  const Layout two_and_one(std::vector<std::uint32_t>{0, 0, 1});
  const Builder& gather = *find_builder("pairs", Collective::gather, Medium::messages);
  Shape shape = shape_of(gather, 3);
  shape.layout = &two_and_one;
  const auto price_of_bytes = [&](std::size_t bytes) {
    return price(gather, shape, bytes, Dtype::uint8, chunk_elements, figures) / 1000;
  };
  // The buffers are so large that their bytes lie in memory. The root copies its own block: it
  // reads memory (3) and writes it (2 x 3). Then it reads what its peer has written (1), and writes
  // memory (2 x 3).
  EXPECT_EQ(price_of_bytes(9000) - price_of_bytes(8000), 1000 * (9 + 7));
}

TEST(Price, of_a_message_that_the_kernel_copies_is_that_of_one_copy_by_its_receiver) {
  Figures figures = round_figures();
  figures.ranks_per_core = 2;
  figures.port_ns_per_byte = 5;
  figures.link_ns_per_byte = figures.cached_ns_per_byte = 0;
  const auto price_of_bytes = [&](Collective collective, std::size_t bytes, double kernel) {
    figures.kernel_copy_ns_per_byte = kernel;
    const Builder& pairs = *find_builder("pairs", collective, Medium::messages);
    return price(pairs, shape_of(pairs, 2), bytes, Dtype::uint8, 1 << 20, figures) / 1000;
  };
  constexpr std::size_t longest = shm_eager_bytes, long_one = longest + 1;
  for (const Collective collective : {Collective::scatter, Collective::all_to_all}) {
    // Each rank that receives copies once; the two ranks share a core.
    const std::int64_t copies = collective == Collective::scatter ? 1 : 2;
    const std::int64_t staged = price_of_bytes(collective, long_one, 0);
    const std::int64_t at_1 = price_of_bytes(collective, long_one, 1);
    const std::int64_t at_3 = price_of_bytes(collective, long_one, 3);
    EXPECT_EQ(copies * 2 * std::int64_t{long_one}, at_3 - at_1);
    EXPECT_EQ(copies * (10 - 3) * std::int64_t{long_one}, staged - at_3);
    EXPECT_EQ(price_of_bytes(collective, longest, 0), price_of_bytes(collective, longest, 1));
  }
  EXPECT_EQ(price_of_bytes(Collective::gather, long_one, 0),
            price_of_bytes(Collective::gather, long_one, 1));
}

TEST(Price, of_one_rank_is_that_of_its_copy) {
  for (const Builder& builder : group_builders()) {
    const std::size_t bytes = builder.collective == Collective::barrier ? 0 : 50;
    EXPECT_EQ(price_of(builder, 1, bytes, round_figures()),
              static_cast<std::int64_t>(2 * bytes) * 1000)
        << name_of(builder);
  }
}

TEST(Price, of_a_widening_type_counts_the_partial_results) {
  const Builder* ring = find_builder("ring", Collective::reduce_scatter, Medium::messages);
  Shape shape = shape_of(*ring, 4);
  const auto bf16 = [&] { return price(*ring, shape, 1 << 20, Dtype::bfloat16, 0, tcp()); };
  const std::int64_t narrow = bf16();
  shape.widened = true;
  // Two raw blocks of 2 bytes, and one partial result of 4, are sent.
  EXPECT_NEAR(static_cast<double>(bf16()) / static_cast<double>(narrow), 4.0 / 3, 0.1);
}

TEST(Price, sends_and_receives_have_none) {
  EXPECT_EQ(price_of(*find_builder("message", Collective::send, Medium::messages), 2, 100, tcp()),
            0);
}

class Prices : public ::testing::TestWithParam<Builder> {};

TEST_P(Prices, grow_with_the_bytes) {
  for (const std::uint32_t ranks : {2, 3, 8}) {
    std::int64_t last = 0;
    for (std::size_t count = 1; count < 10'000'000; count = count * 7 / 2 + 1) {
      const std::int64_t now = price_of(GetParam(), ranks, count, tcp());
      EXPECT_GE(now, last) << ranks << " ranks, " << count;
      last = now;
    }
    if (GetParam().collective == Collective::barrier) continue;
    EXPECT_GT(last, price_of(GetParam(), ranks, 1, tcp()));
  }
}

TEST_P(Prices, grow_with_what_the_figures_measure) {
  const Builder& builder = GetParam();
  // Large blocks of `eager` are messages.
  const std::size_t bytes = std::string(builder.algorithm) == "eager" ? 60 : 1000;
  Figures figures = round_figures();
  figures.cached_ns_per_byte = 0.1;
  figures.message_overhead_ns = 0;
  figures.link_ns_per_byte = 0.01;
  for (const std::uint32_t ranks : {2, 5, 8}) {
    const std::int64_t before = price_of(builder, ranks, bytes, figures);
    Figures slower = figures;
    (builder.medium == Medium::node ? slower.sync_ns : slower.message_ns) += 500;
    EXPECT_GT(price_of(builder, ranks, bytes, slower), before);
    slower = figures;
    slower.ranks_per_core = 4;
    const std::int64_t crowded = price_of(builder, ranks, bytes, slower);
    EXPECT_GE(crowded, before);
    // In a tree the ranks that share a processor may fold one after another anyway, and in a reduce
    // the root may be the only one that folds.
    if (builder.symmetric && row_of(builder.collective).reduces &&
        !row_of(builder.collective).rooted) {
      EXPECT_GT(crowded, before);
    }
    slower = figures;
    slower.link_ns_per_byte = 10;
    const std::int64_t narrow = price_of(builder, ranks, bytes, slower);
    if (builder.medium == Medium::node || builder.collective == Collective::barrier) {
      EXPECT_EQ(narrow, before);
    } else {
      EXPECT_GT(narrow, before);
    }
  }
}

TEST_P(Prices, are_the_same_on_all_ranks_and_for_all_roots) {
  const std::uint32_t ranks = 5;
  Shape shape = shape_of(GetParam(), ranks);
  const auto now = [&] {
    return price(GetParam(), shape, 100'000, Dtype::float32, chunk_elements, tcp());
  };
  const std::int64_t first = now();
  EXPECT_GT(first, 0);
  for (shape.rank = 0; shape.rank < ranks; ++shape.rank) {
    if (shape.root >= 0) shape.root = static_cast<std::int32_t>(ranks - 1 - shape.rank);
    EXPECT_EQ(now(), first);
  }
}

TEST_P(Prices, of_one_rank_for_all_are_those_of_all_ranks) {
  for (const Figures& figures : {shared_memory(), round_figures()}) {
    for (const std::uint32_t ranks : {2, 3, 4, 8, 13}) {
      for (const std::size_t count : {1, 1000, 100'000}) {
        Effects of_one, of_all;
        const auto now = [&](const Effort& effort, Effects* effects) {
          return price(GetParam(), shape_of(GetParam(), ranks), count, Dtype::uint8, chunk_elements,
                       figures, effort, effects);
        };
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(count));
        const std::int64_t end = now({}, &of_one);
        EXPECT_EQ(end, now({.every_rank = true}, &of_all));
        EXPECT_EQ(of_one.mean_ps, of_all.mean_ps);
        EXPECT_LE(of_one.mean_ps, end);
        EXPECT_GT(of_one.mean_ps, 0);
      }
    }
  }
}

TEST_P(Prices, of_many_chunks_are_near_those_of_all_chunks) {
  for (const Figures& figures : {shared_memory(), tcp()}) {
    for (const std::uint32_t ranks : {2, 4, 8, 13}) {
      for (const std::size_t chunks : {9, 12, 31, 100}) {
        const std::size_t count = 4 * chunk_elements * chunks * (GetParam().cuts ? ranks : 1);
        const auto now = [&](const Effort& effort) {
          return static_cast<double>(price(GetParam(), shape_of(GetParam(), ranks), count,
                                           Dtype::uint8, 4 * chunk_elements, figures, effort));
        };
        const double all = now({.most_chunks = 1000});
        EXPECT_NEAR(now({}) / all, 1, 0.04) << ranks << " ranks, " << chunks << " chunks";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfAllBuilders, Prices, ::testing::ValuesIn(group_builders()), TestName());

TEST(Price, of_many_chunks_has_the_work_that_a_latency_hides_in_the_first_ones) {
  Figures figures = round_figures();
  figures.message_ns = 1'000'000;
  figures.link_ns_per_byte = 0.1;
  const Builder& gather = *find_builder("pairs", Collective::gather, Medium::messages);
  const std::size_t count = 100 * chunk_elements;
  const std::int64_t copy = static_cast<std::int64_t>(2 * count) * 1000;
  const std::int64_t now = price_of(gather, 2, count, figures);
  EXPECT_GE(now, copy);
  EXPECT_LT(now, copy / 20 * 21);
}

TEST(Price, of_a_tree_grows_beyond_the_ranks_that_are_simulated) {
  const Builder* tree = find_builder("tree", Collective::all_reduce, Medium::messages);
  std::int64_t last = 0;
  for (const std::uint32_t ranks : {64, 127, 128, 129, 256, 1000, 65'536}) {
    const std::int64_t now = price_of(*tree, ranks, 1000, tcp());
    EXPECT_GE(now, last) << ranks;
    last = now;
  }
  EXPECT_EQ(last, price_of(*tree, 32, 1000, tcp()) / 5 * 16);
}

/// The algorithm with the least price for a call whose blocks have `bytes`.
std::string cheapest(Collective collective, Medium medium, std::uint32_t ranks, std::size_t bytes,
                     const char* without = "") {
  std::string best;
  std::int64_t least = 0;
  for (const Builder& builder : group_builders()) {
    const std::string name = builder.algorithm;
    if (builder.collective != collective || builder.medium != medium || name == without) continue;
    if (name == "inline" && bytes > line_payload_bytes) continue;
    const std::int64_t now =
        price_of(builder, ranks, bytes, medium == Medium::node ? shared_memory() : tcp());
    if (best.empty() || now < least) best = name, least = now;
  }
  return best;
}

TEST(Price, chooses_the_family_that_suits_the_size_within_a_node) {
  for (const std::uint32_t ranks : {2, 4, 8}) {
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::broadcast}) {
      EXPECT_EQ(cheapest(collective, Medium::node, ranks, 8), "inline");
      EXPECT_EQ(cheapest(collective, Medium::node, ranks, 200), "one-shot");
      EXPECT_EQ(cheapest(collective, Medium::node, ranks, 1 << 20), "direct");
    }
    EXPECT_EQ(cheapest(Collective::all_reduce, Medium::node, ranks, 1 << 20, "direct"), "staged");
  }
}

TEST(Price, chooses_the_family_that_suits_the_size_over_messages) {
  for (const std::uint32_t ranks : {3, 4, 8}) {
    EXPECT_EQ(cheapest(Collective::all_reduce, Medium::messages, ranks, 8), "one-shot");
    EXPECT_EQ(cheapest(Collective::barrier, Medium::messages, ranks, 0), "one-shot");
  }
  EXPECT_EQ(cheapest(Collective::all_reduce, Medium::messages, 256, 8), "recursive-doubling");
  EXPECT_EQ(cheapest(Collective::barrier, Medium::messages, 256, 0), "tree");
  for (const std::uint32_t ranks : {2, 8, 64}) {
    const std::string large = cheapest(Collective::all_reduce, Medium::messages, ranks, 16 << 20);
    EXPECT_TRUE(large == "ring" || large == "owner-fold") << large;
  }
}

/// The cheapest plan for a call of so many bytes between nodes of equal size.
std::string cheapest_between(std::uint32_t nodes, std::uint32_t ranks_of_node,
                             Collective collective, std::size_t bytes) {
  const Layout layout = layout_of(std::vector<std::uint32_t>(nodes, ranks_of_node));
  std::string best;
  std::int64_t least = 0;
  for (const Builder& builder : builders()) {
    if (builder.collective != collective || builder.medium == Medium::node) continue;
    Shape shape = shape_of(builder, layout.ranks());
    shape.layout = &layout;
    const std::int64_t now = price(builder, shape, bytes / 4, Dtype::float32, 16 << 10, tcp());
    if (!best.empty() && now >= least) continue;
    best = builder.algorithm;
    least = now;
  }
  return best;
}

TEST(Selection, uses_the_levels_of_several_nodes) {
  for (const std::uint32_t nodes : {2, 4}) {
    for (const std::uint32_t ranks_of_node : {2, 4, 8}) {
      SCOPED_TRACE(std::to_string(nodes) + " nodes of " + std::to_string(ranks_of_node));
      EXPECT_EQ(cheapest_between(nodes, ranks_of_node, Collective::all_reduce, 8), "leaders");
      EXPECT_EQ(cheapest_between(nodes, ranks_of_node, Collective::barrier, 0), "leaders");
      for (const Collective collective : {Collective::gather, Collective::scatter}) {
        EXPECT_EQ(cheapest_between(nodes, ranks_of_node, collective, 8),
                  nodes == 2 ? "leaders" : "two-level")
            << name_of(collective);
      }
      EXPECT_EQ(cheapest_between(nodes, ranks_of_node, Collective::all_to_all, 8), "two-level");
      for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter,
                                          Collective::broadcast, Collective::reduce}) {
        EXPECT_EQ(cheapest_between(nodes, ranks_of_node, collective, 4 << 20), "two-level")
            << name_of(collective);
      }
    }
  }
}

/// Whether a call of float32 still chooses a plan that maps buffers after one that found none.
bool tries_again(const SelectorOptions& options, Collective collective, std::size_t count) {
  Selector selector(options);
  const CallKey key{.collective = collective, .dtype = Dtype::float32, .root = 0, .count = count};
  const Selection* selection = nullptr;
  EXPECT_TRUE(selector.select(key, &selection).ok());
  EXPECT_NE(selection->staged, nullptr) << "the cheapest plan maps buffers";
  selector.fell_back(selection->kind);
  EXPECT_TRUE(selector.select(key, &selection).ok());
  return selection->staged != nullptr;
}

TEST(Selection,
     of_a_large_call_tries_mapped_buffers_again_unless_ranks_wait_for_a_root_and_a_core) {
  SelectorOptions options;
  options.ranks = 8;
  options.board_scratch_bytes = 4 << 20;
  constexpr std::size_t count = 16 << 20;
  EXPECT_TRUE(tries_again(options, Collective::gather, count));
  options.figures.ranks_per_core = 4;
  EXPECT_FALSE(tries_again(options, Collective::gather, count));
}

class LayeredPrices : public ::testing::TestWithParam<Builder> {};

TEST_P(LayeredPrices, grow_with_the_call_and_are_the_same_on_all_ranks) {
  const Builder& builder = GetParam();
  for (const std::vector<std::uint32_t>& sizes :
       {std::vector<std::uint32_t>{2, 2}, {3, 1}, {1, 4, 2}, {8, 8, 8, 8}}) {
    const Layout layout = layout_of(sizes);
    Shape shape = shape_of(builder, layout.ranks());
    shape.layout = &layout;
    const auto now = [&](std::size_t count) {
      return price(builder, shape, count, Dtype::float32, 16 << 10, tcp());
    };
    const std::int64_t small = now(1), large = now(1 << 20);
    EXPECT_GT(small, 0);
    EXPECT_TRUE(large > small || builder.collective == Collective::barrier);
    shape.rank = layout.ranks() - 1;
    if (shape.root >= 0) shape.root = 1;
    EXPECT_EQ(now(1), small);
    EXPECT_EQ(now(1 << 20), large);
  }
}

/// One rank stands for all of them, also in plans for several nodes.
TEST_P(LayeredPrices, of_one_rank_for_all_are_near_those_of_all_ranks) {
  const Builder& builder = GetParam();
  if (!builder.symmetric) return;
  for (const std::vector<std::uint32_t>& sizes :
       {std::vector<std::uint32_t>{2, 2}, {4, 4}, {2, 2, 2, 2}, {8, 8}}) {
    const Layout layout = layout_of(sizes);
    Shape shape = shape_of(builder, layout.ranks());
    shape.layout = &layout;
    for (const std::size_t count : {1, 1000, 100'000}) {
      const auto now = [&](const Effort& effort) {
        return static_cast<double>(
            price(builder, shape, count, Dtype::float32, 16 << 10, tcp(), effort));
      };
      EXPECT_NEAR(now({}) / now({.every_rank = true}), 1, 0.2)
          << sizes.size() << " nodes of " << sizes[0] << ", " << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfAllBuilders, LayeredPrices, ::testing::ValuesIn(layout_builders()),
                         TestName());

}  // namespace
}  // namespace hocket::internal
