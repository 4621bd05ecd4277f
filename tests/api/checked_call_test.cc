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
    Collective::all_reduce, Collective::reduce,  Collective::broadcast,  Collective::all_gather,
    Collective::gather,     Collective::scatter, Collective::all_to_all, Collective::reduce_scatter,
    Collective::barrier,    Collective::send,    Collective::recv};
constexpr int ranks = 3;

struct Case {
  Collective collective;
  int rank, root;
  std::size_t count;
};

bool has_root(Collective collective) { return row_of(collective).rooted || is_p2p(collective); }

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Collective collective : collectives) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (int root = 0; root < ranks; ++root) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{100}}) {
          all.push_back({collective, rank, has_root(collective) ? root : -1, count});
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

/// Addresses of buffers that lie beside one another, overlap, or do not fit into the address space.
std::vector<std::uintptr_t> places_of(std::uintptr_t block) {
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
  return places;
}

TEST(CheckedCall, accepts_no_buffers_that_the_checks_refuse) {
  for (const Case& of : cases()) {
    CheckedCall latest;
    const Arguments good = arguments_of(of, at(near), at(far));
    latest.keep(good, nullptr, checked(good), of.rank, ranks);
    const std::vector<std::uintptr_t> places = places_of(of.count * sizeof(float));
    std::size_t taken = 0;
    for (const std::uintptr_t input : places) {
      for (const std::uintptr_t output : places) {
        const Arguments tried = arguments_of(of, at(input), at(output));
        if (!latest.take(tried, nullptr)) continue;
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
    EXPECT_FALSE(latest.take(good, nullptr));  // no call was checked yet
    latest.keep(good, nullptr, checked(good), of.rank, ranks);
    EXPECT_TRUE(latest.take(good, nullptr));
    EXPECT_TRUE(latest.take(arguments_of(of, at(far), at(near)), nullptr));
    const CollectiveRow& row = row_of(of.collective);
    const std::uintptr_t place = static_cast<std::uintptr_t>(of.rank) * of.count * sizeof(float);
    if (row.input == Blocks::per_rank && row.output == Blocks::per_rank) continue;
    const std::uintptr_t input = near + (row.output == Blocks::per_rank ? place : 0);
    const std::uintptr_t output = near + (row.input == Blocks::per_rank ? place : 0);
    EXPECT_TRUE(latest.take(arguments_of(of, at(input), at(output)), nullptr))
        << name_of(of.collective);
  }
}

TEST(CheckedCall, leaves_every_other_difference_to_the_checks) {
  const Case of{Collective::reduce, 0, 1, 100};
  const Arguments good = arguments_of(of, at(near), at(far));
  CheckedCall latest;
  latest.keep(good, nullptr, checked(good), 0, ranks);
  const auto refused = [&](auto change) {
    Arguments other = good;
    change(other);
    return !latest.take(other, nullptr);
  };
  EXPECT_TRUE(refused([](Arguments& a) { a.collective = Collective::broadcast; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.count = 101; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.root = 2; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.datatype = hocketInt32; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.datatype = -1; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.op = hocketMax; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.op = 1000; }));
  EXPECT_TRUE(latest.take(good, nullptr));
}

/// Their objects may be gone, or be others, at the next call.
TEST(CheckedCall, keeps_nothing_that_the_user_made) {
  const Arguments good = arguments_of({Collective::all_reduce, 0, -1, 100}, at(near), at(far));
  const auto kept = [&](auto change) {
    CheckedCall latest;
    latest.keep(good, nullptr, checked(good), 0, ranks);
    Call call = checked(good);
    change(call);
    latest.keep(good, nullptr, call, 0, ranks);
    return latest.take(good, nullptr);
  };
  EXPECT_TRUE(kept([](Call&) {}));
  EXPECT_FALSE(kept([](Call& call) { call.op = Op::user; }));
  EXPECT_FALSE(kept([](Call& call) { call.op = Op::pre_mul_sum; }));
  EXPECT_FALSE(kept([](Call& call) { call.unit = 2; }));
}

TEST(CheckedCall, is_kept_of_sends_of_receives_and_of_collectives_apart) {
  LatestCalls latest;
  const Arguments reduce = arguments_of({Collective::all_reduce, 0, -1, 100}, at(near), at(far));
  const Arguments send = arguments_of({Collective::send, 0, 1, 7}, at(near), nullptr);
  const Arguments recv = arguments_of({Collective::recv, 0, 2, 9}, nullptr, at(far));
  for (const Arguments& call : {reduce, send, recv}) {
    latest.of(call.collective).keep(call, nullptr, checked(call), 0, ranks);
  }
  for (const Arguments& call : {reduce, send, recv}) {
    EXPECT_TRUE(latest.of(call.collective).take(call, nullptr)) << name_of(call.collective);
  }
  Arguments other = send;
  other.root = 2;
  EXPECT_FALSE(latest.of(other.collective).take(other, nullptr));
}

// ---- Calls with blocks of different counts.

/// The arrays of a v-variant.
struct Arrays {
  std::vector<std::size_t> counts, displacements;  // the second empty: NULL

  VaryingArguments arguments_of(Collective collective) const {
    const std::size_t* const given = displacements.empty() ? nullptr : displacements.data();
    const VaryingArguments::Side side{counts.data(), given, "counts", "displs"};
    const CollectiveRow& row = row_of(collective);
    return {.input = row.input == Blocks::per_rank ? side : VaryingArguments::Side{},
            .output = row.output == Blocks::per_rank ? side : VaryingArguments::Side{},
            .own_count_name = "count"};
  }
};

const Arrays arrays[] = {
    {{100, 50, 150}, {}}, {{100, 50, 150}, {0, 250, 100}}, {{100, 100, 100}, {7, 200, 400}},
    {{100, 0, 100}, {}},  {{0, 100, 0}, {9, 0, 5}},        {{0, 0, 0}, {}}};

std::vector<Case> varying_cases(const Arrays& of) {
  std::vector<Case> all;
  for (const Collective collective : collectives) {
    if (!may_vary(row_of(collective))) continue;
    for (int rank = 0; rank < ranks; ++rank) {
      for (int root = 0; root < ranks; ++root) {
        if (!row_of(collective).rooted && root > 0) continue;
        all.push_back({collective, rank, row_of(collective).rooted ? root : -1,
                       of.counts[static_cast<std::size_t>(rank)]});
      }
    }
  }
  return all;
}

Status check_varying(const Arguments& arguments, const VaryingArguments& varying, int rank,
                     Call* call) {
  *call = checked(arguments);
  return take_blocks(varying, rank, ranks, call);
}

TEST(CheckedCall, of_a_v_variant_accepts_no_buffers_that_the_checks_refuse) {
  for (const Arrays& given : arrays) {
    for (const Case& of : varying_cases(given)) {
      const VaryingArguments varying = given.arguments_of(of.collective);
      CheckedCall latest;
      const Arguments good = arguments_of(of, at(near), at(far));
      Call call;
      ASSERT_TRUE(check_varying(good, varying, of.rank, &call).ok()) << name_of(of.collective);
      latest.keep(good, &varying, call, of.rank, ranks);
      EXPECT_TRUE(latest.take(good, &varying));
      for (const std::uintptr_t input : places_of(200)) {
        for (const std::uintptr_t output : places_of(200)) {
          const Arguments tried = arguments_of(of, at(input), at(output));
          if (!latest.take(tried, &varying)) continue;
          EXPECT_TRUE(check_varying(tried, varying, of.rank, &call).ok())
              << name_of(of.collective) << " on rank " << of.rank << ", root " << of.root << ", at "
              << input << " and " << output;
          EXPECT_EQ(*call.varying, *latest.call().varying);
          EXPECT_EQ(call.count, latest.call().count);
        }
      }
    }
  }
}

TEST(CheckedCall, of_a_v_variant_is_taken_in_place) {
  const Arrays& given = arrays[1];
  for (const Case& of : varying_cases(given)) {
    if (of.collective == Collective::all_to_all) continue;
    const VaryingArguments varying = given.arguments_of(of.collective);
    CheckedCall latest;
    const Arguments good = arguments_of(of, at(near), at(far));
    Call call;
    ASSERT_TRUE(check_varying(good, varying, of.rank, &call).ok());
    latest.keep(good, &varying, call, of.rank, ranks);
    const bool gathers = row_of(of.collective).output == Blocks::per_rank;
    const std::uintptr_t own =
        near + given.displacements[static_cast<std::size_t>(of.rank)] * sizeof(float);
    EXPECT_TRUE(latest.take(arguments_of(of, at(gathers ? own : near), at(gathers ? near : own)),
                            &varying) ||
                (row_of(of.collective).rooted && of.rank != of.root))
        << name_of(of.collective) << " on rank " << of.rank;
  }
}

/// The caller may write other numbers to the same arrays.
TEST(CheckedCall, of_a_v_variant_leaves_other_blocks_to_the_checks) {
  for (const Collective collective : collectives) {
    if (!may_vary(row_of(collective))) continue;
    const Case of{collective, 0, row_of(collective).rooted ? 0 : -1, 100};
    Arrays given = arrays[1];
    const VaryingArguments varying = given.arguments_of(collective);
    const Arguments good = arguments_of(of, at(near), at(far));
    CheckedCall latest;
    Call call;
    ASSERT_TRUE(check_varying(good, varying, 0, &call).ok());
    latest.keep(good, &varying, call, 0, ranks);
    for (std::vector<std::size_t>* array : {&given.counts, &given.displacements}) {
      for (std::size_t& number : *array) {
        ++number;
        EXPECT_FALSE(latest.take(good, &varying)) << name_of(collective);
        --number;
      }
    }
    EXPECT_TRUE(latest.take(good, &varying));
    EXPECT_FALSE(latest.take(good, nullptr)) << "blocks of one size";
    Arrays packed = given;
    packed.displacements.clear();
    const VaryingArguments without = packed.arguments_of(collective);
    EXPECT_FALSE(latest.take(good, &without)) << "displacements were given before";
    const VaryingArguments none{.own_count_name = "count"};
    EXPECT_FALSE(latest.take(good, &none)) << "counts are NULL";
    ASSERT_TRUE(check_varying(good, without, 0, &call).ok());
    latest.keep(good, &without, call, 0, ranks);
    EXPECT_TRUE(latest.take(good, &without));
    EXPECT_FALSE(latest.take(good, &varying)) << "no displacements were given before";
    latest.keep(good, nullptr, checked(good), 0, ranks);
    EXPECT_FALSE(latest.take(good, &varying)) << "the call before had blocks of one size";
  }
}

}  // namespace
}  // namespace hocket::internal::api
