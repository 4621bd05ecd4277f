// Splits: the members and the order of the new communicators, and when they end.
#include "api/process.h"
#include "matrix/ranks.h"

namespace {

namespace api = hocket::internal::api;
using hocket::internal::Session;

using ranks::Env;
using ranks::Rank;
using ranks::settle;
using ranks::sum_of_ones;

class Split : public testing::TestWithParam<const char*> {
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}}};
};

TEST_P(Split, makes_a_communicator_for_each_color_in_order_of_keys) {
  ranks::run_ranks(7, [](Rank& self) {
    const int color = self.rank == 3 ? HOCKET_SPLIT_NOCOLOR : self.rank % 2;
    const int key = self.rank < 4 ? 5 : -self.rank;  // the last first; equal keys by rank
    hocketComm_t part = self.comm;
    ASSERT_HOCKET(hocketCommSplit(self.comm, color, key, &part, nullptr));
    if (color == HOCKET_SPLIT_NOCOLOR) {
      EXPECT_EQ(nullptr, part);
      return;
    }
    const std::vector<int> members = color == 0 ? std::vector{6, 4, 0, 2} : std::vector{5, 1};
    int count = 0, rank = -1;
    EXPECT_HOCKET(hocketCommCount(part, &count));
    EXPECT_HOCKET(hocketCommUserRank(part, &rank));
    ASSERT_EQ(static_cast<int>(members.size()), count);
    EXPECT_EQ(self.rank, members[static_cast<std::size_t>(rank)]);
    std::vector<int> all(members.size());
    EXPECT_HOCKET(hocketAllGather(&self.rank, all.data(), 1, hocketInt32, part, nullptr));
    EXPECT_EQ(members, all);
    EXPECT_HOCKET(hocketCommDestroy(part));
  });
}

TEST(LastAlgorithm, is_none_until_a_collective_of_ones_own_has_run) {
  const ranks::Env env{{{"HOCKET_ALGORITHM", "inline"}}};
  ranks::run_ranks(2, [](Rank& self) {
    const char *algorithm = nullptr, *transport = nullptr;
    EXPECT_HOCKET(hocketCommLastAlgorithm(self.comm, &algorithm, &transport));
    EXPECT_STREQ("none", algorithm) << "what making the communicator took is not the user's";
    EXPECT_STREQ("none", transport);
    EXPECT_EQ(2, sum_of_ones(self.comm));
    EXPECT_HOCKET(hocketCommLastAlgorithm(self.comm, &algorithm, &transport));
    EXPECT_STREQ("inline", algorithm);
    EXPECT_STREQ("shm", transport);
    EXPECT_HOCKET(hocketCommDestroy(self.comm));
    self.comm = nullptr;
    EXPECT_STREQ("inline", algorithm) << "the name outlives the communicator";
  });
}

TEST_P(Split, may_be_split_again_and_destroyed_in_any_order) {
  ranks::run_ranks(4, [](Rank& self) {
    hocketComm_t half = nullptr, quarter = nullptr, again = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, self.rank / 2, 0, &half, nullptr));
    ASSERT_HOCKET(hocketCommSplit(half, self.rank % 2, 0, &quarter, nullptr));
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, -self.rank, &again, nullptr));
    EXPECT_EQ(1, sum_of_ones(quarter));
    EXPECT_EQ(4, sum_of_ones(again));
    EXPECT_EQ(2, sum_of_ones(half));
    std::vector<hocketComm_t> order = {half, self.comm, quarter};
    std::rotate(order.begin(), order.begin() + self.rank % 3, order.end());
    for (hocketComm_t comm : order) {
      EXPECT_HOCKET(hocketCommDestroy(comm));
    }
    self.comm = nullptr;
    EXPECT_EQ(4, sum_of_ones(again)) << "it outlives what it was split from";
    EXPECT_HOCKET(hocketCommDestroy(again));
  });
}

TEST_P(Split, an_error_of_a_part_is_the_parts_own) {
  ranks::run_ranks(4, [](Rank& self) {
    hocketComm_t half = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, self.rank / 2, 0, &half, nullptr));
    self.meet();
    if (self.rank < 2) {
      EXPECT_HOCKET(hocketCommAbort(half));
      EXPECT_EQ(hocketAborted, hocketBarrier(half, nullptr));
    } else {
      EXPECT_EQ(2, sum_of_ones(half));
    }
    EXPECT_EQ(4, sum_of_ones(self.comm));
    self.meet();
    EXPECT_HOCKET(hocketCommDestroy(half));
    EXPECT_EQ(4, sum_of_ones(self.comm));
  });
}

