// hocket.hpp makes communicators of several ranks of one process, duplicates and groups.
#include <array>

#include "hpp/job.h"

namespace {

using hocket::Communicator;
using hocket::UniqueId;
using Ints = std::vector<int>;

/// One thread calls an operation on each communicator of a process.
void expect_sums(std::vector<Communicator>& comms, int expected) {
  std::vector<Ints> data(comms.size(), Ints(100, 1));
  hocket::group([&] {
    for (std::size_t i = 0; i < comms.size(); ++i) comms[i].all_reduce(data[i], hocketSum);
  });
  for (const Ints& one : data) EXPECT_EQ(Ints(100, expected), one);
}

TEST(CppMaking, one_thread_joins_all_ranks_or_some) {
  std::vector<Communicator> all = Communicator::join_all(3);
  ASSERT_EQ(3u, all.size());
  EXPECT_EQ(2, all[2].rank());
  expect_sums(all, 3);
  const UniqueId id = UniqueId::create();
  const std::array even{0, 2};
  std::vector<Communicator> some;
  job::run_threads(2, [&](int thread) {
    if (thread == 1) {
      std::vector<Communicator> odd = Communicator::join(4, id, std::vector{3, 1}, job::patient());
      EXPECT_EQ(3, odd[0].rank());
      expect_sums(odd, 4);
    } else {
      some = Communicator::join(4, id, even, job::patient());
      EXPECT_EQ(2, some[1].rank());
      expect_sums(some, 4);
    }
  });
  const auto error = job::thrown_by<hocket::InvalidArgument>(
      [] { EXPECT_TRUE(Communicator::join_all(0).empty()); });
  EXPECT_TRUE(job::has(error, "ndev is 0")) << error.what();
}

TEST(CppMaking, several_unique_ids_make_one_job) {
  const std::array ids{UniqueId::create(), UniqueId::create(), UniqueId::create()};
  job::run_threads(4, [&](int rank) {
    Communicator comm = Communicator::join(4, ids, rank, job::patient());
    EXPECT_EQ(rank, comm.rank());
    EXPECT_EQ(4, comm.all_reduce(1, hocketSum));
  });
  const auto error =
      job::thrown_by<hocket::InvalidArgument>([&] { EXPECT_TRUE(Communicator::join(2, ids, 0)); });
  EXPECT_TRUE(job::has(error, "nId is 3")) << error.what();
}

TEST(CppMaking, duplicates_and_groups_have_operations_of_their_own) {
  job::run(3, [](Communicator& comm) {
    Communicator copy = comm.duplicate();
    EXPECT_EQ(comm.rank(), copy.rank());
    EXPECT_EQ(3, copy.all_reduce(1, hocketSum));
    hocket::Config named = job::patient();
    named.name = "copy";
    EXPECT_EQ(3, comm.duplicate(named).ranks());
    if (comm.rank() != 1) {
      const std::array ends{2, 0};
      Communicator pair = comm.create_group(ends);
      EXPECT_EQ(comm.rank() == 2 ? 0 : 1, pair.rank());
      EXPECT_EQ(2, pair.all_reduce(1, hocketSum));
      Communicator again = comm.create_group(Ints{0, 2}, 7, named);
      EXPECT_EQ(comm.rank() / 2, again.rank());
      const std::vector<hocketMember_t> members = pair.members();
      ASSERT_EQ(2u, members.size());
      EXPECT_EQ(2, members[0].jobRank);
      EXPECT_EQ(1, members[1].localRank);
    }
    const auto error = job::thrown_by<hocket::InvalidArgument>([&] {
      EXPECT_TRUE(comm.create_group(Ints{comm.rank(), 9}));
    });
    EXPECT_TRUE(job::has(error, "hocketCommCreateGroup")) << error.what();
    EXPECT_TRUE(job::has(error, "ranks[1] is 9")) << error.what();
  });
}

TEST(CppMaking, a_simulated_group_has_a_time) {
  job::run(2, [](Communicator& comm) {
    Ints data(1000, 1);
    hocket::Group group;
    comm.all_reduce(data, hocketSum);
    hocket::Group inner;
    comm.all_reduce(data, hocketSum);
    EXPECT_EQ(std::nullopt, inner.simulate_end());
    EXPECT_LT(0.0F, group.simulate_end().value());
    EXPECT_EQ(Ints(1000, 1), data) << "nothing has run";
    job::thrown_by<hocket::InvalidUsage>([&] { EXPECT_FALSE(group.simulate_end()); });
    EXPECT_LT(0u, comm.memory(hocketStatMemBoard));
    EXPECT_EQ(comm.memory(), comm.memory(hocketStatMemBoard) + comm.memory(hocketStatMemScratch));
  });
}

TEST(CppMaking, inside_a_group_is_refused) {
  const UniqueId id = UniqueId::create();
  const std::array ids{id};
  Communicator comm = Communicator::join(1, id, 0);
  hocket::Group group;
  using hocket::InvalidUsage;
  job::thrown_by<InvalidUsage>([&] { EXPECT_TRUE(Communicator::join(1, id, 0)); });
  job::thrown_by<InvalidUsage>([&] { EXPECT_TRUE(Communicator::join(1, ids, 0)); });
  job::thrown_by<InvalidUsage>([&] { EXPECT_TRUE(Communicator::join(1, id, Ints{0}).empty()); });
  job::thrown_by<InvalidUsage>([&] { EXPECT_TRUE(Communicator::join_all(1).empty()); });
  job::thrown_by<InvalidUsage>([&] { EXPECT_TRUE(Communicator::from_environment()); });
  job::thrown_by<InvalidUsage>([&] { EXPECT_TRUE(comm.split(0)); });
  job::thrown_by<InvalidUsage>([&] { EXPECT_TRUE(comm.duplicate()); });
  job::thrown_by<InvalidUsage>([&] { EXPECT_TRUE(comm.create_group(Ints{0})); });
}

}  // namespace
