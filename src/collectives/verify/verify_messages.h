// Pairs the sends with the recvs. Sender, receiver and tag identify a message; its chunks follow
// one another in order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "collectives/plan/plan.h"

namespace hocket::internal::verify_detail {

class Messages {
 public:
  /// Numbers the messages of plans that have passed check_form. An error if a send and a recv do
  /// not pair up.
  Status match(std::span<const Plan> plans);
  std::uint32_t size() const { return size_; }
  /// The message of a send or recv.
  std::uint32_t of(std::uint32_t rank, std::size_t lane, std::uint32_t instance,
                   std::size_t step) const {
    const LaneTable& table = tables_[rank][lane];
    return table.numbers[std::size_t{instance} * table.per_instance + table.ordinals[step]];
  }

 private:
  struct LaneTable {
    std::vector<std::uint32_t> ordinals;  // of a step among the sends and recvs of its lane
    std::uint32_t per_instance = 0;
    std::vector<std::uint32_t> numbers;
  };
  struct End;
  void collect(const Plan& plan, std::vector<End>& ends);
  static std::string item_text(std::uint64_t item);
  static std::uint32_t other_block(std::span<const Plan> plans, const End& first,
                                   const End& second);

  std::uint32_t size_ = 0;
  std::vector<std::vector<LaneTable>> tables_;  // by rank and lane
};

}  // namespace hocket::internal::verify_detail
