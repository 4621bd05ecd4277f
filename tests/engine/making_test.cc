// Communicators that a group makes, so that one thread can make and use those of several ranks.
#include <array>
#include <numeric>

#include "api/process.h"
#include "matrix/ranks.h"

namespace {

namespace api = hocket::internal::api;
using ranks::Env;
using ranks::Rank;

using Comms = std::vector<hocketComm_t>;

void destroy(const Comms& comms) {
  for (hocketComm_t comm : comms) EXPECT_HOCKET(hocketCommDestroy(comm));
}

/// All ranks of a job, made by this thread.
Comms all_ranks(int n, hocketConfig_t config = ranks::patient_config()) {
  hocketUniqueId id;
  EXPECT_HOCKET(hocketGetUniqueId(&id));
  Comms comms(static_cast<std::size_t>(n));
  EXPECT_HOCKET(hocketGroupStart());
  for (int rank = 0; rank < n; ++rank) {
    EXPECT_HOCKET(
        hocketCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], n, id, rank, &config));
  }
  EXPECT_HOCKET(hocketGroupEnd());
  return comms;
}

/// Calls that the ranks make together, from one thread.
template <typename Call>
void together(const Comms& comms, Call call) {
  EXPECT_HOCKET(hocketGroupStart());
  for (std::size_t i = 0; i < comms.size(); ++i) EXPECT_HOCKET(call(comms[i], i));
  EXPECT_HOCKET(hocketGroupEnd());
}

void expect_sums(const Comms& comms) {
  std::vector<int> x(comms.size());
  std::iota(x.begin(), x.end(), 1);
  together(comms, [&](hocketComm_t comm, std::size_t i) {
    return hocketAllReduce(&x[i], &x[i], 1, hocketInt32, hocketSum, comm, nullptr);
  });
  const int n = static_cast<int>(comms.size());
  EXPECT_EQ(std::vector<int>(comms.size(), n * (n + 1) / 2), x);
}

class OneThread : public testing::TestWithParam<const char*> {
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}}};
};

TEST_P(OneThread, makes_and_uses_all_ranks_of_a_job_in_groups) {
  const Comms comms = all_ranks(4);
  for (int rank = 0; rank < 4; ++rank) {
    int asked = -1;
    EXPECT_HOCKET(hocketCommUserRank(comms[static_cast<std::size_t>(rank)], &asked));
    EXPECT_EQ(rank, asked);
  }
  // Collectives of all sizes, several in a group, and messages in a ring.
  for (const std::size_t count : {1, 1000, 300'000}) {
    std::vector<std::vector<int>> sums(4), gathered(4), got(4);
    EXPECT_HOCKET(hocketGroupStart());
    for (std::size_t i = 0; i < 4; ++i) {
      sums[i].assign(count, static_cast<int>(i));
      gathered[i].assign(4 * count, -1);
      got[i].assign(count, -1);
      int* const mine = gathered[i].data() + i * count;
      std::fill_n(mine, count, static_cast<int>(i));
      EXPECT_HOCKET(hocketAllReduce(sums[i].data(), sums[i].data(), count, hocketInt32, hocketSum,
                                    comms[i], nullptr));
      EXPECT_HOCKET(
          hocketAllGather(mine, gathered[i].data(), count, hocketInt32, comms[i], nullptr));
      const int next = static_cast<int>((i + 1) % 4), previous = static_cast<int>((i + 3) % 4);
      EXPECT_HOCKET(hocketSend(mine, count, hocketInt32, next, comms[i], nullptr));
      EXPECT_HOCKET(hocketRecv(got[i].data(), count, hocketInt32, previous, comms[i], nullptr));
    }
    ASSERT_HOCKET(hocketGroupEnd());
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(std::vector<int>(count, 6), sums[i]);
      EXPECT_EQ(std::vector<int>(count, static_cast<int>((i + 3) % 4)), got[i]);
      for (std::size_t rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(static_cast<int>(rank), gathered[i][rank * count]);
        EXPECT_EQ(static_cast<int>(rank), gathered[i][rank * count + count - 1]);
      }
    }
  }
  destroy(comms);
}

