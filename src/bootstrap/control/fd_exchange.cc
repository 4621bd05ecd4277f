#include "bootstrap/control/fd_exchange.h"

#include <fmt/format.h>

#include <cerrno>

namespace hocket::internal {
namespace {

constexpr std::size_t message_cap = 64;
// After the end of a connection a fault that names the cause often follows.
constexpr std::int64_t explanation_patience_ms = 500;
}  // namespace

void FdExchange::serve(UniqueFd listener, const Credentials& credentials, std::int64_t patience_ms,
                       Acceptor::OutOfDescriptors out_of_descriptors) {
  credentials_ = credentials;
  patience_ms_ = patience_ms;
  acceptor_ = std::make_unique<Acceptor>(
      loop_, std::move(listener), credentials,
      [this](const Claim& claim) {
        return claim.purpose == Purpose::fetch && claim.target == rank_ && !claim.tls
                   ? Verdict::accepted
                   : Verdict::refused;
      },
      [this](const Claim&, ByteStream stream) { accept(std::move(stream)); },
      std::move(out_of_descriptors));
}

void FdExchange::accept(ByteStream stream) {
  const int client = next_client_++;
  clients_[client] = ControlConnection::open(
      loop_, std::move(stream), message_cap,
      [this, client](Message& message) { asked(client, message); },
      [this, client](int) { clients_.erase(client); });
}

void FdExchange::asked(int client, Message& message) {
  Reader reader(message.body);
  Wanted wanted{client, reader.u64()};
  const DescriptorName name{reader.u64(), reader.u64()};
  if (message.type != MessageType::fetch || !reader.complete()) {
    clients_.erase(client);
    return;
  }
  if (const auto found = offered_.find(name); found != offered_.end()) {
    answer(wanted, found->second);
  } else {
    wanted_[name].push_back(wanted);
  }
}

void FdExchange::answer(const Wanted& wanted, const SharedFd& fd) {
  const auto client = clients_.find(wanted.client);
  if (client == clients_.end()) return;
  Writer writer;
  writer.u64(wanted.id);
  client->second->send(MessageType::descriptor, writer.take(), {fd});
}

void FdExchange::offer(DescriptorName name, UniqueFd fd) {
  const SharedFd shared = std::make_shared<const UniqueFd>(std::move(fd));
  offered_[name] = shared;
  const auto waiting = wanted_.find(name);
  if (waiting == wanted_.end()) return;
  for (const Wanted& wanted : waiting->second) answer(wanted, shared);
  wanted_.erase(waiting);
}

void FdExchange::withdraw(DescriptorName name) { offered_.erase(name); }

void FdExchange::close_space(std::uint64_t space) {
  const auto is_of_it = [space](const auto& entry) { return entry.first.space == space; };
  std::erase_if(offered_, is_of_it);
  std::erase_if(wanted_, is_of_it);
}

void FdExchange::fetch(const std::shared_ptr<Request>& request) {
  const std::uint64_t id = next_id_++;
  requests_[id] = request;
  std::uint64_t first = 0;
  for (const Fault& fault : faults_.since(request->scope, &first)) {
    if (ends(fault, *request)) return end(id, Status(fault.code, fault.text, fault.rank), {});
  }
  Peer& peer = peers_[request->peer];
  if (peer.conn) return ask(peer, id, request->name);
  if (!peer.dialer) dial(request->peer);
}

void FdExchange::dial(int number) {
  Dialer::Options options;
  options.credentials = credentials_;
  options.endpoint.unix_name = socket_name(credentials_, "descriptors", number);
  options.claim = {Purpose::fetch, rank_, number, 0, 0};
  options.deadline = loop_.now() + patience_ms_ * nanos_per_ms;
  options.name = fmt::format("rank {} on this host", number);
  // A refused connection means a full queue, or that the peer has ended: then its fault ends the
  // request.
  options.refused_limit = never;
  peers_[number].dialer =
      Dialer::start(loop_, std::move(options),
                    [this, number](Dialer::Result result) { dialled(number, std::move(result)); });
}

void FdExchange::dialled(int number, Dialer::Result result) {
  Peer& peer = peers_[number];
  peer.dialer.reset();
  if (!result.stream) return end_all_of(number, result.error(rank_, number));
  peer.conn = ControlConnection::open(
      loop_, std::move(result.stream), message_cap,
      [this, number](Message& message) { answered(number, message); },
      [this, number](int) { lost(number); });
  for (const auto& [id, request] : requests_) {
    if (request->peer == number) ask(peer, id, request->name);
  }
}

void FdExchange::lost(int number) {
  Peer& peer = peers_[number];
  peer.conn.reset();
  peer.lost = loop_.after_ms(explanation_patience_ms, [this, number] {
    if (peers_[number].conn) return;
    const std::string text =
        fmt::format("rank {} closed its session while this rank waited for memory of it", number);
    end_all_of(number, Status(Code::remote_error, text, number));
  });
}

void FdExchange::ask(Peer& peer, std::uint64_t id, const DescriptorName& name) {
  Writer writer;
  writer.u64(id);
  writer.u64(name.space);
  writer.u64(name.number);
  peer.conn->send(MessageType::fetch, writer.take());
}

void FdExchange::answered(int number, Message& message) {
  Reader reader(message.body);
  const std::uint64_t id = reader.u64();
  if (message.type != MessageType::descriptor || !reader.complete()) return;
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second->peer != number) return;
  if (message.lost_fds) {
    const Status why = system_error("cannot take a descriptor of shared memory", EMFILE);
    return end(id, Status(why.code(), why.message(), rank_), {});
  }
  if (message.fds.empty()) return;
  end(id, {}, std::move(message.fds[0]));
}

void FdExchange::end(std::uint64_t id, const Status& status, UniqueFd fd) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  const std::shared_ptr<Request> request = found->second;
  requests_.erase(found);
  request->finish(status, std::move(fd));
}

void FdExchange::end_all_of(int peer, const Status& status) {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, request] : requests_) {
    if (request->peer == peer) ids.push_back(id);
  }
  for (const std::uint64_t id : ids) end(id, status, {});
}

void FdExchange::forget(const std::shared_ptr<Request>& request) {
  for (auto it = requests_.begin(); it != requests_.end(); ++it) {
    if (it->second == request) {
      requests_.erase(it);
      return;
    }
  }
}

/// The fault concerns the request's communicator. It does not end the request if another rank than
/// the requested one has left.
bool FdExchange::ends(const Fault& fault, const Request& request) const {
  const FaultScope& scope = request.scope;
  if (fault.kind == Fault::Kind::overdue) return false;
  if (fault.kind == Fault::Kind::left) return fault.rank == request.peer;
  if (fault.kind == Fault::Kind::exited && fault.rank == rank_) return false;
  return fault.kind != Fault::Kind::failed || scope.operation == 0 ||
         fault.sequence <= scope.operation;
}

void FdExchange::new_fault(const Fault& fault) {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, request] : requests_) {
    if (faults_.concerns(fault, request->scope) && ends(fault, *request)) ids.push_back(id);
  }
  for (const std::uint64_t id : ids) end(id, Status(fault.code, fault.text, fault.rank), {});
}

void FdExchange::close(const Status& why) {
  acceptor_.reset();
  clients_.clear();
  peers_.clear();
  offered_.clear();
  wanted_.clear();
  fail_all(why);
}

void FdExchange::fail_all(const Status& why) noexcept {
  while (!requests_.empty()) end(requests_.begin()->first, why, {});
}

}  // namespace hocket::internal
