// Communicators that are made of others: duplicates, and groups that their members make alone.
#include <unistd.h>

#include <array>

#include "matrix/ranks.h"

namespace {

using ranks::Env;
using ranks::Rank;
using ranks::settle;
using ranks::sum_of_ones;

std::vector<int> ranks_of(Rank& self, hocketComm_t comm) {
  int count = 0;
  EXPECT_HOCKET(hocketCommCount(comm, &count));
  std::vector<int> all(static_cast<std::size_t>(count));
  EXPECT_HOCKET(hocketAllGather(&self.rank, all.data(), 1, hocketInt32, comm, nullptr));
  return all;
}

class CreateGroup : public testing::TestWithParam<const char*> {
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}}};
};

bool has(const std::vector<int>& members, int rank) {
  return std::find(members.begin(), members.end(), rank) != members.end();
}

TEST_P(CreateGroup, is_made_by_its_members_alone_in_the_order_of_their_list) {
  ranks::run_ranks(5, [](Rank& self) {
    for (const std::vector<int>& members : {std::vector{4, 0, 2}, {2}, {1, 3}, {4, 3, 2, 1, 0}}) {
      if (!has(members, self.rank)) continue;  // it does not call
      hocketComm_t part = nullptr;
      ASSERT_HOCKET(hocketCommCreateGroup(self.comm, members.data(),
                                          static_cast<int>(members.size()), 7, &part, nullptr));
      EXPECT_EQ(members, ranks_of(self, part));
      EXPECT_HOCKET(hocketCommDestroy(part));
    }
    EXPECT_EQ(5, sum_of_ones(self.comm)) << "it took no place among the calls on the parent";
  });
}

TEST_P(CreateGroup, of_the_same_members_is_another_one_for_each_call_and_tag) {
  ranks::run_ranks(3, [](Rank& self) {
    const std::array members{0, 1, 2};
    hocketConfig_t config = ranks::patient_config();
    config.blocking = 0;
    std::array<hocketComm_t, 6> parts{};
    // The tags in an order of its own on each rank; two calls with each tag.
    for (int i = 0; i < 6; ++i) {
      const int tag = (i + self.rank) % 3;
      EXPECT_EQ(hocketInProgress,
                hocketCommCreateGroup(self.comm, members.data(), 3, tag,
                                      &parts[static_cast<std::size_t>(tag + i / 3 * 3)], &config));
    }
    EXPECT_HOCKET(hocketCommDestroy(self.comm)) << "the parent may go before they are made";
    self.comm = nullptr;
    for (hocketComm_t part : parts) {
      EXPECT_EQ(hocketSuccess, settle(part)) << hocketGetLastError(part);
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      int x = static_cast<int>(i);
      EXPECT_EQ(hocketInProgress,
                hocketAllReduce(&x, &x, 1, hocketInt32, hocketSum, parts[i], nullptr));
      EXPECT_EQ(hocketSuccess, settle(parts[i])) << hocketGetLastError(parts[i]);
      EXPECT_EQ(static_cast<int>(3 * i), x);
    }
    for (hocketComm_t part : parts) EXPECT_HOCKET(hocketCommDestroy(part));
  });
}

