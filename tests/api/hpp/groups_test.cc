// The groups of hocket.hpp: end() begins their calls; without end() they are discarded.
#include <memory>
#include <type_traits>

#include "hpp/job.h"

namespace {

using hocket::Communicator;
using Ints = std::vector<int>;

struct Interrupted {};

int depth() {
  int open = -1;
  hocket::check(hocketGroupDepth(&open), "hocketGroupDepth");
  return open;
}

TEST(CppGroup, begins_where_it_ends) {
  job::run(2, [](Communicator& comm) {
    Ints data(4, 1);
    hocket::Group group;
    comm.all_reduce(data, hocketSum);
    {
      hocket::Group inner;
      comm.all_reduce(data, hocketSum);
      inner.end();
    }
    EXPECT_EQ(Ints(4, 1), data);
    group.end();
    EXPECT_EQ(Ints(4, 4), data);
    EXPECT_EQ(0, depth());
    job::thrown_by<hocket::InvalidUsage>([&] { group.end(); });
  });
  static_assert(std::is_nothrow_destructible_v<hocket::Group>);
}

/// The buffer ends before the group does: a call on it that began would write into freed memory.
TEST(CppGroup, is_discarded_by_an_exception_with_the_buffers_of_its_calls) {
  job::run(2, [](Communicator& comm) {
    Ints kept(1000, 1);
    try {
      hocket::Group group;
      const auto lost = std::make_unique<Ints>(1'000'000, 1);
      comm.all_reduce(*lost, hocketSum);
      comm.all_reduce(kept, hocketSum);
      throw Interrupted();
    } catch (const Interrupted&) {
      EXPECT_EQ(0, depth());
    }
    EXPECT_THROW(hocket::group([&] {
                   comm.all_reduce(kept, hocketSum);
                   throw Interrupted();
                 }),
                 Interrupted);
    EXPECT_THROW(hocket::group([&] {
                   comm.all_reduce(kept, hocketSum);
                   hocket::group([&] {
                     comm.all_reduce(kept, hocketSum);
                     throw Interrupted();
                   });
                 }),
                 Interrupted);
    EXPECT_EQ(0, depth());
    EXPECT_EQ(Ints(1000, 1), kept);
    EXPECT_EQ(2, comm.all_reduce(1, hocketSum)) << "the communicator is as before";
  });
}

TEST(CppGroup, that_is_left_without_end_begins_nothing) {
  job::run(2, [](Communicator& comm) {
    Ints data(4, 1);
    {
      const hocket::Group group;
      comm.all_reduce(data, hocketSum);
    }
    EXPECT_EQ(Ints(4, 1), data);
    comm.all_reduce(data, hocketSum);
    EXPECT_EQ(Ints(4, 2), data);
  });
}

/// The result would be read before the group's end, and written after the caller's frame is gone.
TEST(CppGroup, refuses_the_reduction_of_a_value) {
  job::run(2, [](Communicator& comm) {
    hocket::Group group;
    const auto error =
        job::thrown_by<hocket::InvalidUsage>([&] { EXPECT_EQ(0, comm.all_reduce(1, hocketSum)); });
    EXPECT_TRUE(job::has(error, "group")) << error.what();
    group.end();
    EXPECT_EQ(2, comm.all_reduce(1, hocketSum));
  });
}

}  // namespace
