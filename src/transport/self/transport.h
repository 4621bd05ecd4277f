// Messages of a rank to itself, which a group may send and receive at once: one copy.
#pragma once

#include <vector>

#include "transport/transport.h"

namespace hocket::internal {

class SelfTransport final : public Transport {
 public:
  explicit SelfTransport(int rank) : rank_(rank) { may_be_active_ = false; }

  const char* name() const override { return "self"; }
  bool reaches(int peer) const override { return peer == rank_; }
  void post_send(Transfer& transfer) override { post(transfer, sends_, recvs_, true); }
  void post_recv(Transfer& transfer) override { post(transfer, recvs_, sends_, false); }
  bool poll() override { return false; }
  void cancel(const Status& why) override;
  void close() override {}
  std::uint64_t latest_sequence_from(int) const override { return 0; }
  int wait_descriptor() const override { return -1; }

 private:
  bool is_active() const override { return false; }

  using List = std::vector<Transfer*>;
  void post(Transfer& transfer, List& same, List& opposite, bool is_send);

  const int rank_;
  Status cancelled_;
  List sends_, recvs_;
};

}  // namespace hocket::internal
