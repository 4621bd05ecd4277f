// Operators and datatypes of the program in hocket.hpp, called as users call them.
#include <array>
#include <string>
#include <utility>

#include "hpp/job.h"

namespace {

using hocket::Communicator;
using hocket::Operator;

/// No element type of hocket.
struct Reading {
  double value;
  int rank;
  bool operator==(const Reading&) const = default;
};

Reading lower(const Reading& a, const Reading& b) { return b.value < a.value ? b : a; }

TEST(CppOperators, work_on_structs_in_every_reduction) {
  job::run(3, [](Communicator& comm) {
    const Operator<Reading> lowest(comm, "lowest", lower, hocket::Commutative::yes);
    const int rank = comm.rank();
    hocket::Stream stream = hocket::Stream::create();
    const std::vector<Reading> in{{10.0 - rank, rank}, {static_cast<double>(rank), rank}};
    const std::vector<Reading> best{{8.0, 2}, {0.0, 0}};
    std::vector<Reading> out(2), data = in, streamed = in, streamed_out(2);
    comm.all_reduce(in, out, lowest);
    comm.all_reduce(data, lowest);
    comm.all_reduce(in, streamed_out, lowest, stream);
    comm.all_reduce(streamed, lowest, stream);
    stream.synchronize();
    EXPECT_EQ(best, out);
    EXPECT_EQ(best, data);
    EXPECT_EQ(best, streamed_out);
    EXPECT_EQ(best, streamed);
    EXPECT_EQ((Reading{8.0, 2}), comm.all_reduce(in[0], lowest));

    std::vector<Reading> at_root(2), reduced = in;
    comm.reduce(in, at_root, lowest, 1);
    comm.reduce(reduced, lowest, 2, stream);
    stream.synchronize();
    if (rank == 1) {
      EXPECT_EQ(best, at_root);
    }
    if (rank == 2) {
      EXPECT_EQ(best, reduced);
    }

    std::array<Reading, 3> parts;
    for (int i = 0; i < 3; ++i) parts[static_cast<std::size_t>(i)] = {1.0 * (i + rank), rank};
    std::array<Reading, 1> own{};
    comm.reduce_scatter(parts, own, lowest);
    EXPECT_EQ((Reading{1.0 * rank, 0}), own[0]);
    const std::vector<std::size_t> counts{1, 0, 2};
    std::vector<Reading> mine(counts[static_cast<std::size_t>(rank)]);
    comm.reduce_scatter(parts, mine, counts, lowest, stream);
    stream.synchronize();
    if (rank == 2) {
      EXPECT_EQ((std::vector<Reading>{{1.0, 0}, {2.0, 0}}), mine);
    }
    comm.reduce_scatter(parts, lowest);
    EXPECT_EQ((Reading{1.0 * rank, 0}), parts[static_cast<std::size_t>(rank)]);
  });
}

TEST(CppOperators, keep_their_state_and_the_order_of_ranks) {
  job::run(3, [](Communicator& comm) {
    // x0 - (x1 - x2); the lambda owns what it needs.
    const Operator<int> minus(
        comm, "minus",
        [scale = std::make_shared<int>(1)](const int& a, const int& b) { return a - *scale * b; });
    EXPECT_EQ(hocketInt32, minus.datatype());
    EXPECT_EQ(100 - (10 - 1), comm.all_reduce(comm.rank() == 0   ? 100
                                              : comm.rank() == 1 ? 10
                                                                 : 1,
                                              minus));
  });
}

TEST(CppOperators, are_moved_and_end_with_their_scope) {
  job::run(2, [](Communicator& comm) {
    hocketRedOp_t ended = hocketSum;
    {
      const auto add = [](const long& a, const long& b) { return a + b; };
      Operator<long> first(comm, "add", add, hocket::Commutative::yes);
      Operator<long> second = std::move(first);
      EXPECT_EQ(6L, comm.all_reduce(3L, second));
      Operator<long> third(comm, "third", add);
      third = std::move(second);
      EXPECT_EQ(8L, comm.all_reduce(4L, third));
      ended = third.get();
    }
    const auto error = job::thrown_by<hocket::InvalidArgument>(
        [&] { static_cast<void>(comm.all_reduce(1L, ended)); });
    EXPECT_TRUE(job::has(error, "was destroyed before")) << error.what();
    const auto unnamed = job::thrown_by<hocket::InvalidArgument>(
        [&] { Operator<long>(comm, "", [](const long& a, const long&) { return a; }); });
    EXPECT_TRUE(job::has(unnamed, "name is empty")) << unnamed.what();
  });
}

TEST(CppOperators, multiply_each_ranks_input_by_its_own_scalar) {
  job::run(3, [](Communicator& comm) {
    const auto rank = static_cast<float>(comm.rank());
    hocketRedOp_t ended = hocketSum;
    {
      hocket::PreMulSum first(comm, rank + 1);  // 1, 2, 3
      EXPECT_EQ(hocketFloat32, first.datatype());
      hocket::PreMulSum<float> op = std::move(first);
      hocket::Stream stream = hocket::Stream::create();
      const std::vector<float> in{1, 10, 100};
      std::vector<float> out(3), data = in, streamed = in, at_root(3), whole = in;
      comm.all_reduce(in, out, op);
      comm.all_reduce(data, op);
      comm.all_reduce(streamed, op, stream);
      stream.synchronize();
      for (const std::vector<float>& got : {out, data, streamed}) {
        EXPECT_EQ((std::vector<float>{6, 60, 600}), got);
      }
      EXPECT_EQ(6.0f, comm.all_reduce(1.0f, op));
      comm.reduce(in, at_root, op, 1);
      if (comm.rank() == 1) {
        EXPECT_EQ(600, at_root[2]);
      }
      comm.reduce_scatter(whole, op);
      EXPECT_EQ(6 * in[static_cast<std::size_t>(rank)], whole[static_cast<std::size_t>(rank)]);
      hocket::PreMulSum<float> other(comm, 1.0f);
      other = std::move(op);
      EXPECT_EQ(6.0f, comm.all_reduce(1.0f, other));
      ended = other.get();
    }
    const auto gone = job::thrown_by<hocket::InvalidArgument>(
        [&] { static_cast<void>(comm.all_reduce(1.0f, ended)); });
    EXPECT_TRUE(job::has(gone, "was destroyed before")) << gone.what();
    Communicator moved = std::move(comm);
    const auto none = job::thrown_by<hocket::InvalidArgument>(
        [&] { hocket::PreMulSum<int>(comm, 1); });  // NOLINT: after the move
    EXPECT_TRUE(job::has(none, "the communicator is NULL")) << none.what();
  });
}

TEST(CppOperators, and_types_of_the_c_api_are_owned) {
  hocketDataType_t ended = hocketInt8;
  size_t bytes = 0;
  {
    hocket::ContiguousType three(3, hocketFloat64);
    hocket::ContiguousType moved = std::move(three);
    hocket::ContiguousType other(2, moved.get());
    moved = std::move(other);
    ended = moved.get();
    EXPECT_EQ(hocketSuccess, hocketTypeSize(ended, &bytes));
    EXPECT_EQ(48u, bytes);
  }
  EXPECT_EQ(hocketInvalidArgument, hocketTypeSize(ended, &bytes));
  const auto none =
      job::thrown_by<hocket::InvalidArgument>([] { hocket::ContiguousType(0, hocketInt8); });
  EXPECT_TRUE(job::has(none, "n is 0")) << none.what();
}

}  // namespace
