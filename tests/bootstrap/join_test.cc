#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>

#include "bootstrap/job.h"
#include "seed.h"
#include "threads.h"

namespace hocket::internal {
namespace {

struct Shape {
  int ranks;
  bool share_memory;
};
void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.ranks << (shape.share_memory ? " on one node" : " nodes");
}

class Joins : public ::testing::TestWithParam<Shape> {};

TEST_P(Joins, all_ranks_get_the_same_table_of_members) {
  Job job(GetParam().ranks, GetParam().share_memory);
  job.start();
  const auto sessions = join_all(job);
  for (int rank = 0; rank < GetParam().ranks; ++rank) {
    ASSERT_TRUE(sessions[rank]);
    const Session& session = *sessions[rank];
    EXPECT_EQ(session.rank(), rank);
    ASSERT_EQ(session.ranks(), GetParam().ranks);
    EXPECT_EQ(session.faults().size(), 0u);
    for (int peer = 0; peer < GetParam().ranks; ++peer) {
      const Member& member = session.members()[peer];
      EXPECT_EQ(member.node, GetParam().share_memory ? 0 : peer);
      EXPECT_EQ(member.local_rank, GetParam().share_memory ? peer : 0);
      EXPECT_EQ(member.pid, ::getpid());
      EXPECT_NE(member.address.port, 0);
      EXPECT_TRUE(is_loopback(member.address));
      EXPECT_EQ(member.address.port, sessions[0]->members()[peer].address.port);
      EXPECT_EQ(session.local(peer), GetParam().share_memory || peer == rank);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Joins,
                         ::testing::Values(Shape{1, true}, Shape{2, true}, Shape{3, true},
                                           Shape{7, true}, Shape{16, true}, Shape{64, true},
                                           Shape{1, false}, Shape{2, false}, Shape{3, false},
                                           Shape{7, false}, Shape{16, false}, Shape{64, false}));

class Cores : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(ShareMemory, Cores, ::testing::Bool());

TEST_P(Cores, of_every_rank_and_its_machine_are_known_whether_ranks_share_memory_or_not) {
  constexpr int ranks = 5;
  Job job(ranks, GetParam());
  job.start();
  std::vector<std::shared_ptr<Session>> sessions(ranks);
  in_threads(ranks, [&](int rank) {
    JoinOptions options = job.of(rank);
    options.machine = rank < 3 ? 77 : 78;
    options.cores.set(static_cast<std::size_t>(200 * rank)).set(1023);
    EXPECT_TRUE(Session::join(options, &sessions[static_cast<std::size_t>(rank)]).ok());
  });
  for (const auto& session : sessions) {
    ASSERT_TRUE(session);
    for (int peer = 0; peer < ranks; ++peer) {
      const Member& member = session->members()[static_cast<std::size_t>(peer)];
      const CoreSet& cores = member.cores;
      EXPECT_EQ(peer < 3 ? 77u : 78u, member.machine);
      EXPECT_EQ(2u, cores.count());
      EXPECT_TRUE(cores[static_cast<std::size_t>(200 * peer)] && cores[1023]);
    }
  }
}

TEST(Join, works_over_ipv6) {
  Job job(3, false, true);
  job.start();
  const auto sessions = join_all(job);
  ASSERT_TRUE(sessions[2]);
  EXPECT_TRUE(sessions[2]->members()[1].address.v6);
}

TEST(Join, order_of_arrival_does_not_matter) {
  std::mt19937_64 random(tests::seed());
  for (const bool share_memory : {true, false}) {
    Job job(5, share_memory);
    std::vector<int> order = {0, 1, 2, 3, 4};
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::shared_ptr<Session>> sessions(5);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i == 2) job.start();  // the coordinator starts in the middle
      threads.emplace_back([&, rank = order[i], options = job.of(order[i])] {
        const Status status = Session::join(options, &sessions[rank]);
        EXPECT_TRUE(status.ok()) << status.message();
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 30));  // only spreads them
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& session : sessions) EXPECT_TRUE(session);
  }
}

TEST(Join, ranks_of_one_user_meet_without_a_key) {
  Job job(4);
  job.options.has_key = false;
  job.options.coordinator = {};
  const auto sessions = join_all(job);
  for (const auto& session : sessions) {
    ASSERT_TRUE(session);
    EXPECT_TRUE(session->local(3));
  }
}

TEST(Join, without_a_key_other_hosts_are_refused_with_the_remedy) {
  Job job(2);
  job.options.has_key = false;
  std::shared_ptr<Session> session;
  JoinOptions far = job.of(0);
  ASSERT_TRUE(parse_address("192.0.2.7:4000", &far.coordinator).ok());
  JoinOptions tcp_only = job.of(0);
  tcp_only.share_memory = false;
  for (const JoinOptions& options : {far, tcp_only}) {
    const Status status = Session::join(options, &session);
    EXPECT_EQ(status.code(), Code::invalid_usage);
    EXPECT_NE(status.message().find("HOCKET_JOB_KEY_FILE"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("hocket-run"), std::string::npos) << status.message();
  }
}

/// Forwards connections to a port of this host, and keeps every byte.
class Relay {
 public:
  explicit Relay(std::uint16_t to) : to_(to) {
    address_ = loopback(false);
    EXPECT_TRUE(listen_tcp(&address_, &listener_).ok());
    accepting_ = std::thread([this] { accept_all(); });
  }
  /// All bytes of both directions; ends the relay.
  std::string stop() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    accepting_.join();
    for (std::thread& way : ways_) way.join();
    return bytes_;
  }
  const Address& address() const { return address_; }

 private:
  void accept_all() {
    for (;;) {
      pollfd ready{listener_.get(), POLLIN, 0};
      ::poll(&ready, 1, -1);
      const int from = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (from < 0 && errno == EAGAIN) continue;
      if (from < 0) return;
      const int to = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in target{};
      target.sin_family = AF_INET;
      target.sin_port = htons(to_);
      target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      EXPECT_EQ(0, ::connect(to, reinterpret_cast<sockaddr*>(&target), sizeof target));
      ends_.emplace_back(from);
      ends_.emplace_back(to);
      ways_.emplace_back([this, from, to] { forward(from, to); });
      ways_.emplace_back([this, from, to] { forward(to, from); });
    }
  }
  void forward(int from, int to) {
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(from, buffer, sizeof buffer, 0)) > 0;) {
      const std::lock_guard lock(mutex_);
      bytes_.append(buffer, static_cast<std::size_t>(n));
      if (::send(to, buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL) != n) break;
    }
    ::shutdown(to, SHUT_WR);
  }

  const std::uint16_t to_;
  Address address_;
  UniqueFd listener_;
  std::thread accepting_;
  std::mutex mutex_;
  std::string bytes_;
  std::vector<UniqueFd> ends_;
  std::vector<std::thread> ways_;
};

