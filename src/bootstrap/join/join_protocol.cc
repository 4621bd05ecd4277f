#include "bootstrap/join/join_protocol.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "bootstrap/net/address.h"

namespace hocket::internal {
namespace {
// The root's own word on the deadline names the missing ranks: leave it time to arrive.
constexpr std::int64_t grace_ms = 2000;
constexpr std::int64_t elect_again_ms = 5;

SharedFd open_own_pidfd() {
#ifdef SYS_pidfd_open
  const long fd = ::syscall(SYS_pidfd_open, ::getpid(), 0);
  if (fd >= 0) return std::make_shared<const UniqueFd>(static_cast<int>(fd));
#endif
  return nullptr;  // the node then learns of this rank's end by the hang-up of its connection
}
}  // namespace

std::uint64_t process_number() {
  static std::mutex mutex;
  static std::uint64_t number = 0;
  static std::uint64_t generation = 0;
  std::lock_guard lock(mutex);
  if (generation != fork_generation()) {
    if (!random_bytes(&number, sizeof number).ok()) number = static_cast<std::uint64_t>(::getpid());
    generation = fork_generation();
  }
  return number;
}

JoinProtocol::JoinProtocol(EventLoop& loop, const JoinOptions& options, const JoinRequest& self,
                           Handlers handlers)
    : loop_(loop), options_(options), self_(self), handlers_(std::move(handlers)) {
  credentials_ = {options.key, options.job_id, !options.has_key};
  if (!options.has_key) credentials_.key = {};
}

JoinProtocol::~JoinProtocol() {
  loop_.cancel(timer_);
  loop_.cancel(retry_);
}

void JoinProtocol::start() {
  deadline_ = loop_.now() + options_.join_deadline_ms * nanos_per_ms;
  std::weak_ptr<JoinProtocol> weak = weak_from_this();
  timer_ = loop_.at(deadline_ + grace_ms * nanos_per_ms, [weak] {
    const auto self = weak.lock();
    if (!self) return;
    self->fail(Status(Code::timeout,
                      fmt::format("the join deadline of {} ms passed, and {} has not said which "
                                  "ranks are missing",
                                  self->options_.join_deadline_ms,
                                  self->joined_.leads ? "the root at " + self->options_.root.text()
                                                      : self->leader_name_)));
  });
  if (options_.share_memory) {
    own_pidfd_ = open_own_pidfd();
    elect();
  } else {
    lead(UniqueFd());
  }
}

void JoinProtocol::elect() {
  const std::string name = socket_name(credentials_, "node", -1);
  UniqueFd listener;
  bool taken = false;
  const Status status = listen_unix(name, &listener, &taken);
  if (status.ok()) return lead(std::move(listener));
  if (!taken) return give_up(status);
  Dialer::Options options;
  options.endpoint.unix_name = name;
  options.credentials = credentials_;
  options.claim = {Purpose::node, options_.rank, -1, 0, 0};
  options.deadline = deadline_;
  options.name = "the leader of this node";
  std::weak_ptr<JoinProtocol> weak = weak_from_this();
  dialer_ = Dialer::start(loop_, std::move(options), [weak](Dialer::Result result) {
    if (const auto self = weak.lock()) self->follow(std::move(result));
  });
}

void JoinProtocol::follow(Dialer::Result result) {
  dialer_.reset();
  if (result.nobody && loop_.now() < deadline_) {
    // Whoever had the name has not listened yet, or is gone: then one of those left leads.
    std::weak_ptr<JoinProtocol> weak = weak_from_this();
    retry_ = loop_.after_ms(elect_again_ms, [weak] {
      if (const auto self = weak.lock()) self->elect();
    });
    return;
  }
  if (!result.fd) return fail(result.status);
  std::weak_ptr<JoinProtocol> weak = weak_from_this();
  joined_.leader = ControlConnection::open(
      loop_, std::move(result.fd), body_cap(options_.ranks),
      [weak](Message& message) {
        if (const auto self = weak.lock()) self->on_leader_message(message);
      },
      [weak](int) {
        if (const auto self = weak.lock()) {
          self->fail(Status(Code::remote_error,
                            self->leader_name_ + " ended while the ranks were still joining",
                            self->leader_rank_));
        }
      });
  JoinRequest arrival = self_;
  arrival.remaining_ms = (deadline_ - loop_.now()) / nanos_per_ms;
  std::vector<SharedFd> fds;
  if (own_pidfd_) fds.push_back(own_pidfd_);
  joined_.leader->send(MessageType::arrive, encode(arrival), std::move(fds));
}

void JoinProtocol::on_leader_message(Message& message) {
  if (ended_) return;
  if (message.lost_fds) {
    return give_up(system_error("cannot take what the leader of this node shares", EMFILE));
  }
  if (take_leader_message(message)) return;
  give_up(
      internal_error("the leader of this node sent a message that does not belong into a join"));
}

/// False where the message does not belong here.
bool JoinProtocol::take_leader_message(Message& message) {
  if (message.type == MessageType::fail) {
    Failure failure;
    if (!decode(message.body, &failure)) return false;
    fail(Status(failure.code, failure.text, failure.culprit));
  } else if (message.type == MessageType::arrive) {
    JoinRequest leader;
    if (!decode(message.body, &leader)) return false;
    leader_rank_ = leader.rank;
    leader_name_ = who(leader) + ", the leader of this node,";
  } else if (message.type == MessageType::table && !has_table_) {
    take_table(message);
  } else if (message.type == MessageType::pulse && has_table_ && message.fds.size() == 1) {
    int locals = 0;
    for (const Member& member : joined_.table.members) locals += member.node == joined_.node;
    const Status status = joined_.page->map(locals, message.fds[0]);
    if (!status.ok()) give_up(status);
  } else if (message.type == MessageType::pidfds && has_table_) {
    Reader reader(message.body);
    for (UniqueFd& fd : message.fds) {
      joined_.pidfds[reader.i32()] = std::make_shared<const UniqueFd>(std::move(fd));
    }
    return reader.complete();
  } else if (message.type == MessageType::done && joined_.page->mapped()) {
    finish();
  } else if (message.type == MessageType::fault) {
    Fault fault;
    if (!decode(message.body, options_.ranks, &fault)) return false;
    joined_.early.push_back(fault);
  } else {
    return false;
  }
  return true;
}

void JoinProtocol::take_table(const Message& message) {
  if (!decode(message.body, options_.ranks, &joined_.table)) {
    return give_up(internal_error("the table of members is damaged"));
  }
  has_table_ = true;
  joined_.node = joined_.table.members[options_.rank].node;
  const Status status = handlers_.table_known(joined_.table.key);
  if (!status.ok()) return give_up(status);
  if (!joined_.leads) return;
  table_bytes_ = message.body;
  for (auto& [node, child] : joined_.children) child->send(MessageType::table, table_bytes_);
  if (const Status shared = share_node(); !shared.ok()) return give_up(shared);
  confirm();
}

void JoinProtocol::finish() {
  if (ended_) return;
  ended_ = true;
  loop_.cancel(timer_);
  handlers_.joined(std::move(joined_));
}

void JoinProtocol::fail(const Status& status) {
  if (ended_) return;
  ended_ = true;
  loop_.cancel(timer_);
  best_effort([&] {
    failure_ = {status.code(), status.culprit(), status.message()};
    for (auto& [id, local] : locals_) local.conn->send(MessageType::fail, encode(failure_));
  });
  handlers_.failed(status);
}

/// Something went wrong here that all should know.
void JoinProtocol::trouble(const Failure& failure) {
  if (root_ && root_->is_open()) {
    root_->send(MessageType::fail, encode(failure));
  } else {
    fail(Status(failure.code, failure.text, failure.culprit));
  }
}

std::string JoinProtocol::who(const JoinRequest& arrival) {
  return fmt::format("rank {} (process {} on {})", arrival.rank, arrival.pid, arrival.host);
}

void JoinProtocol::give_up(const Status& why) {
  if (ended_) return;
  Status status = why;
  best_effort([&] {
    status = Status(why.code(), fmt::format("{} cannot join: {}", who(self_), why.message()),
                    options_.rank);
    const Failure failure{status.code(), status.culprit(), status.message()};
    if (joined_.leader) joined_.leader->send(MessageType::fail, encode(failure));
    if (root_ && root_->is_open()) root_->send(MessageType::fail, encode(failure));
  });
  fail(status);
}

void JoinProtocol::stop() { give_up({Code::aborted, "it aborted its join"}); }

}  // namespace hocket::internal
