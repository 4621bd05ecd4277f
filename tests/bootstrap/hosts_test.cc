// Two hosts with two ranks each. A host is a network namespace, which ends with the process that
// holds it.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "bootstrap/job.h"
#include "sanitized.h"

namespace hocket::internal {
namespace {

/// Hosts 0 and 1 with 10.83.0.1 and 10.83.0.2 on their ends of one cable.
class TwoHosts {
 public:
  TwoHosts() {
    if (::geteuid() != 0) return;
    for (int host = 0; host < 2; ++host) {
      holders_.start([this] {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const bool ok = ::unshare(CLONE_NEWNET) == 0;
        ready_[0].fetch_add(ok ? 1 : 100);
        ::pause();
        return 0;
      });
    }
    ready_.reaches(0, 2);
    if (ready_[0] != 2) return;
    const std::string a = std::to_string(holders_.pid(0)), b = std::to_string(holders_.pid(1));
    works_ = run("ip link add hk0 netns " + a + " type veth peer name hk0 netns " + b) &&
             on(0, "ip addr add 10.83.0.1/24 dev hk0") && on(1, "ip addr add 10.83.0.2/24 dev hk0");
    for (int host = 0; host < 2 && works_; ++host) {
      works_ = on(host, "ip link set lo up") && on(host, "ip link set hk0 up");
    }
  }
  bool works() const { return works_; }
  bool on(int host, const std::string& command) const {
    return run("nsenter -t " + std::to_string(holders_.pid(host)) + " -n " + command);
  }
  /// The calling process moves there.
  bool enter(int host) const {
    const std::string path = "/proc/" + std::to_string(holders_.pid(host)) + "/ns/net";
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return fd && ::setns(fd.get(), CLONE_NEWNET) == 0;
  }

 private:
  static bool run(const std::string& command) {
    return std::system((command + " 2>/dev/null").c_str()) == 0;
  }
  SharedNumbers ready_;
  Processes holders_;
  bool works_ = false;
};

constexpr int joined_ranks = 0;  // SharedNumbers
constexpr int told_ranks = 1;
constexpr int coordinator_port = 2;
constexpr int gave_up = 3;

/// Four ranks, 0 and 2 on host 0, 1 and 3 on host 1, and the coordinator on host 0.
class TwoHostJob : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hosts.works())
      GTEST_SKIP() << "needs root, and ip and nsenter, to make network namespaces";
    job.listener.reset();
    job.options.silence_ms = 1000;
    ASSERT_TRUE(parse_address("10.83.0.1", &job.options.coordinator).ok());
    processes.start([&] {
      if (!hosts.enter(0)) return 1;
      Address address = job.options.coordinator;
      const Status status = start_coordinator(job.options.key, job.options.job_id, "hk0", {},
                                              &address, job.options.join_deadline_ms);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(address.text().find("10.83.0.1:"), 0u) << address.text();
      numbers[coordinator_port].store(address.port);
      ::pause();
      return 0;
    });
    ASSERT_TRUE(numbers.reaches(coordinator_port, 1));
  }
  void start_ranks(const std::function<int(Session&)>& body) {
    for (int rank = 0; rank < 4; ++rank) {
      processes.start([&, rank] {
        if (!hosts.enter(rank % 2)) return 1;
        JoinOptions options = job.of(rank);
        options.coordinator.port = static_cast<std::uint16_t>(numbers[coordinator_port].load());
        if (rank % 2 == 1 && impatient_silence_ms > 0) options.silence_ms = impatient_silence_ms;
        std::shared_ptr<Session> session;
        const Status status = Session::join(options, &session);
        EXPECT_TRUE(status.ok()) << status.message();
        if (!status.ok()) return 2;
        numbers[joined_ranks].fetch_add(1);
        if (!numbers.reaches(joined_ranks, 4)) return 3;
        return body(*session);
      });
    }
  }
  /// The parent's numbering: the coordinator is process 0.
  pid_t process_of(int rank) { return processes.pid(1 + rank); }
  void expect_success(int rank) { EXPECT_EQ(processes.wait(1 + rank), 0) << "rank " << rank; }

  TwoHosts hosts;
  Job job{4};
  SharedNumbers numbers;
  Processes processes;
  std::int64_t impatient_silence_ms = 0;  // of host 1, where it is not the job's
};

