// Makes a communicator of some ranks of another communicator, without its other ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/communicator.h"

namespace hocket::internal {

/// The making of such a communicator, from the user's call to its end. It takes no ticket, because
/// it is no operation of the parent. It keeps everything that it needs, because the parent may be
/// destroyed before it runs.
class GroupCreation {
 public:
  /// ranks: of the parent, in the order of the new communicator. One thread at a time calls it on a
  /// parent.
  GroupCreation(Communicator& parent, const std::vector<int>& ranks, int tag, CommConfig config)
      : session_(parent.session_),
        parent_(parent.membership_.comm_id()),
        open_parent_(*session_, parent_),
        shared_(parent.shared_),
        factory_(parent.factory_),
        config_(std::move(config)),
        figures_(parent.figures_for(ranks, config_)),
        ranks_(ranks),
        tag_(tag) {
    for (const int rank : ranks) members_.push_back(parent.membership_.session_rank(rank));
    comm_id_ = parent.membership_.comm_id_of_next_group(members_, tag);
  }

  /// Waits for all members. errors, stop: of the new communicator.
  Status run(ErrorCell& errors, StopRequest* stop, std::unique_ptr<Communicator>* out) const;

 private:
  std::string what_was_given() const;

  std::shared_ptr<Session> session_;
  std::uint64_t parent_;    // comm id
  OpenCommId open_parent_;  // keeps the parent's faults, because its abort ends the making
  SharedParts& shared_;
  const TransportFactory& factory_;
  CommConfig config_;
  std::optional<Figures> figures_;
  std::vector<int> ranks_;  // of the parent
  int tag_;
  std::vector<int> members_;  // session ranks
  std::uint64_t comm_id_ = 0;
};

}  // namespace hocket::internal
