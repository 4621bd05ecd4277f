// The errors of hocket.hpp: a type for each result, the culprit, and the call that failed.
#include <latch>

#include "hpp/job.h"

namespace {

using hocket::Communicator;
using Ints = std::vector<int>;

/// Rank 0 reduces another count than rank 1.
Ints uneven(const Communicator& comm) { return Ints(comm.rank() == 0 ? 3 : 4); }

TEST(CppErrors, a_mismatch_names_the_other_rank_and_the_call) {
  job::run(2, [](Communicator& comm) {
    Ints data = uneven(comm);
    const auto error = job::thrown_by<hocket::Mismatch>([&] { comm.all_reduce(data, hocketSum); });
    EXPECT_EQ(hocketMismatch, error.code());
    EXPECT_EQ(1 - comm.rank(), error.culprit());
    EXPECT_STREQ("hocketAllReduce", error.operation());
    EXPECT_TRUE(job::has(error, "hocketAllReduce")) << error.what();
    // It stays the communicator's.
    EXPECT_EQ(hocketMismatch, comm.async_error());
    EXPECT_EQ(1 - comm.rank(), comm.culprit());
    EXPECT_EQ(1 - comm.rank(), job::thrown_by<hocket::Mismatch>([&] { comm.wait(); }).culprit());
    EXPECT_EQ(1 - comm.rank(), job::thrown_by<hocket::Mismatch>([&] { comm.barrier(); }).culprit());
  });
}

TEST(CppErrors, of_a_stream_and_of_its_events_name_the_culprit) {
  job::run(2, [](Communicator& comm) {
    const int other = 1 - comm.rank();
    Communicator second = comm.split(0);
    hocket::Stream stream = hocket::Stream::create();
    Ints good(3), data = uneven(comm);
    comm.all_reduce(good, hocketSum, stream);
    const hocket::Event before = stream.record();
    before.wait();
    comm.all_reduce(data, hocketSum, stream);
    const hocket::Event after = stream.record();
    for (int i = 0; i < 2; ++i) {  // as often as asked for
      const auto error = job::thrown_by<hocket::Mismatch>([&] { after.wait(); });
      EXPECT_EQ(other, error.culprit());
      EXPECT_STREQ("hocketEventGetResult", error.operation());
    }
    EXPECT_TRUE(after.done());
    before.wait();  // operations that ended before the error have succeeded
    const auto error = job::thrown_by<hocket::Mismatch>([&] { stream.synchronize(); });
    EXPECT_EQ(other, error.culprit());
    EXPECT_STREQ("hocketStreamSynchronize", error.operation());
    stream.synchronize();  // it returned the error already
    stream.record().wait();

    second.all_reduce(data, hocketSum, stream);
    const auto again = job::thrown_by<hocket::Mismatch>([&] {
      while (!stream.done()) std::this_thread::yield();
    });
    EXPECT_EQ(other, again.culprit());
    EXPECT_STREQ("hocketStreamQuery", again.operation());
  });
}

TEST(CppErrors, of_a_group_name_the_culprit) {
  job::run(2, [](Communicator& comm) {
    Ints data = uneven(comm);
    const auto error = job::thrown_by<hocket::Mismatch>(
        [&] { hocket::group([&] { comm.all_reduce(data, hocketSum); }); });
    EXPECT_EQ(1 - comm.rank(), error.culprit());
    EXPECT_STREQ("hocketGroupEnd", error.operation());
    // A call that is refused while it is collected voids the group, and names its culprit there.
    hocket::Group group;
    const auto refused = job::thrown_by<hocket::Mismatch>([&] { comm.barrier(); });
    EXPECT_EQ(1 - comm.rank(), refused.culprit());
    EXPECT_EQ(1 - comm.rank(), job::thrown_by<hocket::Mismatch>([&] { group.end(); }).culprit());
  });
}

TEST(CppErrors, a_rank_that_left_is_named) {
  std::latch joined(3);
  job::run(3, [&](Communicator& comm) {
    joined.arrive_and_wait();
    if (comm.rank() == 2) return;
    Ints data(4);
    const auto error =
        job::thrown_by<hocket::RemoteError>([&] { comm.all_reduce(data, hocketSum); });
    EXPECT_EQ(2, error.culprit());
    EXPECT_EQ(hocketRemoteError, error.code());
  });
}

TEST(CppErrors, a_deadline_that_passes_is_a_timeout) {
  hocket::Config config = job::patient();
  config.deadline = std::chrono::seconds(2);
  std::latch over(1);
  job::run(
      2,
      [&](Communicator& comm) {
        if (comm.rank() == 1) return over.wait();
        Ints data(4);
        const auto error = job::thrown_by<hocket::Timeout>([&] { comm.recv(data, 1); });
        EXPECT_EQ(1, error.culprit());
        EXPECT_EQ(hocketTimeout, error.code());
        EXPECT_STREQ("hocketRecv", error.operation());
        over.count_down();
      },
      config);
}

TEST(CppErrors, abort_is_aborted_on_every_rank) {
  std::latch joined(2);
  job::run(2, [&](Communicator& comm) {
    joined.arrive_and_wait();
    if (comm.rank() == 0) comm.abort();
    const auto error = job::thrown_by<hocket::Aborted>([&] { comm.barrier(); });
    EXPECT_EQ(hocketAborted, error.code());
    EXPECT_EQ(0, error.culprit());
  });
}

TEST(CppErrors, of_a_join_name_the_culprit) {
  const hocket::UniqueId id = hocket::UniqueId::create();
  job::run_threads(2, [&](int rank) {
    hocket::Config config = job::patient();
    config.deterministic = rank == 1;  // settings that differ
    try {
      Communicator comm = Communicator::join(2, id, rank, config);
      comm.barrier();
      ADD_FAILURE() << "the ranks have different settings";
    } catch (const hocket::Mismatch& error) {
      EXPECT_EQ(1, error.culprit()) << "the one that differs from rank 0: " << error.what();
    }
  });
}

TEST(CppErrors, wrong_arguments_and_wrong_times_are_told_apart) {
  job::run(2, [](Communicator& comm) {
    Ints data(4);
    const auto root =
        job::thrown_by<hocket::InvalidArgument>([&] { comm.broadcast(data, comm.ranks()); });
    EXPECT_STREQ("hocketBroadcast", root.operation());
    EXPECT_TRUE(job::has(root, "root 2")) << root.what();
    const auto self = job::thrown_by<hocket::InvalidUsage>([&] { comm.send(data, comm.rank()); });
    EXPECT_EQ(hocketInvalidUsage, self.code());
    comm.finalize();
    const auto late = job::thrown_by<hocket::InvalidUsage>([&] { comm.barrier(); });
    EXPECT_STREQ("hocketBarrier", late.operation());

    Communicator moved = std::move(comm);
    EXPECT_TRUE(moved);
    EXPECT_FALSE(comm);  // NOLINT: what a move leaves is promised
    job::thrown_by<hocket::InvalidArgument>([&] { comm.barrier(); });
    job::thrown_by<hocket::InvalidArgument>([&] { EXPECT_EQ(0, comm.rank()); });
    comm = std::move(moved);
    EXPECT_EQ(2, comm.ranks());
  });
}

TEST(CppErrors, the_systems_refusal_and_a_result_without_a_type_are_errors_too) {
  const auto error =
      job::thrown_by<hocket::SystemError>([] { hocket::Memory<char> all(std::size_t{1} << 62); });
  EXPECT_EQ(hocketSystemError, error.code());
  EXPECT_STREQ("hocketMemAlloc", error.operation());
  try {
    hocket::check(hocketInternalError, "hocketBarrier");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const hocket::Error& internal) {
    EXPECT_EQ(hocketInternalError, internal.code());
  }
  hocket::check(hocketSuccess, "hocketBarrier");
  hocket::check(hocketInProgress, "hocketBarrier");
}

}  // namespace
