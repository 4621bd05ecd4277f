// How far a rank may be ahead of its local peers, and what it learns of their calls meanwhile. The
// test is all ranks.
#include "transport/shm/run_ahead.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace hocket::internal {
namespace {

constexpr std::uint64_t most = run_ahead_operations;

Signature call_of(std::uint64_t count) {
  Signature signature;
  signature.collective = Collective::broadcast;
  signature.count = count;
  return signature;
}

class Ranks {
 public:
  explicit Ranks(int ranks) : memory_(Board::bytes(ranks) + 4096) {
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    for (int rank = 0; rank < ranks; ++rank) names_.push_back(10 * rank);
    for (int rank = 0; rank < ranks; ++rank) {
      boards_.push_back(std::make_unique<Board>(memory_.data() + (4096 - at % 4096), ranks, rank));
      ranks_.push_back(std::make_unique<RunAhead>(*boards_.back(), names_[rank], names_));
      fingerprints_.push_back(0);
    }
  }
  RunAhead& operator[](std::size_t rank) { return *ranks_[rank]; }
  /// The rank arrives at its next operation: a broadcast of `count` elements by that plan.
  void arrive(std::size_t rank, std::uint64_t count = 1, std::uint16_t plan = 1) {
    const std::uint64_t operation = ranks_[rank]->arrived() + 1;
    Signature signature = call_of(count);
    signature.sequence = operation;
    signature.plan = plan;
    boards_[rank]->signature(static_cast<int>(rank), operation) = signature;
    fingerprints_[rank] = fingerprint(call_hash(signature) ^ fingerprints_[rank], 100 + operation);
    ranks_[rank]->begin(operation, 100 + operation);
    ranks_[rank]->arrive(operation, fingerprints_[rank]);
  }
  /// Whether the next operation of the rank may begin.
  RunAhead::Look may_begin(std::size_t rank, ScratchSize scratch = ScratchSize::none) {
    const std::uint64_t operation = ranks_[rank]->arrived() + 1;
    const std::uint64_t required = RunAhead::required_by(operation, scratch);
    if (ranks_[rank]->all_have_arrived(required)) return RunAhead::Look::all_have_arrived;
    return ranks_[rank]->look(required);
  }

 private:
  std::vector<std::byte> memory_;
  std::vector<int> names_;
  std::vector<std::unique_ptr<Board>> boards_;
  std::vector<std::unique_ptr<RunAhead>> ranks_;
  std::vector<std::uint64_t> fingerprints_;
};

constexpr auto free = RunAhead::Look::all_have_arrived;
constexpr auto waits = RunAhead::Look::waits;

TEST(RunAhead, waits_for_the_slowest_peer_when_it_is_as_far_ahead_as_there_are_lines) {
  Ranks ranks(3);
  for (std::uint64_t i = 0; i < most - 1; ++i) {
    ASSERT_EQ(free, ranks.may_begin(0)) << i;
    ranks.arrive(0);
  }
  EXPECT_EQ(waits, ranks.may_begin(0)) << "the peers have not arrived at the first operation";
  EXPECT_EQ(1, ranks[0].looked_at());
  for (int i = 0; i < 3; ++i) ranks.arrive(1);
  EXPECT_EQ(waits, ranks.may_begin(0));
  EXPECT_EQ(2, ranks[0].looked_at());
  ranks.arrive(2);
  ranks.arrive(2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(free, ranks.may_begin(0)) << "one look allows as many as the slowest peer does";
    ranks.arrive(0);
  }
  EXPECT_EQ(waits, ranks.may_begin(0));
}

TEST(RunAhead, is_less_where_there_are_fewer_scratches) {
  Ranks ranks(2);
  ASSERT_EQ(free, ranks.may_begin(0, ScratchSize::large));
  ranks.arrive(0);
  EXPECT_EQ(waits, ranks.may_begin(0, ScratchSize::large)) << "the peer may read the other one";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::medium));
    ranks.arrive(0);
  }
  EXPECT_EQ(waits, ranks.may_begin(0, ScratchSize::medium)) << "the peer may read all four";
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::small));
    ranks.arrive(0);
  }
  EXPECT_EQ(waits, ranks.may_begin(0, ScratchSize::small)) << "the peer may read all eight";
  EXPECT_EQ(waits, ranks.may_begin(0, ScratchSize::turns_128k)) << "there are eight of them too";
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::turns_32k));
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::turns_4k));
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::turns_512));
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::tiny));
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::none));
  for (int i = 0; i < 5; ++i) ranks.arrive(1);
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::medium));
  EXPECT_EQ(waits, ranks.may_begin(0, ScratchSize::large));
}

constexpr ScratchSize all_sizes[] = {
    ScratchSize::tiny,      ScratchSize::small,    ScratchSize::medium,    ScratchSize::large,
    ScratchSize::turns_512, ScratchSize::turns_4k, ScratchSize::turns_32k, ScratchSize::turns_128k};

