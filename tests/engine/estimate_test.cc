// What can be asked beforehand and beside operations: the time of a group, and the memory of a
// communicator.
#include <array>

#include "matrix/ranks.h"

namespace {

using ranks::Env;
using ranks::Rank;

using Calls = std::function<void(hocketComm_t comm)>;

float time_of(hocketComm_t comm, const Calls& calls) {
  hocketSimInfo_t info = HOCKET_SIM_INFO_INITIALIZER;
  EXPECT_HOCKET(hocketGroupStart());
  calls(comm);
  EXPECT_HOCKET(hocketGroupSimulateEnd(&info));
  int depth = -1;
  EXPECT_HOCKET(hocketGroupDepth(&depth));
  EXPECT_EQ(0, depth);
  return info.estimatedTime;
}

class Simulated : public testing::TestWithParam<const char*> {
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}}};
};

TEST_P(Simulated, group_end_begins_nothing_and_its_time_grows_with_the_calls) {
  ranks::run_ranks(3, [](Rank& self) {
    std::vector<float> data(1 << 20, 1.0F);
    const auto all_reduce = [&](std::size_t count) -> Calls {
      return [&data, count](hocketComm_t comm) {
        EXPECT_HOCKET(hocketAllReduce(data.data(), data.data(), count, hocketFloat32, hocketSum,
                                      comm, nullptr));
      };
    };
    const auto twice = [](const Calls& calls) -> Calls {
      return [calls](hocketComm_t comm) { calls(comm), calls(comm); };
    };
    const auto message = [&](std::size_t count) -> Calls {
      return [&, count](hocketComm_t comm) {
        EXPECT_HOCKET(
            hocketSend(data.data(), count, hocketFloat32, (self.rank + 1) % 3, comm, nullptr));
      };
    };
    // No other rank takes part: each asks by itself.
    const float large = time_of(self.comm, all_reduce(data.size()));
    EXPECT_LT(0.0F, time_of(self.comm, all_reduce(1)));
    EXPECT_LT(0.0F, large);
    EXPECT_NEAR(2 * large, time_of(self.comm, twice(all_reduce(data.size()))), large / 1000);
    const float sent = time_of(self.comm, message(data.size()));
    EXPECT_LT(0.0F, time_of(self.comm, message(1)));
    EXPECT_LT(time_of(self.comm, message(1)), sent);
    EXPECT_NEAR(2 * sent, time_of(self.comm, twice(message(data.size()))), sent / 1000);
    EXPECT_EQ(0.0F, time_of(self.comm, [](hocketComm_t) {}));
    EXPECT_EQ(1.0F, data[0]) << "nothing has run";
    // Communicators run beside one another.
    hocketComm_t copy = nullptr;
    ASSERT_HOCKET(hocketCommDuplicate(self.comm, &copy, nullptr));
    const float of_copy = time_of(copy, all_reduce(data.size()));
    EXPECT_EQ(large, of_copy) << "it has the same figures";
    const float both = time_of(self.comm, [&](hocketComm_t comm) {
      all_reduce(data.size())(comm);
      all_reduce(data.size())(copy);
    });
    EXPECT_FLOAT_EQ(std::max(large, of_copy), both);
    EXPECT_HOCKET(hocketCommDestroy(copy));
    int one = 1;
    EXPECT_HOCKET(hocketAllReduce(&one, &one, 1, hocketInt32, hocketSum, self.comm, nullptr));
    EXPECT_EQ(3, one);
  });
}
INSTANTIATE_TEST_SUITE_P(Transports, Simulated, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SimulatedGroup, end_refuses_what_it_cannot_tell) {
  hocketComm_t comm = nullptr, copy = nullptr;
  ASSERT_HOCKET(hocketCommInitAll(&comm, 1, nullptr));
  hocketSimInfo_t info = HOCKET_SIM_INFO_INITIALIZER, wrong = info, small = info;
  wrong.magic = 0;
  small.size = sizeof info - 1;
  const auto refused = [](hocketResult_t expected, hocketSimInfo_t* from, const char* words) {
    EXPECT_EQ(expected, hocketGroupSimulateEnd(from));
    const std::string text = hocketGetLastError(nullptr);
    EXPECT_EQ(0u, text.find("hocketGroupSimulateEnd: ")) << text;
    EXPECT_NE(std::string::npos, text.find(words)) << text;
  };
  refused(hocketInvalidUsage, &info, "hocketGroupStart");
  ASSERT_HOCKET(hocketGroupStart());
  refused(hocketInvalidArgument, nullptr, "NULL");
  refused(hocketInvalidArgument, &wrong, "HOCKET_SIM_INFO_INITIALIZER");
  refused(hocketInvalidArgument, &small, "HOCKET_SIM_INFO_INITIALIZER");
  // The group is still open. Of an inner group and of communicators no time is told.
  ASSERT_HOCKET(hocketGroupStart());
  info.estimatedTime = 7;
  EXPECT_HOCKET(hocketGroupSimulateEnd(&info));
  EXPECT_EQ(HOCKET_UNDEF_FLOAT, info.estimatedTime);
  EXPECT_HOCKET(hocketCommDuplicate(comm, &copy, nullptr));
  info.estimatedTime = 7;
  EXPECT_HOCKET(hocketGroupSimulateEnd(&info));
  EXPECT_EQ(HOCKET_UNDEF_FLOAT, info.estimatedTime);
  EXPECT_EQ(nullptr, copy);
  ASSERT_HOCKET(hocketGroupStart());
  int x = 1;
  EXPECT_EQ(hocketInvalidArgument,
            hocketAllReduce(&x, nullptr, 1, hocketInt32, hocketSum, comm, nullptr));
  refused(hocketInvalidArgument, &info, "recvbuff");
  refused(hocketInvalidUsage, &info, "hocketGroupStart");
  EXPECT_HOCKET(hocketCommAbort(comm));
  EXPECT_HOCKET(hocketCommDestroy(comm));
}

