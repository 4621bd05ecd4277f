// Compares fold() with fold_reference(), bit for bit, for every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "reduce/fold.h"
#include "reduce_testing.h"
#include "sanitized.h"
#include "seed.h"

namespace hocket::internal::reduce {
namespace {

constexpr std::size_t guard_bytes = 128;
constexpr unsigned char guard_byte = 0xa5;

/// One operand's memory: at any offset from an aligned address, with guards on both sides.
struct Region {
  std::vector<unsigned char> memory;
  std::size_t offset;
  std::size_t bytes;
  Region(std::size_t size, std::size_t misalignment) : bytes(size) {
    memory.assign(size + 2 * guard_bytes + 64 + misalignment, guard_byte);
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data()) + guard_bytes;
    offset = guard_bytes + (64 - address % 64) % 64 + misalignment;
  }
  void* data() { return memory.data() + offset; }
  bool guards_hold() const {
    const auto intact = [](unsigned char byte) { return byte == guard_byte; };
    return std::all_of(memory.begin(), memory.begin() + offset, intact) &&
           std::all_of(memory.begin() + offset + bytes, memory.end(), intact);
  }
};

/// Everything about a case but its memory, so that both folds can be given their own.
struct Case {
  Dtype dtype;
  Op op;
  std::size_t count;
  std::vector<bool> wide_sources;
  int dst_count;
  bool wide_dst;
  bool finish;
  std::uint32_t divisor;
  Stores stores;
  std::vector<std::size_t> misalignments;  // of sources, then destinations
  int in_place_source;                     // the first destination is this source; -1: none
  bool scaled;                             // with scalars
  std::uint64_t data_seed;

