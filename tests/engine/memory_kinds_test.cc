// Calls with both memory that peers can map and memory that they cannot map.
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "matrix/ranks.h"

namespace {

using ranks::Env;
using ranks::Rank;

TEST(MemoryKinds, may_be_mixed_within_one_call_and_between_ranks) {
  constexpr std::size_t count = 1 << 15;
  const Env env{{{"HOCKET_ALGORITHM", "direct"}}};
  hocketConfig_t config = ranks::patient_config();
  config.deadline_ms = 10'000;
  ranks::run_ranks(
      2,
      [&](Rank& self) {
        void* mapped[2] = {};
        for (void*& memory : mapped) ASSERT_HOCKET(hocketMemAlloc(&memory, count * sizeof(int)));
        std::vector<int> plain_in(count), plain_out(count);
        // Bits 0 and 1: rank 0's input and output are mapped; bits 2 and 3: rank 1's.
        for (int kinds = 0; kinds < 16; ++kinds) {
          const int own = kinds >> (2 * self.rank) & 3;
          int* const in = (own & 1) != 0 ? static_cast<int*>(mapped[0]) : plain_in.data();
          int* const out = (own & 2) != 0 ? static_cast<int*>(mapped[1]) : plain_out.data();
          std::fill(in, in + count, kinds + 100 * self.rank);
          std::fill(out, out + count, -1);
          ASSERT_HOCKET(hocketAllReduce(in, out, count, hocketInt32, hocketSum, self.comm, nullptr))
              << " kinds " << kinds;
          EXPECT_EQ(std::vector<int>(count, 2 * kinds + 100), std::vector<int>(out, out + count))
              << "kinds " << kinds;
        }
        self.meet();
        for (void* memory : mapped) EXPECT_HOCKET(hocketMemFree(memory));
      },
      config);
}

// Where buffers are not mapped, the ranks soon choose among the algorithms that map none, and later
// try the others again: all of them at the same operation.
TEST(MemoryKinds, may_change_between_calls_that_choose_for_themselves) {
  constexpr std::size_t count = 1 << 15;
  const Env env{{{"HOCKET_TRANSPORT", "shm"}}};
  ranks::run_ranks(3, [&](Rank& self) {
    void* mapped[2] = {};
    for (void*& memory : mapped) ASSERT_HOCKET(hocketMemAlloc(&memory, count * sizeof(int)));
    std::vector<int> plain_in(count), plain_out(count);
    for (int call = 0; call < 120; ++call) {
      const bool is_mapped = call / 40 == 1 || call % 3 == self.rank;
      int* const in = is_mapped ? static_cast<int*>(mapped[0]) : plain_in.data();
      int* const out = is_mapped ? static_cast<int*>(mapped[1]) : plain_out.data();
      std::fill(in, in + count, call + self.rank);
      if (call % 2 == 0) {
        ASSERT_HOCKET(hocketAllReduce(in, out, count, hocketInt32, hocketSum, self.comm, nullptr));
        EXPECT_EQ(std::vector<int>(count, 3 * call + 3), std::vector<int>(out, out + count));
      } else {
        ASSERT_HOCKET(hocketBroadcast(in, out, count, hocketInt32, 1, self.comm, nullptr));
        EXPECT_EQ(std::vector<int>(count, call + 1), std::vector<int>(out, out + count));
      }
    }
    self.meet();
    for (void* memory : mapped) EXPECT_HOCKET(hocketMemFree(memory));
  });
}

std::string last_algorithm(hocketComm_t comm) {
  const char *algorithm = nullptr, *transport = nullptr;
  EXPECT_HOCKET(hocketCommLastAlgorithm(comm, &algorithm, &transport));
  return algorithm;
}

// Also if each call repeats the previous one, so that the engine need not ask for its algorithm.
TEST(MemoryKinds, that_change_between_like_calls_are_noticed_within_32_calls) {
  constexpr std::size_t count = 1 << 16;
  const Env env{{{"HOCKET_TRANSPORT", "shm"}}};
  ranks::run_ranks(2, [&](Rank& self) {
    void* mapped[2] = {};
    for (void*& memory : mapped) ASSERT_HOCKET(hocketMemAlloc(&memory, count * sizeof(int)));
    std::vector<int> plain_in(count), plain_out(count);
    const auto call = [&](hocketComm_t comm, bool is_mapped) {
      int* const in = is_mapped ? static_cast<int*>(mapped[0]) : plain_in.data();
      int* const out = is_mapped ? static_cast<int*>(mapped[1]) : plain_out.data();
      EXPECT_HOCKET(hocketAllReduce(in, out, count, hocketInt32, hocketSum, comm, nullptr));
      return last_algorithm(comm);
    };
    hocketComm_t other = nullptr;  // it has the same figures, and sees mapped memory only
    ASSERT_HOCKET(hocketCommDuplicate(self.comm, &other, nullptr));
    const std::string of_mapped = call(other, true);
    for (int i = 0; i < 100; ++i) EXPECT_NE("direct", call(self.comm, false)) << "call " << i;
    for (int i = 0; i < 31; ++i) call(self.comm, true);
    for (int i = 0; i < 40; ++i) EXPECT_EQ(of_mapped, call(self.comm, true)) << "call " << i;
    ASSERT_HOCKET(hocketCommDestroy(other));
    self.meet();
    for (void* memory : mapped) EXPECT_HOCKET(hocketMemFree(memory));
  });
}

/// The root writes to the outputs of the others, which read its input. Where ranks share cores, it
/// does not write there.
TEST(MemoryKinds, of_a_broadcast_the_roots_input_and_all_outputs_count) {
  cpu_set_t cores;
  ASSERT_EQ(0, ::sched_getaffinity(0, sizeof cores, &cores));
  const bool outputs_count = CPU_COUNT(&cores) >= 3;
  constexpr std::size_t count = 1 << 15;
  const Env env{{{"HOCKET_ALGORITHM", "direct"}}};
  enum class Unmapped { none, input, output_of_the_root, output_of_another };
  ranks::run_ranks(3, [&](Rank& self) {
    void *mapped_in = nullptr, *mapped_out = nullptr;
    ASSERT_HOCKET(hocketMemAlloc(&mapped_in, count * sizeof(int)));
    ASSERT_HOCKET(hocketMemAlloc(&mapped_out, count * sizeof(int)));
    std::vector<int> plain_in(count), plain_out(count);
    for (int root = 0; root < 3; ++root) {
      for (const Unmapped unmapped : {Unmapped::none, Unmapped::input, Unmapped::output_of_the_root,
                                      Unmapped::none, Unmapped::output_of_another}) {
        const bool is_root = self.rank == root, is_another = self.rank == (root + 1) % 3;
        int* const in =
            unmapped == Unmapped::input ? plain_in.data() : static_cast<int*>(mapped_in);
        const bool in_plain = (unmapped == Unmapped::output_of_the_root && is_root) ||
                              (unmapped == Unmapped::output_of_another && is_another);
        int* const out = in_plain ? plain_out.data() : static_cast<int*>(mapped_out);
        std::fill(in, in + count, root + 10);
        ASSERT_HOCKET(hocketBroadcast(is_root ? in : nullptr, out, count, hocketInt32, root,
                                      self.comm, nullptr));
        EXPECT_EQ(std::vector<int>(count, root + 10), std::vector<int>(out, out + count));
        const bool all_mapped =
            unmapped == Unmapped::none || (unmapped != Unmapped::input && !outputs_count);
        EXPECT_EQ(all_mapped ? "direct" : "staged", last_algorithm(self.comm))
            << "root " << root << ", unmapped " << static_cast<int>(unmapped);
      }
    }
    self.meet();
    EXPECT_HOCKET(hocketMemFree(mapped_in));
    EXPECT_HOCKET(hocketMemFree(mapped_out));
  });
}

/// The root of a broadcast or a scatter knows by its own input that `staged` will run, and ends
/// before the other rank begins.
TEST(MemoryKinds, let_a_rank_whose_buffer_is_not_mapped_go_on_without_its_peers) {
  constexpr std::size_t count = 1 << 13;
  const Env env{{{"HOCKET_TRANSPORT", "shm"}, {"HOCKET_ALGORITHM", "direct"}}};
  hocketConfig_t config = ranks::patient_config();
  config.deadline_ms = 10'000;
  ranks::run_ranks(
      2,
      [&](Rank& self) {
        const std::vector<int> in(2 * count, 7);
        for (const bool scatters : {false, true}) {
          std::vector<int> out(count, -1);
          EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
          if (self.rank == 1) self.meet();
          const auto call = scatters ? hocketScatter : hocketBroadcast;
          EXPECT_HOCKET(call(in.data(), out.data(), count, hocketInt32, 0, self.comm, nullptr));
          EXPECT_EQ(std::vector<int>(count, 7), out);
          EXPECT_EQ("staged", last_algorithm(self.comm));
          if (self.rank == 0) self.meet();
        }
      },
      config);
}

/// A scatter from mapped memory: rank 1 reads the root's input and ends before rank 2 begins.
TEST(MemoryKinds, of_the_root_alone_need_no_other_rank) {
  constexpr std::size_t count = 1 << 13;
  const Env env{{{"HOCKET_TRANSPORT", "shm"}, {"HOCKET_ALGORITHM", "direct"}}};
  hocketConfig_t config = ranks::patient_config();
  config.deadline_ms = 10'000;
  std::atomic<bool> has_ended{false};
  ranks::run_ranks(
      3,
      [&](Rank& self) {
        void* mapped = nullptr;
        ASSERT_HOCKET(hocketMemAlloc(&mapped, 3 * count * sizeof(int)));
        auto* const in = static_cast<int*>(mapped);
        for (std::size_t i = 0; i < 3 * count; ++i) in[i] = static_cast<int>(i / count);
        std::vector<int> out(count, -1);
        EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (self.rank == 2 && !has_ended && std::chrono::steady_clock::now() < end) {
          std::this_thread::yield();
        }
        EXPECT_HOCKET(hocketScatter(in, out.data(), count, hocketInt32, 0, self.comm, nullptr));
        EXPECT_EQ(std::vector<int>(count, self.rank), out);
        EXPECT_EQ("direct", last_algorithm(self.comm));
        if (self.rank == 1) has_ended = true;
        self.meet();
        EXPECT_HOCKET(hocketMemFree(mapped));
      },
      config);
}

}  // namespace