TEST_P(CreateGroup, goes_on_beside_an_operation_of_the_parent) {
  ranks::run_ranks(3, [](Rank& self) {
    const std::array members{0, 1};
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    int x = 1;
    if (self.rank < 2) {  // the all-reduce waits for rank 2, which waits for the group
      EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketInt32, hocketSum, self.comm, stream));
      hocketComm_t part = nullptr;
      ASSERT_HOCKET(hocketCommCreateGroup(self.comm, members.data(), 2, 0, &part, nullptr));
      EXPECT_EQ(2, sum_of_ones(part));
      self.meet();
      EXPECT_HOCKET(hocketCommDestroy(part));
    } else {
      self.meet();
      EXPECT_HOCKET(hocketAllReduce(&x, &x, 1, hocketInt32, hocketSum, self.comm, stream));
    }
    EXPECT_HOCKET(hocketStreamSynchronize(stream));
    EXPECT_EQ(3, x);
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

TEST_P(CreateGroup, ends_when_the_parent_is_aborted) {
  ranks::run_ranks(3, [](Rank& self) {
    const std::array members{0, 1};
    if (self.rank == 2) {
      self.meet();
      EXPECT_HOCKET(hocketCommAbort(self.comm));
      return;
    }
    hocketConfig_t config = ranks::patient_config();
    config.blocking = 0;
    hocketComm_t part = nullptr;
    if (self.rank == 0) {  // rank 1 does not call
      EXPECT_EQ(hocketInProgress,
                hocketCommCreateGroup(self.comm, members.data(), 2, 0, &part, &config));
    }
    self.meet();
    if (self.rank == 0) {
      EXPECT_EQ(hocketAborted, settle(part)) << hocketGetLastError(part);
    }
    EXPECT_HOCKET(hocketCommDestroy(part));
  });
}

TEST_P(CreateGroup, without_a_member_is_an_error_that_names_it) {
  ranks::run_ranks(3, [](Rank& self) {
    if (self.rank < 2) {
      const std::array members{2, 0, 1};
      hocketConfig_t config = ranks::patient_config();
      config.deadline_ms = config.join_deadline_ms = 500;
      hocketComm_t part = self.comm;
      EXPECT_EQ(hocketTimeout,
                hocketCommCreateGroup(self.comm, members.data(), 3, 0, &part, &config));
      EXPECT_EQ(nullptr, part);
      const std::string text = hocketGetLastError(nullptr);
      EXPECT_EQ(0u, text.find("hocketCommCreateGroup: ")) << text;
      int culprit = -1;
      EXPECT_HOCKET(hocketGetLastCulprit(&culprit));
      EXPECT_EQ(0, culprit) << "rank 2 of the parent is rank 0 of the group: " << text;
      if (std::string(GetParam()) == "shm") {
        EXPECT_NE(std::string::npos,
                  text.find("rank 0 of this communicator is rank 2 of the job: rank 2 (process "))
            << text;
      }
    }
    self.meet();
    EXPECT_EQ(3, sum_of_ones(self.comm)) << "the parent stays usable";
  });
}

TEST_P(CreateGroup, of_members_that_give_different_things_ends_with_what_each_gave) {
  struct Given {
    std::vector<int> ranks;
    int tag;
    std::string text;
  };
  const std::pair<Given, Given> different[] = {
      {{{2, 0}, 7, "the ranks 2, 0 of the parent"}, {{0, 2}, 7, "the ranks 0, 2 of the parent"}},
      {{{2, 0}, 7, "the tag 7"}, {{2, 0}, 8, "the tag 8"}},
      {{{2, 0}, 7, "the ranks 2, 0 of"}, {{2, 1, 0}, 7, "the ranks 2, 1, 0 of the parent"}}};
  for (const auto& by_member : different) {
    ranks::run_ranks(3, [&](Rank& self) {
      if (self.rank != 1) {
        const Given& given = self.rank == 0 ? by_member.first : by_member.second;
        hocketConfig_t config = ranks::patient_config();
        config.deadline_ms = config.join_deadline_ms = 300;
        hocketComm_t part = self.comm;
        EXPECT_EQ(hocketTimeout, hocketCommCreateGroup(self.comm, given.ranks.data(),
                                                       static_cast<int>(given.ranks.size()),
                                                       given.tag, &part, &config));
        EXPECT_EQ(nullptr, part);
        const std::string text = hocketGetLastError(nullptr);
        EXPECT_NE(std::string::npos, text.find(given.text)) << text;
        EXPECT_NE(std::string::npos, text.find("another order or another tag")) << text;
      }
      self.meet();
      EXPECT_EQ(3, sum_of_ones(self.comm)) << "the parent stays usable";
    });
  }
}

class Duplicate : public testing::TestWithParam<const char*> {
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}}};
};

TEST_P(Duplicate, has_the_same_ranks_and_operations_of_its_own) {
  ranks::run_ranks(3, [](Rank& self) {
    hocketComm_t copy = nullptr, reversed = nullptr, of_reversed = nullptr;
    ASSERT_HOCKET(hocketCommDuplicate(self.comm, &copy, nullptr));
    EXPECT_EQ((std::vector{0, 1, 2}), ranks_of(self, copy));
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, -self.rank, &reversed, nullptr));
    ASSERT_HOCKET(hocketCommDuplicate(reversed, &of_reversed, nullptr));
    EXPECT_EQ((std::vector{2, 1, 0}), ranks_of(self, of_reversed));
    self.meet();
    if (self.rank == 1) {
      EXPECT_HOCKET(hocketCommAbort(copy));
    }
    EXPECT_EQ(hocketAborted, ranks::hear(copy));
    EXPECT_EQ(3, sum_of_ones(self.comm)) << "the error of a duplicate is its own";
    for (hocketComm_t comm : {copy, reversed, of_reversed}) EXPECT_HOCKET(hocketCommDestroy(comm));
  });
}

