#include "bootstrap/join/rank_join.h"

#include <cerrno>
#include <utility>

#include "bootstrap/net/socket.h"

namespace hocket::internal {
namespace {
constexpr std::int64_t elect_again_ms = 5;
}

void RankJoin::start() {
  start_deadline();
  elect();
}

void RankJoin::elect() {
  const std::string name = socket_name(setup_.credentials, "node", setup_.options.node_of_host);
  UniqueFd listener;
  bool taken = false;
  const Status status = listen_unix(name, &listener, &taken);
  if (status.ok()) {
    end();
    return lead_(std::move(listener));
  }
  if (!taken) return give_up(status);
  Dialer::Options options;
  options.endpoint.unix_name = name;
  options.credentials = setup_.credentials;
  options.claim = {Purpose::node, rank(), -1, 0, 0};
  options.deadline = setup_.deadline;
  options.name = "the leader of this node";
  dialer_ = Dialer::start(loop_, std::move(options),
                          [this](Dialer::Result result) { reached(std::move(result)); });
}

void RankJoin::reached(Dialer::Result result) {
  dialer_.reset();
  if (ended()) return;
  if (result.refused && loop_.now() < setup_.deadline) {
    // The rank that has bound the name does not listen yet, or has ended: then another rank binds.
    retry_ = loop_.after_ms(elect_again_ms, [this] {
      if (!ended()) elect();
    });
    return;
  }
  if (result.status.code() == Code::system_error) return give_up(result.status);
  if (!result.stream) return fail(result.status);
  joined_.leader = ControlConnection::open(
      loop_, std::move(result.stream), body_cap(ranks()),
      [this](Message& message) { on_message(message); },
      [this](int) {
        fail(Status(Code::remote_error, leader_name_ + " ended while the ranks were still joining",
                    leader_rank_));
      });
  JoinRequest request = setup_.self;
  request.remaining_ms = (setup_.deadline - loop_.now()) / nanos_per_ms;
  std::vector<SharedFd> fds;
  if (setup_.own_pidfd) fds.push_back(setup_.own_pidfd);
  state_ = State::awaiting_table;
  joined_.leader->send(MessageType::join_request, encode(request), std::move(fds));
  stop_if_asked();
}

void RankJoin::on_message(Message& message) {
  if (ended()) return;
  if (message.lost_fds) {
    return give_up(system_error("cannot take what the leader of this node shares", EMFILE));
  }
  if (take_message(message)) return;
  give_up(
      internal_error("the leader of this node sent a message that does not belong into a join"));
}

/// Returns false if the message does not belong here.
bool RankJoin::take_message(Message& message) {
  switch (message.type) {
    case MessageType::fail: {
      Failure failure;
      if (!decode(message.body, &failure)) return false;
      fail(Status(failure.code, failure.text, failure.culprit));
      return true;
    }
    case MessageType::join_request: {  // the leader's own, for error messages
      JoinRequest leader;
      if (!decode(message.body, &leader)) return false;
      leader_rank_ = leader.rank;
      leader_name_ = who(leader) + ", the leader of this node,";
      return true;
    }
    case MessageType::fault: {
      Fault fault;
      if (!decode(message.body, ranks(), &fault)) return false;
      joined_.early.push_back(fault);
      return true;
    }
    case MessageType::table:
      if (state_ != State::awaiting_table) return false;
      if (JoinRole::take_table(message)) state_ = State::awaiting_page;
      return true;
    case MessageType::heartbeat_page:
      return state_ == State::awaiting_page && take_heartbeat_page(message);
    case MessageType::pidfds:
      return state_ == State::awaiting_done && take_pidfds(message);
    case MessageType::done:
      if (state_ != State::awaiting_done) return false;
      finish();
      return true;
    default:
      return false;
  }
}

bool RankJoin::take_heartbeat_page(const Message& message) {
  if (message.fds.size() != 1) return false;
  int node_ranks = 0;
  for (const Member& member : joined_.table.members) node_ranks += member.node == joined_.node;
  if (const Status status = joined_.page->map(node_ranks, message.fds[0]); !status.ok()) {
    give_up(status);
    return true;
  }
  state_ = State::awaiting_done;
  return true;
}

bool RankJoin::take_pidfds(Message& message) {
  Reader reader(message.body);
  for (UniqueFd& fd : message.fds) {
    joined_.pidfds[reader.i32()] = std::make_shared<const UniqueFd>(std::move(fd));
  }
  return reader.complete();
}

void RankJoin::report_failure(const Failure& failure) {
  if (joined_.leader) joined_.leader->send(MessageType::fail, encode(failure));
}

}  // namespace hocket::internal
