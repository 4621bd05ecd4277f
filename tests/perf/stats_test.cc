// The figures that are computed from times, and the interval that each method measures.
#include "stats.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "clock.h"

namespace hocket::perf {
namespace {

TEST(Stats, a_average_chooses_among_the_ranks) {
  const ByRank ranks{{4, 1}, {2, 5}, {9, 9}};
  using Values = std::vector<double>;
  EXPECT_EQ(average_ranks(ranks, 3, Average::rank0), (Values{4, 1}));
  EXPECT_EQ(average_ranks(ranks, 3, Average::mean), (Values{5, 5}));
  EXPECT_EQ(average_ranks(ranks, 3, Average::min), (Values{2, 1}));
  EXPECT_EQ(average_ranks(ranks, 3, Average::max), (Values{9, 9}));
  EXPECT_EQ(average_ranks(ranks, 2, Average::max), (Values{4, 5}));
}

TEST(Stats, percentiles_are_nearest_rank) {
  std::vector<double> values;
  for (int i = 200; i >= 1; --i) values.push_back(i);
  const Summary s = summarise(values);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.p50, 100);
  EXPECT_EQ(s.p95, 190);
  EXPECT_EQ(s.p99, 198);
  EXPECT_EQ(s.max, 200);
  EXPECT_EQ(s.mean, 100.5);
  const Summary alone = summarise({7});
  EXPECT_EQ(alone.p99, 7);
  EXPECT_EQ(alone.variation_percent, 0);
  EXPECT_NEAR(summarise({1, 3}).variation_percent, 50, 1e-9);
}

TEST(Stats, an_aligned_time_is_from_the_last_start_to_the_last_end) {
  const Aligned aligned =
      align({{10, 100}, {14, 101}, {12, 100}}, {{20, 105}, {21, 107}, {25, 104}});
  EXPECT_EQ(aligned.time_us, (std::vector<double>{25 - 14, 107 - 101}));
  EXPECT_EQ(aligned.skew_us, (std::vector<double>{4, 1}));
}

TEST(Stats, the_overlap_is_the_hidden_part_of_the_pure_time) {
  Overlap overlap;
  overlap.pure_us = 100;
  overlap.compute_us = 100;
  overlap.overall_us = 100;  // the operation took no time of its own
  EXPECT_EQ(overlap.percent(), 100);
  overlap.overall_us = 200;  // one after the other
  EXPECT_EQ(overlap.percent(), 0);
  overlap.overall_us = 125;
  EXPECT_EQ(overlap.percent(), 75);
  overlap.overall_us = 300;
  EXPECT_EQ(overlap.percent(), 0);
}

TEST(Stats, as_many_results_are_picked_as_wanted) {
  for (const std::size_t total : {1u, 2u, 7u, 100u}) {
    for (const std::size_t wanted : {0u, 1u, 2u, 5u, 100u, 1000u}) {
      std::size_t count = 0;
      for (std::size_t i = 0; i < total; ++i) count += picked(i, total, wanted);
      EXPECT_EQ(count, std::min(total, wanted)) << wanted << " of " << total;
      EXPECT_EQ(picked(total - 1, total, wanted), wanted > 0);
      EXPECT_EQ(picked(0, total, wanted), wanted > 1 || wanted == total);
    }
  }
}

TEST(Stats, buffers_above_4_kib_rotate_through_twice_the_caches) {
  constexpr std::size_t mib = 1 << 20, cache = 32 * mib;
  const auto out = [](std::size_t bytes, std::size_t operations, std::size_t group = 1) {
    return slots_for(bytes, bytes, operations, group, false, cache).out;
  };
  EXPECT_EQ(out(4096, 1000), 64u);
  EXPECT_EQ(out(8192, 100'000), 8192u);  // 64 MiB
  EXPECT_EQ(out(mib, 1000), 64u);
  EXPECT_EQ(out(48 * mib, 1000), 2u);
  EXPECT_EQ(out(64 * mib, 1000), 1u);
  EXPECT_EQ(out(mib, 20), 20u);           // no more than are used
  EXPECT_EQ(out(mib, 40 * 48, 48), 96u);  // whole groups
}

TEST(Stats, the_second_use_of_an_output_has_another_input) {
  constexpr std::size_t mib = 1 << 20;
  for (const std::size_t bytes : {std::size_t{8}, mib, 32 * mib, 256 * mib}) {
    const Slots slots =
        slots_for(bytes, std::max<std::size_t>(bytes, 128), 1000, 1, false, 8 * mib);
    std::vector<std::size_t> last(slots.out, slots.in);
    for (std::size_t k = 0; k < 1000; ++k) {
      EXPECT_NE(last[k % slots.out], k % slots.in) << bytes << " bytes, call " << k;
      last[k % slots.out] = k % slots.in;
    }
    const Slots in_place = slots_for(bytes, bytes, 1000, 1, true, 8 * mib);
    EXPECT_EQ(in_place.in, in_place.out);
  }
}

TEST(Stats, as_many_buffers_as_asked_for) {
  constexpr std::size_t mib = 1 << 20;
  for (const std::size_t bytes : {std::size_t{8}, mib}) {
    const Slots one = slots_for(bytes, 2 * mib, 1000, 1, false, 32 * mib, 1);
    EXPECT_EQ(one.in, 1u);
    EXPECT_EQ(one.out, 1u);
    EXPECT_EQ(slots_for(bytes, 2 * mib, 1000, 4, false, 32 * mib, 1).out, 4u);  // a whole group
  }
}

TEST(Stats, the_cache_is_known) {
  EXPECT_GE(cache_bytes(), std::size_t{16} << 10);
  EXPECT_LE(cache_bytes(), std::size_t{4} << 30);
}

TEST(Clock, the_shortest_round_trip_gives_the_offset) {
  // The other clock is 1000 ahead. Answers of long round trips were late on one way only.
  const ClockOffset offset =
      offset_of({{100, 1190, 200}, {300, 1305, 310}, {400, 1401, 450}, {500, 1510, 520}});
  EXPECT_EQ(offset.offset_us, 1000);
  EXPECT_EQ(offset.uncertainty_us, 5);
  EXPECT_EQ(offset.at_us, 305);
}

TEST(Clock, the_error_of_an_offset_is_within_its_uncertainty) {
  for (const double late : {0.0, 3.0, 10.0}) {  // of 10 us, so much on the way there
    const ClockOffset offset = offset_of({{100, 1000 + 100 + late, 110}});
    EXPECT_LE(std::abs(offset.offset_us - 1000), offset.uncertainty_us);
  }
}

TEST(Clock, drift_between_two_measurements_is_linear) {
  const ClockOffset before{0, 1000, 5}, after{1'000'000, 1020, 5};
  EXPECT_NEAR(on_this_clock(1000, before, after), 0, 1e-6);
  EXPECT_NEAR(on_this_clock(1'001'020, before, after), 1'000'000, 0.01);
  EXPECT_NEAR(on_this_clock(501'010, before, after), 500'000, 0.01);
  EXPECT_NEAR(on_this_clock(1005, before, before), 5, 1e-9);  // one measurement
}

TEST(Clock, a_process_has_one_clock_id) { EXPECT_EQ(clock_id(), clock_id()); }

}  // namespace
}  // namespace hocket::perf
