// The leader's part of a join: its node's ranks on one side, the root and the tree on the other.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "bootstrap/join/join_protocol.h"
#include "bootstrap/net/address.h"

namespace hocket::internal {
namespace {
constexpr std::int64_t own_root_extra_ms = 3'600'000;  // arrivals bring the real deadline

// hocketGetUniqueId and hocket-run listen before any rank starts: where nobody listens for so long,
// the root is gone. Shorter delays may be a full queue, or a network that is being set up.
constexpr Nanos root_refused_limit = 30 * nanos_per_s;

/// Roots that this process has reached: where nobody listens there now, they are gone.
class ReachedRoots {
 public:
  static ReachedRoots& instance() {
    static auto* roots = new ReachedRoots;
    return *roots;
  }
  void add(const Address& root) {
    std::lock_guard lock(mutex_);
    roots_[next_++ % roots_.size()] = root;
  }
  bool knows(const Address& root) {
    std::lock_guard lock(mutex_);
    return std::find(roots_.begin(), roots_.end(), root) != roots_.end();
  }

 private:
  std::mutex mutex_;
  std::array<Address, 8> roots_;
  std::size_t next_ = 0;
};
}  // namespace

void JoinProtocol::lead(UniqueFd node_listener) {
  joined_.leads = true;
  std::weak_ptr<JoinProtocol> weak = weak_from_this();
  if (node_listener) {
    node_acceptor_ = std::make_unique<Acceptor>(
        loop_, std::move(node_listener), credentials_,
        [](const Claim& claim) {
          return claim.purpose == Purpose::node ? Verdict::accepted : Verdict::refused;
        },
        [this](const Claim&, UniqueFd fd) { adopt_local(std::move(fd)); });
  }
  if (options_.has_key) return reach_root();
  // Without a key nobody but this node's ranks may come, so the root can live here.
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
    return give_up(system_error("cannot make a pair of sockets"));
  }
  UniqueFd ours(pair[0]), theirs(pair[1]);
  Key session_key{};
  if (const Status status = random_bytes(session_key.data(), session_key.size()); !status.ok()) {
    return give_up(status);
  }
  own_root_ = Coordinator::start(loop_, session_key, own_root_extra_ms, nullptr);
  own_root_->adopt(std::move(theirs));
  open_root(std::move(ours));
}

void JoinProtocol::reach_root() {
  Dialer::Options options;
  options.endpoint.tcp = options_.root;
  options.credentials = credentials_;
  options.claim = {Purpose::root, options_.rank, -1, 0, 0};
  options.deadline = deadline_;
  options.refused_limit = ReachedRoots::instance().knows(options_.root) ? 0 : root_refused_limit;
  options.name = "the root at " + options_.root.text();
  std::weak_ptr<JoinProtocol> weak = weak_from_this();
  dialer_ = Dialer::start(loop_, std::move(options), [weak](Dialer::Result result) {
    const auto self = weak.lock();
    if (!self) return;
    self->dialer_.reset();
    if (result.fd) {
      ReachedRoots::instance().add(self->options_.root);
      return self->open_root(std::move(result.fd));
    }
    if (result.nobody) {
      return self->fail(Status(
          Code::remote_error,
          result.status.message() +
              ": the process that held the root has ended, or all ranks have joined already and "
              "this one is too much; look at the output of rank 0"));
    }
    if (result.status.code() != Code::timeout) return self->fail(result.status);
    self->fail(Status(Code::timeout,
                      fmt::format("the join deadline of {} ms passed: {}; does rank 0 (or "
                                  "hocket-run) run, and can this host reach it?",
                                  self->options_.join_deadline_ms, result.status.message())));
  });
}

void JoinProtocol::open_root(UniqueFd fd) {
  std::weak_ptr<JoinProtocol> weak = weak_from_this();
  root_ = ControlConnection::open(
      loop_, std::move(fd), body_cap(options_.ranks),
      [weak](Message& message) {
        if (const auto self = weak.lock()) self->on_root_message(message);
      },
      [weak](int error) {
        if (const auto self = weak.lock()) {
          self->fail(Status(Code::remote_error,
                            fmt::format("lost the root at {} ({}) while the ranks were still "
                                        "joining",
                                        self->options_.root.text(),
                                        error == 0 ? "its process ended"
                                                   : system_error("connection", error).message())));
        }
      });
  announce(self_, deadline_);
  for (const auto& [id, local] : locals_) {
    if (local.arrived) announce(local.arrival, local.deadline);
  }
}