TEST_P(Split, without_blocking_takes_its_turn_among_the_calls_on_the_parent) {
  ranks::run_ranks(4, [](Rank& self) {
    hocketConfig_t config = ranks::patient_config();
    config.blocking = 0;
    std::vector<hocketComm_t> parts(8);
    for (hocketComm_t& part : parts) {
      EXPECT_EQ(hocketInProgress, hocketCommSplit(self.comm, self.rank / 2, 0, &part, &config));
      EXPECT_EQ(4, sum_of_ones(self.comm)) << "the parent is used while the split runs";
    }
    EXPECT_HOCKET(hocketCommDestroy(self.comm)) << "and may go before the parts are made";
    self.comm = nullptr;
    for (hocketComm_t part : parts) {
      EXPECT_EQ(hocketSuccess, settle(part)) << hocketGetLastError(part);
      int x = 1;
      EXPECT_EQ(hocketInProgress,
                hocketAllReduce(&x, &x, 1, hocketInt32, hocketSum, part, nullptr));
      EXPECT_EQ(hocketSuccess, settle(part)) << hocketGetLastError(part);
      EXPECT_EQ(2, x);
    }
    for (hocketComm_t part : parts) EXPECT_HOCKET(hocketCommDestroy(part));
  });
}

TEST_P(Split, without_blocking_and_without_a_color_gives_none) {
  ranks::run_ranks(3, [](Rank& self) {
    hocketConfig_t config = ranks::patient_config();
    config.blocking = 0;
    hocketComm_t all = nullptr, part = self.comm;
    // From a parent that blocks, and from one that does not.
    const int color = self.rank == 1 ? HOCKET_SPLIT_NOCOLOR : 7;
    EXPECT_EQ(color == 7 ? hocketInProgress : hocketSuccess,
              hocketCommSplit(self.comm, color, 0, &part, &config));
    EXPECT_EQ(color == 7, part != nullptr);
    if (part != nullptr) {
      EXPECT_EQ(hocketSuccess, settle(part)) << hocketGetLastError(part);
    }
    EXPECT_HOCKET(hocketCommDestroy(part));

    EXPECT_EQ(hocketInProgress, hocketCommSplit(self.comm, 0, 0, &all, &config));
    ASSERT_EQ(hocketSuccess, settle(all)) << hocketGetLastError(all);
    EXPECT_EQ(hocketInProgress, hocketCommSplit(all, color, 0, &part, nullptr));
    EXPECT_EQ(color == 7, part != nullptr);
    if (part != nullptr) {
      EXPECT_EQ(hocketSuccess, settle(part)) << hocketGetLastError(part);
    }
    EXPECT_EQ(hocketSuccess, settle(all)) << hocketGetLastError(all);
    EXPECT_HOCKET(hocketCommDestroy(all));
    EXPECT_HOCKET(hocketCommDestroy(part));
  });
}

std::size_t total(const Session::Held& held) {
  return held.faults + held.closed_comm_ids + held.data + held.offered + held.wanted +
         held.requests;
}

TEST_P(Split, again_and_again_keeps_nothing_of_the_parts_that_are_gone) {
  // Of shared memory more than the bounds below, which slow builds cannot reach.
  const bool tcp = std::string(GetParam()) == "tcp";
  const int splits = tcp ? ranks::repetitions(5000, 300)
                         : ranks::repetitions(25'000, ranks::sanitized ? 500 : 9000);
  ranks::run_ranks(3, [splits](Rank& self) {
    Session::Held early;
    for (int i = 0; i < splits && !testing::Test::HasFailure(); ++i) {
      hocketComm_t part = nullptr;
      // Rank 2 has a communicator of its own, and receives faults of a communicator that it never
      // joins.
      ASSERT_HOCKET(hocketCommSplit(self.comm, self.rank / 2, 0, &part, nullptr));
      ASSERT_HOCKET(hocketCommDestroy(part));
      if (i == 20) early = self.comm->communicator->held();
    }
    self.meet();
    // Messages in flight must arrive, and posted work must be done, before the count.
    ASSERT_HOCKET(hocketBarrier(self.comm, nullptr));
    const Session::Held late = self.comm->communicator->held();
    EXPECT_LE(late.faults, early.faults + 16);
    EXPECT_LE(late.data, early.data + 4);
    EXPECT_LE(late.offered, early.offered + 4);
    EXPECT_LE(late.wanted, early.wanted + 4);
    EXPECT_LE(late.requests, early.requests + 4);
    EXPECT_LE(late.closed_comm_ids, 2u * 4096);
    EXPECT_GT(total(early), 0u);
    self.meet();
  });
  EXPECT_LE(api::Process::current().retired_comms.count(), api::RetiredComms::most + 64);
}

TEST(Handles, of_many_destroyed_communicators_are_told_apart_in_bounded_memory) {
  const auto destroyed = [] {
    hocketComm_t handle = api::make_handle().release();
    EXPECT_HOCKET(hocketCommDestroy(handle));
    return handle;
  };
  for (std::size_t i = 0; i < api::RetiredComms::most + 100; ++i) destroyed();
  EXPECT_EQ(api::RetiredComms::most, api::Process::current().retired_comms.count());
  const hocketComm_t old = destroyed();
  for (std::size_t i = 0; i < api::RetiredComms::most - 1; ++i) destroyed();
  EXPECT_EQ(hocketInvalidArgument, hocketCommDestroy(old));
  EXPECT_NE(std::string::npos, std::string(hocketGetLastError(nullptr)).find("destroyed before"));
  EXPECT_EQ(api::RetiredComms::most, api::Process::current().retired_comms.count());
}

INSTANTIATE_TEST_SUITE_P(Transports, Split, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
