#include "engine/comm_links.h"

namespace hocket::internal {

Status CommLinks::open(const CommConfig& config, const TransportFactory& factory) {
  HOCKET_RETURN_IF_ERROR(node_.open(config.join_deadline_ms));
  return factory.make({session_, membership_, config, board(), doorbells(), memory_}, &transports_);
}

Links CommLinks::links() const {
  Links links;
  links.rank = membership_.rank();
  links.board = &board();
  links.ranks_of_node = membership_.local_members();
  links.regions = &regions_;
  links.transport_to.resize(static_cast<std::size_t>(membership_.ranks()));
  for (const auto& transport : transports_) {
    for (int peer = 0; peer < membership_.ranks(); ++peer) {
      Transport*& to = links.transport_to[static_cast<std::size_t>(peer)];
      if (to == nullptr && transport->reaches(peer)) to = transport.get();
    }
  }
  return links;
}

std::vector<Transport*> CommLinks::transports() const {
  std::vector<Transport*> transports;
  for (const auto& transport : transports_) transports.push_back(transport.get());
  return transports;
}

void CommLinks::cancel(const Status& why) {
  for (const auto& transport : transports_) transport->cancel(why);
}

void CommLinks::close() {
  for (const auto& transport : transports_) best_effort([&] { transport->close(); });
  session_.unlisten(membership_.comm_id());
}

}  // namespace hocket::internal
