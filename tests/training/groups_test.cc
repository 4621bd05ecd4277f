// Ranks as a grid with named dimensions.
#include <gtest/gtest.h>

#include <algorithm>
#include <hocket/training/groups.hpp>
#include <optional>

#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::message_of;
using tests::run_ranks;

/// The ranks of the mesh that are in a communicator, in its order.
std::vector<int> members(Communicator& group, Communicator& all) {
  const int mine[] = {all.rank()};
  std::vector<int> ranks(static_cast<std::size_t>(group.ranks()));
  group.all_gather(mine, ranks);
  return ranks;
}

TEST(Mesh, each_dimension_has_a_communicator_of_the_ranks_along_it) {
  run_ranks(6, [](Communicator& comm) {
    Mesh mesh(comm, {{"replicate", 2}, {"shard", 3}});
    const int row = comm.rank() / 3, column = comm.rank() % 3;
    EXPECT_EQ(mesh.coordinate("replicate"), row);
    EXPECT_EQ(mesh.coordinate("shard"), column);
    EXPECT_EQ(mesh.ranks("replicate"), 2);
    EXPECT_EQ(mesh.along("shard").rank(), column);
    EXPECT_EQ(mesh.along("replicate").rank(), row);
    EXPECT_EQ(members(mesh.along("shard"), comm), (std::vector{3 * row, 3 * row + 1, 3 * row + 2}));
    EXPECT_EQ(members(mesh.along("replicate"), comm), (std::vector{column, column + 3}));
    EXPECT_EQ(mesh.rank_at({row, column}), comm.rank());
  });
}

TEST(Mesh, several_dimensions_may_be_one_group) {
  run_ranks(8, [](Communicator& comm) {
    Mesh mesh(comm, {{"a", 2}, {"b", -1}, {"c", 2}});
    EXPECT_EQ(mesh.ranks("b"), 2);
    const int a = comm.rank() / 4, b = comm.rank() / 2 % 2, c = comm.rank() % 2;
    Communicator ac = mesh.group({"c", "a"});
    EXPECT_EQ(members(ac, comm), (std::vector{2 * b, 2 * b + 1, 4 + 2 * b, 5 + 2 * b}));
    EXPECT_EQ(ac.rank(), 2 * a + c);
    Communicator all = mesh.group({"a", "b", "c"}), none = mesh.group({});
    EXPECT_EQ(all.ranks(), 8);
    EXPECT_EQ(none.ranks(), 1);
    EXPECT_EQ(members(mesh.along("b"), comm), (std::vector{4 * a + c, 4 * a + 2 + c}));
  });
}

TEST(Mesh, its_communicators_live_longer_than_that_it_was_made_from) {
  run_ranks(4, [](Communicator& comm) {
    std::optional<Communicator> given(comm.duplicate());
    Mesh mesh(*given, {{"x", 2}, {"y", 2}});
    given.reset();
    int sum = mesh.along("x").all_reduce(comm.rank(), hocketSum);
    sum = mesh.along("y").all_reduce(sum, hocketSum);
    EXPECT_EQ(sum, 6);
  });
}

TEST(Mesh, wrong_dimensions_are_refused_on_all_ranks) {
  struct Case {
    std::vector<MeshDimension> dimensions;
    std::string message;
  };
  const Case cases[] = {
      {{}, "at least one dimension"},
      {{{"a", 2}, {"b", 2}}, "\"a\" 2 x \"b\" 2 do not multiply to 6, the number of ranks"},
      {{{"a", 1 << 20}, {"b", 1 << 20}, {"c", 1 << 24}}, "do not multiply to 6"},
      {{{"a", 4}, {"b", -1}}, "do not multiply to 6"},
      {{{"a", 12}, {"b", -1}}, "do not multiply to 6"},
      {{{"a", -1}, {"b", -1}}, "-1 at most once"},
      {{{"a", 0}, {"b", 6}}, "at least 1 rank each"},
      {{{"a", 3}, {"a", 2}}, "no name twice"},
      {{{"", 6}}, "a name each"},
  };
  run_ranks(6, [&](Communicator& comm) {
    for (const Case& each : cases) {
      const std::string message =
          message_of<InvalidArgument>([&] { Mesh mesh(comm, each.dimensions); });
      EXPECT_NE(message.find(each.message), std::string::npos) << message;
    }
    const std::string message = message_of<Mismatch>([&] {
      Mesh mesh(comm, comm.rank() == 4 ? std::vector<MeshDimension>{{"a", 3}, {"b", 2}}
                                       : std::vector<MeshDimension>{{"a", 2}, {"b", 3}});
    });
    EXPECT_NE(message.find("rank 0 has the dimensions \"a\" 2 x \"b\" 3, rank 4 has \"a\" 3"),
              std::string::npos)
        << message;
    Mesh mesh(comm, {{"a", 2}, {"b", 3}});
    EXPECT_NE(
        message_of<InvalidArgument>([&] { (void)mesh.ranks("c"); }).find("no dimension \"c\""),
        std::string::npos);
    for (const std::vector<int>& none : {std::vector<int>{1}, {2, 0}, {0, -1}, {0, 0, 0}}) {
      EXPECT_THROW((void)mesh.rank_at(none), InvalidArgument);
    }
  });
}

}  // namespace
}  // namespace hocket::training
