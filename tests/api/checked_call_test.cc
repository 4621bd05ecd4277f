// A call that is like the call before it skips most checks. What it then accepts, the checks would
// have accepted too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "api/arguments.h"

namespace hocket::internal::api {
namespace {

constexpr Collective collectives[] = {
    Collective::all_reduce, Collective::reduce,         Collective::broadcast,
    Collective::all_gather, Collective::gather,         Collective::scatter,
    Collective::all_to_all, Collective::reduce_scatter, Collective::barrier};
constexpr int ranks = 3;

struct Case {
  Collective collective;
  int rank, root;
  std::size_t count;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Collective collective : collectives) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (int root = 0; root < ranks; ++root) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{100}}) {
          all.push_back({collective, rank, row_of(collective).rooted ? root : -1, count});
        }
      }
    }
  }
  return all;
}

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

Arguments arguments_of(const Case& of, void* input, void* output) {
  return {.collective = of.collective,
          .input = input,
          .output = output,
          .count = of.count,
          .root = of.root,
          .datatype = hocketFloat32,
          .op = hocketSum};
}

Call checked(const Arguments& arguments) {
  Call call = call_of(arguments);
  EXPECT_TRUE(narrow(arguments.datatype, arguments.op, nullptr, &call).ok());
  return call;
}

constexpr std::uintptr_t near = 1 << 20, far = 1 << 24;

TEST(CheckedCall, accepts_no_buffers_that_the_checks_refuse) {
  for (const Case& of : cases()) {
    CheckedCall latest;
    const Arguments good = arguments_of(of, at(near), at(far));
    latest.keep(good, checked(good), of.rank, ranks);
    const std::uintptr_t block = of.count * sizeof(float);
    std::vector<std::uintptr_t> places = {0, 1, near, far, UINTPTR_MAX, UINTPTR_MAX - 4 * block};
    const std::uintptr_t end = std::uintptr_t{1} << 57;
    for (const std::uintptr_t from : {near, far, end}) {
      for (std::uintptr_t blocks = 0; blocks <= ranks; ++blocks) {
        for (const int bytes : {-1, 0, 1}) {
          places.push_back(from + blocks * block + static_cast<std::uintptr_t>(bytes));
          places.push_back(from - blocks * block + static_cast<std::uintptr_t>(bytes));
        }
      }
    }
    std::size_t taken = 0;
    for (const std::uintptr_t input : places) {
      for (const std::uintptr_t output : places) {
        const Arguments tried = arguments_of(of, at(input), at(output));
        if (!latest.take(tried)) continue;
        ++taken;
        EXPECT_EQ(at(input), latest.call().input);
        EXPECT_EQ(at(output), latest.call().output);
        EXPECT_TRUE(check_buffers(checked(tried), of.rank, ranks).ok())
            << name_of(of.collective) << " on rank " << of.rank << ", root " << of.root << ", "
            << of.count << " elements, at " << input << " and " << output;
      }
    }
    EXPECT_GT(taken, 0U) << name_of(of.collective);
  }
}

TEST(CheckedCall, takes_a_call_with_other_buffers_apart_and_in_place) {
  for (const Case& of : cases()) {
    CheckedCall latest;
    const Arguments good = arguments_of(of, at(near), at(far));
    EXPECT_FALSE(latest.take(good));  // no call was checked yet
    latest.keep(good, checked(good), of.rank, ranks);
    EXPECT_TRUE(latest.take(good));
    EXPECT_TRUE(latest.take(arguments_of(of, at(far), at(near))));
    const CollectiveRow& row = row_of(of.collective);
    const std::uintptr_t place = static_cast<std::uintptr_t>(of.rank) * of.count * sizeof(float);
    if (row.input == Blocks::per_rank && row.output == Blocks::per_rank) continue;
    const std::uintptr_t input = near + (row.output == Blocks::per_rank ? place : 0);
    const std::uintptr_t output = near + (row.input == Blocks::per_rank ? place : 0);
    EXPECT_TRUE(latest.take(arguments_of(of, at(input), at(output)))) << name_of(of.collective);
  }
}

TEST(CheckedCall, leaves_every_other_difference_to_the_checks) {
  const Case of{Collective::reduce, 0, 1, 100};
  const Arguments good = arguments_of(of, at(near), at(far));
  CheckedCall latest;
  latest.keep(good, checked(good), 0, ranks);
  const auto refused = [&](auto change) {
    Arguments other = good;
    change(other);
    return !latest.take(other);
  };
  EXPECT_TRUE(refused([](Arguments& a) { a.collective = Collective::broadcast; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.count = 101; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.root = 2; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.datatype = hocketInt32; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.datatype = -1; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.op = hocketMax; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.op = 1000; }));
  EXPECT_TRUE(latest.take(good));
}

/// Their objects may be gone, or be others, at the next call.
TEST(CheckedCall, keeps_no_message_and_nothing_that_the_user_made) {
  const Arguments good = arguments_of({Collective::all_reduce, 0, -1, 100}, at(near), at(far));
  const auto kept = [&](auto change) {
    CheckedCall latest;
    latest.keep(good, checked(good), 0, ranks);
    Call call = checked(good);
    change(call);
    latest.keep(good, call, 0, ranks);
    return latest.take(good);
  };
  EXPECT_TRUE(kept([](Call&) {}));
  EXPECT_FALSE(kept([](Call& call) { call.op = Op::user; }));
  EXPECT_FALSE(kept([](Call& call) { call.op = Op::pre_mul_sum; }));
  EXPECT_FALSE(kept([](Call& call) { call.unit = 2; }));
  EXPECT_FALSE(kept([](Call& call) { call.collective = Collective::send; }));
}

}  // namespace
}  // namespace hocket::internal::api
