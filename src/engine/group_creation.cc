#include "engine/group_creation.h"

#include <fmt/format.h>

namespace hocket::internal {

Status GroupCreation::run(ErrorCell& errors, StopRequest* stop,
                          std::unique_ptr<Communicator>* out) const {
  const Status made = Communicator::create(session_, members_, comm_id_, parent_, config_,
                                           {shared_, errors, stop, factory_, figures_}, out);
  if (made.code() != Code::timeout) return made;
  return status_of_call([&]() -> Status {
    return Status(Status::Detail{made.code(), made.message() + "; " + what_was_given(),
                                 made.culprit(), made.sequence(), made.link()});
  });
}

/// Members that give different things make different communicators, and no rank learns of the
/// other: calls with other ranks and tags may run at once.
std::string GroupCreation::what_was_given() const {
  constexpr std::size_t most = 16;
  std::string list;
  for (std::size_t i = 0; i < ranks_.size() && i < most; ++i) {
    list += fmt::format("{}{}", i == 0 ? "" : ", ", ranks_[i]);
  }
  if (ranks_.size() > most) list += fmt::format(" and {} more", ranks_.size() - most);
  return fmt::format(
      "this rank gave the ranks {} of the parent, as ranks 0, 1, ... of the new communicator, and "
      "the tag {}. A member that gave other ranks, another order or another tag makes another "
      "communicator",
      list, tag_);
}

}  // namespace hocket::internal
