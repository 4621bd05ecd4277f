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
    ranks_.resize(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) names_.push_back(10 * rank);
    for (int rank = 0; rank < ranks; ++rank) {
      One& one = ranks_[static_cast<std::size_t>(rank)];
      one.board = std::make_unique<Board>(memory_.data() + (4096 - at % 4096), ranks, rank);
      one.run_ahead = std::make_unique<RunAhead>(*one.board, names_[rank], names_);
    }
  }
  RunAhead& operator[](std::size_t rank) { return *ranks_[rank].run_ahead; }
  std::uint64_t begun(std::size_t rank) const { return ranks_[rank].begun; }
  /// The rank begins its next collective, a broadcast of `count` elements by that plan, which uses
  /// the board.
  void begin(std::size_t rank, std::uint64_t count = 1, std::uint16_t plan = 1) {
    begin_by_messages(rank, count, plan);
    ++ranks_[rank].operations;
    ranks_[rank].run_ahead->begin_operation(ranks_[rank].operations, begun(rank));
  }
  /// The same for a collective that does not use it.
  void begin_by_messages(std::size_t rank, std::uint64_t count = 1, std::uint16_t plan = 1) {
    One& one = ranks_[rank];
    Signature signature = call_of(count);
    signature.sequence = 1000 + ++one.begun;
    signature.plan = plan;
    one.fingerprint = fingerprint(call_hash(signature) ^ one.fingerprint, one.begun);
    one.run_ahead->record(one.begun, one.fingerprint, signature);
    one.run_ahead->begin(one.begun);
  }
  /// Whether the next collective of the rank, which uses the board, may begin.
  RunAhead::Look may_begin(std::size_t rank, ScratchSize scratch = ScratchSize::none) {
    One& one = ranks_[rank];
    one.run_ahead->begin_operation(one.operations + 1, one.begun + 1);
    const std::uint64_t required =
        one.run_ahead->required_by(one.begun + 1, one.operations + 1, scratch);
    if (one.run_ahead->all_have_begun(required)) return RunAhead::Look::all_have_begun;
    return one.run_ahead->look(required);
  }

 private:
  struct One {
    std::unique_ptr<Board> board;
    std::unique_ptr<RunAhead> run_ahead;
    std::uint64_t begun = 0, operations = 0, fingerprint = 0;
  };
  std::vector<std::byte> memory_;
  std::vector<int> names_;
  std::vector<One> ranks_;
};

constexpr auto free = RunAhead::Look::all_have_begun;
constexpr auto waits = RunAhead::Look::waits;

TEST(RunAhead, waits_for_the_slowest_peer_when_it_is_as_far_ahead_as_there_are_lines) {
  Ranks ranks(3);
  for (std::uint64_t i = 0; i < most - 1; ++i) {
    ASSERT_EQ(free, ranks.may_begin(0)) << i;
    ranks.begin(0);
  }
  EXPECT_EQ(waits, ranks.may_begin(0)) << "the peers have not arrived at the first operation";
  EXPECT_EQ(1, ranks[0].looked_at());
  for (int i = 0; i < 3; ++i) ranks.begin(1);
  EXPECT_EQ(waits, ranks.may_begin(0));
  EXPECT_EQ(2, ranks[0].looked_at());
  ranks.begin(2);
  ranks.begin(2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(free, ranks.may_begin(0)) << "one look allows as many as the slowest peer does";
    ranks.begin(0);
  }
  EXPECT_EQ(waits, ranks.may_begin(0));
}

TEST(RunAhead, is_less_where_there_are_fewer_scratches) {
  Ranks ranks(2);
  ASSERT_EQ(free, ranks.may_begin(0, ScratchSize::large));
  ranks.begin(0);
  EXPECT_EQ(waits, ranks.may_begin(0, ScratchSize::large)) << "the peer may read the other one";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::medium));
    ranks.begin(0);
  }
  EXPECT_EQ(waits, ranks.may_begin(0, ScratchSize::medium)) << "the peer may read all four";
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::small));
    ranks.begin(0);
  }
  EXPECT_EQ(waits, ranks.may_begin(0, ScratchSize::small)) << "the peer may read all eight";
  EXPECT_EQ(waits, ranks.may_begin(0, ScratchSize::many_128k)) << "there are eight of them too";
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::many_32k));
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::many_4k));
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::many_512));
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::tiny));
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::none));
  for (int i = 0; i < 5; ++i) ranks.begin(1);
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::medium));
  EXPECT_EQ(waits, ranks.may_begin(0, ScratchSize::large));
}

constexpr ScratchSize all_sizes[] = {
    ScratchSize::tiny,     ScratchSize::small,   ScratchSize::medium,   ScratchSize::large,
    ScratchSize::many_512, ScratchSize::many_4k, ScratchSize::many_32k, ScratchSize::many_128k};

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