TEST(Join, sends_the_key_of_the_job_to_nobody) {
  Job job(3, false);
  job.start();
  Relay relay(job.options.coordinator.port);
  job.options.coordinator.port = relay.address().port;
  { const auto sessions = join_all(job); }
  const std::string bytes = relay.stop();
  const std::string key(job.options.key.begin(), job.options.key.end());
  char host[256] = {};
  ASSERT_EQ(0, ::gethostname(host, sizeof host - 1));
  EXPECT_NE(std::string::npos, bytes.find(host)) << "the relay saw the table of members";
  EXPECT_EQ(std::string::npos, bytes.find(key));
}

TEST(Join, the_first_ranks_own_deadline_replaces_the_coordinators) {
  Job job(2);
  ASSERT_TRUE(start_coordinator(job.options.key, job.options.job_id, "", std::move(job.listener),
                                &job.options.coordinator, 2000)
                  .ok());
  in_threads(2, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(3000));
    std::shared_ptr<Session> session;
    const Status status = Session::join(job.of(rank), &session);
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

TEST(Join, missing_ranks_are_named_at_the_deadline) {
  for (const bool share_memory : {true, false}) {
    Job job(7, share_memory);
    job.options.join_deadline_ms = 400;
    job.start();
    in_threads(2, [&](int i) {
      std::shared_ptr<Session> session;
      const Status status = Session::join(job.of(i == 0 ? 1 : 5), &session);
      EXPECT_EQ(status.code(), Code::timeout);
      EXPECT_NE(status.message().find("0, 2-4 and 6"), std::string::npos) << status.message();
      EXPECT_EQ(status.culprit(), 0);
    });
  }
}

TEST(Join, the_earliest_deadline_of_any_rank_counts) {
  Job job(3);
  job.start();
  in_threads(2, [&](int rank) {
    JoinOptions options = job.of(rank);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // most likely after rank 0
      options.join_deadline_ms = 500;
    }
    std::shared_ptr<Session> session;
    const Status status = Session::join(options, &session);
    EXPECT_EQ(status.code(), Code::timeout);
    EXPECT_NE(status.message().find("2 of 3 ranks have come"), std::string::npos)
        << status.message();
  });
}