TEST_P(Duplicate, without_blocking_inherits_that_from_its_parent) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketConfig_t config = ranks::patient_config();
    config.blocking = 0;
    hocketComm_t copy = nullptr, again = nullptr;
    EXPECT_EQ(hocketInProgress, hocketCommDuplicate(self.comm, &copy, &config));
    ASSERT_EQ(hocketSuccess, settle(copy)) << hocketGetLastError(copy);
    EXPECT_EQ(hocketInProgress, hocketCommDuplicate(copy, &again, nullptr));
    EXPECT_EQ(hocketSuccess, settle(again)) << hocketGetLastError(again);
    EXPECT_HOCKET(hocketCommDestroy(copy));
    EXPECT_HOCKET(hocketCommDestroy(again));
  });
}

TEST_P(Duplicate, where_another_rank_splits_is_a_mismatch_that_names_it) {
  ranks::run_ranks(3, [](Rank& self) {
    hocketComm_t made = self.comm;
    const hocketResult_t result = self.rank == 1 ? hocketCommSplit(self.comm, 0, 0, &made, nullptr)
                                                 : hocketCommDuplicate(self.comm, &made, nullptr);
    EXPECT_EQ(hocketMismatch, result);
    EXPECT_EQ(nullptr, made);
    int culprit = -1;
    EXPECT_HOCKET(hocketGetLastCulprit(&culprit));
    EXPECT_EQ(self.rank == 1 ? 0 : 1, culprit);
    const std::string text = hocketGetLastError(nullptr);
    EXPECT_NE(std::string::npos, text.find("called hocketCommSplit")) << text;
    EXPECT_NE(std::string::npos, text.find("called hocketCommDuplicate")) << text;
    EXPECT_EQ(3, sum_of_ones(self.comm));
  });
}

class Members : public testing::TestWithParam<const char*> {
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}}};
};

TEST_P(Members, of_a_communicator_are_known_by_their_ranks_in_the_job_and_their_nodes) {
  const bool shared = std::string(GetParam()) == "shm";
  ranks::run_ranks(4, [=](Rank& self) {
    const std::array list{3, 0, 2};
    std::vector<hocketMember_t> members(4);
    EXPECT_HOCKET(hocketCommMembers(self.comm, members.data(), 4));
    for (int rank = 0; rank < 4; ++rank) {
      const hocketMember_t& member = members[static_cast<std::size_t>(rank)];
      EXPECT_EQ(rank, member.jobRank);
      EXPECT_EQ(shared ? 0 : rank, member.node);
      EXPECT_EQ(shared ? rank : 0, member.localRank);
      EXPECT_EQ(::getpid(), member.pid);
      char host[HOCKET_HOST_BYTES] = {};
      ASSERT_EQ(0, ::gethostname(host, sizeof host - 1));
      EXPECT_STREQ(host, member.host);
    }
    hocketComm_t part = nullptr;
    if (self.rank != 1) {
      ASSERT_HOCKET(hocketCommCreateGroup(self.comm, list.data(), 3, 0, &part, nullptr));
    }
    self.meet();  // all have it
    if (self.rank == 1) return;
    for (const int wrong : {-1, 0, 2, 4}) {
      members[0].jobRank = -7;
      EXPECT_EQ(hocketInvalidArgument, hocketCommMembers(part, members.data(), wrong));
      EXPECT_EQ(-7, members[0].jobRank);
    }
    EXPECT_HOCKET(hocketCommAbort(part));
    EXPECT_HOCKET(hocketCommMembers(part, members.data(), 3)) << "of an aborted one too";
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(list[rank], members[rank].jobRank);
      EXPECT_EQ(shared ? 0 : static_cast<int>(rank), members[rank].node);
      EXPECT_EQ(shared ? static_cast<int>(rank) : 0, members[rank].localRank);
    }
    EXPECT_HOCKET(hocketCommDestroy(part));
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Members, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Transports, CreateGroup, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Transports, Duplicate, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