std::uint64_t stat_of(hocketComm_t comm, hocketCommMemStat_t stat) {
  std::uint64_t value = ~0ULL;
  EXPECT_HOCKET(hocketCommMemStats(comm, stat, &value));
  return value;
}

TEST(MemStats, tell_what_a_communicator_holds) {
  ranks::run_ranks(3, [](Rank& self) {
    hocketComm_t pair = nullptr;
    const int color = self.rank < 2 ? 0 : HOCKET_SPLIT_NOCOLOR;
    ASSERT_HOCKET(hocketCommSplit(self.comm, color, 0, &pair, nullptr));
    const std::uint64_t board = stat_of(self.comm, hocketStatMemBoard);
    const std::uint64_t fifos = stat_of(self.comm, hocketStatMemFifos);
    EXPECT_LT(0u, fifos);
    EXPECT_LT(fifos, board);
    if (pair != nullptr) {
      EXPECT_GT(board, stat_of(pair, hocketStatMemBoard)) << "of fewer ranks";
      EXPECT_EQ(fifos / 9 * 4, stat_of(pair, hocketStatMemFifos)) << "one for each ordered pair";
    }
    const std::uint64_t scratch = stat_of(self.comm, hocketStatMemScratch);
    EXPECT_EQ(board + scratch, stat_of(self.comm, hocketStatMemTotal));
    EXPECT_EQ(board + scratch, stat_of(self.comm, hocketStatMemPersist));
    EXPECT_EQ(0u, stat_of(self.comm, hocketStatMemSuspend));
    EXPECT_EQ(0u, stat_of(self.comm, hocketStatMemSuspended));
    std::array<char, 3000> buffer;
    void* handles[2];
    EXPECT_HOCKET(hocketCommRegister(self.comm, buffer.data(), 1000, &handles[0]));
    EXPECT_HOCKET(hocketCommRegister(self.comm, buffer.data() + 1000, 2000, &handles[1]));
    EXPECT_EQ(3000u, stat_of(self.comm, hocketStatMemRegistered));
    EXPECT_HOCKET(hocketCommDeregister(self.comm, handles[0]));
    EXPECT_EQ(2000u, stat_of(self.comm, hocketStatMemRegistered));
    std::uint64_t value = 7;
    for (const int wrong : {4, 99, 104, 127}) {
      EXPECT_EQ(hocketInvalidArgument,
                hocketCommMemStats(self.comm, static_cast<hocketCommMemStat_t>(wrong), &value));
    }
    EXPECT_EQ(7u, value);
    EXPECT_EQ(hocketInvalidArgument, hocketCommMemStats(self.comm, hocketStatMemTotal, nullptr));
    EXPECT_EQ(hocketInvalidArgument, hocketCommMemStats(nullptr, hocketStatMemTotal, &value));
    EXPECT_STREQ("hocketCommMemStats: the communicator is NULL: make one first",
                 hocketGetLastError(nullptr));
    EXPECT_HOCKET(hocketCommDestroy(pair));
  });
}

TEST(MemStats, of_scratch_grow_with_the_operations) {
  const Env env{{{"HOCKET_TRANSPORT", "tcp"}}};
  ranks::run_ranks(2, [](Rank& self) {
    const std::uint64_t before = stat_of(self.comm, hocketStatMemScratch);
    std::vector<float> data(1 << 20, 1.0F);
    EXPECT_HOCKET(hocketAllReduce(data.data(), data.data(), data.size(), hocketFloat32, hocketSum,
                                  self.comm, nullptr));
    EXPECT_LT(before, stat_of(self.comm, hocketStatMemScratch));
  });
}

}  // namespace