  std::size_t bytes(bool wide) const {
    return count * (wide ? wide_size_of(dtype) : size_of(dtype));
  }
  std::string text() const {
    std::string sources;
    for (bool wide : wide_sources) sources += wide ? 'w' : 'n';
    return std::string(name_of(dtype)) + " " + name_of(op) + ", " + std::to_string(count) +
           " elements, sources " + sources + ", " + std::to_string(dst_count) + " destinations" +
           (wide_dst ? " wide" : "") + (finish ? ", finish" : "") + ", divisor " +
           std::to_string(divisor) + ", stores " + std::to_string(static_cast<int>(stores)) +
           ", in place " + std::to_string(in_place_source) + (scaled ? ", scaled" : "");
  }
};

Case random_case(Dtype dtype, Op op, std::mt19937_64& random) {
  const auto below = [&random](std::uint64_t limit) { return random() % limit; };
  Case c;
  c.dtype = dtype;
  c.op = op;
  c.count = below(8) == 0 ? below(3000) : below(150);
  if (below(40) == 0) c.count = 3000 + below(9000);  // several pieces of each kind
  const std::size_t source_choices[] = {1, 2, 2, 2, 3, 4, 8, 1 + below(80)};
  const std::size_t sources = source_choices[below(8)];
  c.scaled = op == Op::sum && below(3) == 0;
  const bool may_be_wide = is_widened(dtype) || c.scaled;
  const bool all_narrow = below(2) == 0;
  for (std::size_t i = 0; i < sources; ++i) {
    c.wide_sources.push_back(may_be_wide && !all_narrow && below(2) == 0);
  }
  c.dst_count = below(2) == 0 ? 1 : static_cast<int>(1 + below(5));
  c.wide_dst = may_be_wide && below(2) == 0;
  c.finish = below(4) != 0;
  const std::uint32_t divisors[] = {1, 2, 3, 7, 64, 1000003, 0x80000001, 0xffffffff};
  c.divisor = divisors[below(8)];
  c.stores = static_cast<Stores>(below(stores_count));
  const std::size_t operands = sources + static_cast<std::size_t>(c.dst_count);
  const std::size_t unit = below(2) == 0 ? 1 : size_of(dtype);
  for (std::size_t i = 0; i < operands; ++i) {
    c.misalignments.push_back(below(2) == 0 ? 0 : below(64) / unit * unit);
  }
  c.in_place_source = -1;
  if (below(3) == 0) {
    const auto s = below(sources);
    if (c.wide_sources[s] == c.wide_dst) c.in_place_source = static_cast<int>(s);
  }
  c.data_seed = random();
  return c;
}

/// Runs the case on fresh memory; returns each destination's bytes.
std::vector<std::vector<unsigned char>> run(const Case& c, void (*how)(const Fold&)) {
  std::mt19937_64 random(c.data_seed);
  std::vector<std::unique_ptr<Region>> regions;
  std::vector<FoldSource> sources;
  for (std::size_t i = 0; i < c.wide_sources.size(); ++i) {
    const bool wide = c.wide_sources[i];
    regions.push_back(std::make_unique<Region>(c.bytes(wide), c.misalignments[i]));
    fill_elements(regions.back()->data(), c.count, c.dtype, wide, random);
    sources.push_back({regions.back()->data(), wide});
  }
  std::vector<Region*> dst_regions;
  std::vector<void*> dsts;
  for (int i = 0; i < c.dst_count; ++i) {
    if (i == 0 && c.in_place_source >= 0) {
      dst_regions.push_back(regions[static_cast<std::size_t>(c.in_place_source)].get());
    } else {
      const std::size_t at = c.wide_sources.size() + static_cast<std::size_t>(i);
      regions.push_back(std::make_unique<Region>(c.bytes(c.wide_dst), c.misalignments[at]));
      dst_regions.push_back(regions.back().get());
    }
    dsts.push_back(dst_regions.back()->data());
  }
  Fold f;
  f.srcs = sources.data();
  f.src_count = static_cast<int>(sources.size());
  f.dsts = dsts.data();
  f.dst_count = c.dst_count;
  f.wide_dst = c.wide_dst;
  f.count = c.count;
  f.dtype = c.dtype;
  f.op = c.op;
  f.finish = c.finish;
  f.divisor = c.divisor;
  f.stores = c.stores;
  std::vector<std::uint64_t> scalars(sources.size());
  for (std::uint64_t& scalar : scalars) fill_elements(&scalar, 1, c.dtype, true, random);
  if (c.scaled) f.scalars = scalars.data();
  how(f);
  for (const auto& region : regions) EXPECT_TRUE(region->guards_hold());
  std::vector<std::vector<unsigned char>> results;
  for (const Region* region : dst_regions) {
    const auto from = region->memory.begin() + static_cast<std::ptrdiff_t>(region->offset);
    results.emplace_back(from, from + static_cast<std::ptrdiff_t>(region->bytes));
  }
  return results;
}

class every_dtype : public testing::TestWithParam<int> {};

TEST_P(every_dtype, folds_to_the_bits_of_the_reference_on_every_target) {
  const auto dtype = static_cast<Dtype>(GetParam());
  constexpr int cases_per_operator = tests::sanitized ? 40 : 120;
  on_every_target([&](const char* name) {
    ASSERT_STREQ(fold_target(), name);
    std::mt19937_64 random(tests::seed());
    for (int op = 0; op < op_count; ++op) {
      if (!computes(static_cast<Op>(op), dtype)) continue;
      for (int i = 0; i < cases_per_operator; ++i) {
        const Case c = random_case(dtype, static_cast<Op>(op), random);
        const auto expected = run(c, fold_reference);
        const auto actual = run(c, fold);
        ASSERT_EQ(actual, expected) << c.text() << " on " << name;
        for (const auto& dst : actual) ASSERT_EQ(dst, actual[0]) << c.text() << " on " << name;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(fold, every_dtype, testing::Range(0, dtype_count), [](const auto& info) {
  return std::string(name_of(static_cast<Dtype>(info.param)));
});

TEST(fold, every_pair_of_8_bit_operands_gives_the_bits_of_the_reference) {
  std::vector<std::uint8_t> a(65536);
  std::vector<std::uint8_t> b(65536);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::uint8_t>(i >> 8);
    b[i] = static_cast<std::uint8_t>(i);
  }
  const FoldSource sources[] = {{a.data(), false}, {b.data(), false}};
  on_every_target([&](const char* name) {
    for (Dtype dtype : {Dtype::int8, Dtype::uint8, Dtype::float8_e4m3, Dtype::float8_e5m2}) {
      for (int op = 0; op < op_count; ++op) {
        if (!computes(static_cast<Op>(op), dtype)) continue;
        std::vector<std::uint8_t> actual(a.size());
        std::vector<std::uint8_t> expected(a.size());
        Fold f;
        f.srcs = sources;
        f.src_count = 2;
        f.count = a.size();
        f.dtype = dtype;
        f.op = static_cast<Op>(op);
        f.divisor = 3;
        void* dst = actual.data();
        f.dsts = &dst;
        fold(f);
        dst = expected.data();
        fold_reference(f);
        ASSERT_EQ(actual, expected) << name_of(dtype) << " " << name_of(f.op) << " on " << name;
      }
    }
  });
}

}  // namespace
}  // namespace hocket::internal::reduce
