#include "bootstrap/join/node_leader.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <utility>

#include "bootstrap/net/address.h"

namespace hocket::internal {
namespace {
constexpr std::int64_t own_coordinator_extra_ms = 3'600'000;  // join requests bring the deadline

// hocketGetUniqueId and hocket-run listen before any rank starts: if connections are refused for so
// long, the coordinator has ended. Shorter delays may be a full queue, or a network that starts.
constexpr Nanos coordinator_refused_limit = 30 * nanos_per_s;

// After the end of a connection the reason often follows.
constexpr std::int64_t explanation_patience_ms = 500;

/// The coordinators that this process has reached: if one of them refuses a connection, it has
/// ended.
class ReachedCoordinators {
 public:
  static ReachedCoordinators& instance() {
    static auto* reached = new ReachedCoordinators;
    return *reached;
  }
  void add(const Address& coordinator) {
    std::lock_guard lock(mutex_);
    addresses_[next_++ % addresses_.size()] = coordinator;
  }
  bool knows(const Address& coordinator) {
    std::lock_guard lock(mutex_);
    return std::find(addresses_.begin(), addresses_.end(), coordinator) != addresses_.end();
  }

 private:
  std::mutex mutex_;
  std::array<Address, 8> addresses_;
  std::size_t next_ = 0;
};
}  // namespace

void NodeLeader::start(UniqueFd listener) {
  joined_.leads = true;
  start_deadline();
  if (listener) {
    acceptor_ = std::make_unique<Acceptor>(
        loop_, std::move(listener), setup_.credentials,
        [](const Claim& claim) {
          return claim.purpose == Purpose::node && !claim.tls ? Verdict::accepted
                                                              : Verdict::refused;
        },
        [this](const Claim& claim, ByteStream stream) {
          adopt_follower(claim.rank, std::move(stream));
        },
        [this](const Status& why) { give_up(why); });
  }
  if (setup_.options.has_key) return reach_coordinator();
  if (const Status status = start_own_coordinator(); !status.ok()) give_up(status);
}

std::string NodeLeader::awaited() const {
  return "the coordinator at " + setup_.options.coordinator.text();
}

// ---- The coordinator

/// Without a key only the ranks of this node can join, so that the coordinator can be here.
Status NodeLeader::start_own_coordinator() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
    return system_error("cannot make a pair of sockets");
  }
  UniqueFd ours(pair[0]), theirs(pair[1]);
  Key session_key{};
  HOCKET_RETURN_IF_ERROR(random_bytes(session_key.data(), session_key.size()));
  own_coordinator_ = Coordinator::start(loop_, session_key, own_coordinator_extra_ms, nullptr);
  own_coordinator_->adopt(std::move(theirs));
  open_coordinator(std::move(ours));
  return {};
}

void NodeLeader::reach_coordinator() {
  const Address& address = setup_.options.coordinator;
  Dialer::Options options;
  options.endpoint.tcp = address;
  options.credentials = setup_.credentials;
  options.claim = {Purpose::coordinator, rank(), -1, 0, 0};
  options.deadline = setup_.deadline;
  options.refused_limit =
      ReachedCoordinators::instance().knows(address) ? 0 : coordinator_refused_limit;
  options.name = awaited();
  coordinator_dialer_ = Dialer::start(
      loop_, std::move(options), [this](Dialer::Result result) { reached(std::move(result)); });
}

void NodeLeader::reached(Dialer::Result result) {
  coordinator_dialer_.reset();
  if (ended()) return;
  if (result.stream) {
    ReachedCoordinators::instance().add(setup_.options.coordinator);
    return open_coordinator(std::move(result.stream));
  }
  if (result.refused) {
    return fail(Status(Code::remote_error,
                       result.status.message() +
                           ": the coordinator's process has ended, or all ranks have joined "
                           "already and none is missing; look at the output of rank 0, and make a "
                           "new id with hocketGetUniqueId for each communicator"));
  }
  if (result.status.code() == Code::system_error) return give_up(result.status);
  if (result.status.code() != Code::timeout) return fail(result.status);
  fail(Status(Code::timeout,
              fmt::format("the join deadline of {} ms passed: {}; does rank 0 (or hocket-run) run, "
                          "and can this host reach it?",
                          setup_.options.join_deadline_ms, result.status.message())));
}

