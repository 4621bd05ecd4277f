// The sends and receives of the user that are under way, in no order, and their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/operation.h"

namespace hocket::internal {

class MessageOperations {
 public:
  explicit MessageOperations(int ranks)
      : sent_to_(static_cast<std::size_t>(ranks)),
        received_from_(static_cast<std::size_t>(ranks)) {}

  bool empty() const { return under_way_.empty(); }
  std::size_t size() const { return under_way_.size(); }
  Operation& operator[](std::size_t index) { return *under_way_[index]; }

  /// The operation for the next message: a spare one, the latest of its direction. It stays a
  /// spare one until begin().
  Operation& next(Collective direction) {
    std::vector<std::unique_ptr<Operation>>& spare = spare_of(direction);
    if (spare.empty()) spare.push_back(std::make_unique<Operation>());
    // So that begin() finds the memory that it needs.
    if (under_way_.size() == under_way_.capacity()) under_way_.reserve(2 * under_way_.size() + 1);
    return *spare.back();
  }
  /// The operation of next() is under way.
  void begin(Collective direction) {
    std::vector<std::unique_ptr<Operation>>& spare = spare_of(direction);
    under_way_.push_back(std::move(spare.back()));
    spare.pop_back();
  }
  /// The number of the next message to the peer (send), or from it.
  std::uint64_t next_number(Collective direction, int peer) {
    auto& counter = direction == Collective::send ? sent_to_ : received_from_;
    return ++counter[static_cast<std::size_t>(peer)];
  }
  /// Keeps an operation that has ended as a spare one. The last operation takes its index.
  void remove(std::size_t index) {
    const Collective direction = under_way_[index]->bound.binding.signature.collective;
    spare_of(direction).push_back(std::move(under_way_[index]));
    under_way_[index] = std::move(under_way_.back());
    under_way_.pop_back();
  }
  void clear() { under_way_.clear(); }
  /// The next messages get new operations, which no call was bound to before.
  void drop_spare() {
    spare_sends_.clear();
    spare_recvs_.clear();
  }

 private:
  std::vector<std::unique_ptr<Operation>>& spare_of(Collective direction) {
    return direction == Collective::send ? spare_sends_ : spare_recvs_;
  }

  std::vector<std::unique_ptr<Operation>> under_way_, spare_sends_, spare_recvs_;
  std::vector<std::uint64_t> sent_to_, received_from_;  // messages per peer so far
};

}  // namespace hocket::internal