TEST_P(OneThread, splits_duplicates_and_groups_its_ranks) {
  const Comms comms = all_ranks(4);
  Comms halves(4), copies(4), odd(2), none(1, comms[0]);
  together(comms, [&](hocketComm_t comm, std::size_t i) {
    return hocketCommSplit(comm, static_cast<int>(i % 2), 0, &halves[i], nullptr);
  });
  expect_sums({halves[0], halves[2]});
  expect_sums({halves[1], halves[3]});
  together(comms, [&](hocketComm_t comm, std::size_t i) {
    return hocketCommDuplicate(comm, &copies[i], nullptr);
  });
  expect_sums(copies);
  const std::array members{3, 1};
  EXPECT_HOCKET(hocketGroupStart());
  EXPECT_HOCKET(hocketCommCreateGroup(comms[3], members.data(), 2, 0, &odd[0], nullptr));
  EXPECT_HOCKET(hocketCommCreateGroup(comms[1], members.data(), 2, 0, &odd[1], nullptr));
  EXPECT_HOCKET(hocketGroupEnd());
  expect_sums(odd);
  Comms three(4);
  together(comms, [&](hocketComm_t comm, std::size_t i) {
    return hocketCommSplit(comm, i == 0 ? HOCKET_SPLIT_NOCOLOR : 1, 0, &three[i], nullptr);
  });
  EXPECT_EQ(nullptr, three[0]);
  three.erase(three.begin());
  expect_sums(three);
  for (const Comms& made : {halves, copies, odd, three, comms}) destroy(made);
}
INSTANTIATE_TEST_SUITE_P(Transports, OneThread, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(InitAll, makes_all_ranks_in_this_process) {
  Comms comms(4, reinterpret_cast<hocketComm_t>(&comms));
  const std::array devices{7, -1, 7, 0};  // not read
  ASSERT_HOCKET(hocketCommInitAll(comms.data(), 4, devices.data()));
  expect_sums(comms);
  Comms alone(1), more(3);
  EXPECT_HOCKET(hocketGroupStart());
  EXPECT_HOCKET(hocketCommInitAll(alone.data(), 1, nullptr));
  EXPECT_HOCKET(hocketCommInitAll(more.data(), 3, nullptr));
  EXPECT_EQ(nullptr, more[2]) << "the group has not ended";
  EXPECT_HOCKET(hocketGroupEnd());
  expect_sums(alone);
  expect_sums(more);
  for (const Comms& made : {comms, alone, more}) destroy(made);
}

TEST(Making, without_blocking_reports_on_each_communicator) {
  hocketUniqueId id;
  ASSERT_HOCKET(hocketGetUniqueId(&id));
  hocketConfig_t config = ranks::patient_config();
  config.blocking = 0;
  Comms comms(3);
  ASSERT_HOCKET(hocketGroupStart());
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_HOCKET(
        hocketCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], 3, id, rank, &config));
  }
  EXPECT_EQ(hocketInProgress, hocketGroupEnd());
  for (hocketComm_t comm : comms) EXPECT_EQ(hocketSuccess, ranks::settle(comm));
  std::array<int, 3> x{1, 1, 1};
  ASSERT_HOCKET(hocketGroupStart());
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_HOCKET(hocketAllReduce(&x[i], &x[i], 1, hocketInt32, hocketSum, comms[i], nullptr));
  }
  EXPECT_EQ(hocketInProgress, hocketGroupEnd());
  for (hocketComm_t comm : comms) EXPECT_EQ(hocketSuccess, ranks::settle(comm));
  EXPECT_EQ((std::array{3, 3, 3}), x);
  destroy(comms);
}

/// Communicators of the process that live: their handles that are not destroyed.
TEST(Making, of_a_group_that_fails_leaves_no_communicator_that_blocks) {
  hocketConfig_t config = ranks::patient_config();
  config.join_deadline_ms = 300;
  hocketConfig_t async = config;
  async.blocking = 0;
  hocketUniqueId whole, missing, missing_too;
  ASSERT_HOCKET(hocketGetUniqueId(&whole));
  ASSERT_HOCKET(hocketGetUniqueId(&missing));
  ASSERT_HOCKET(hocketGetUniqueId(&missing_too));
  std::size_t retired = api::Process::current().retired_comms.count();
  // Where earlier tests have destroyed so many communicators, each new one takes the oldest handle.
  for (int made = 0; made < 3; ++made) retired -= retired >= api::RetiredComms::most ? 1 : 0;
  hocketComm_t alone = nullptr, lonely = nullptr, later = nullptr;
  ASSERT_HOCKET(hocketGroupStart());
  EXPECT_HOCKET(hocketCommInitRankConfig(&alone, 1, whole, 0, &config));
  EXPECT_HOCKET(hocketCommInitRankConfig(&lonely, 2, missing, 0, &config));  // nobody else comes
  EXPECT_HOCKET(hocketCommInitRankConfig(&later, 2, missing_too, 0, &async));
  EXPECT_EQ(hocketTimeout, hocketGroupEnd());
  const std::string text = hocketGetLastError(nullptr);
  EXPECT_EQ(0u, text.find("hocketGroupEnd: ")) << text;
  EXPECT_NE(std::string::npos, text.find("rank 1")) << text;
  EXPECT_EQ(nullptr, alone) << "it could be made, but the group could not";
  EXPECT_EQ(nullptr, lonely);
  EXPECT_EQ(retired + 2, api::Process::current().retired_comms.count());
  ASSERT_NE(nullptr, later);
  EXPECT_EQ(hocketTimeout, ranks::settle(later));
  EXPECT_EQ(0u, std::string(hocketGetLastError(later)).find("hocketCommInitRankConfig: "));
  EXPECT_HOCKET(hocketCommDestroy(later));
}

