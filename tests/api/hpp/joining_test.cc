// hocket.hpp makes communicators, with blocking and non-blocking calls.
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>
#include <sstream>

#include "hpp/job.h"

namespace {

using hocket::Communicator;
using hocket::UniqueId;
using Ints = std::vector<int>;

hocket::Config not_blocking() {
  hocket::Config config = job::patient();
  config.blocking = false;
  return config;
}

TEST(CppNotBlocking, before_the_join_has_ended_there_is_no_rank) {
  const UniqueId id = UniqueId::create();
  std::latch asked(1);
  job::run_threads(2, [&](int rank) {
    if (rank == 1) asked.wait();
    Communicator comm = Communicator::join(2, id, rank, not_blocking());
    if (rank == 0) {  // rank 1 has not come
      EXPECT_FALSE(comm.ready());
      EXPECT_EQ(hocketInProgress, comm.async_error());
      using hocket::InvalidUsage;
      Ints data(4);
      job::thrown_by<InvalidUsage>([&] { EXPECT_EQ(0, comm.rank()); });
      job::thrown_by<InvalidUsage>([&] { EXPECT_EQ(2, comm.ranks()); });
      job::thrown_by<InvalidUsage>([&] { comm.all_reduce(data, hocketSum); });
      job::thrown_by<InvalidUsage>([&] { EXPECT_EQ(2, comm.all_reduce(1, hocketSum)); });
      job::thrown_by<InvalidUsage>([&] { EXPECT_TRUE(comm.split(0)); });
      job::thrown_by<InvalidUsage>([&] { comm.finalize(); });
      job::thrown_by<InvalidUsage>([&] { EXPECT_EQ("", comm.last_algorithm().transport); });
      asked.count_down();
    }
    comm.wait();
    EXPECT_TRUE(comm.ready());
    EXPECT_EQ(rank, comm.rank());
    EXPECT_EQ(2, comm.ranks());
    Ints data(4, 1);
    for (int i = 0; i < 10; ++i) comm.all_reduce(data, hocketSum);
    comm.wait();
    EXPECT_EQ(Ints(4, 1024), data);
    EXPECT_EQ(2, comm.all_reduce(1, hocketSum));
    hocket::group([&] { comm.all_reduce(data, hocketMax); });
    comm.wait();
    Communicator half = comm.split(0);  // not blocking either
    half.wait();
    EXPECT_EQ(2, half.ranks());
  });
}

TEST(CppNotBlocking, a_value_that_cannot_be_reduced_is_an_error_and_no_late_write) {
  std::latch joined(2);
  job::run(
      2,
      [&](Communicator& comm) {
        comm.wait();
        joined.arrive_and_wait();
        if (comm.rank() == 1) return;
        const auto error = job::thrown_by<hocket::RemoteError>(
            [&] { EXPECT_EQ(2, comm.all_reduce(1, hocketSum)); });
        EXPECT_EQ(1, error.culprit());
        EXPECT_EQ(1, comm.culprit());
        EXPECT_EQ(hocketRemoteError, comm.async_error());
      },
      not_blocking());
}

TEST(CppNotBlocking, a_join_that_fails_is_thrown) {
  const UniqueId id = UniqueId::create();
  hocket::Config config = not_blocking();
  config.join_deadline = std::chrono::milliseconds(200);
  Communicator comm = Communicator::join(2, id, 0, config);
  const auto error = job::thrown_by<hocket::Timeout>([&] { comm.wait(); });
  EXPECT_TRUE(job::has(error, "1")) << "the missing rank: " << error.what();
  job::thrown_by<hocket::Timeout>([&] { EXPECT_FALSE(comm.ready()); });
  job::thrown_by<hocket::Timeout>([&] { EXPECT_EQ(0, comm.rank()); });
}

TEST(CppJoining, queries_say_where_the_rank_is) {
  job::run(3, [](Communicator& comm) {
    EXPECT_TRUE(comm.ready());
    comm.wait();
    EXPECT_EQ(hocketSuccess, comm.async_error());
    EXPECT_EQ(-1, comm.culprit());
    EXPECT_EQ(3, comm.ranks());
    EXPECT_EQ(3, comm.local_ranks());
    EXPECT_EQ(comm.rank(), comm.local_rank());
    EXPECT_EQ(1, comm.nodes());
    EXPECT_EQ("none", comm.last_algorithm().algorithm);
    Ints data(4);
    comm.all_reduce(data, hocketSum);
    EXPECT_NE("none", comm.last_algorithm().algorithm);
    EXPECT_EQ("shm", comm.last_algorithm().transport);
  });
}

TEST(CppJoining, a_record_is_dumped_to_a_file_and_to_the_log) {
  char folder[] = "/tmp/hocket-record-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  static std::atomic<int> lines;
  hocket::set_log_callback([](hocket::LogLevel, std::string_view line) {
    lines += line.find("ended: all-reduce of 4 int32") != std::string_view::npos;
  });
  job::run(2, [&](Communicator& comm) {
    Ints data(4);
    comm.all_reduce(data, hocketSum);
    const std::string path = std::string(folder) + "/" + std::to_string(comm.rank());
    comm.dump_record(path);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    EXPECT_NE(text.str().find("ended: all-reduce of 4 int32"), std::string::npos) << text.str();
    comm.dump_record();
    EXPECT_THROW(comm.dump_record(std::string(folder) + "/no/such/folder"), hocket::SystemError);
  });
  hocket::set_log_callback(nullptr);
  EXPECT_EQ(lines, 2);
  std::filesystem::remove_all(folder);
}

TEST(CppJoining, without_a_launcher_a_process_is_alone) {
  const Communicator alone = Communicator::from_environment();
  EXPECT_EQ(1, alone.ranks());
  const Communicator named = Communicator::from_environment({.name = "named"});
  EXPECT_EQ(0, named.rank());
}

TEST(CppJoining, split_gives_a_part_or_none) {
  job::run(3, [](Communicator& comm) {
    const Communicator reversed = comm.split(0, -comm.rank());
    EXPECT_EQ(2 - comm.rank(), reversed.rank());
    hocket::Config config = job::patient();
    config.name = "pair";
    Communicator pair = comm.split(comm.rank() == 2 ? HOCKET_SPLIT_NOCOLOR : 1, 0, config);
    EXPECT_EQ(comm.rank() != 2, static_cast<bool>(pair));
    if (pair) {
      EXPECT_EQ(2, pair.all_reduce(1, hocketSum));
    }
  });
}

TEST(CppJoining, a_unique_id_travels_as_bytes) {
  const UniqueId id = UniqueId::create();
  const std::vector<std::byte> wire(id.bytes().begin(), id.bytes().end());
  const UniqueId copy = UniqueId::from_bytes(wire);
  EXPECT_EQ(0, std::memcmp(&copy.get(), &id.get(), sizeof(hocketUniqueId)));
  const UniqueId from_c = id.get();
  EXPECT_TRUE(std::equal(wire.begin(), wire.end(), from_c.bytes().begin()));
  const auto error = job::thrown_by<hocket::InvalidArgument>(
      [&] { EXPECT_TRUE(UniqueId::from_bytes(std::string("short")).bytes().empty()); });
  EXPECT_TRUE(job::has(error, "5 bytes") && job::has(error, "128")) << error.what();
  const Communicator alone = Communicator::join(1, copy, 0);
  EXPECT_EQ(1, alone.ranks());
}

TEST(CppConfig, sets_the_fields_that_it_is_given) {
  using namespace std::chrono_literals;
  const hocketConfig_t unset = hocket::Config{}.to_c(), initial = HOCKET_CONFIG_INITIALIZER;
  EXPECT_EQ(initial.blocking, unset.blocking);
  EXPECT_EQ(initial.deadline_ms, unset.deadline_ms);
  EXPECT_EQ(initial.join_deadline_ms, unset.join_deadline_ms);
  EXPECT_EQ(initial.silence_ms, unset.silence_ms);
  EXPECT_EQ(initial.deterministic, unset.deterministic);
  EXPECT_EQ(nullptr, unset.commName);
  EXPECT_EQ(nullptr, unset.interface_name);
  const hocket::Config given{.blocking = false,
                             .name = "n",
                             .deadline = 30s,
                             .join_deadline = 1min,
                             .silence = 500ms,
                             .deterministic = true,
                             .interface_name = "lo"};
  const hocketConfig_t set = given.to_c();
  EXPECT_EQ(0, set.blocking);
  EXPECT_STREQ("n", set.commName);
  EXPECT_EQ(30'000, set.deadline_ms);
  EXPECT_EQ(60'000, set.join_deadline_ms);
  EXPECT_EQ(500, set.silence_ms);
  EXPECT_EQ(1, set.deterministic);
  EXPECT_STREQ("lo", set.interface_name);
  const auto error = job::thrown_by<hocket::InvalidArgument>(
      [] { (void)hocket::Config{.deadline = std::chrono::hours(24 * 365)}.to_c(); });
  EXPECT_TRUE(job::has(error, "deadline")) << error.what();
}

}  // namespace
