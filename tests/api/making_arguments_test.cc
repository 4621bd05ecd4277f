// Invalid arguments of the calls that make, ask and end communicators: the error names the call and
// the argument, and nothing changes.
#include <climits>

#include "api/wrong_calls.h"

namespace {

using ranks::Rank;
using wrong_calls::argument;
using wrong_calls::expect_refused;
using wrong_calls::rank_of;
using wrong_calls::Wrongs;

Wrongs wrong_communicators() {
  return {
      {"a negative color", argument, "color",
       [](hocketComm_t c) {
         hocketComm_t made = c;
         const hocketResult_t result = hocketCommSplit(c, -7, 0, &made, nullptr);
         EXPECT_EQ(nullptr, made);
         return result;
       }},
      {"no place for a communicator", argument, "newcomm",
       [](hocketComm_t c) { return hocketCommSplit(c, 0, 0, nullptr, nullptr); }},
      {"a split of nothing", argument, "hocketCommSplit: the communicator is NULL",
       [](hocketComm_t c) { return hocketCommSplit(nullptr, 0, 0, &c, nullptr); }},
      {"a duplicate of nothing", argument, "hocketCommDuplicate: the communicator is NULL",
       [](hocketComm_t c) { return hocketCommDuplicate(nullptr, &c, nullptr); }},
      {"no place for a duplicate", argument, "hocketCommDuplicate: newcomm is NULL",
       [](hocketComm_t c) { return hocketCommDuplicate(c, nullptr, nullptr); }},
      {"a duplicate with a wrong configuration", argument, "hocketCommDuplicate: config",
       [](hocketComm_t c) {
         hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
         config.magic = 0;
         hocketComm_t made = c;
         const hocketResult_t result = hocketCommDuplicate(c, &made, &config);
         EXPECT_EQ(nullptr, made);
         return result;
       }},
      {"a finalize in a group", hocketInvalidUsage, "hocketCommFinalize: this call is not allowed",
       [](hocketComm_t c) {
         hocketGroupStart();
         EXPECT_EQ(hocketInvalidUsage, hocketCommDestroy(c));
         const hocketResult_t result = hocketCommFinalize(c);
         hocketGroupCancel();
         return result;
       }},
      {"no place for a count", argument,
       "hocketCommCount: ", [](hocketComm_t c) { return hocketCommCount(c, nullptr); }},
      {"no place for a rank", argument, "NULL",
       [](hocketComm_t c) { return hocketCommUserRank(c, nullptr); }},
      {"no place for members", argument, "hocketCommMembers: members is NULL",
       [](hocketComm_t c) { return hocketCommMembers(c, nullptr, 2); }},
      {"members of nothing", argument, "hocketCommMembers: the communicator is NULL",
       [](hocketComm_t) {
         hocketMember_t members[2];
         return hocketCommMembers(nullptr, members, 2);
       }},
      {"members of more ranks", argument, "hocketCommMembers: count is 3, but comm has 2 ranks",
       [](hocketComm_t c) {
         hocketMember_t members[3];
         return hocketCommMembers(c, members, 3);
       }},
      {"no place for a state", argument, "NULL",
       [](hocketComm_t c) { return hocketCommGetAsyncError(c, nullptr); }},
      {"no place for a culprit", argument, "NULL",
       [](hocketComm_t c) { return hocketCommGetCulprit(c, nullptr); }},
      {"nothing to abort", argument, "NULL", [](hocketComm_t) { return hocketCommAbort(nullptr); }},
  };
}

/// Of 2 ranks: both are members, or the caller is.
Wrongs wrong_groups() {
  const auto creating = [](std::vector<int> members, int tag = 0) {
    return [=](hocketComm_t c) {
      hocketComm_t made = c;
      const hocketResult_t result = hocketCommCreateGroup(
          c, members.data(), static_cast<int>(members.size()), tag, &made, nullptr);
      EXPECT_EQ(nullptr, made);
      return result;
    };
  };
  static const int both[2] = {0, 1};
  return {
      {"a group of nothing", argument, "hocketCommCreateGroup: the communicator is NULL",
       [](hocketComm_t c) { return hocketCommCreateGroup(nullptr, both, 2, 0, &c, nullptr); }},
      {"no place for a group", argument, "hocketCommCreateGroup: newcomm is NULL",
       [](hocketComm_t c) { return hocketCommCreateGroup(c, both, 2, 0, nullptr, nullptr); }},
      {"a group without a list", argument, "hocketCommCreateGroup: ranks is NULL",
       [](hocketComm_t c) {
         hocketComm_t made = c;
         return hocketCommCreateGroup(c, nullptr, 2, 0, &made, nullptr);
       }},
      {"a group of no ranks", argument, "hocketCommCreateGroup: nranks is 0",
       [](hocketComm_t c) {
         hocketComm_t made = c;
         return hocketCommCreateGroup(c, both, 0, 0, &made, nullptr);
       }},
      {"a group of fewer ranks than none", argument, "hocketCommCreateGroup: nranks is -1",
       [](hocketComm_t c) {
         hocketComm_t made = c;
         return hocketCommCreateGroup(c, both, -1, 0, &made, nullptr);
       }},
      {"a group of too many ranks", argument, "nranks is 3: comm has 2", creating({0, 1, 0})},
      {"a group of a rank past the end", argument, "ranks[1] is 2: comm has ranks 0 to 1",
       creating({0, 2})},
      {"a group of a rank below 0", argument, "ranks[0] is -1", creating({-1, 1})},
      {"a group of others", argument, "ranks does not have rank",
       [=](hocketComm_t c) { return creating({1 - rank_of(c)})(c); }},
      {"a group with a negative tag", argument, "hocketCommCreateGroup: tag is -1",
       creating({0, 1}, -1)},
      {"a group with a wrong argument in a group", argument, "hocketGroupEnd: ",
       [=](hocketComm_t c) {
         hocketGroupStart();
         EXPECT_EQ(argument, creating({0, 1}, INT_MIN)(c));
         return hocketGroupEnd();
       }},
      {"no places for all ranks", argument, "hocketCommInitAll: comms is NULL",
       [](hocketComm_t) { return hocketCommInitAll(nullptr, 2, nullptr); }},
      {"all of no ranks", argument, "hocketCommInitAll: ndev is 0",
       [](hocketComm_t c) { return hocketCommInitAll(&c, 0, nullptr); }},
      {"all of fewer ranks than none", argument, "hocketCommInitAll: ndev is -2",
       [](hocketComm_t c) { return hocketCommInitAll(&c, -2, nullptr); }},
      {"all of too many ranks", argument, "hocketCommInitAll: ndev is 65536",
       [](hocketComm_t c) { return hocketCommInitAll(&c, 65'536, nullptr); }},
  };
}

TEST(Arguments, of_calls_on_communicators_that_are_wrong_are_named_and_change_nothing) {
  ranks::run_ranks(2, [](Rank& self) {
    expect_refused(self, wrong_communicators());
    expect_refused(self, wrong_groups());
  });
}

TEST(Arguments, of_a_join_with_several_ids_are_checked) {
  hocketUniqueId ids[3];
  for (hocketUniqueId& id : ids) ASSERT_HOCKET(hocketGetUniqueId(&id));
  const auto refused = [&](const char* words, int ranks, int rank, int count,
                           hocketUniqueId* from) {
    hocketComm_t comm = reinterpret_cast<hocketComm_t>(&ids);
    EXPECT_EQ(argument, hocketCommInitRankScalable(&comm, ranks, rank, count, from, nullptr));
    EXPECT_EQ(nullptr, comm);
    const std::string text = hocketGetLastError(nullptr);
    EXPECT_EQ(0u, text.find("hocketCommInitRankScalable: ")) << text;
    EXPECT_NE(std::string::npos, text.find(words)) << text;
  };
  refused("nId is 0", 3, 0, 0, ids);
  refused("nId is -1", 3, 0, -1, ids);
  refused("nId is 3", 2, 0, 3, ids);
  refused("commIds is NULL", 3, 0, 3, nullptr);
  refused("nranks is 0", 0, 0, 1, ids);
  refused("rank 3 does not exist", 3, 3, 3, ids);
  EXPECT_EQ(argument, hocketCommInitRankScalable(nullptr, 1, 0, 1, ids, nullptr));
  EXPECT_STREQ("hocketCommInitRankScalable: newcomm is NULL", hocketGetLastError(nullptr));
  hocketComm_t comm = nullptr;
  EXPECT_HOCKET(hocketCommInitRankScalable(&comm, 1, 0, 1, ids, nullptr));
  EXPECT_HOCKET(hocketCommDestroy(comm));
  ids[2] = hocketUniqueId{};
  refused("unique id", 3, 0, 3, ids);
}

/// A communicator that may not be used makes no others, and the error has the name of the call.
TEST(Making, from_a_communicator_that_is_finalized_aborted_or_poisoned_is_refused) {
  ranks::run_ranks(2, [](Rank& self) {
    const auto refused = [&](hocketComm_t comm, hocketResult_t expected, const char* word) {
      static const int both[2] = {0, 1};
      hocketComm_t made[3] = {comm, comm, comm};
      const std::pair<hocketResult_t, const char*> results[] = {
          {hocketCommSplit(comm, 0, 0, &made[0], nullptr), "hocketCommSplit: "},
          {hocketCommDuplicate(comm, &made[1], nullptr), "hocketCommDuplicate: "},
          {hocketCommCreateGroup(comm, both, 2, 0, &made[2], nullptr), "hocketCommCreateGroup: "}};
      for (const auto& [result, name] : results) EXPECT_EQ(expected, result) << name;
      for (hocketComm_t one : made) EXPECT_EQ(nullptr, one);
      const std::string text = hocketGetLastError(nullptr);
      EXPECT_EQ(0u, text.find("hocketCommCreateGroup: ")) << text;
      EXPECT_NE(std::string::npos, text.find(word)) << text;
    };
    hocketComm_t finalized = nullptr, aborted = nullptr, poisoned = nullptr;
    for (hocketComm_t* comm : {&finalized, &aborted, &poisoned}) {
      ASSERT_HOCKET(hocketCommDuplicate(self.comm, comm, nullptr));
    }
    EXPECT_HOCKET(hocketCommFinalize(finalized));
    refused(finalized, hocketInvalidUsage, "finalized");
    self.meet();
    EXPECT_HOCKET(hocketCommAbort(aborted));
    refused(aborted, hocketAborted, "aborted");
    float data[4] = {};
    const std::size_t count = self.rank == 0 ? 3 : 4;
    EXPECT_EQ(hocketMismatch,
              hocketAllReduce(data, data, count, hocketFloat32, hocketSum, poisoned, nullptr));
    refused(poisoned, hocketMismatch, "all-reduce");
    for (hocketComm_t comm : {finalized, aborted, poisoned}) {
      EXPECT_HOCKET(hocketCommDestroy(comm));
    }
    refused(poisoned, hocketInvalidArgument, "destroyed before");
  });
}

}  // namespace
