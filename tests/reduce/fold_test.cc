// Folds with results computed by hand, by the reference and for every instruction set.
#include "reduce/fold.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <thread>

#include "reduce_testing.h"
#include "seed.h"

namespace hocket::internal::reduce {
namespace {

/// More elements than a vector of any type has, and not a multiple of a vector.
constexpr std::size_t repeats = 77;

constexpr Stores every_way[] = {Stores::together, Stores::one_by_one, Stores::first_cached,
                                Stores::non_temporal, Stores::second_cached};

/// Folds one element per source, repeated through vectors and tails, and returns the result; fails
/// if the positions differ.
template <class T>
T fold_one(Dtype dtype, Op op, const std::vector<T>& operands, std::uint32_t divisor,
           void (*how)(const Fold&)) {
  std::vector<std::vector<T>> memory;
  std::vector<FoldSource> sources;
  for (const T& operand : operands) memory.emplace_back(repeats, operand);
  for (const auto& operand : memory) sources.push_back({operand.data(), false});
  std::vector<T> result(repeats);
  void* const dst = result.data();
  Fold f;
  f.srcs = sources.data();
  f.src_count = static_cast<int>(sources.size());
  f.dsts = &dst;
  f.count = repeats;
  f.dtype = dtype;
  f.op = op;
  f.divisor = divisor;
  how(f);
  for (const T& element : result) EXPECT_EQ(element, result[0]);
  return result[0];
}

struct Example {
  Dtype dtype;
  Op op;
  std::vector<std::uint64_t> operands;  // bits
  std::uint64_t expected;
  std::uint32_t divisor = 1;
};

template <class T>
void check_as(const Example& e, void (*how)(const Fold&), const char* name) {
  std::vector<T> operands;
  for (const std::uint64_t bits : e.operands) operands.push_back(static_cast<T>(bits));
  EXPECT_EQ(fold_one<T>(e.dtype, e.op, operands, e.divisor, how), static_cast<T>(e.expected))
      << name_of(e.dtype) << " " << name_of(e.op) << " of " << std::hex << e.operands[0] << ", "
      << e.operands.back() << " on " << name;
}

void check(const std::vector<Example>& examples) {
  const auto check_all = [&](void (*how)(const Fold&), const char* name) {
    for (const Example& e : examples) {
      switch (size_of(e.dtype)) {
        case 1:
          check_as<std::uint8_t>(e, how, name);
          break;
        case 2:
          check_as<std::uint16_t>(e, how, name);
          break;
        case 4:
          check_as<std::uint32_t>(e, how, name);
          break;
        default:
          check_as<std::uint64_t>(e, how, name);
      }
    }
  };
  check_all(fold_reference, "reference");
  on_every_target([&](const char* name) { check_all(fold, name); });
}

TEST(fold, integers_wrap) {
  check({{Dtype::int8, Op::sum, {127, 1}, 0x80},
         {Dtype::uint8, Op::sum, {255, 2}, 1},
         {Dtype::int8, Op::prod, {0x80, 0xff}, 0x80},
         {Dtype::uint8, Op::prod, {17, 16}, 16},
         {Dtype::int16, Op::sum, {0x7fff, 1}, 0x8000},
         {Dtype::uint16, Op::sum, {0xffff, 3}, 2},
         {Dtype::int16, Op::prod, {0x8000, 0xffff}, 0x8000},
         {Dtype::uint16, Op::prod, {0x101, 0x101}, 0x201},
         {Dtype::int32, Op::sum, {0x7fffffff, 1}, 0x80000000},
         {Dtype::int32, Op::prod, {0x80000000, 0xffffffff}, 0x80000000},
         {Dtype::uint32, Op::prod, {0x10001, 0x10001}, 0x20001},
         {Dtype::int64, Op::sum, {0x7fffffffffffffff, 1}, 0x8000000000000000},
         {Dtype::uint64, Op::prod, {0x100000001, 0x100000001}, 0x200000001},
         {Dtype::int64, Op::prod, {0x8000000000000000, 0xffffffffffffffff}, 0x8000000000000000}});
}

/// The sum of the operands, each multiplied by the scalar.
template <class T>
T scaled_sum_of(Dtype dtype, const std::vector<T>& operands, std::uint64_t scalar,
                void (*how)(const Fold&)) {
  std::vector<std::vector<T>> memory;
  std::vector<FoldSource> sources;
  for (const T& operand : operands) memory.emplace_back(repeats, operand);
  for (const auto& operand : memory) sources.push_back({operand.data(), false});
  const std::vector<std::uint64_t> scalars(operands.size(), scalar);
  std::vector<T> result(repeats);
  void* const dst = result.data();
  how({.srcs = sources.data(),
       .src_count = static_cast<int>(sources.size()),
       .dsts = &dst,
       .count = repeats,
       .dtype = dtype,
       .scalars = scalars.data()});
  for (const T& element : result) EXPECT_EQ(element, result[0]);
  return result[0];
}

TEST(fold, scalars_multiply_before_the_result_is_rounded) {
  const auto check_all = [](void (*how)(const Fold&), const char* name) {
    // 3 x 1.5078125^2 = 6.820495...: 6.8125 in bf16. Rounded products would give 6.84375.
    const auto half_up = std::bit_cast<std::uint32_t>(1.5078125f);
    EXPECT_EQ(0x40da,
              scaled_sum_of<std::uint16_t>(Dtype::bfloat16, {0x3fc1, 0x3fc1, 0x3fc1}, half_up, how))
        << name;
    EXPECT_EQ(0x4012, scaled_sum_of<std::uint16_t>(Dtype::bfloat16, {0x3fc1}, half_up, how))
        << name << ": a single operand is no copy";
    EXPECT_EQ((300 + 600) % 256, scaled_sum_of<std::uint8_t>(Dtype::uint8, {100, 200}, 3, how))
        << name << ": integers wrap";
    EXPECT_EQ(
        std::bit_cast<std::uint64_t>(-7.5),
        scaled_sum_of<std::uint64_t>(
            Dtype::float64, {std::bit_cast<std::uint64_t>(1.0), std::bit_cast<std::uint64_t>(2.0)},
            std::bit_cast<std::uint64_t>(-2.5), how))
        << name;
    // Each product is rounded: with x = 1 + 2^-12, x^2 - 1 loses its last bit.
    const float x = 1 + 0x1p-12f;
    EXPECT_EQ(
        std::bit_cast<std::uint32_t>(0x1p-11f),
        scaled_sum_of<std::uint32_t>(
            Dtype::float32, {std::bit_cast<std::uint32_t>(-1 / x), std::bit_cast<std::uint32_t>(x)},
            std::bit_cast<std::uint32_t>(x), how))
        << name << ": no fused multiplication and addition";
  };
  check_all(fold_reference, "reference");
  on_every_target([&](const char* name) { check_all(fold, name); });
}

TEST(fold, integer_extremes_know_the_sign) {
  check({{Dtype::int8, Op::max, {0x80, 1}, 1},
         {Dtype::uint8, Op::max, {0x80, 1}, 0x80},
         {Dtype::int16, Op::min, {0xffff, 1}, 0xffff},
         {Dtype::uint16, Op::min, {0xffff, 1}, 1},
         {Dtype::int32, Op::min, {0xffffffff, 1}, 0xffffffff},
         {Dtype::uint32, Op::min, {0xffffffff, 1}, 1},
         {Dtype::int64, Op::max, {0x8000000000000000, 1}, 1},
         {Dtype::uint64, Op::max, {0x8000000000000000, 1}, 0x8000000000000000}});
}

TEST(fold, integer_averages_truncate_towards_zero) {
  const auto negative = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  check({{Dtype::int8, Op::avg, {negative(-3), negative(-4)}, negative(-3), 2},
         {Dtype::uint8, Op::avg, {3, 4}, 3, 2},
         {Dtype::int16, Op::avg, {negative(-7), 0}, negative(-3), 2},
         {Dtype::uint16, Op::avg, {0xfffe, 0}, 0x7fff, 2},
         {Dtype::int32, Op::avg, {negative(-7), 0}, negative(-3), 2},
         {Dtype::int32, Op::avg, {0x80000000, 0}, negative(-2147483647 / 3), 3},
         {Dtype::uint32, Op::avg, {0xffffffff, 0}, 1, 0xffffffff},
         {Dtype::uint32, Op::avg, {0xfffffffe, 0}, 0, 0xffffffff},
         {Dtype::int64, Op::avg, {negative(-7), 0}, negative(-3), 2},
         {Dtype::int64, Op::avg, {0x7fffffffffffffff, 0}, 0x7fffffffffffffff / 3, 3},
         {Dtype::int64, Op::avg, {5, 0}, 0, 0xffffffff},
         {Dtype::uint64, Op::avg, {0xffffffffffffffff, 0}, 0x5555555555555555, 3}});
}

TEST(fold, bitwise_operators_work_on_every_integer_type) {
  for (const Dtype dtype : {Dtype::int8, Dtype::uint8, Dtype::int16, Dtype::uint16, Dtype::int32,
                            Dtype::uint32, Dtype::int64, Dtype::uint64}) {
    const std::uint64_t a = 0xf0f0f0f0f0f0f0f0, b = 0x3c3c3c3c3c3c3c3c, c = 0xaaaaaaaaaaaaaaaa;
    check({{dtype, Op::bit_and, {a, b, c}, 0x2020202020202020},
           {dtype, Op::bit_or, {a, b, c}, 0xfefefefefefefefe},
           {dtype, Op::bit_xor, {a, b, c}, 0x6666666666666666}});
  }
}

TEST(fold, nan_wins_and_becomes_canonical) {
  for (Op op : {Op::sum, Op::prod, Op::max, Op::min, Op::avg}) {
    for (bool first : {true, false}) {
      const auto pair = [first](std::uint64_t nan, std::uint64_t one) {
        return first ? std::vector{nan, one} : std::vector{one, nan};
      };
      check({{Dtype::float32, op, pair(0xff800123, 0x3f800000), 0x7fc00000, 2},
             {Dtype::float32, op, pair(0xffc00001, 0x7fffffff), 0x7fc00000, 2},
             {Dtype::float64, op, pair(0xfff0000000000001, 0x3ff0000000000000), 0x7ff8000000000000,
              2},
             {Dtype::float16, op, pair(0xfd01, 0x3c00), 0x7e00, 2},
             {Dtype::bfloat16, op, pair(0xff81, 0x3f80), 0x7fc0, 2},
             {Dtype::float8_e4m3, op, pair(0xff, 0x38), 0x7f, 2},
             {Dtype::float8_e5m2, op, pair(0xfd, 0x3c), 0x7e, 2}});
    }
  }
  check({{Dtype::float32, Op::sum, {0x7f800000, 0xff800000}, 0x7fc00000},
         {Dtype::float32, Op::prod, {0x7f800000, 0x80000000}, 0x7fc00000},
         {Dtype::float64, Op::sum, {0xfff0000000000000, 0x7ff0000000000000}, 0x7ff8000000000000}});
}

TEST(fold, minus_zero_is_below_plus_zero) {
  for (bool minus_first : {true, false}) {
    const auto zeros = [minus_first](std::uint64_t minus) {
      return minus_first ? std::vector<std::uint64_t>{minus, 0}
                         : std::vector<std::uint64_t>{0, minus};
    };
    check({{Dtype::float32, Op::max, zeros(0x80000000), 0},
           {Dtype::float32, Op::min, zeros(0x80000000), 0x80000000},
           {Dtype::float64, Op::max, zeros(0x8000000000000000), 0},
           {Dtype::float64, Op::min, zeros(0x8000000000000000), 0x8000000000000000},
           {Dtype::float16, Op::max, zeros(0x8000), 0},
           {Dtype::bfloat16, Op::min, zeros(0x8000), 0x8000},
           {Dtype::float8_e4m3, Op::min, zeros(0x80), 0x80},
           {Dtype::float8_e5m2, Op::max, zeros(0x80), 0}});
  }
  check({{Dtype::float32, Op::max, {0x80000000, 0x80000000}, 0x80000000}});
}

TEST(fold, small_formats_are_rounded_once) {
  // 2048 + 1 + 1: rounding after each sum in fp16 would lose both ones.
  check({{Dtype::float16, Op::sum, {0x6800, 0x3c00, 0x3c00}, 0x6801},
         // 256 + 1 + 1 in bf16, whose numbers near 256 are two apart.
         {Dtype::bfloat16, Op::sum, {0x4380, 0x3f80, 0x3f80}, 0x4381},
         // (65504 + 65504) / 2: the sum is beyond fp16, the average is not.
         {Dtype::float16, Op::avg, {0x7bff, 0x7bff}, 0x7bff, 2},
         {Dtype::float8_e4m3, Op::avg, {0x7e, 0x7e}, 0x7e, 2}});
}

TEST(fold, overflow_gives_what_the_format_has_for_it) {
  check({{Dtype::float32, Op::sum, {0x7f7fffff, 0x7f7fffff}, 0x7f800000},
         {Dtype::float16, Op::sum, {0xfbff, 0xfbff}, 0xfc00},
         {Dtype::bfloat16, Op::sum, {0x7f7f, 0x7f7f}, 0x7f80},
         {Dtype::float8_e4m3, Op::sum, {0x7e, 0x7e}, 0x7f},
         {Dtype::float8_e4m3, Op::sum, {0xfe, 0xfe}, 0x7f},  // NaN has no sign
         {Dtype::float8_e4m3, Op::sum, {0x7e, 0x58}, 0x7e},  // 448 + 16 = 464: ties to 448
         {Dtype::float8_e5m2, Op::sum, {0x7b, 0x7b}, 0x7c},
         {Dtype::float8_e5m2, Op::sum, {0xfb, 0xfb}, 0xfc}});
}

TEST(fold, subnormals_are_kept) {
  check({{Dtype::float32, Op::sum, {1, 1}, 2},
         {Dtype::float64, Op::sum, {1, 1}, 2},
         {Dtype::float16, Op::sum, {1, 1}, 2},
         {Dtype::bfloat16, Op::sum, {1, 1}, 2},
         {Dtype::float8_e4m3, Op::sum, {1, 7}, 8},
         {Dtype::float8_e5m2, Op::sum, {0x81, 0x83}, 0x84}});
}

TEST(fold, floating_averages_divide) {
  check({{Dtype::float32, Op::avg, {0x3f800000, 0x40000000, 0x40000000}, 0x3fd55555, 3},  // 5/3
         {Dtype::float64, Op::avg, {0x3ff0000000000000, 0}, 0x3fd5555555555555, 3},
         {Dtype::bfloat16, Op::avg, {0x3f80, 0}, 0x3eab, 3}});
}

void expect_copied(Dtype dtype, std::size_t count, Stores stores, Op op, const char* name) {
  Fold f;
  f.dtype = dtype;
  f.op = op;
  f.divisor = 5;
  f.finish = op != Op::avg;  // an unfinished average is not divided
  f.stores = stores;
  f.count = count;
  const std::size_t bytes = f.count * size_of(f.dtype);
  std::vector<unsigned char> from(bytes);
  for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<unsigned char>(i * 37 >> 3);
  std::vector<unsigned char> first(bytes + 1);
  std::vector<unsigned char> second(bytes);
  const FoldSource source{from.data(), false};
  void* const dsts[] = {first.data() + 1, second.data(), from.data()};
  f.srcs = &source;
  f.dsts = dsts;
  f.dst_count = 3;
  fold(f);
  EXPECT_EQ(second, from) << name << ", " << count;
  EXPECT_EQ(0, std::memcmp(first.data() + 1, from.data(), bytes)) << name << ", " << count;
}

TEST(fold, a_copy_keeps_every_bit) {
  on_every_target([](const char* name) {
    for (int i = 0; i < dtype_count; ++i) {
      const auto dtype = static_cast<Dtype>(i);
      // A copy to several places goes by pieces of 16 KiB: also with a short one at the end.
      for (const std::size_t count : {std::size_t{40000}, (32 << 10) / size_of(dtype) + 3}) {
        for (const Stores stores : every_way) {
          for (const Op op : {Op::max, Op::avg}) expect_copied(dtype, count, stores, op, name);
        }
      }
    }
  });
}

TEST(fold, zero_elements_touch_nothing) {
  const FoldSource sources[] = {{nullptr, false}, {nullptr, false}};
  void* const dsts[] = {nullptr, nullptr};
  for (int dtype = 0; dtype < dtype_count; ++dtype) {
    for (const int src_count : {1, 2}) {
      for (const Stores stores : every_way) {
        Fold f;
        f.srcs = sources;
        f.src_count = src_count;
        f.dsts = dsts;
        f.dst_count = 2;
        f.dtype = static_cast<Dtype>(dtype);
        f.op = Op::avg;
        f.divisor = 2;
        f.stores = stores;
        fold(f);
        fold_reference(f);
      }
    }
  }
}

TEST(fold, partial_results_in_two_steps_equal_one_fold) {
  // (a + b) stays wide, then + c and the division: the same bits as all three at once.
  std::mt19937_64 random(tests::seed());
  constexpr std::size_t count = 1000;
  for (Dtype dtype :
       {Dtype::float16, Dtype::bfloat16, Dtype::float8_e4m3, Dtype::float8_e5m2, Dtype::float32}) {
    std::vector<std::vector<unsigned char>> inputs;
    for (int i = 0; i < 3; ++i) {
      inputs.emplace_back(count * size_of(dtype));
      fill_elements(inputs.back().data(), count, dtype, false, random);
    }
    const FoldSource sources[] = {
        {inputs[0].data(), false}, {inputs[1].data(), false}, {inputs[2].data(), false}};
    std::vector<unsigned char> at_once(count * size_of(dtype));
    std::vector<unsigned char> stepwise(count * size_of(dtype));
    std::vector<unsigned char> partial(count * wide_size_of(dtype));
    Fold f;
    f.srcs = sources;
    f.src_count = 3;
    void* dst = at_once.data();
    f.dsts = &dst;
    f.count = count;
    f.dtype = dtype;
    f.op = Op::avg;
    f.divisor = 3;
    fold(f);
    f.src_count = 2;
    f.wide_dst = true;
    f.finish = false;
    dst = partial.data();
    fold(f);
    const FoldSource rest[] = {{partial.data(), true}, {inputs[2].data(), false}};
    f.srcs = rest;
    f.wide_dst = false;
    f.finish = true;
    dst = stepwise.data();
    fold(f);
    EXPECT_EQ(stepwise, at_once) << name_of(dtype);
  }
}

TEST(fold, many_threads_may_make_the_first_call) {
  forget_targets();
  constexpr std::size_t count = 1000;
  std::vector<float> a(count, 1.5f);
  std::vector<float> b(count, 2.25f);
  std::vector<std::vector<float>> results(4, std::vector<float>(count));
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&a, &b, &result] {
      const FoldSource sources[] = {{a.data(), false}, {b.data(), false}};
      void* const dst = result.data();
      Fold f;
      f.srcs = sources;
      f.src_count = 2;
      f.dsts = &dst;
      f.count = count;
      fold(f);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, std::vector<float>(count, 3.75f));
}

}  // namespace
}  // namespace hocket::internal::reduce