TEST(Join, without_a_key_missing_ranks_are_named_too) {
  Job job(3);
  job.options.has_key = false;
  job.options.join_deadline_ms = 300;
  std::shared_ptr<Session> session;
  const Status status = Session::join(job.of(1), &session);
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_NE(status.message().find("ranks 0 and 2 are missing"), std::string::npos)
      << status.message();
}

TEST(Join, a_coordinator_that_never_starts_is_named_at_the_deadline) {
  Job job(2);
  job.listener.reset();
  job.options.join_deadline_ms = 300;
  in_threads(2, [&](int rank) {
    std::shared_ptr<Session> session;
    const Status status = Session::join(job.of(rank), &session);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(job.options.coordinator.text()), std::string::npos)
        << status.message();
    // The last attempt, cut short by the deadline, hides nothing (where this rank leads its node).
    EXPECT_EQ(status.message().find("no answer to the connection"), std::string::npos)
        << status.message();
  });
}

TEST(Join, a_duplicate_rank_is_an_error_for_all) {
  for (const bool share_memory : {true, false}) {
    Job job(3, share_memory);
    job.options.join_deadline_ms = 30'000;  // else two minutes, where it is no error
    job.start();
    const int claimed[] = {1, 0, 1};
    in_threads(3, [&](int i) {
      std::shared_ptr<Session> session;
      const Status status = Session::join(job.of(claimed[i]), &session);
      EXPECT_EQ(status.code(), Code::invalid_usage) << status.message();
      EXPECT_NE(status.message().find("two processes claim to be rank 1"), std::string::npos)
          << status.message();
    });
  }
}

TEST(Join, a_rank_that_comes_when_the_join_has_failed_is_told_why) {
  for (const bool share_memory : {true, false}) {
    Job job(3, share_memory);
    job.start();
    const auto expect_the_error = [&](int rank) {
      std::shared_ptr<Session> session;
      const Status status = Session::join(job.of(rank), &session);
      EXPECT_EQ(status.code(), Code::invalid_usage) << status.message();
      EXPECT_NE(status.message().find("two processes claim to be rank 1"), std::string::npos)
          << status.message();
    };
    in_threads(2, [&](int) { expect_the_error(1); });
    expect_the_error(0);  // nothing else of the job is left in this process
  }
}