TEST_F(TwoHostJob, ranks_of_a_namespace_form_a_node_and_all_can_connect) {
  start_ranks([&](Session& session) {
    for (int rank = 0; rank < 4; ++rank) {
      const Member& member = session.members()[rank];
      EXPECT_EQ(member.node, rank % 2);
      EXPECT_EQ(member.local_rank, rank / 2);
      EXPECT_EQ(member.address.text().find(rank % 2 == 0 ? "10.83.0.1:" : "10.83.0.2:"), 0u);
    }
    std::mutex mutex;
    std::condition_variable changed;
    int connected = 0;
    session.listen(1, [&](int, int, ByteStream, const Status& status) {
      EXPECT_TRUE(status.ok()) << status.message();
      std::lock_guard lock(mutex);
      ++connected;
      changed.notify_all();
    });
    for (int peer = 0; peer < 4; ++peer) session.dial(peer, 1, 0);
    {
      std::unique_lock lock(mutex);
      EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return connected == 3; }));
    }
    session.unlisten(1);
    numbers[told_ranks].fetch_add(1);
    return numbers.reaches(told_ranks, 4) ? 0 : 4;
  });
  for (int rank = 0; rank < 4; ++rank) expect_success(rank);
}

TEST_F(TwoHostJob, any_ranks_death_reaches_the_other_host) {
  start_ranks([&](Session& session) {
    if (session.rank() == 3) {
      numbers[told_ranks].fetch_add(1);
      numbers.reaches(told_ranks, 100);
      return 1;
    }
    if (!wait_fault(session, Fault::Kind::dead, 3)) return 4;
    for (const Fault& fault : session.faults()) EXPECT_EQ(fault.rank, 3) << fault.text;
    numbers[told_ranks].fetch_add(1);
    return numbers.reaches(told_ranks, 4) ? 0 : 5;
  });
  ASSERT_TRUE(numbers.reaches(told_ranks, 1));
  ::kill(process_of(3), SIGKILL);
  for (int rank = 0; rank < 3; ++rank) expect_success(rank);
}

