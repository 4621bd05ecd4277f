// The selector's choice among candidates whose prices differ little.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "collectives/algorithms/builders.h"
#include "collectives/select/selector.h"
#include "selector_options.h"

namespace hocket::internal {
namespace {

TEST(Selector, of_nearly_equal_prices_takes_the_least_work) {
  SelectorOptions options = two_ranks();
  options.one_node = false;
  options.figures.port_ns_per_byte = 0.3;
  bool differs = false;
  for (const Collective collective :
       {Collective::scatter, Collective::gather, Collective::broadcast, Collective::reduce}) {
    for (std::size_t size = 0; size < 60; ++size) {
      const CallKey key{.collective = collective,
                        .dtype = Dtype::float32,
                        .root = 0,
                        .count = (4 + size % 4) << (size / 4)};
      options.ranks = 2 << (size % 3);
      Selector selector(options);
      std::vector<Selector::Priced> candidates;
      const Selection* selection = nullptr;
      ASSERT_TRUE(selector.candidates(key, &candidates).ok());
      ASSERT_TRUE(selector.select(key, &selection).ok());
      const std::int64_t least = candidates.front().price_ps;
      const auto chosen = std::ranges::find_if(candidates, [&](const Selector::Priced& one) {
        return selection->program->algorithm() == std::string(one.builder->algorithm);
      });
      EXPECT_LE(chosen->price_ps, least + least / 20);
      differs |= chosen != candidates.begin();
      for (const Selector::Priced& one : candidates) {
        EXPECT_GT(one.effects.work_ps, 0);
        EXPECT_EQ(one.effects.hops, 0U) << "each rank has a core";
        if (one.price_ps > least + least / 20) break;
        EXPECT_LE(chosen->effects.work_ps, one.effects.work_ps);
      }
    }
  }
  EXPECT_TRUE(differs) << "the cheapest always had the least work";
}

TEST(Selector, two_ranks_take_the_fewest_hops_of_nearly_equal_prices_where_there_is_no_root) {
  SelectorOptions options = two_ranks();
  options.one_node = false;
  bool more_work = false;
  for (std::size_t count = 1 << 10; count <= 1 << 18; count = count / 4 * 5) {
    Selector selector(options);
    const CallKey key{
        .collective = Collective::all_reduce, .dtype = Dtype::float32, .count = count};
    std::vector<Selector::Priced> candidates;
    const Selection* selection = nullptr;
    ASSERT_TRUE(selector.candidates(key, &candidates).ok());
    ASSERT_TRUE(selector.select(key, &selection).ok());
    const auto chosen = std::ranges::find_if(candidates, [&](const Selector::Priced& each) {
      return selection->program == each.program;
    });
    ASSERT_NE(chosen, candidates.end());
    const std::int64_t least = candidates.front().price_ps;
    for (const Selector::Priced& each : candidates) {
      EXPECT_GT(each.effects.hops, 0U);
      if (each.price_ps > least + least / 20) break;
      EXPECT_LE(chosen->effects.hops, each.effects.hops) << each.builder->algorithm;
      more_work |= each.effects.work_ps < chosen->effects.work_ps;
    }
  }
  EXPECT_TRUE(more_work) << "the fewest hops always had the least work";
}

TEST(Selector, of_nearly_equal_prices_takes_the_fewest_hops_where_ranks_share_cores) {
  SelectorOptions options = two_ranks();
  options.ranks = 6;
  options.one_node = false;
  options.figures.port_ns_per_byte = 0.3;
  options.figures.turn_ns = 10'000;
  options.figures.ranks_per_core = 3;
  bool differs = false;
  for (const Collective collective : {Collective::all_gather, Collective::all_reduce,
                                      Collective::reduce_scatter, Collective::reduce}) {
    std::map<std::string, std::uint32_t> hops;  // of the smallest call
    for (std::size_t size = 0; size < 60; ++size) {
      const CallKey key{.collective = collective,
                        .dtype = Dtype::float32,
                        .root = row_of(collective).rooted ? 0 : -1,
                        .count = (4 + size % 3) << (size / 3)};
      Selector selector(options);
      std::vector<Selector::Priced> candidates;
      const Selection* selection = nullptr;
      ASSERT_TRUE(selector.candidates(key, &candidates).ok());
      ASSERT_TRUE(selector.select(key, &selection).ok());
      std::map<std::string, Effects> effects;
      for (const Selector::Priced& one : candidates) {
        effects[one.builder->algorithm] = one.effects;
        const auto [first, is_first] = hops.try_emplace(one.builder->algorithm, one.effects.hops);
        const bool large = key.root >= 0 && key.count > 1 << 20;
        if (large || (key.root >= 0 && one.effects.hops == 0)) {
          EXPECT_GT(size, 3U) << "a small call has hops";
          EXPECT_EQ(one.effects.hops, 0U) << first->first << ", " << key.count;
        } else {
          EXPECT_EQ(one.effects.hops, first->second) << first->first << ", " << key.count;
        }
      }
      if (collective == Collective::all_gather) {
        EXPECT_EQ(effects["one-shot"].hops, 1U) << key.count;
        EXPECT_EQ(effects["ring"].hops, 3U) << "half of the ranks in each direction";
      }
      const Effects chosen = effects[selection->program->algorithm()];
      const std::int64_t least = candidates.front().price_ps;
      for (const Selector::Priced& one : candidates) {
        if (one.price_ps > least + least / 20) break;
        EXPECT_LE(chosen.hops, one.effects.hops);
        differs |= one.effects.work_ps < chosen.work_ps;
      }
    }
  }
  EXPECT_TRUE(differs) << "the fewest hops always had the least work";
}

/// 4 ranks on 2 nodes, whose ranks share 2 cores of one machine.
SelectorOptions four_ranks_on_two_nodes() {
  SelectorOptions options = two_by_two_ranks();
  options.figures.ranks_per_core = 2;
  options.figures.sync_ns = 1900;
  options.figures.message_ns = 3000;
  options.figures.message_overhead_ns = 6000;
  options.figures.link_ns_per_byte = options.figures.port_ns_per_byte = 0.2;
  return options;
}

/// The algorithms that the selector compares for a call whose root is rank 0, cheapest first, and
/// the algorithm that it selects.
struct Choice {
  Choice(Selector& selector, Collective collective, std::size_t count) {
    const CallKey key{.collective = collective, .dtype = Dtype::float32, .root = 0, .count = count};
    const Selection* selection = nullptr;
    EXPECT_TRUE(selector.candidates(key, &candidates).ok());
    EXPECT_TRUE(selector.select(key, &selection).ok());
    for (const Selector::Priced& each : candidates) {
      if (each.program == selection->program) chosen = &each;
    }
  }
  std::vector<Selector::Priced> candidates;
  const Selector::Priced* chosen = nullptr;
};

TEST(Selector, small_rooted_calls_in_turns_take_the_fewest_hops_of_messages_within_20_percent) {
  bool beyond_5_percent = false;
  for (const double turn_ns : {0.0, 500.0, 1000.0, 2000.0, 4000.0}) {
    for (const Collective collective :
         {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
      for (const std::size_t count : {2, 32, 128, 512}) {
        SelectorOptions options = four_ranks_on_two_nodes();
        options.layout = std::make_shared<const Layout>(std::vector<std::uint32_t>{0, 1, 2, 3});
        options.figures.turn_ns = turn_ns;
        Selector selector(options);
        const Choice choice(selector, collective, count);
        const auto& [candidates, chosen] = choice;
        ASSERT_NE(chosen, nullptr);
        const std::int64_t least = candidates.front().price_ps;
        for (const Selector::Priced& other : candidates) {
          ASSERT_EQ(Medium::messages, other.builder->medium);
          EXPECT_GT(other.effects.hops, 0U) << "small, also where a turn seems to cost nothing";
          if (other.price_ps > least + least / 5) continue;
          EXPECT_LE(chosen->effects.hops, other.effects.hops) << other.builder->algorithm;
        }
        beyond_5_percent |= chosen->price_ps > least + least / 20;
      }
    }
  }
  EXPECT_TRUE(beyond_5_percent) << "the choice was always within 5 % of the cheapest";
}

TEST(Selector, ranks_of_nodes_that_share_cores_run_ahead_by_leaders_in_small_rooted_calls) {
  bool others_cost_less = false;
  for (const double turn_ns : {0.0, 1000.0, 4000.0}) {
    for (const Collective collective :
         {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
      for (const std::size_t count : {2, 32, 128, 512}) {
        SelectorOptions options = four_ranks_on_two_nodes();
        options.figures.turn_ns = turn_ns;
        options.figures.sync_ns = 500 + turn_ns;
        Selector selector(options);
        const Choice choice(selector, collective, count);
        ASSERT_NE(choice.chosen, nullptr);
        EXPECT_STREQ("leaders", choice.chosen->builder->algorithm) << name_of(collective);
        EXPECT_GT(choice.chosen->operations_ahead, 0);
        const std::int64_t least = choice.candidates.front().price_ps;
        others_cost_less |= choice.chosen->price_ps > least + least / 20;
      }
    }
  }
  EXPECT_TRUE(others_cost_less);
}

TEST(Selector, ranks_that_share_cores_run_ahead_in_rooted_calls) {
  SelectorOptions options = two_ranks();
  options.ranks = 4;
  options.figures.ranks_per_core = 2;
  std::map<std::size_t, std::size_t> in_turn;  // sizes at which the cheapest was not chosen
  for (const Collective collective :
       {Collective::gather, Collective::scatter, Collective::broadcast, Collective::reduce}) {
    for (std::size_t count = 256; count <= 1 << 18; count = count / 2 * 3) {
      Selector selector(options);
      const Choice choice(selector, collective, count);
      const auto& [candidates, chosen] = choice;
      ASSERT_NE(chosen, nullptr);
      const std::int64_t ahead = chosen->operations_ahead;
      ASSERT_TRUE(ahead == 0 || ahead >= 8) << ahead;
      const ProgramHeader& header = chosen->program->header();
      EXPECT_FALSE(ahead > 0 && header.arrives_first) << "each rank awaits all others";
      const std::int64_t least = candidates.front().cost_ps;
      EXPECT_LE(chosen->cost_ps, least * (ahead >= 16 ? 210 : ahead > 0 ? 158 : 105) / 100);
      if (chosen->cost_ps > least + least / 20) ++in_turn[static_cast<std::size_t>(ahead)];
      for (const Selector::Priced& other : candidates) {
        EXPECT_EQ(other.cost_ps, (other.price_ps + other.effects.mean_ps) / 2);
        const bool cheap = other.cost_ps <= least / 2 * 3;
        EXPECT_FALSE(ahead == 0 && cheap && other.operations_ahead > 0)
            << other.builder->algorithm << " of " << count;
      }
    }
  }
  EXPECT_EQ(in_turn[0], 0U);
  EXPECT_GT(in_turn[8], 0U) << "the cheapest candidate always let ranks run ahead";
  EXPECT_GT(in_turn[16], 0U) << "the cheapest candidate always let ranks run ahead";
}

/// Of buffers that are not mapped. Where ranks share cores, a plan may be chosen that takes longer
/// to the end of the last rank, if most ranks end earlier. Where each rank has a core, the last
/// rank alone counts.
/// Without a root, at up to 5/4 of the cost.
TEST(Selector, ranks_that_share_cores_stage_instead_of_mapping_buffers_if_that_costs_little_more) {
  SelectorOptions options = two_ranks();
  options.ranks = 8;
  options.figures.sync_ns = 10'000;
  std::size_t dearer = 0, maps = 0;
  for (const double ranks_per_core : {4.0, 1.0}) {
    options.figures.ranks_per_core = ranks_per_core;
    for (const Collective collective : {Collective::all_gather, Collective::all_to_all}) {
      for (std::size_t count = 64; count <= 1 << 17; count = count / 2 * 3) {
        const CallKey key{.collective = collective, .dtype = Dtype::float32, .count = count};
        Selector selector(options);
        std::vector<Selector::Priced> candidates;
        const Selection* selection = nullptr;
        ASSERT_TRUE(selector.candidates(key, &candidates).ok());
        ASSERT_TRUE(selector.select(key, &selection).ok());
        const Selector::Priced& cheapest = candidates.front();
        if (!cheapest.program->header().maps_input) continue;
        const auto staged = std::ranges::find_if(candidates, [](const Selector::Priced& each) {
          return each.builder->medium == Medium::node && !each.program->header().maps_input;
        });
        ASSERT_NE(staged, candidates.end());
        const bool little_more = staged->cost_ps <= cheapest.cost_ps / 4 * 5;
        const bool equal = staged->cost_ps <= cheapest.cost_ps / 20 * 21;
        const bool chosen_maps = selection->program->header().maps_input;
        if (equal) continue;  // of equal costs, other reasons decide
        EXPECT_EQ(chosen_maps, ranks_per_core <= 1 || !little_more) << count;
        dearer += ranks_per_core > 1 && little_more;
        maps += ranks_per_core > 1 && chosen_maps;
      }
    }
  }
  EXPECT_GT(dearer, 0U);
  EXPECT_GT(maps, 0U);
}

TEST(Selector, the_mean_over_the_ranks_counts_where_they_share_cores) {
  SelectorOptions options = two_ranks();
  options.ranks = 8;
  const auto differing = [&](double ranks_per_core) {
    options.figures.ranks_per_core = ranks_per_core;
    std::size_t differ = 0;
    for (std::size_t count = 40'000; count <= 400'000; count = count / 2 * 3) {
      Selector selector(options);
      const CallKey key{
          .collective = Collective::reduce, .dtype = Dtype::float32, .root = 0, .count = count};
      std::vector<Selector::Priced> all;
      const Selection* selection = nullptr;
      EXPECT_TRUE(selector.candidates(key, &all).ok() &&
                  selector.look(key, false, &selection).ok());
      std::erase_if(all, [](const Selector::Priced& each) {
        return each.program->header().maps_input || each.program->header().maps_output;
      });
      const auto chosen = *std::ranges::find(all, selection->program, &Selector::Priced::program);
      const auto least = *std::ranges::min_element(all, {}, &Selector::Priced::price_ps);
      const bool differs = chosen.price_ps > least.price_ps + least.price_ps / 20;
      differ += differs;
      EXPECT_TRUE(!differs || chosen.effects.mean_ps < least.effects.mean_ps) << count;
    }
    return differ;
  };
  EXPECT_GT(differing(4), 0U);
  EXPECT_EQ(differing(1), 0U);
}

/// Between far cores at up to a third more than the least price; instead of a plan that maps
/// buffers only with 128 scratches.
TEST(Selector, ranks_whose_cores_are_far_apart_run_ahead_if_that_costs_little_more) {
  SelectorOptions options = two_ranks();
  options.figures.sync_ns = 250;
  std::map<std::size_t, std::size_t> dearer;  // by operations ahead
  bool direct_instead = false;
  for (const Collective collective :
       {Collective::gather, Collective::scatter, Collective::broadcast, Collective::reduce}) {
    for (std::size_t count = 256; count <= 1 << 18; count = count / 2 * 3) {
      Selector selector(options);
      const Choice choice(selector, collective, count);
      const auto& [candidates, chosen] = choice;
      ASSERT_NE(chosen, nullptr);
      const Selector::Priced& cheapest = candidates.front();
      const auto ahead = static_cast<std::size_t>(chosen->operations_ahead);
      const bool maps =
          cheapest.program->header().maps_input || cheapest.program->header().maps_output;
      const std::int64_t least = cheapest.price_ps;
      EXPECT_LE(chosen->price_ps, least * (ahead >= 16 ? 140 : ahead > 0 ? 123 : 105) / 100);
      if (chosen->price_ps <= least + least / 20) continue;
      ++dearer[ahead];
      EXPECT_TRUE(!maps || ahead == 128) << count;
      direct_instead |= maps;
    }
  }
  EXPECT_EQ(dearer[0], 0U);
  EXPECT_GT(dearer[128], 0U);
  EXPECT_TRUE(direct_instead) << "the cheapest candidate never mapped buffers";
}

/// Without mapped buffers. `whole`: the chosen program copies whole blocks to scratch.
TEST(Selector, large_calls_of_ranks_with_a_core_each_copy_in_chunks_if_that_costs_no_more) {
  SelectorOptions options = two_ranks();
  options.figures.sync_ns = 250;
  options.figures.memory_ns_per_byte = 0.06;
  options.figures.peer_ns_per_byte = 0.12;
  std::size_t small_and_whole = 0, cheaper_but_whole = 0, ahead_but_whole = 0;
  for (const Collective collective :
       {Collective::gather, Collective::scatter, Collective::broadcast}) {
    for (std::size_t count = 16; count <= 1 << 19; count *= 2) {
      const CallKey key{
          .collective = collective, .dtype = Dtype::float32, .root = 0, .count = count};
      Selector selector(options);
      std::vector<Selector::Priced> candidates;
      const Selection* selection = nullptr;
      ASSERT_TRUE(selector.candidates(key, &candidates).ok());
      ASSERT_TRUE(selector.look(key, false, &selection).ok());
      const auto find = [&](const char* name) {
        return std::ranges::find_if(candidates, [&](const Selector::Priced& each) {
          return std::string(each.builder->algorithm) == name;
        });
      };
      const ProgramHeader& chosen = selection->program->header();
      const bool whole = chosen.uses_node && chosen.single_chunk;
      const auto one_shot = find("one-shot"), staged = find("staged");
      ASSERT_NE(staged, candidates.end());
      if (selection->price_ps < 20'000'000) {
        small_and_whole += whole;
      } else if (one_shot != candidates.end() &&
                 staged->cost_ps <= one_shot->cost_ps + one_shot->cost_ps / 20) {
        EXPECT_FALSE(whole) << count;
        cheaper_but_whole += one_shot->cost_ps < staged->cost_ps;
        ahead_but_whole += one_shot->operations_ahead > 0;
      }
    }
  }
  EXPECT_GT(small_and_whole, 0U);
  EXPECT_GT(cheaper_but_whole, 0U) << "no plan of whole blocks was the cheaper one";
  EXPECT_GT(ahead_but_whole, 0U) << "by no plan of whole blocks would ranks run ahead";
}

TEST(Selector, ranks_do_not_run_ahead_where_each_has_a_core_or_blocks_are_large) {
  SelectorOptions options = two_ranks();
  options.ranks = 4;
  options.figures.sync_ns = 80;
  const auto most_ahead = [&](Collective collective, std::size_t count) {
    const CallKey key{.collective = collective,
                      .dtype = Dtype::float32,
                      .root = row_of(collective).rooted ? 0 : -1,
                      .count = count};
    std::vector<Selector::Priced> candidates;
    EXPECT_TRUE(Selector(options).candidates(key, &candidates).ok());
    const auto most = std::ranges::max_element(candidates, {}, &Selector::Priced::operations_ahead);
    return most->operations_ahead;
  };
  EXPECT_EQ(most_ahead(Collective::gather, 8192), 0) << "each rank has a core";
  options.figures.ranks_per_core = 2;
  EXPECT_EQ(most_ahead(Collective::gather, 1024), 128) << "4 KiB of scratch";
  EXPECT_EQ(most_ahead(Collective::gather, 8192), 16) << "32 KiB";
  EXPECT_EQ(most_ahead(Collective::gather, 8193), 8) << "up to 128 KiB";
  EXPECT_EQ(most_ahead(Collective::scatter, 8192), 8) << "the root has a block for each rank";
  EXPECT_EQ(most_ahead(Collective::gather, 32769), 0) << "two scratches: no rank is far ahead";
  EXPECT_EQ(most_ahead(Collective::all_reduce, 8192), 0) << "every rank waits for all others";
}

}  // namespace
}  // namespace hocket::internal