void NodeLeader::open_coordinator(ByteStream stream) {
  coordinator_ = ControlConnection::open(
      loop_, std::move(stream), body_cap(ranks()),
      [this](Message& message) { on_coordinator_message(message); },
      [this](int error) {
        const std::string cause = error == 0 ? "its process ended"
                                  : error == EBADMSG
                                      ? "TLS has found that bytes were changed on the way"
                                      : system_error("connection", error).message();
        fail(Status(
            Code::remote_error,
            fmt::format("lost {} ({}) while the ranks were still joining", awaited(), cause)));
      });
  state_ = State::gathering;
  pass_on_request(setup_.self, setup_.deadline);
  for (const auto& [id, follower] : followers_) {
    if (follower.has_come) pass_on_request(follower.request, follower.deadline);
  }
  if (reported_) coordinator_->send(MessageType::fail, encode(*reported_));
  stop_if_asked();
}

void NodeLeader::pass_on_request(const JoinRequest& request, Nanos deadline) {
  JoinRequest copy = request;
  copy.remaining_ms = std::max<std::int64_t>((deadline - loop_.now()) / nanos_per_ms, 0);
  coordinator_->send(MessageType::join_request, encode(copy));
}

void NodeLeader::on_coordinator_message(Message& message) {
  if (ended()) return;
  if (message.type == MessageType::fail) {
    Failure failure;
    if (decode(message.body, &failure)) {
      return fail(Status(failure.code, failure.text, failure.culprit));
    }
  } else if (message.type == MessageType::place && state_ == State::gathering) {
    TreePosition place;
    if (decode(message.body, &place) && place.ranks == ranks()) return take_place(place);
  } else if (message.type == MessageType::table && state_ == State::placed && place_.node == 0) {
    return take_table(message);
  } else if (message.type == MessageType::done && state_ == State::confirmed) {
    return all_done();
  }
  give_up(internal_error("the coordinator sent a message that does not belong into a join"));
}

void NodeLeader::all_done() {
  std::erase_if(followers_, [](const auto& entry) { return !entry.second.has_come; });
  // The steps that allocate come first: if memory is lacking, the join fails while followers_ is
  // still complete. The moves cannot fail.
  for (const auto& [id, follower] : followers_) joined_.followers[follower.request.rank];
  for (const auto& [id, follower] : followers_) follower.conn->send(MessageType::done);
  for (auto& [id, follower] : followers_) {
    joined_.followers.find(follower.request.rank)->second = std::move(follower.conn);
  }
  followers_.clear();
  finish();
}

void NodeLeader::keep_for_after_join(const Failure& failure) {
  if (state_ != State::confirmed || failure.culprit < 0) return;
  joined_.early.push_back(
      {Fault::Kind::dead, failure.culprit, 0, 0, Code::remote_error, failure.text});
}

/// Tells the coordinator of a failure of another rank. The coordinator then ends the join; or it
/// has ended the join already, if this leader has confirmed: then the ranks learn of the failure
/// after the join.
void NodeLeader::tell_coordinator(const Failure& failure) {
  keep_for_after_join(failure);
  if (!reported_) reported_ = failure;
  if (coordinator_) coordinator_->send(MessageType::fail, encode(failure));
}

/// A neighbour in the tree has closed or refused the connection. If the neighbour has ended, the
/// coordinator sees that too, perhaps with a reason, which must arrive before this rank's report.
void NodeLeader::lost_neighbour(int culprit, const std::string& text) {
  const Failure failure{Code::remote_error, culprit, text};
  keep_for_after_join(failure);
  if (lost_) return;
  lost_ = loop_.after_ms(explanation_patience_ms, [this, failure] {
    if (!ended()) tell_coordinator(failure);
  });
}

/// Tells the neighbours in the tree too, because they see that their connections close, and must
/// not report that first.
void NodeLeader::report_failure(const Failure& failure) {
  const std::vector<std::uint8_t> body = encode(failure);
  if (coordinator_) coordinator_->send(MessageType::fail, body);
  if (joined_.parent) joined_.parent->send(MessageType::fail, body);
  for (const auto& [node, child] : joined_.children) child->send(MessageType::fail, body);
}

void NodeLeader::pass_on_failure(const Failure& failure) {
  failure_ = failure;
  for (auto& [id, follower] : followers_) tell_failure(follower);
}