/// A rank that shares its core ends more calls before another rank has its turn, and a rank whose
/// peers are far away waits less for the lines of its scratch.
TEST(Scratch, is_of_a_size_with_room_and_there_are_more_where_a_rank_should_be_far_ahead) {
  std::vector<std::byte> start(1);
  const Board board(start.data(), 2, 0);
  for (const bool many : {false, true}) {
    for (const std::size_t bytes :
         {1, 512, 513, 2048, 2049, 4096, 4097, 32768, 32769, 131072, 131073, 2 << 20}) {
      const ScratchSize size = Board::size_for(bytes, many);
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
    ranks.begin(0);
    ranks[0].saw_all(i + 1);
  }
  EXPECT_TRUE(ranks[0].all_have_begun(most));
  EXPECT_FALSE(ranks[0].all_have_begun(most + 1));
  EXPECT_EQ(free, ranks.may_begin(0));
}

/// The rank that looks first finds the difference, whether the other rank is ahead or behind, and
/// whether the collectives use the board or not.
TEST(RunAhead, finds_the_first_call_that_differs) {
  for (const std::uint64_t differs : {std::uint64_t{1}, std::uint64_t{4}, most - 1}) {
    for (int variant = 0; variant < 6; ++variant) {
      const bool ahead = variant % 2 != 0;
      // Which collectives do not use the board: none, those that differ, all.
      const auto begin = [&](Ranks& ranks, std::size_t rank, std::uint64_t count) {
        const bool uses_board = variant < 2 || (variant < 4 && ranks.begun(rank) + 1 != differs);
        uses_board ? ranks.begin(rank, count) : ranks.begin_by_messages(rank, count);
      };
      Ranks ranks(2);
      const std::size_t looks = ahead ? 0 : 1, other = 1 - looks;
      for (std::uint64_t i = 1; i < most; ++i) begin(ranks, 0, i == differs ? 7 : 1);
      for (std::uint64_t i = 1; i <= differs; ++i) begin(ranks, 1, 1);
      while (!ahead && ranks.may_begin(1) == free && ranks.begun(1) < most - 1) {
        begin(ranks, 1, 1);
      }
      ASSERT_EQ(RunAhead::Look::disagrees,
                ranks[looks].look(std::max<std::uint64_t>(1, differs - 1)));
      const Status status = ranks[looks].disagreement();
      EXPECT_EQ(Code::mismatch, status.code()) << status.message();
      EXPECT_EQ(static_cast<int>(10 * other), status.culprit());
      EXPECT_EQ(differs, status.sequence()) << "the number among all collectives";
      const std::string operation = "(operation " + std::to_string(1000 + differs) + ")";
      EXPECT_NE(std::string::npos, status.message().find("broadcast of 7")) << status.message();
      EXPECT_NE(std::string::npos, status.message().find("broadcast of 1 ")) << status.message();
      EXPECT_NE(std::string::npos, status.message().find(operation)) << status.message();
    }
  }
}

/// A rank that only sends messages is bounded too, and so is the number of calls after which it
/// learns that its peers make others.
TEST(RunAhead, bounds_collectives_that_do_not_use_the_board) {
  Ranks ranks(2);
  for (std::uint64_t i = 0; i < most - 1; ++i) {
    ASSERT_EQ(free, ranks.may_begin(0)) << i;
    ranks.begin_by_messages(0);
  }
  EXPECT_EQ(waits, ranks.may_begin(0));
  ranks.begin_by_messages(1);
  EXPECT_EQ(free, ranks.may_begin(0));
  ranks.begin_by_messages(1);
  EXPECT_EQ(free, ranks.may_begin(0, ScratchSize::large)) << "no operation has used a scratch";
}

/// One rank leaves out a call that does not use the board. Then both make the same call, which has
/// another number on each.
TEST(RunAhead, finds_a_call_that_one_rank_leaves_out) {
  for (const std::size_t looks : {0, 1}) {
    Ranks ranks(2);
    ranks.begin_by_messages(0, 7);
    for (int i = 0; i < 2; ++i) {
      ranks.begin(0);
      ranks.begin(1);
    }
    ASSERT_EQ(RunAhead::Look::disagrees, ranks[looks].look(1));
    const Status status = ranks[looks].disagreement();
    EXPECT_EQ(Code::mismatch, status.code()) << status.message();
    EXPECT_EQ(1U, status.sequence());
    EXPECT_NE(std::string::npos, status.message().find("broadcast of 7")) << status.message();
    EXPECT_NE(std::string::npos, status.message().find("broadcast of 1 ")) << status.message();
  }
}

TEST(RunAhead, finds_ranks_that_run_a_call_by_different_plans) {
  Ranks ranks(2);
  for (std::uint64_t i = 1; i < most; ++i) ranks.begin(0, 1, 12);
  ranks.begin(1, 1, 47);
  ASSERT_EQ(RunAhead::Look::disagrees, ranks.may_begin(0));
  const Status status = ranks[0].disagreement();
  EXPECT_EQ(Code::mismatch, status.code());
  EXPECT_EQ(10, status.culprit());
  EXPECT_NE(std::string::npos, status.message().find("different plans, number 47 and number 12"))
      << status.message();
}

TEST(RunAhead, tells_bytes_that_something_has_overwritten_from_another_call) {
  Ranks ranks(2);
  for (std::uint64_t i = 1; i < most; ++i) ranks.begin(0);
  ranks.begin(1);
  Signature same_call = call_of(1);
  same_call.plan = 1;
  ranks[1].record(1, 12345, same_call);
  ASSERT_EQ(RunAhead::Look::disagrees, ranks.may_begin(0));
  EXPECT_EQ(Code::internal_error, ranks[0].disagreement().code());
  EXPECT_EQ(10, ranks[0].disagreement().culprit());
}

}  // namespace
}  // namespace hocket::internal