void JoinProtocol::announce(const JoinRequest& arrival, Nanos deadline) {
  JoinRequest copy = arrival;
  copy.remaining_ms = std::max<std::int64_t>((deadline - loop_.now()) / nanos_per_ms, 0);
  root_->send(MessageType::arrive, encode(copy));
}

void JoinProtocol::adopt_local(UniqueFd fd) {
  const int id = next_local_++;
  std::weak_ptr<JoinProtocol> weak = weak_from_this();
  locals_[id].conn = ControlConnection::open(
      loop_, std::move(fd), body_cap(options_.ranks),
      [weak, id](Message& message) {
        if (const auto self = weak.lock()) self->on_local_message(id, message);
      },
      [weak, id](int) {
        if (const auto self = weak.lock()) self->on_local_closed(id);
      });
  locals_[id].conn->send(MessageType::arrive, encode(self_));  // for its messages
  // It came between the end of this join and of the listener.
  if (failure_.code != Code::ok) locals_[id].conn->send(MessageType::fail, encode(failure_));
}

void JoinProtocol::on_local_message(int id, Message& message) {
  Local& local = locals_[id];
  Failure failure;
  if (!ended_ && message.type == MessageType::fail && local.arrived &&
      decode(message.body, &failure)) {
    return trouble({failure.code, local.arrival.rank, failure.text});
  }
  if (ended_ || message.type != MessageType::arrive || local.arrived ||
      !decode(message.body, &local.arrival) || message.fds.size() > 1) {
    local.conn->close();
    return on_local_closed(id);
  }
  local.arrived = true;
  local.deadline =
      loop_.now() +
      std::clamp<std::int64_t>(local.arrival.remaining_ms, 0, 1'000'000'000) * nanos_per_ms;
  if (!message.fds.empty()) {
    local.pidfd = std::make_shared<const UniqueFd>(std::move(message.fds[0]));
  }
  if (root_) announce(local.arrival, local.deadline);
}

void JoinProtocol::on_local_closed(int id) {
  const Local gone = std::move(locals_[id]);
  locals_.erase(id);
  if (ended_ || !gone.arrived) return;
  trouble(gone.arrival.rank, who(gone.arrival) + " ended while the ranks were still joining");
}

void JoinProtocol::on_root_message(Message& message) {
  if (ended_) return;
  if (message.type == MessageType::fail) {
    Failure failure;
    if (decode(message.body, &failure)) {
      return fail(Status(failure.code, failure.text, failure.culprit));
    }
  } else if (message.type == MessageType::place && !placed_) {
    TreePosition place;
    if (decode(message.body, &place) && place.ranks == options_.ranks) return take_place(place);
  } else if (message.type == MessageType::table && placed_ && !has_table_ && place_.node == 0) {
    return take_table(message);
  } else if (message.type == MessageType::done && confirmed_) {
    // locals_ stays whole until nothing can fail any more.
    for (const auto& [id, local] : locals_) joined_.locals[local.arrival.rank] = local.conn;
    for (const auto& [id, local] : locals_) local.conn->send(MessageType::done);
    locals_.clear();
    return finish();
  }
  give_up(internal_error("the root sent a message that does not belong into a join"));
}

void JoinProtocol::take_place(const TreePosition& place) {
  placed_ = true;
  place_ = place;
  joined_.node = place.node;
  if (place.parent_rank < 0) return;
  Dialer::Options options;
  options.endpoint.tcp = place.parent;
  if (is_link_local(place.parent)) options.endpoint.tcp.scope = self_.address.scope;
  options.credentials = credentials_;
  options.claim = {Purpose::tree, options_.rank, place.parent_rank, 0,
                   static_cast<std::uint32_t>(place.node)};
  options.deadline = deadline_;
  options.refused_limit = never;
  options.name = fmt::format("rank {} at {}", place.parent_rank, place.parent.text());
  std::weak_ptr<JoinProtocol> weak = weak_from_this();
  parent_dialer_ = Dialer::start(loop_, std::move(options), [weak](Dialer::Result result) {
    if (const auto self = weak.lock()) self->open_parent(std::move(result));
  });
}

void JoinProtocol::open_parent(Dialer::Result result) {
  parent_dialer_.reset();
  if (!result.fd) {
    return trouble(place_.parent_rank,
                   fmt::format("rank {}: {}", options_.rank, result.status.message()));
  }
  std::weak_ptr<JoinProtocol> weak = weak_from_this();
  joined_.parent = ControlConnection::open(
      loop_, std::move(result.fd), body_cap(options_.ranks),
      [weak](Message& message) {
        if (const auto self = weak.lock()) self->on_tree_message(message);
      },
      [weak](int) {
        if (const auto self = weak.lock()) {
          self->trouble(self->place_.parent_rank,
                        fmt::format("rank {} lost its connection to rank {} at {} during the join",
                                    self->options_.rank, self->place_.parent_rank,
                                    self->place_.parent.text()));
        }
      });
}

void JoinProtocol::on_tree_message(Message& message) {
  if (ended_) return;
  Fault fault;
  if (message.type == MessageType::table && !has_table_) return take_table(message);
  if (message.type == MessageType::beat) return;
  if (message.type == MessageType::fault && decode(message.body, options_.ranks, &fault)) {
    return joined_.early.push_back(fault);
  }
  give_up(internal_error("a leader sent a message that does not belong into a join"));
}

Verdict JoinProtocol::judge_tree(const Claim& claim) const {
  if (ended_ || !joined_.leads || claim.target != options_.rank || claim.index == 0) {
    return Verdict::refused;
  }
  // Children may come before this leader knows its own place; which nodes they are is checked when
  // all are there.
  return joined_.children.count(static_cast<int>(claim.index)) != 0 ? Verdict::duplicate
                                                                    : Verdict::accepted;
}

void JoinProtocol::accept_tree(const Claim& claim, UniqueFd fd) {
  std::weak_ptr<JoinProtocol> weak = weak_from_this();
  const int node = static_cast<int>(claim.index);
  const int rank = claim.rank;
  auto conn = ControlConnection::open(
      loop_, std::move(fd), body_cap(options_.ranks),
      [weak](Message& message) {
        if (const auto self = weak.lock()) self->on_tree_message(message);
      },
      [weak, node, rank](int) {
        const auto self = weak.lock();
        if (!self) return;
        self->joined_.children.erase(node);
        self->trouble(rank, fmt::format("rank {} lost its connection to rank {} during the join",
                                        self->options_.rank, rank));
      });
  joined_.children[node] = conn;
  if (has_table_) conn->send(MessageType::table, table_bytes_);
  confirm();
}

int JoinProtocol::children() const {
  const std::int64_t first = static_cast<std::int64_t>(place_.node) * tree_arity + 1;
  return static_cast<int>(std::clamp<std::int64_t>(place_.nodes - first, 0, tree_arity));
}

void JoinProtocol::confirm() {
  if (!has_table_ || confirmed_ || ended_ || (place_.parent_rank >= 0 && !joined_.parent)) return;
  if (static_cast<int>(joined_.children.size()) < children()) return;
  for (const auto& [node, conn] : joined_.children) {
    if ((node - 1) / tree_arity != place_.node) {
      return give_up(internal_error("a leader connected to the wrong place in the tree"));
    }
  }
  confirmed_ = true;
  root_->send(MessageType::confirm);
}

/// Gives the node's ranks the table, the pulse page and one another's pidfds.
Status JoinProtocol::share_node() {
  int members = 0;
  for (const Member& member : joined_.table.members) members += member.node == joined_.node;
  if (members != static_cast<int>(locals_.size()) + 1) {
    return internal_error("the table of members does not fit this node");
  }
  UniqueFd page;
  HOCKET_RETURN_IF_ERROR(joined_.page->make(members, &page));
  const SharedFd shared_page = std::make_shared<const UniqueFd>(std::move(page));
  for (const auto& [id, local] : locals_) {
    local.conn->send(MessageType::table, table_bytes_);
    local.conn->send(MessageType::pulse, {}, {shared_page});
    send_pidfds(local);
    if (local.pidfd && local.arrival.process != self_.process) {
      joined_.pidfds[local.arrival.rank] = local.pidfd;
    }
  }
  return {};
}

void JoinProtocol::send_pidfds(const Local& to) {
  Writer ranks;
  std::vector<SharedFd> fds;
  const auto flush = [&] {
    if (!fds.empty()) to.conn->send(MessageType::pidfds, ranks.take(), std::move(fds));
    ranks = {};
    fds = {};
  };
  const auto add = [&](int rank, std::uint64_t process, const SharedFd& fd) {
    // A process needs no descriptor to learn of its own end.
    if (!fd || process == to.arrival.process) return;
    ranks.i32(rank);
    fds.push_back(fd);
    if (fds.size() == fds_per_message) flush();
  };
  add(self_.rank, self_.process, own_pidfd_);
  for (const auto& [id, local] : locals_)
    add(local.arrival.rank, local.arrival.process, local.pidfd);
  flush();
}

}  // namespace hocket::internal
