#include "engine/transport_factory.h"

#include <algorithm>
#include <utility>

#include "transport/self/transport.h"
#include "transport/shm/transport.h"
#include "transport/tcp/transport.h"

namespace hocket::internal {
namespace {

std::unique_ptr<Transport> make_shm(const TransportOptions& given) {
  ShmOptions options;
  options.matcher.checksum = given.config.checksum;
  options.map = [&memory = given.memory](int peer, const RegionOffset& location, std::size_t bytes,
                                         std::uint64_t operation, std::byte** out) {
    return memory.map_remote(peer, location, bytes, operation, out);
  };
  options.read = [&memory = given.memory](int peer, std::uint64_t address, std::size_t bytes,
                                          std::byte* to) {
    return memory.read(peer, address, bytes, to);
  };
  const std::vector<int>& local_members = given.membership.local_members();
  return std::make_unique<ShmTransport>(
      given.board, local_members, given.membership.comm_id(),
      [&local_members, &doorbells = given.doorbells](int rank) {
        const auto at = std::find(local_members.begin(), local_members.end(), rank);
        doorbells.ring(static_cast<int>(at - local_members.begin()));
      },
      options);
}

Status make_tcp(const TransportOptions& given, std::vector<std::unique_ptr<Transport>>* out) {
  Session& session = given.session;
  const Membership& membership = given.membership;
  const std::uint64_t comm_id = membership.comm_id();
  TcpDialer dialer;
  dialer.dial = [&session, &membership, comm_id](int peer, int index) {
    session.dial(membership.session_rank(peer), comm_id, index);
  };
  dialer.address = [&membership](int peer) { return membership.member(peer).address.text(); };
  TcpOptions options;
  options.matcher.checksum = given.config.checksum;
  std::unique_ptr<TcpTransport> tcp;
  HOCKET_RETURN_IF_ERROR(TcpTransport::make(membership.rank(), membership.ranks(), comm_id,
                                            std::move(dialer), options, &tcp));
  TcpTransport* adopter = tcp.get();
  out->push_back(std::move(tcp));
  session.listen(comm_id, [&membership, &doorbells = given.doorbells, adopter](
                              int peer, int index, ByteStream stream, const Status& status) {
    const int rank = membership.rank_of_session(peer);
    if (rank >= 0) {
      adopter->adopt(rank, index, std::move(stream), membership.error_of_peer(rank, status));
    }
    doorbells.wake();
  });
  return {};
}

class DefaultTransports final : public TransportFactory {
 public:
  Status make(const TransportOptions& given,
              std::vector<std::unique_ptr<Transport>>* out) const override {
    const Membership& membership = given.membership;
    const CommConfig& config = given.config;
    out->push_back(std::make_unique<SelfTransport>(membership.rank()));
    if (membership.local_ranks() > 1) out->push_back(make_shm(given));
    if (membership.nodes() == 1) return {};
    if (!config.use_tcp) {
      return invalid_usage(
          "ranks of '" + config.name + "' are on " + std::to_string(membership.nodes()) +
          " nodes, but HOCKET_TRANSPORT leaves tcp out: add it, or run on one host");
    }
    return make_tcp(given, out);
  }
};

}  // namespace

const TransportFactory& default_transports() {
  static const DefaultTransports factory;
  return factory;
}

}  // namespace hocket::internal
