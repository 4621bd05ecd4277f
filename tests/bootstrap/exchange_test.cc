// Descriptors and data connections between ranks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "bootstrap/job.h"

namespace hocket::internal {
namespace {

UniqueFd file_with(const std::string& text) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return fd;
}

std::string content(const UniqueFd& fd) {
  char buffer[256];
  const ssize_t got = ::pread(fd.get(), buffer, sizeof buffer, 0);
  return {buffer, buffer + std::max<ssize_t>(got, 0)};
}

TEST(Descriptors, every_peer_gets_what_a_rank_offers_before_or_after_it_asks) {
  Job job(4);
  job.start();
  const auto sessions = join_all(job);
  in_threads(4, [&](int rank) {
    Session& session = *sessions[rank];
    const DescriptorName name{7, 42};
    if (rank % 2 == 0) {
      EXPECT_TRUE(session.offer(name, file_with("of " + std::to_string(rank)).get()).ok());
    } else {
      // Late: peers are likely to wait for it already, which must not matter.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_TRUE(session.offer(name, file_with("of " + std::to_string(rank)).get()).ok());
    }
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == rank) continue;
      for (int again = 0; again < 2; ++again) {
        UniqueFd fd;
        const Status status = session.fetch(peer, scope_of(name.space), name, in_ms(60'000), &fd);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(content(fd), "of " + std::to_string(peer));
        EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
      }
    }
  });
}

TEST(Descriptors, that_are_asked_for_without_waiting_come_later_and_may_be_given_up) {
  Job job(2);
  job.start();
  const auto sessions = join_all(job);
  std::atomic<int> came{0}, unwanted{0};
  std::shared_ptr<Fetch> fetch, given_up;
  const auto count = [](std::atomic<int>& number) {
    return [&number](const Fetch& fetch) {
      EXPECT_GE(fetch.fd(), 0);
      ++number;
    };
  };
  ASSERT_TRUE(sessions[1]->post_fetch(0, scope_of(1), {1, 1}, count(came), &fetch).ok());
  ASSERT_TRUE(sessions[1]->post_fetch(0, scope_of(1), {1, 1}, count(unwanted), &given_up).ok());
  EXPECT_FALSE(fetch->done());
  sessions[1]->forget(given_up);
  ASSERT_TRUE(sessions[0]->offer({1, 1}, file_with("late").get()).ok());
  while (!fetch->done()) std::this_thread::yield();
  UniqueFd fd;
  EXPECT_TRUE(fetch->take(&fd).ok());
  EXPECT_EQ(content(fd), "late");
  EXPECT_EQ(1, came.load());
  EXPECT_EQ(0, unwanted.load());
  sessions[1]->forget(fetch);
}

TEST(Descriptors, what_is_not_offered_ends_at_the_deadline_and_names_the_peer) {
  Job job(2);
  job.start();
  const auto sessions = join_all(job);
  ASSERT_TRUE(sessions[0]->offer({1, 1}, file_with("x").get()).ok());
  UniqueFd fd;
  ASSERT_TRUE(sessions[1]->fetch(0, scope_of(1), {1, 1}, in_ms(60'000), &fd).ok());
  sessions[0]->withdraw({1, 1});
  for (const DescriptorName name : {DescriptorName{1, 2}, DescriptorName{1, 1}}) {
    const Status status = sessions[1]->fetch(0, scope_of(name.space), name, in_ms(50), &fd);
    EXPECT_EQ(status.code(), Code::timeout);
    EXPECT_EQ(status.culprit(), 0);
    EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
  }
}

/// Rank 1 waits for rank 2, which is well.
TEST(Descriptors, a_fault_of_the_communicator_ends_the_wait_for_another_peer) {
  constexpr std::uint64_t comm_id = 5, parent = 7;
  struct Case {
    Fault fault;
    bool ends;
  };
  using Kind = Fault::Kind;
  const std::vector<Case> cases = {
      {{Kind::dead, 0, 0, 0, Code::remote_error, "died"}, true},
      {{Kind::silent, 0, 0, 0, Code::remote_error, "silent"}, true},
      {{Kind::exited, 0, 0, 0, Code::remote_error, "exited"}, true},
      {{Kind::failed, 0, comm_id, 0, Code::timeout, "failed"}, true},
      {{Kind::aborted, 0, parent, 0, Code::aborted, "aborted"}, true},
      {{Kind::left, 0, comm_id, 0, Code::remote_error, "left"}, false},
      {{Kind::failed, 0, parent, 0, Code::timeout, "failed"}, false},
      {{Kind::dead, 3, 0, 0, Code::remote_error, "died"}, false},
  };
  for (const auto& [fault, ends] : cases) {
    for (const bool before : {true, false}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(fault.kind)) + (before ? " before" : " during"));
      Job job(4);
      job.start();
      auto sessions = join_all(job);
      const OpenCommId open(*sessions[1], comm_id), parents(*sessions[1], parent);
      FaultScope scope = scope_of(comm_id);
      scope.parent = parent;
      if (before) sessions[1]->report(fault);
      std::thread late([&, fault = fault] {
        if (before) return;
        ::usleep(20'000);
        sessions[1]->report(fault);
      });
      UniqueFd fd;
      const Status status = sessions[1]->fetch(2, scope, {5, 5}, in_ms(ends ? 60'000 : 100), &fd);
      late.join();
      EXPECT_EQ(status.code(), ends ? fault.code : Code::timeout) << status.message();
      if (ends) {
        EXPECT_EQ(status.culprit(), 0) << status.message();
        EXPECT_EQ(status.message(), fault.text);
      }
    }
  }
}

/// The death of a rank that has left a communicator is no fault there, but is one on every other
/// communicator.
TEST(FaultScopes, leave_out_the_end_of_a_rank_that_had_left_the_communicator) {
  Job job(3);
  job.start();
  auto sessions = join_all(job);
  const OpenCommId first(*sessions[1], 5), second(*sessions[1], 6);
  sessions[2]->report({Fault::Kind::left, 2, 5, 0, Code::remote_error, "left"});
  sessions[2]->report({Fault::Kind::left, 2, 9, 0, Code::remote_error, "left what is not open"});
  sessions[0]->report({Fault::Kind::dead, 2, 0, 0, Code::remote_error, "died"});
  ASSERT_TRUE(wait_fault(*sessions[1], Fault::Kind::dead, 2));
  std::uint64_t position = 0, other = 0;
  const auto seen = sessions[1]->faults_since(scope_of(5), &position);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].kind, Fault::Kind::left);
  ASSERT_EQ(sessions[1]->faults_since(scope_of(6), &other).size(), 1u);
  EXPECT_EQ(sessions[1]->faults_since(scope_of(6), &other).size(), 0u) << "each is told once";
  EXPECT_EQ(sessions[1]->faults().size(), 2u) << "nothing is kept of a comm_id that is not open";
}

TEST(Descriptors, a_fault_of_the_peer_ends_the_wait) {
  Job job(3);
  job.start();
  auto sessions = join_all(job);
  std::thread waiting([&] {
    UniqueFd fd;
    const Status status = sessions[1]->fetch(2, scope_of(5), {5, 5}, in_ms(60'000), &fd);
    EXPECT_EQ(status.code(), Code::aborted) << status.message();
    EXPECT_EQ(status.culprit(), 2);
    EXPECT_NE(status.message().find("gave up"), std::string::npos) << status.message();
  });
  sessions[2]->report({Fault::Kind::aborted, 2, 5, 9, Code::aborted, "rank 2 gave up"});
  waiting.join();
}

TEST(Descriptors, the_end_of_the_askers_communicator_ends_the_wait) {
  Job job(4);
  job.start();
  auto sessions = join_all(job);
  const DescriptorName memory{DescriptorName::memory_space, 77};
  for (const int culprit : {1, 3}) {  // the rank that asks, and an uninvolved rank
    const auto comm_id = static_cast<std::uint64_t>(100 + culprit);
    std::thread waiting([&] {
      UniqueFd fd;
      const Status status = sessions[1]->fetch(2, scope_of(comm_id), memory, in_ms(60'000), &fd);
      EXPECT_EQ(status.code(), Code::aborted) << status.message();
      EXPECT_EQ(status.culprit(), culprit);
    });
    sessions[3]->report({Fault::Kind::aborted, 3, 99, 9, Code::aborted, "another communicator"});
    sessions[3]->report({Fault::Kind::left, 3, comm_id, 0, Code::remote_error, "left"});
    sessions[culprit]->report({Fault::Kind::aborted, culprit, comm_id, 9, Code::aborted, "ends"});
    waiting.join();
  }
}

TEST(Descriptors, ranks_without_shared_memory_have_none) {
  Job job(2, false);
  job.start();
  const auto sessions = join_all(job);
  UniqueFd fd;
  EXPECT_EQ(sessions[0]->fetch(1, scope_of(1), {1, 1}, in_ms(60'000), &fd).code(),
            Code::invalid_usage);
}

/// What the listener of one rank received.
class Adopted {
 public:
  AdoptConnection adopt() {
    return [this](int peer, int index, ByteStream stream, const Status& status) {
      std::lock_guard lock(mutex_);
      ++calls_;
      streams_[{peer, index}] = std::move(stream);
      statuses_[{peer, index}] = status;
      changed_.notify_all();
    };
  }
  bool wait(int peer, int index) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] {
      return statuses_.count({peer, index}) != 0;
    });
  }
  int fd(int peer, int index) {
    std::lock_guard lock(mutex_);
    return streams_[{peer, index}].fd();
  }
  Status status(int peer, int index) {
    std::lock_guard lock(mutex_);
    return statuses_[{peer, index}];
  }
  int calls() {
    std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, ByteStream> streams_;
  std::map<std::pair<int, int>, Status> statuses_;
  int calls_ = 0;
};

void expect_connected(int a, int b, char byte) {
  EXPECT_NE(::fcntl(a, F_GETFL) & O_NONBLOCK, 0);
  ASSERT_EQ(::write(a, &byte, 1), 1);
  pollfd ready{b, POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, 60'000), 1);
  char got = 0;
  ASSERT_EQ(::read(b, &got, 1), 1);
  EXPECT_EQ(got, byte);
}

class Dials : public ::testing::TestWithParam<bool> {};  // whether ranks share a node

TEST_P(Dials, both_ends_get_the_same_connection_whoever_dials) {
  Job job(4, GetParam());
  job.start();
  const auto sessions = join_all(job);
  Adopted adopted[4];
  constexpr int connections = 3;
  in_threads(4, [&](int rank) {
    Session& session = *sessions[rank];
    session.listen(9, adopted[rank].adopt());
    for (int peer = 0; peer < 4; ++peer) {
      for (int index = 0; index < connections; ++index) {
        // index 0: the lower dials, 1: the higher, 2: both, and twice.
        if (peer == rank) continue;
        if (index == 0 && rank > peer) continue;
        if (index == 1 && rank < peer) continue;
        session.dial(peer, 9, index);
        if (index == 2) session.dial(peer, 9, index);
      }
    }
  });
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) {
      for (int index = 0; index < connections; ++index) {
        ASSERT_TRUE(adopted[a].wait(b, index)) << a << " to " << b << " number " << index;
        ASSERT_TRUE(adopted[b].wait(a, index)) << b << " to " << a << " number " << index;
        const char byte = static_cast<char>(1 + a * 50 + b * 10 + index);
        expect_connected(adopted[a].fd(b, index), adopted[b].fd(a, index), byte);
        expect_connected(adopted[b].fd(a, index), adopted[a].fd(b, index), byte);
      }
    }
  }
  for (Adopted& of_rank : adopted) EXPECT_EQ(of_rank.calls(), 3 * connections);
  for (int rank = 0; rank < 4; ++rank) sessions[rank]->unlisten(9);
}

INSTANTIATE_TEST_SUITE_P(Nodes, Dials, ::testing::Bool());

TEST(Dial, works_without_a_key_too) {
  Job job(2);
  job.options.has_key = false;
  const auto sessions = join_all(job);
  Adopted adopted[2];
  for (int rank : {0, 1}) sessions[rank]->listen(1, adopted[rank].adopt());
  sessions[0]->dial(1, 1, 0);
  ASSERT_TRUE(adopted[0].wait(1, 0));
  ASSERT_TRUE(adopted[1].wait(0, 0));
  expect_connected(adopted[0].fd(1, 0), adopted[1].fd(0, 0), 'k');
  for (int rank : {0, 1}) sessions[rank]->unlisten(1);
}

TEST(Dial, early_connections_wait_for_the_listener) {
  Job job(2);
  job.start();
  const auto sessions = join_all(job);
  Adopted early, late;
  sessions[0]->listen(3, early.adopt());
  sessions[0]->dial(1, 3, 0);
  ASSERT_TRUE(early.wait(1, 0));  // rank 1 has accepted, but does not listen yet
  sessions[1]->listen(3, late.adopt());
  ASSERT_TRUE(late.wait(0, 0));
  expect_connected(early.fd(1, 0), late.fd(0, 0), 'e');
  for (int rank : {0, 1}) sessions[rank]->unlisten(3);
}

TEST(Dial, connections_of_two_communicators_do_not_mix) {
  Job job(2);
  job.start();
  const auto sessions = join_all(job);
  Adopted first[2], second[2];
  for (int rank : {0, 1}) {
    sessions[rank]->listen(1, first[rank].adopt());
    sessions[rank]->listen(2, second[rank].adopt());
  }
  sessions[0]->dial(1, 1, 0);
  sessions[1]->dial(0, 2, 0);
  for (int rank : {0, 1}) {
    ASSERT_TRUE(first[rank].wait(1 - rank, 0));
    ASSERT_TRUE(second[rank].wait(1 - rank, 0));
  }
  expect_connected(first[0].fd(1, 0), first[1].fd(0, 0), '1');
  expect_connected(second[0].fd(1, 0), second[1].fd(0, 0), '2');
  for (int rank : {0, 1}) {
    sessions[rank]->unlisten(1);
    sessions[rank]->unlisten(2);
  }
}

TEST(Dial, an_error_reaches_the_listener_where_the_other_side_has_stopped_listening) {
  Job job(2);
  job.start();
  const auto sessions = join_all(job);
  Adopted adopted[2];
  sessions[1]->listen(4, adopted[1].adopt());
  sessions[1]->unlisten(4);
  sessions[0]->listen(4, adopted[0].adopt());
  // Tasks of a session run in order: the comm_id has ended once this fetch was answered.
  UniqueFd fd;
  ASSERT_TRUE(sessions[1]->offer({1, 1}, file_with("x").get()).ok());
  ASSERT_TRUE(sessions[0]->fetch(1, scope_of(1), {1, 1}, in_ms(60'000), &fd).ok());
  sessions[0]->dial(1, 4, 0);
  ASSERT_TRUE(adopted[0].wait(1, 0));
  EXPECT_FALSE(adopted[0].status(1, 0).ok());
  EXPECT_EQ(adopted[0].status(1, 0).culprit(), 1);
  sessions[0]->unlisten(4);
}

}  // namespace
}  // namespace hocket::internal