/// A failed join waits for the ranks that do not know why it has failed. The coordinator learns at
/// once that the follower knows: the follower's process may end without a request, and this process
/// before the request arrives.
void NodeLeader::tell_failure(Follower& follower) {
  follower.conn->send(MessageType::fail, encode(failure_));
  if (follower.has_come || !coordinator_) return;
  follower.has_come = true;
  pass_on_request(follower.request, setup_.deadline);
}

// ---- Followers

void NodeLeader::adopt_follower(int rank, ByteStream stream) {
  const int id = next_follower_++;
  auto conn = ControlConnection::open(
      loop_, std::move(stream), body_cap(ranks()),
      [this, id](Message& message) { on_follower_message(id, message); },
      [this, id](int) { on_follower_closed(id); });
  Follower& follower = followers_[id];
  follower.conn = std::move(conn);
  follower.conn->send(MessageType::join_request, encode(setup_.self));  // for its messages
  follower.request.rank = rank;
  follower.request.ranks = ranks();
  if (failure_.code != Code::ok) tell_failure(follower);
}

void NodeLeader::on_follower_message(int id, Message& message) {
  Follower& follower = followers_[id];
  Failure failure;
  if (!ended() && message.type == MessageType::fail && follower.has_come &&
      decode(message.body, &failure)) {
    return tell_coordinator({failure.code, follower.request.rank, failure.text});
  }
  if (ended() || message.type != MessageType::join_request || follower.has_come ||
      !decode(message.body, &follower.request) || message.fds.size() > 1) {
    return on_follower_closed(id);
  }
  follower.has_come = true;
  follower.deadline =
      loop_.now() +
      std::clamp<std::int64_t>(follower.request.remaining_ms, 0, 1'000'000'000) * nanos_per_ms;
  if (!message.fds.empty()) {
    follower.pidfd = std::make_shared<const UniqueFd>(std::move(message.fds[0]));
  }
  if (coordinator_) pass_on_request(follower.request, follower.deadline);
}

void NodeLeader::on_follower_closed(int id) {
  const auto found = followers_.find(id);
  const Follower gone = std::move(found->second);
  followers_.erase(found);
  if (ended() || !gone.has_come) return;
  lost_rank(gone.request.rank, who(gone.request) + " ended while the ranks were still joining");
}

// ---- The tree of leaders

void NodeLeader::take_place(const TreePosition& place) {
  state_ = State::placed;
  place_ = place;
  joined_.node = place.node;
  if (place.parent_rank < 0) return;
  Dialer::Options options;
  options.endpoint.tcp = place.parent;
  if (is_link_local(place.parent)) options.endpoint.tcp.scope = setup_.self.address.scope;
  options.credentials = setup_.credentials;
  options.claim = {Purpose::tree, rank(), place.parent_rank, 0,
                   static_cast<std::uint32_t>(place.node)};
  options.deadline = setup_.deadline;
  options.refused_limit = never;
  options.name = fmt::format("rank {} at {}", place.parent_rank, place.parent.text());
  parent_dialer_ = Dialer::start(loop_, std::move(options),
                                 [this](Dialer::Result result) { open_parent(std::move(result)); });
}

void NodeLeader::open_parent(Dialer::Result result) {
  parent_dialer_.reset();
  if (ended()) return;
  if (result.status.code() == Code::system_error) return give_up(result.status);
  if (!result.stream) {
    return lost_neighbour(place_.parent_rank,
                          fmt::format("rank {}: {}", rank(), result.status.message()));
  }
  joined_.parent = ControlConnection::open(
      loop_, std::move(result.stream), body_cap(ranks()),
      [this](Message& message) { on_parent_message(message); },
      [this](int) {
        if (ended()) return;
        lost_neighbour(place_.parent_rank,
                       fmt::format("rank {} lost its connection to rank {} at {} during the join",
                                   rank(), place_.parent_rank, place_.parent.text()));
      });
}

void NodeLeader::on_parent_message(Message& message) {
  if (ended()) return;
  if (message.type == MessageType::table && state_ == State::placed) return take_table(message);
  if (take_from_neighbour(message)) return;
  give_up(internal_error("a parent in the tree sent a message that does not belong into a join"));
}

void NodeLeader::on_child_message(Message& message) {
  if (ended() || take_from_neighbour(message)) return;
  give_up(internal_error("a child in the tree sent a message that does not belong into a join"));
}

/// A neighbour gives up, or its join has ended already and it sends heartbeats and faults. Returns
/// false if the message does not belong here.
bool NodeLeader::take_from_neighbour(const Message& message) {
  Failure failure;
  Fault fault;
  switch (message.type) {
    case MessageType::heartbeat:
      return true;
    case MessageType::fail:
      if (!decode(message.body, &failure)) return false;
      tell_coordinator(failure);
      return true;
    case MessageType::fault:
      if (!decode(message.body, ranks(), &fault)) return false;
      joined_.early.push_back(fault);
      return true;
    default:
      return false;
  }
}

Verdict NodeLeader::judge_child(const Claim& claim) const {
  if (ended() || claim.target != rank() || claim.index == 0) return Verdict::refused;
  // Children may come before this leader knows its place: confirm() checks their nodes.
  return joined_.children.count(static_cast<int>(claim.index)) != 0 ? Verdict::duplicate
                                                                    : Verdict::accepted;
}

void NodeLeader::accept_child(const Claim& claim, ByteStream stream) {
  const int node = static_cast<int>(claim.index);
  const int child = claim.rank;
  auto& conn = joined_.children[node] = ControlConnection::open(
      loop_, std::move(stream), body_cap(ranks()),
      [this](Message& message) { on_child_message(message); },
      [this, node, child](int) {
        joined_.children.erase(node);
        if (ended()) return;
        lost_neighbour(child, fmt::format("rank {} lost its connection to rank {} during the join",
                                          rank(), child));
      });
  if (state_ != State::linking && state_ != State::confirmed) return;
  conn->send(MessageType::table, table_bytes_);
  confirm();
}

void NodeLeader::take_table(const Message& message) {
  if (reported_) return;  // the coordinator ends the join
  if (!JoinRole::take_table(message)) return;
  state_ = State::linking;
  table_bytes_ = message.body;
  for (const auto& [node, child] : joined_.children) child->send(MessageType::table, table_bytes_);
  if (const Status shared = share_with_followers(); !shared.ok()) return give_up(shared);
  confirm();
}

int NodeLeader::expected_children() const {
  const std::int64_t first = static_cast<std::int64_t>(place_.node) * tree_arity + 1;
  return static_cast<int>(std::clamp<std::int64_t>(place_.nodes - first, 0, tree_arity));
}

void NodeLeader::confirm() {
  if (state_ != State::linking || reported_) return;
  if (static_cast<int>(joined_.children.size()) < expected_children()) return;
  for (const auto& [node, conn] : joined_.children) {
    if ((node - 1) / tree_arity != place_.node) {
      return give_up(internal_error("a leader connected to the wrong place in the tree"));
    }
  }
  state_ = State::confirmed;
  coordinator_->send(MessageType::confirm);
}

/// Gives the followers the table, the heartbeat page and one another's pidfds.
Status NodeLeader::share_with_followers() {
  int members = 0, here = 1;
  for (const Member& member : joined_.table.members) members += member.node == joined_.node;
  for (const auto& [id, follower] : followers_) here += follower.has_come;
  if (members != here) {
    return internal_error("the table of members does not fit this node");
  }
  UniqueFd page;
  HOCKET_RETURN_IF_ERROR(joined_.page->make(members, &page));
  const SharedFd shared_page = std::make_shared<const UniqueFd>(std::move(page));
  for (const auto& [id, follower] : followers_) {
    if (!follower.has_come) continue;
    follower.conn->send(MessageType::table, table_bytes_);
    follower.conn->send(MessageType::heartbeat_page, {}, {shared_page});
    send_pidfds(follower);
    if (follower.pidfd && follower.request.process != setup_.self.process) {
      joined_.pidfds[follower.request.rank] = follower.pidfd;
    }
  }
  return {};
}

void NodeLeader::send_pidfds(const Follower& to) {
  Writer ranks;
  std::vector<SharedFd> fds;
  const auto flush = [&] {
    if (!fds.empty()) to.conn->send(MessageType::pidfds, ranks.take(), std::move(fds));
    ranks = {};
    fds = {};
  };
  const auto add = [&](int rank, std::uint64_t process, const SharedFd& fd) {
    // A process needs no descriptor to learn of its own end.
    if (!fd || process == to.request.process) return;
    ranks.i32(rank);
    fds.push_back(fd);
    if (fds.size() == fds_per_message) flush();
  };
  add(setup_.self.rank, setup_.self.process, setup_.own_pidfd);
  for (const auto& [id, follower] : followers_)
    add(follower.request.rank, follower.request.process, follower.pidfd);
  flush();
}

}  // namespace hocket::internal
