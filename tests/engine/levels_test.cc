// Communicators of several nodes with several ranks each: their plans use shared memory within a
// node and messages between nodes. HOCKET_NODES makes the nodes.
#include <cstring>
#include <functional>
#include <numeric>

#include "matrix/ranks.h"

namespace {

using ranks::Env;
using ranks::Rank;

struct Job {
  int ranks;
  const char* nodes;
};

constexpr Job jobs[] = {{4, "2,2"}, {4, "3,1"}, {7, "1,4,2"}};

std::string last_algorithm(const Rank& self) {
  const char *algorithm = nullptr, *transports = nullptr;
  EXPECT_HOCKET(hocketCommLastAlgorithm(self.comm, &algorithm, &transports));
  return std::string(algorithm) + " over " + transports;
}

TEST(Levels, are_the_nodes_that_the_setting_gives) {
  const Env env{{{"HOCKET_NODES", "1,4,2"}}};
  ranks::run_ranks(7, [](Rank& self) {
    int nodes = 0, local = 0, locals = 0;
    EXPECT_HOCKET(hocketCommNodeCount(self.comm, &nodes));
    EXPECT_HOCKET(hocketCommLocalRank(self.comm, &local));
    EXPECT_HOCKET(hocketCommLocalCount(self.comm, &locals));
    EXPECT_EQ(nodes, 3);
    constexpr int expected[][2] = {{0, 1}, {0, 4}, {1, 4}, {2, 4}, {3, 4}, {0, 2}, {1, 2}};
    EXPECT_EQ(local, expected[self.rank][0]);
    EXPECT_EQ(locals, expected[self.rank][1]);
  });
}

TEST(Levels, of_other_numbers_of_ranks_than_the_job_has_are_refused) {
  const Env env{{{"HOCKET_NODES", "2,2"}}};
  hocketUniqueId id;
  ASSERT_HOCKET(hocketGetUniqueId(&id));
  hocketComm_t comm = nullptr;
  EXPECT_EQ(hocketInvalidUsage, hocketCommInitRank(&comm, 3, id, 0));
  EXPECT_NE(nullptr, std::strstr(hocketGetLastError(nullptr),
                                 "HOCKET_NODES has nodes for 4 ranks, but the job has 3"))
      << hocketGetLastError(nullptr);
}

/// Large calls use both kinds of links, and a split keeps the nodes.
TEST(Levels, are_used_by_large_calls_also_of_a_split) {
  const Env env{{{"HOCKET_NODES", "2,2"}, {"HOCKET_ALGORITHM", "two-level"}}};
  ranks::run_ranks(4, [](Rank& self) {
    std::vector<float> x(500'000, static_cast<float>(self.rank));
    EXPECT_HOCKET(hocketAllReduce(x.data(), x.data(), x.size(), hocketFloat32, hocketSum, self.comm,
                                  nullptr));
    EXPECT_EQ(last_algorithm(self), "two-level over shm,tcp");
    for (const float value : x) ASSERT_EQ(6, value);
    hocketComm_t part = nullptr;  // rank 0 on the first node, ranks 2 and 3 on the second one
    EXPECT_HOCKET(hocketCommSplit(self.comm, self.rank == 1 ? 1 : 0, -self.rank, &part, nullptr));
    std::fill(x.begin(), x.end(), 1.0f);
    EXPECT_HOCKET(
        hocketAllReduce(x.data(), x.data(), x.size(), hocketFloat32, hocketSum, part, nullptr));
    for (const float value : x) ASSERT_EQ(self.rank == 1 ? 1 : 3, value);
    EXPECT_HOCKET(hocketCommDestroy(part));
  });
}

/// In deterministic mode the nodes do not matter.
TEST(Levels, give_the_same_bits_in_deterministic_mode) {
  constexpr std::size_t count = 30'000;
  std::vector<float> first;
  for (const char* nodes : {"", "2,2", "1,3"}) {
    const Env env{{{"HOCKET_NODES", nodes}, {"HOCKET_DETERMINISTIC", "1"}}};
    ranks::run_ranks(4, [&](Rank& self) {
      std::vector<float> x(count);
      for (std::size_t i = 0; i < count; ++i) {
        x[i] = 1.0f / static_cast<float>(i * 4 + static_cast<std::size_t>(self.rank) + 3);
      }
      EXPECT_HOCKET(
          hocketAllReduce(x.data(), x.data(), count, hocketFloat32, hocketSum, self.comm, nullptr));
      if (self.rank != 0) return;
      if (first.empty()) first = x;
      EXPECT_EQ(first, x) << "nodes " << nodes;
    });
  }
}

/// One rank makes a call with another count: it may be the only rank of its node that differs, or
/// a node that differs from the others.
TEST(Levels, tell_every_rank_both_calls_that_differ) {
  for (const Job& job : jobs) {
    for (const char* algorithm : {"two-level", "leaders"}) {
      const Env env{{{"HOCKET_NODES", job.nodes}, {"HOCKET_ALGORITHM", algorithm}}};
      for (const int odd : {0, 2, job.ranks - 1}) {
        SCOPED_TRACE(std::string(job.nodes) + ", " + algorithm + ", rank " + std::to_string(odd));
        hocketConfig_t config = ranks::patient_config();
        config.deadline_ms = 30'000;
        ranks::run_ranks(
            job.ranks,
            [&](Rank& self) {
              self.meet();
              std::vector<float> x(20'000);
              const std::size_t count = self.rank == odd ? 19'999 : 20'000;
              hocketResult_t result = hocketAllReduce(x.data(), x.data(), count, hocketFloat32,
                                                      hocketSum, self.comm, nullptr);
              if (result == hocketSuccess) result = hocketBarrier(self.comm, nullptr);
              const std::string text = hocketGetLastError(self.comm);
              EXPECT_EQ(hocketMismatch, result) << "rank " << self.rank << ": " << text;
              EXPECT_NE(std::string::npos, text.find("all-reduce of 19999 float32")) << text;
              EXPECT_NE(std::string::npos, text.find("all-reduce of 20000 float32")) << text;
              self.meet();
            },
            config);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

/// All ranks but `late` make a call, which must end at its deadline and name rank `late`.
void expect_culprit(const Job& job, const char* algorithm, int late,
                    const std::function<hocketResult_t(hocketComm_t)>& call) {
  const Env env{{{"HOCKET_NODES", job.nodes}, {"HOCKET_ALGORITHM", algorithm}}};
  hocketConfig_t config = ranks::patient_config();
  config.deadline_ms = 1000;
  ranks::run_ranks(
      job.ranks,
      [&](Rank& self) {
        self.meet();
        if (self.rank != late) {
          EXPECT_EQ(hocketTimeout, call(self.comm));
          int culprit = -1;
          EXPECT_HOCKET(hocketCommGetCulprit(self.comm, &culprit));
          EXPECT_EQ(late, culprit) << "rank " << self.rank << ": " << hocketGetLastError(self.comm);
        } else {
          EXPECT_NE(hocketSuccess, ranks::hear(self.comm));
        }
        self.meet();
      },
      config);
}

/// One rank does not come. Most others wait for ranks that wait themselves.
TEST(Levels, name_the_rank_that_has_not_begun) {
  for (const Job& job : {jobs[0], jobs[2]}) {
    for (const char* algorithm : {"two-level", "leaders"}) {
      for (const int late : {0, job.ranks - 1}) {
        SCOPED_TRACE(std::string(job.nodes) + ", " + algorithm + ", rank " + std::to_string(late));
        expect_culprit(job, algorithm, late, [](hocketComm_t comm) {
          std::vector<float> x(20'000);
          return hocketAllReduce(x.data(), x.data(), x.size(), hocketFloat32, hocketSum, comm,
                                 nullptr);
        });
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

/// The root does not come to a broadcast or a scatter: the other ranks of its node wait for the
/// root, and those of other nodes for their leaders, which wait for the root.
TEST(Levels, name_the_root_that_has_not_begun) {
  for (const Job& job : {jobs[0], jobs[2]}) {
    for (const char* algorithm : {"two-level", "leaders"}) {
      for (const bool scatters : {false, true}) {
        SCOPED_TRACE(std::string(job.nodes) + ", " + algorithm + (scatters ? ", scatter" : ""));
        expect_culprit(job, algorithm, 0, [&](hocketComm_t comm) {
          std::vector<float> x(2000);
          if (!scatters) {
            return hocketBroadcast(x.data(), x.data(), x.size(), hocketFloat32, 0, comm, nullptr);
          }
          return hocketScatter(nullptr, x.data(), x.size(), hocketFloat32, 0, comm, nullptr);
        });
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