TEST(Scratch, of_every_size_and_rank_lies_apart_from_all_others) {
  for (const int ranks : {2, 13, 300}) {
    std::vector<std::byte> start(1);  // of a board of which no byte is touched
    const Board board(start.data(), ranks, 0);
    std::vector<std::pair<const std::byte*, const std::byte*>> areas;
    for (const ScratchSize size : all_sizes) {
      const std::uint64_t number = Board::scratches(size);
      const std::size_t bytes = board.scratch_step(size) / number;
      for (const int rank : std::set<int>{0, 1, ranks - 1}) {
        for (std::uint64_t operation = 1000; operation < 1000 + number; ++operation) {
          const std::byte* const begin = board.scratch(size, rank, operation);
          EXPECT_EQ(begin, board.scratch(size, rank, operation + number));
          areas.emplace_back(begin, begin + bytes);
        }
      }
    }
    std::ranges::sort(areas);
    for (std::size_t i = 1; i < areas.size(); ++i) {
      ASSERT_LE(areas[i - 1].second, areas[i].first) << ranks << " ranks, area " << i;
    }
    EXPECT_LE(areas.back().second, board.fifo(0, 0));
  }
}

/// A rank that shares its core ends more calls before another rank has its turn.
TEST(Scratch, is_of_a_size_with_room_and_there_are_more_where_ranks_share_cores) {
  std::vector<std::byte> start(1);
  const Board board(start.data(), 2, 0);
  for (const bool shares_cores : {false, true}) {
    for (const std::size_t bytes :
         {1, 512, 513, 2048, 2049, 4096, 4097, 32768, 32769, 131072, 131073, 2 << 20}) {
      const ScratchSize size = Board::size_for(bytes, shares_cores);
      EXPECT_LE(bytes, board.scratch_step(size) / Board::scratches(size)) << bytes;
    }
  }
  for (const std::size_t bytes : {100, 512, 600, 4096, 30'000, 100'000}) {
    EXPECT_LT(Board::scratches(Board::size_for(bytes, false)),
              Board::scratches(Board::size_for(bytes, true)))
        << bytes;
  }
}

TEST(RunAhead, knows_without_a_look_what_an_operation_has_shown) {
  Ranks ranks(2);
  for (std::uint64_t i = 0; i < most; ++i) {
    ranks.arrive(0);
    ranks[0].saw_all(i + 1);
  }
  EXPECT_TRUE(ranks[0].all_have_arrived(most));
  EXPECT_FALSE(ranks[0].all_have_arrived(most + 1));
  EXPECT_EQ(free, ranks.may_begin(0));
}

/// Whoever looks first finds the difference, however far the other one is: ahead or behind.
TEST(RunAhead, finds_the_first_call_that_differs) {
  for (const std::uint64_t differs : {std::uint64_t{1}, std::uint64_t{4}, most - 1}) {
    for (const bool ahead : {false, true}) {
      Ranks ranks(2);
      const std::size_t looks = ahead ? 0 : 1, other = 1 - looks;
      for (std::uint64_t i = 1; i < most; ++i) ranks.arrive(0, i == differs ? 7 : 1);
      for (std::uint64_t i = 1; i <= differs; ++i) ranks.arrive(1, 1);
      while (!ahead && ranks.may_begin(1) == free && ranks[1].arrived() < most - 1) {
        ranks.arrive(1, 1);
      }
      ASSERT_EQ(RunAhead::Look::disagrees,
                ranks[looks].look(std::max<std::uint64_t>(1, differs - 1)));
      const Status status = ranks[looks].disagreement();
      EXPECT_EQ(Code::mismatch, status.code()) << status.message();
      EXPECT_EQ(static_cast<int>(10 * other), status.culprit());
      EXPECT_EQ(100 + differs, status.sequence()) << "the number among all collectives";
      const std::string operation = "(operation " + std::to_string(differs) + ")";
      EXPECT_NE(std::string::npos, status.message().find("broadcast of 7")) << status.message();
      EXPECT_NE(std::string::npos, status.message().find("broadcast of 1 ")) << status.message();
      EXPECT_NE(std::string::npos, status.message().find(operation)) << status.message();
    }
  }
}

TEST(RunAhead, finds_ranks_that_run_a_call_by_different_plans) {
  Ranks ranks(2);
  for (std::uint64_t i = 1; i < most; ++i) ranks.arrive(0, 1, 12);
  ranks.arrive(1, 1, 47);
  ASSERT_EQ(RunAhead::Look::disagrees, ranks.may_begin(0));
  const Status status = ranks[0].disagreement();
  EXPECT_EQ(Code::mismatch, status.code());
  EXPECT_EQ(10, status.culprit());
  EXPECT_NE(std::string::npos, status.message().find("different plans, number 47 and number 12"))
      << status.message();
}

TEST(RunAhead, tells_bytes_that_something_has_overwritten_from_another_call) {
  Ranks ranks(2);
  for (std::uint64_t i = 1; i < most; ++i) ranks.arrive(0);
  ranks.arrive(1);
  ranks[1].arrive(1, 12345);  // the same call with another fingerprint
  ASSERT_EQ(RunAhead::Look::disagrees, ranks.may_begin(0));
  EXPECT_EQ(Code::internal_error, ranks[0].disagreement().code());
}

}  // namespace
}  // namespace hocket::internal