/// The coordinator has closed its listener then, and a coordinator that was reached before does not
/// start again.
TEST(Join, a_rank_that_comes_when_all_have_joined_is_refused_at_once) {
  for (const bool share_memory : {true, false}) {
    Job job(2, share_memory);
    job.start();
    const auto sessions = join_all(job);
    std::shared_ptr<Session> extra;
    const Status status = Session::join(job.of(1), &extra);  // its own deadline is two minutes
    EXPECT_EQ(status.code(), Code::remote_error);
    EXPECT_NE(status.message().find("Connection refused"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("joined already"), std::string::npos) << status.message();
    EXPECT_EQ(sessions[0]->faults().size(), 0u);
  }
}

TEST(Join, a_coordinator_that_was_never_reached_may_start_within_30_s) {
  if (std::getenv("LONG_TESTS") == nullptr) GTEST_SKIP() << "it takes 30 s: LONG_TESTS=1";
  Job job(2);
  job.listener.reset();
  std::shared_ptr<Session> session;
  const Status status = Session::join(job.of(1), &session);  // its own deadline is two minutes
  EXPECT_EQ(status.code(), Code::remote_error) << status.message();
  EXPECT_NE(status.message().find("Connection refused"), std::string::npos) << status.message();
}

TEST(Join, ranks_that_disagree_about_their_number_are_both_named) {
  for (const bool share_memory : {true, false}) {
    Job job(3, share_memory);
    job.options.join_deadline_ms = 30'000;  // else two minutes, where it is no error
    job.start();
    in_threads(3, [&](int rank) {
      JoinOptions options = job.of(rank);
      options.ranks = 3 + rank % 2;
      std::shared_ptr<Session> session;
      const Status status = Session::join(options, &session);
      EXPECT_EQ(status.code(), Code::invalid_usage) << status.message();
      for (const char* part : {"rank 1", "says 3", "says 4"}) {
        EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
      }
    });
  }
}

/// The odd rank, which may be that of the coordinator's process, is refused or refuses the others.
TEST(Join, a_wrong_key_ends_the_join_of_every_rank_at_once_and_is_named) {
  for (const bool share_memory : {true, false}) {
    for (const bool tls : {true, false}) {
      Job job(3, share_memory);
      job.options.join_deadline_ms = 20'000;
      job.options.tls = tls;
      job.start();
      in_threads(3, [&](int rank) {
        JoinOptions options = job.of(rank);
        if (rank == 1) options.key[7] ^= 1;
        std::shared_ptr<Session> session;
        const Status status = Session::join(options, &session);
        EXPECT_EQ(status.code(), Code::remote_error);
        const std::string& text = status.message();
        if (rank == 1) {
          EXPECT_NE(text.find("refused this rank's job key"), std::string::npos) << text;
          return;
        }
        EXPECT_EQ(status.culprit(), 1);
        for (const char* part :
             {"a process at 127.0.0.1:", "rank 1 of this job", "presented another job key"}) {
          EXPECT_NE(text.find(part), std::string::npos) << text;
        }
      });
    }
  }
}

TEST(Join, a_wrong_key_before_the_first_rank_is_told_to_it) {
  Job job(2, false);
  job.options.join_deadline_ms = 20'000;
  job.start();
  for (const int rank : {1, 0}) {
    JoinOptions options = job.of(rank);
    if (rank == 1) options.key[7] ^= 1;
    std::shared_ptr<Session> session;
    const std::string text = Session::join(options, &session).message();
    const char* part = rank == 1 ? "refused this rank's job key" : "presented another job key";
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

/// The process of rank 0 exits as soon as it has its error. Rank 2 begins to join only then.
/// Returns the culprit that rank 2 learns.
int culprit_that_a_late_rank_learns() {
  Job job(3, false);
  job.options.join_deadline_ms = 60'000;
  Processes processes;
  const SharedNumbers told;
  const auto joins = [&](int rank) {
    job.listener.reset();  // rank 0 has passed it on
    JoinOptions options = job.of(rank);
    if (rank == 1) options.key[7] ^= 1;
    std::shared_ptr<Session> session;
    const Status status = Session::join(options, &session);
    told[rank] = 1;
    return status.culprit();
  };
  processes.start([&]() -> int {
    job.start();
    std::exit(joins(0) == 1 ? 0 : 1);
  });
  processes.start([&] { return joins(1) < 0 ? 0 : 1; });
  processes.start([&] {
    if (!told.reaches(0, 1) || !told.reaches(1, 1)) return 99;
    return joins(2) + 10;
  });
  job.listener.reset();
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(1), 0);
  return processes.wait(2) - 10;
}

/// The process of rank 0 waits for two seconds. On a loaded machine rank 2 may be later than that,
/// and then does not learn the culprit.
TEST(Join, a_rank_that_comes_late_learns_of_the_wrong_key_from_rank_0_which_exits) {
  int culprit = -1;
  for (int tries = 0; culprit < 0 && tries < 5; ++tries)
    culprit = culprit_that_a_late_rank_learns();
  EXPECT_EQ(culprit, 1);
}

/// A rank of another job reaches this coordinator, and a process with another key has the number of
/// a rank that comes later, or that has come: none of them is a rank of this job.
TEST(Join, strangers_with_another_key_disturb_no_job) {
  const auto refused = [](Job& job, int rank, bool same_job) {
    JoinOptions options = job.of(rank);
    options.ranks = 8;
    options.key[7] ^= 1;
    if (!same_job) options.job_id[3] ^= 1;
    std::shared_ptr<Session> session;
    const std::string text = Session::join(options, &session).message();
    EXPECT_NE(text.find("refused this rank's job key"), std::string::npos) << text;
  };
  const auto joins = [](Job& job, int rank, std::shared_ptr<Session>* session) {
    const Status status = Session::join(job.of(rank), session);
    EXPECT_TRUE(status.ok()) << status.message();
  };
  Job two(2, false), one(1, false);
  for (Job* job : {&two, &one}) {
    job->options.join_deadline_ms = 60'000;
    job->start();
  }
  refused(two, 0, false);
  refused(two, 7, true);
  std::shared_ptr<Session> first, second, only;
  std::thread rank0([&] { joins(two, 0, &first); });
  refused(two, 1, false);
  joins(two, 1, &second);
  rank0.join();
  refused(one, 0, true);
  joins(one, 0, &only);
}

TEST(Join, another_service_at_the_coordinators_address_is_recognised) {
  Job job(1);
  std::thread stranger([&] {
    // Sends more bytes than a hello has, as an HTTP or SSH server would.
    const std::string words(200, 'x');
    for (int i = 0; i < 1000; ++i) {
      const int fd = ::accept(job.listener.get(), nullptr, nullptr);
      if (fd >= 0) {
        EXPECT_GT(::write(fd, words.data(), words.size()), 0);
        char in[64];
        while (::read(fd, in, sizeof in) > 0) continue;
        ::close(fd);
        return;
      }
      ::usleep(10'000);
    }
  });
  std::shared_ptr<Session> session;
  const Status status = Session::join(job.of(0), &session);
  EXPECT_NE(status.message().find("not hocket"), std::string::npos) << status.message();
  stranger.join();
}

TEST(Join, bad_options_are_named) {
  Job job(4);
  std::shared_ptr<Session> session;
  const auto message = [&](auto change) {
    JoinOptions options = job.of(0);
    change(options);
    const Status status = Session::join(options, &session);
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.message();
    return status.message();
  };
  EXPECT_NE(message([](auto& o) { o.ranks = 0; }).find("0 ranks"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.rank = 4; }).find("rank 4 of 4"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.rank = -1; }).find("rank -1"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.silence_ms = 1; }).find("silence"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.join_deadline_ms = 0; }).find("deadline"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.interface = "nosuch7"; }).find("nosuch7"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.interface = "203.0.113.9"; }).find("203.0.113.9"),
            std::string::npos);
}

TEST(Join, leaves_no_descriptor_behind) {
  const auto open_fds = [] {
    int count = 0;
    for (int fd = 0; fd < 4096; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
    return count;
  };
  const auto once = [] {
    Job job(4);
    job.start();
    join_all(job);
  };
  tests::await_end_of_threads();  // the coordinator of a failed join waits for latecomers
  const int before = open_fds();
  // The monitor thread forwards the last faults a moment longer.
  const auto settles_at = [&](int count) {
    const Nanos deadline = in_ms(60'000);
    while (open_fds() != count && monotonic_now() < deadline) ::usleep(1000);
    return open_fds() == count;
  };
  for (int i = 0; i < 3; ++i) once();
  EXPECT_TRUE(settles_at(before)) << open_fds() << " instead of " << before;
}

}  // namespace
}  // namespace hocket::internal