TEST_F(TwoHostJob, a_cut_cable_is_silence_on_both_sides_and_all_learn_who_is_beyond) {
  start_ranks([&](Session& session) {
    numbers[told_ranks].fetch_add(1);
    const auto found = [&] {
      for (const Fault& fault : session.faults()) {
        const bool beyond = session.members()[fault.rank].node != session.rank() % 2;
        if (fault.kind != Fault::Kind::silent || !beyond) continue;
        const char* ranks = session.rank() % 2 == 0 ? "1 and 3" : "0 and 2";
        EXPECT_NE(fault.text.find(ranks), std::string::npos) << fault.text;
        return true;
      }
      return false;
    };
    const Nanos deadline = in_ms(60'000);
    while (!found() && monotonic_now() < deadline) ::usleep(10'000);
    EXPECT_TRUE(found());
    EXPECT_EQ(session.faults().size(), 1u);
    numbers[told_ranks].fetch_add(1);
    return numbers.reaches(told_ranks, 8) ? 0 : 4;
  });
  ASSERT_TRUE(numbers.reaches(told_ranks, 4));
  ASSERT_TRUE(hosts.on(0, "ip link set hk0 down"));
  for (int rank = 0; rank < 4; ++rank) expect_success(rank);
}

/// Host 1 gives up first, and its verdict on host 0 arrives when the cable is whole again.
TEST_F(TwoHostJob, a_verdict_on_a_rank_that_its_own_host_hears_turns_against_the_accuser) {
  job.options.silence_ms = 20'000;
  impatient_silence_ms = 1000;  // on host 1
  start_ranks([&](Session& session) {
    numbers[told_ranks].fetch_add(1);
    Fault fault;  // names the leader of the other host: the rank that came there first
    if (!wait_fault(session, Fault::Kind::silent, any_rank, &fault)) return 4;
    EXPECT_NE(fault.rank % 2, session.rank() % 2) << fault.text;
    if (session.rank() % 2 == 1) numbers[gave_up].fetch_add(1);
    if (session.rank() % 2 == 0) {
      EXPECT_NE(fault.text.find("has given up"), std::string::npos) << fault.text;
    }
    for (const Fault& other : session.faults()) EXPECT_EQ(other.rank, fault.rank) << other.text;
    numbers[told_ranks].fetch_add(1);
    return numbers.reaches(told_ranks, 8) ? 0 : 5;
  });
  ASSERT_TRUE(numbers.reaches(told_ranks, 4));
  ASSERT_TRUE(hosts.on(0, "ip link set hk0 down"));
  ASSERT_TRUE(numbers.reaches(gave_up, 2));
  ASSERT_TRUE(hosts.on(0, "ip link set hk0 up"));
  for (int rank = 0; rank < 4; ++rank) expect_success(rank);
}

/// Heartbeats come again within about a second, however long the cut was.
TEST_F(TwoHostJob, a_cut_may_last_until_little_more_than_a_second_before_the_limit) {
  if (tests::sanitized) GTEST_SKIP() << "it waits for 11 s: the Release build runs it";
  const UniqueFd probe(::socket(AF_INET, SOCK_STREAM, 0));
  const int least_ms = 1000;
  if (::setsockopt(probe.get(), IPPROTO_TCP, 44, &least_ms, sizeof least_ms) != 0) {
    GTEST_SKIP() << "needs TCP_RTO_MAX_MS (Linux 6.15)";
  }
  job.options.silence_ms = 10'000;
  start_ranks([&](Session& session) {
    numbers[told_ranks].fetch_add(1);
    if (!numbers.reaches(told_ranks, 5)) return 4;
    ::usleep(4'000'000);
    EXPECT_EQ(session.fault_count(), 0u) << session.faults()[0].text;
    numbers[told_ranks].fetch_add(1);
    return numbers.reaches(told_ranks, 9) ? 0 : 6;
  });
  ASSERT_TRUE(numbers.reaches(told_ranks, 4));
  ASSERT_TRUE(hosts.on(0, "ip link set hk0 down"));
  std::this_thread::sleep_for(std::chrono::milliseconds(7500));
  ASSERT_TRUE(hosts.on(0, "ip link set hk0 up"));
  numbers[told_ranks].fetch_add(1);
  for (int rank = 0; rank < 4; ++rank) expect_success(rank);
}

TEST_F(TwoHostJob, a_network_that_was_cut_for_less_than_the_limit_is_no_fault) {
  job.options.silence_ms = 10'000;  // on a busy machine heartbeats may come late by themselves
  start_ranks([&](Session& session) {
    numbers[told_ranks].fetch_add(1);
    if (!numbers.reaches(told_ranks, 5)) return 4;
    session.report({Fault::Kind::failed, session.rank(), 0, 1, Code::timeout, "still in touch"});
    for (int rank = 0; rank < 4; ++rank) {
      if (!wait_fault(session, Fault::Kind::failed, rank)) return 5;
    }
    for (const Fault& fault : session.faults()) {
      EXPECT_NE(fault.kind, Fault::Kind::silent) << fault.text;
      EXPECT_NE(fault.kind, Fault::Kind::dead) << fault.text;
    }
    numbers[told_ranks].fetch_add(1);
    return numbers.reaches(told_ranks, 9) ? 0 : 6;
  });
  ASSERT_TRUE(numbers.reaches(told_ranks, 4));
  ASSERT_TRUE(hosts.on(0, "ip link set hk0 down"));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ASSERT_TRUE(hosts.on(0, "ip link set hk0 up"));
  numbers[told_ranks].fetch_add(1);
  for (int rank = 0; rank < 4; ++rank) expect_success(rank);
}

}  // namespace
}  // namespace hocket::internal
