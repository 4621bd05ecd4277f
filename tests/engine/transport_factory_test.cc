// A communicator does not name its transports: whoever makes it may bring others.
#include "engine/transport_factory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "engine/communicator.h"
#include "transport/self/transport.h"
#include "transport/shm/transport.h"
#include "two_ranks.h"

namespace hocket::internal {
namespace {

/// Joins two ranks that count as nodes of their own by fifos in memory of the test, a new segment
/// for each communicator.
class Fifos final : public TransportFactory {
 public:
  Status make(const TransportOptions& given,
              std::vector<std::unique_ptr<Transport>>* out) const override {
    const Membership& membership = given.membership;
    EXPECT_EQ(2, membership.nodes()) << "the default would dial TCP connections";
    ShmOptions options;
    out->push_back(std::make_unique<SelfTransport>(membership.rank()));
    const Board board(segment_of(membership.comm_id()), 2, membership.rank());
    out->push_back(std::make_unique<ShmTransport>(board, std::vector<int>{0, 1},
                                                  membership.comm_id(), nullptr, options));
    ++made;
    return {};
  }
  mutable std::atomic<int> made{0};

 private:
  struct Unmap {
    void operator()(std::byte* base) const { ::munmap(base, Board::bytes(2)); }
  };
  std::byte* segment_of(std::uint64_t comm_id) const {
    const std::lock_guard lock(mutex_);
    auto& segment = segments_[comm_id];
    if (segment == nullptr) {
      segment.reset(static_cast<std::byte*>(::mmap(nullptr, Board::bytes(2), PROT_READ | PROT_WRITE,
                                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0)));
    }
    return segment.get();
  }
  mutable std::mutex mutex_;
  mutable std::map<std::uint64_t, std::unique_ptr<std::byte, Unmap>> segments_;  // by comm_id
};

class Refusal final : public TransportFactory {
 public:
  Status make(const TransportOptions&, std::vector<std::unique_ptr<Transport>>*) const override {
    return invalid_usage("this factory has no transports");
  }
};

Status make(const std::shared_ptr<Session>& session, const CommContext& context,
            std::unique_ptr<Communicator>* out) {
  CommConfig config;
  config.name = "two";
  config.use_tcp = false;
  return Communicator::create(session, {0, 1}, 1 << 16, 0, config, context, out);
}

TEST(TransportFactory, brings_the_transports_of_a_communicator_and_of_what_is_split_from_it) {
  const Fifos factory;
  run_two(false, [&](int rank, const std::shared_ptr<Session>& session) {
    SharedParts shared;  // each rank has parts of its own, as a process has
    ErrorCell errors, errors_of_part;
    std::unique_ptr<Communicator> whole, part;
    const Status status = make(session, {shared, errors, nullptr, factory}, &whole);
    ASSERT_TRUE(status.ok()) << status.message();
    const Status split = whole->split(whole->order().take_ticket(CallOrder::Kind::collectives), 0,
                                      -rank, whole->config(), errors_of_part, nullptr, &part);
    ASSERT_TRUE(split.ok()) << split.message();
    EXPECT_EQ(1 - rank, part->rank());
    for (Communicator* const communicator : {whole.get(), part.get()}) {
      std::vector<int> values(100'000, rank + 1);
      const Call call{Collective::all_reduce, values.data(), values.data(), values.size(),
                      Dtype::int32};
      EXPECT_TRUE(communicator->run({&call, 1}).ok());
      EXPECT_EQ(std::vector<int>(values.size(), 3), values);
      EXPECT_STREQ("shm", communicator->last_transport()) << "the ranks are on two nodes";
    }
  });
  EXPECT_EQ(4, factory.made);
}

TEST(TransportFactory, that_fails_ends_the_making_with_its_error) {
  const Refusal factory;
  run_two(false, [&](int, const std::shared_ptr<Session>& session) {
    SharedParts shared;
    ErrorCell errors;
    std::unique_ptr<Communicator> none;
    const Status status = make(session, {shared, errors, nullptr, factory}, &none);
    EXPECT_EQ(Code::invalid_usage, status.code());
    EXPECT_EQ("this factory has no transports", status.message());
    EXPECT_EQ(nullptr, none);
  });
}

}  // namespace
}  // namespace hocket::internal
