// How ranks find rank 0 where the launcher carries nothing between them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "bootstrap/launchers/rank0_port.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/socket.h"

namespace hocket::internal {
namespace {

Rank0Answer some_answer(std::uint8_t job) {
  Rank0Answer answer;
  answer.job_id.fill(job);
  answer.coordinator = loopback(false);
  answer.coordinator.port = 4321;
  return answer;
}

Status find(std::uint16_t port, const JobId& job, std::int64_t deadline_ms, Rank0Answer* out) {
  return find_rank0({"127.0.0.1"}, "MASTER_ADDR", port, job, JoinWait(deadline_ms, nullptr), out);
}

TEST(Rank0Answer, is_read_as_it_was_written_and_no_part_of_it) {
  Rank0Answer answer = some_answer(7);
  answer.key_from = Rank0Answer::KeyFrom::munge;
  answer.credential = "MUNGE:abc:";
  const std::vector<std::uint8_t> bytes = encode(answer);
  Rank0Answer read;
  ASSERT_TRUE(decode(bytes, &read));
  EXPECT_EQ(read.job_id, answer.job_id);
  EXPECT_EQ(read.coordinator, answer.coordinator);
  EXPECT_EQ(read.credential, answer.credential);
  EXPECT_EQ(read.key_from, answer.key_from);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode({bytes.begin(), bytes.begin() + static_cast<long>(size)}, &read)) << size;
  }
}

TEST(Rank0, has_ports_below_those_of_outgoing_connections) {
  for (int job = 0; job < 1000; ++job) {
    const int port = first_port("job " + std::to_string(job));
    EXPECT_GE(port, 20'000);
    EXPECT_LE(port + ports_per_job, 30'000);
  }
  EXPECT_EQ(first_port("a"), first_port("a"));
}

TEST(Rank0, is_found_behind_ports_of_another_job_and_of_a_program_that_says_nothing_of_hocket) {
  const std::uint16_t port = first_port("test " + std::to_string(::getpid()));
  Address taken = loopback(false);
  taken.port = port;
  UniqueFd stranger;
  ASSERT_TRUE(listen_tcp(&taken, &stranger).ok());
  std::thread greeter([&stranger] {
    ::fcntl(stranger.get(), F_SETFL, 0);
    const UniqueFd peer(::accept(stranger.get(), nullptr, nullptr));
    static_cast<void>(!::send(peer.get(), "220 ready\r\n", 11, MSG_NOSIGNAL));
  });
  std::shared_ptr<Rank0Server> other, own;
  ASSERT_TRUE(Rank0Server::start(loopback(false), port, some_answer(1), Key{}, &other).ok());
  ASSERT_TRUE(Rank0Server::start(loopback(false), port, some_answer(2), Key{}, &own).ok());
  Rank0Answer found;
  const Status status = find(port, some_answer(2).job_id, 30'000, &found);
  greeter.join();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(found.job_id, some_answer(2).job_id);
  EXPECT_EQ(found.coordinator.port, 4321);
}

TEST(Rank0, that_does_not_listen_is_named_at_the_join_deadline) {
  Rank0Answer found;
  const Status status = find(19'990, JobId{}, 200, &found);
  EXPECT_EQ(status.code(), Code::timeout);
  for (const char* part : {"looking for rank 0 on 127.0.0.1 (MASTER_ADDR), ports 19990 to 19993",
                           "Connection refused", "200 ms"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
}

TEST(Rank0, ends_its_search_when_the_user_aborts_the_join) {
  StopRequest stop;
  stop.stop();
  Rank0Answer found;
  EXPECT_EQ(
      find_rank0({"127.0.0.1"}, "MASTER_ADDR", 19'990, JobId{}, JoinWait(60'000, &stop), &found)
          .code(),
      Code::aborted);
}

}  // namespace
}  // namespace hocket::internal