TEST(Making, in_a_group_with_a_wrong_argument_begins_nothing) {
  hocketUniqueId id;
  ASSERT_HOCKET(hocketGetUniqueId(&id));
  hocketConfig_t config = ranks::patient_config();
  config.deadline_ms = config.join_deadline_ms = 20'000;  // a wrong call that begins waits so long
  Comms comms(2, reinterpret_cast<hocketComm_t>(&id));
  ASSERT_HOCKET(hocketGroupStart());
  EXPECT_HOCKET(hocketCommInitRankConfig(&comms[0], 2, id, 0, &config));
  EXPECT_EQ(hocketInvalidArgument, hocketCommInitRankConfig(&comms[1], 2, id, 2, &config));
  EXPECT_EQ(hocketInvalidArgument, hocketGroupEnd());
  EXPECT_EQ(Comms(2), comms);
  // Nobody has joined: the id still serves.
  ASSERT_HOCKET(hocketGroupStart());
  EXPECT_HOCKET(hocketCommInitRankConfig(&comms[0], 2, id, 0, &config));
  ASSERT_HOCKET(hocketGroupCancel());
  EXPECT_EQ(Comms(2), comms);
  ASSERT_HOCKET(hocketGroupStart());
  for (int rank : {0, 1}) {
    EXPECT_HOCKET(
        hocketCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], 2, id, rank, &config));
  }
  ASSERT_HOCKET(hocketGroupEnd());
  expect_sums(comms);

  // A group either makes communicators or runs operations.
  hocketComm_t copy = nullptr;
  int x = 1;
  const auto refused = [](hocketResult_t result, const std::string& function) {
    EXPECT_EQ(hocketInvalidUsage, result);
    const std::string text = hocketGetLastError(nullptr);
    EXPECT_EQ(0u, text.find(function)) << text;
    EXPECT_NE(std::string::npos, text.find("either")) << text;
    EXPECT_EQ(hocketInvalidUsage, hocketGroupEnd());
  };
  ASSERT_HOCKET(hocketGroupStart());
  EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketInt32, hocketSum, comms[0], nullptr));
  refused(hocketCommDuplicate(comms[0], &copy, nullptr), "hocketCommDuplicate: ");
  ASSERT_HOCKET(hocketGroupStart());
  EXPECT_HOCKET(hocketCommDuplicate(comms[0], &copy, nullptr));
  refused(hocketAllReduce(&x, &x, 1, hocketInt32, hocketSum, comms[0], nullptr),
          "hocketAllReduce: ");
  EXPECT_EQ(nullptr, copy);
  ASSERT_HOCKET(hocketGroupStart());
  EXPECT_EQ(hocketInvalidUsage, hocketCommInitFromEnv(&copy, nullptr));
  EXPECT_NE(std::string::npos, std::string(hocketGetLastError(nullptr)).find("inside a group"));
  EXPECT_HOCKET(hocketGroupCancel());
  expect_sums(comms);
  destroy(comms);
}

TEST(Making, of_a_communicator_that_is_destroyed_before_the_group_ends_is_refused) {
  const Comms comms = all_ranks(1);
  hocketComm_t copy = comms[0];
  ASSERT_HOCKET(hocketGroupStart());
  EXPECT_HOCKET(hocketCommDuplicate(comms[0], &copy, nullptr));
  std::thread([&] { EXPECT_HOCKET(hocketCommDestroy(comms[0])); }).join();
  EXPECT_EQ(hocketInvalidArgument, hocketGroupEnd());
  EXPECT_EQ(nullptr, copy);
}

}  // namespace
