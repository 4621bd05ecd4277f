#include "bootstrap/control/failure_detector.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "bootstrap/net/socket.h"

namespace hocket::internal {
namespace {

// The pidfd of a local peer shows its end at once; its last messages arrive over the node leader, a
// little later.
constexpr std::int64_t leader_patience_ms = 100;

constexpr std::uint32_t says_left = 1, says_exited = 2;  // HeartbeatLine::left

}  // namespace

FailureDetector::FailureDetector(EventLoop& loop, int rank, std::int64_t silence_ms,
                                 JoinResult joined, FaultLog& faults, OnFault on_fault)
    : loop_(loop),
      rank_(rank),
      tick_ms_(std::clamp<std::int64_t>(silence_ms / 20, 5, 500)),
      silent_ticks_(std::max<std::int64_t>(silence_ms / tick_ms_, 2)),
      silence_ms_(silence_ms),
      joined_(std::move(joined)),
      faults_(faults),
      on_fault_(std::move(on_fault)) {
  for (int other = 0; other < static_cast<int>(members().size()); ++other) {
    if (members()[other].node != joined_.node) continue;
    heartbeats_.push_back(std::make_unique<Heartbeat>());
    heartbeats_.back()->rank = other;
  }
}

void FailureDetector::take_over(ControlConnection& conn, std::function<void(int)> closed) {
  conn.hand_over([this, from = &conn](Message& message) { on_message(from, message); },
                 std::move(closed));
}

void FailureDetector::start() {
  if (joined_.leader) {
    take_over(*joined_.leader, [this](int) { on_peer_ended(leader()); });
  }
  for (auto& [rank, conn] : joined_.followers) {
    take_over(*conn, [this, rank = rank](int) { on_peer_ended(rank); });
  }
  if (leads()) {
    links_.resize(1 + tree_arity);
    links_[0].conn = std::move(joined_.parent);
    links_[0].node = (joined_.node - 1) / tree_arity;
    for (auto& [node, conn] : joined_.children) {
      Link& link = links_[static_cast<std::size_t>(node - joined_.node * tree_arity)];
      link.conn = std::move(conn);
      link.node = node;
    }
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (!links_[i].conn) continue;
      // Longer than our own limit, which counts only the time during which this process runs.
      set_silence_limit(links_[i].conn->fd(), 2 * silence_ms_);
      links_[i].heard = loop_.now();
      take_over(*links_[i].conn, [this, i](int error) { on_link_closed(i, error); });
    }
  }
  for (const auto& heartbeat : heartbeats_) {
    const auto found = joined_.pidfds.find(heartbeat->rank);
    if (found == joined_.pidfds.end()) continue;
    heartbeat->process_ends =
        loop_.watch(found->second->get(), EPOLLIN, [this, peer = heartbeat.get()](auto) {
          peer->process_ends.reset();
          on_process_ended(*peer);
        });
  }
  tick();
  for (const Fault& fault : joined_.early) raise(fault);
  joined_.early.clear();
}

std::string FailureDetector::who(int rank) const {
  const Member& member = members()[rank];
  return fmt::format("rank {} (process {} on {})", rank, member.pid, member.host);
}

// ---- Faults

void FailureDetector::spread(const Fault& fault, const ControlConnection* from) {
  if (!faults_.add(fault)) return;
  flood(fault, from);
}

void FailureDetector::flood(const Fault& fault, const ControlConnection* from) {
  const std::vector<std::uint8_t> body = encode(fault);
  const auto tell = [&](const std::unique_ptr<ControlConnection>& conn) {
    if (conn && conn.get() != from) conn->send(MessageType::fault, body);
  };
  tell(joined_.leader);
  for (const auto& [rank, conn] : joined_.followers) tell(conn);
  for (const Link& link : links_) tell(link.conn);
  on_fault_(fault);
}

void FailureDetector::on_message(const ControlConnection* from, Message& message) {
  Fault fault;
  // A local rank could not finish its join after this rank had.
  Failure failure;
  if (message.type == MessageType::fail && decode(message.body, &failure) && failure.culprit >= 0 &&
      failure.culprit < static_cast<int>(members().size())) {
    return raise({Fault::Kind::dead, failure.culprit, 0, 0, Code::remote_error, failure.text});
  }
  if (message.type != MessageType::fault ||
      !decode(message.body, static_cast<int>(members().size()), &fault)) {
    return;
  }
  const auto link = std::find_if(links_.begin(), links_.end(),
                                 [from](const Link& l) { return l.conn && l.conn.get() == from; });
  if (link != links_.end() && fault.kind == Fault::Kind::silent && is_heard(fault.rank)) {
    fault = given_up_by(static_cast<std::size_t>(link - links_.begin()), fault.rank);
  }
  spread(fault, from);
}

/// True if the rank is on this node and alive: its heartbeats are in the heartbeat page.
bool FailureDetector::is_heard(int rank) const {
  if (rank < 0 || members()[rank].node != joined_.node || faults_.is_gone(rank)) return false;
  if (rank == rank_) return true;
  return heartbeats_[members()[rank].local_rank]->quiet_ticks <= silent_ticks_ / 2;
}

/// The ranks behind a link have reported that a rank of this node is silent, but that rank is
/// alive: the network was cut, and the heartbeats of this node arrived there too late. Those ranks
/// have ended their operations, so this side can no longer work with them. Returns the fault that
/// tells this side so.
Fault FailureDetector::given_up_by(std::size_t link, int rank) const {
  const int accuser = joined_.table.leaders[links_[link].node];
  return {Fault::Kind::silent,
          accuser,
          0,
          0,
          Code::remote_error,
          fmt::format("{} at {} heard nothing from rank {} for longer than HOCKET_SILENCE_MS and "
                      "has given up, though rank {} is alive: the network between the two was cut, "
                      "or rank {} was stopped, for so long (ranks {} are on that side)",
                      who(accuser), members()[accuser].address.text(), rank, rank, rank,
                      ranks_text(ranks_behind(link)))};
}

/// Writes into the heartbeat page how this rank ends. Local peers read that even if they learn of
/// the end of this process before they read its last message.
void FailureDetector::mark_end(std::uint32_t how) {
  left_ = true;
  if (!joined_.page->mapped()) return;
  joined_.page->line(members()[rank_].local_rank).left.store(how, std::memory_order_release);
}

void FailureDetector::leave() {
  if (left_) return;
  mark_end(says_left);
  raise({Fault::Kind::left, rank_, 0, 0, Code::remote_error, who(rank_) + " left the job"});
}

void FailureDetector::say_exit() {
  if (left_) return;
  mark_end(says_exited);
  raise({Fault::Kind::exited, rank_, 0, 0, Code::remote_error,
         who(rank_) + " ended its process without finalizing the communicator"});
}

bool FailureDetector::forwards() const {
  if (!leads()) return false;
  bool connected = false;
  for (const auto& [rank, conn] : joined_.followers) connected |= conn->is_open();
  for (const Link& link : links_) connected |= link.conn && link.conn->is_open();
  if (!connected) return false;
  for (int other = 0; other < static_cast<int>(members().size()); ++other) {
    if (other != rank_ && !faults_.is_gone(other)) return true;
  }
  return false;
}

// ---- Ends

/// The pidfd is readable. Messages that the process sent before its end are waiting in its
/// connection, or are on their way over the leader, and are handled first: an error that it
/// reported, or that it left a communicator.
void FailureDetector::on_process_ended(Heartbeat& heartbeat) {
  const int rank = heartbeat.rank;
  const auto local = joined_.followers.find(rank);
  if (local != joined_.followers.end()) {
    local->second->drain();
  } else if (rank == leader()) {
    if (joined_.leader) joined_.leader->drain();
  } else if (!faults_.is_gone(leader())) {
    heartbeat.end_timer = loop_.after_ms(leader_patience_ms, [this, rank] { on_peer_ended(rank); });
    return;
  }
  on_peer_ended(rank);
}

void FailureDetector::on_peer_ended(int rank) {
  const HeartbeatLine& line = joined_.page->line(members()[rank].local_rank);
  const std::uint32_t how = line.left.load(std::memory_order_acquire);
  if (how == says_left) {
    return raise({Fault::Kind::left, rank, 0, 0, Code::remote_error, who(rank) + " left the job"});
  }
  if (how == says_exited) {
    return raise({Fault::Kind::exited, rank, 0, 0, Code::remote_error,
                  who(rank) + " ended its process without finalizing the communicator"});
  }
  raise({Fault::Kind::dead, rank, 0, 0, Code::remote_error,
         who(rank) + " died: its process ended without leaving the job; look at its output, and at "
                     "the kernel's log if it was killed"});
}

void FailureDetector::on_link_closed(std::size_t index, int error) {
  const int rank = joined_.table.leaders[links_[index].node];
  if (faults_.has_left(rank)) return;
  const std::vector<int> behind = ranks_behind(index);
  const bool cut = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
  const std::string whose = fmt::format("{} at {}", who(rank), members()[rank].address.text());
  std::string text;
  if (cut) {
    text = whose + " cannot be reached any more: its host or the network between is down";
  } else if (error == EBADMSG) {
    text = fmt::format(
        "{}: TLS has found that bytes of its connection to rank {} were changed on the way; look "
        "at the network between",
        whose, rank_);
  } else {
    text = fmt::format(
        "{} died, or something cut its connection to rank {}: the connection closed without a "
        "goodbye; look at the output of rank {}, at its host and at the network",
        whose, rank_, rank);
  }
  if (behind.size() > 1)
    text += fmt::format(" (ranks {} were reached through it)", ranks_text(behind));
  raise({cut ? Fault::Kind::silent : Fault::Kind::dead, rank, 0, 0, Code::remote_error, text});
}

// ---- Heartbeats

void FailureDetector::tick() {
  tick_timer_ = loop_.after_ms(tick_ms_, [this] { tick(); });
  if (joined_.page->mapped()) {
    joined_.page->line(members()[rank_].local_rank).count.fetch_add(1, std::memory_order_relaxed);
    watch_heartbeats();
  }
  if (leads()) watch_links();
}

void FailureDetector::watch_heartbeats() {
  for (const auto& heartbeat : heartbeats_) {
    if (heartbeat->rank == rank_) continue;
    const HeartbeatLine& line = joined_.page->line(members()[heartbeat->rank].local_rank);
    const std::uint64_t count = line.count.load(std::memory_order_relaxed);
    if (count != heartbeat->count) {
      heartbeat->count = count;
      heartbeat->quiet_ticks = 0;
      continue;
    }
    if (line.left.load(std::memory_order_acquire) != 0 || faults_.is_gone(heartbeat->rank))
      continue;
    if (++heartbeat->quiet_ticks != silent_ticks_) continue;
    raise(
        {Fault::Kind::silent, heartbeat->rank, 0, 0, Code::remote_error,
         fmt::format("{} has given no sign of life for {} ms: it is stopped (SIGSTOP, a debugger) "
                     "or its host is stuck; HOCKET_SILENCE_MS sets the limit",
                     who(heartbeat->rank), silence_ms_)});
  }
}

void FailureDetector::watch_links() {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    if (!link.conn) continue;
    if (link.conn->is_open()) {
      if (link.conn->idle()) link.conn->send(MessageType::heartbeat);
      if (link.conn->heard() != link.heard) {
        link.heard = link.conn->heard();
        link.quiet_ticks = 0;
      } else if (++link.quiet_ticks == silent_ticks_) {
        const int rank = joined_.table.leaders[link.node];
        raise({Fault::Kind::silent, rank, 0, 0, Code::remote_error,
               fmt::format("{} at {} has given no sign of life for {} ms: its host is stopped, or "
                           "the network to it is cut (ranks {} are on that side); "
                           "HOCKET_SILENCE_MS sets the limit",
                           who(rank), members()[rank].address.text(), silence_ms_,
                           ranks_text(ranks_behind(i)))});
      }
    }
  }
}

/// Which link of this node's leader leads towards another node.
std::size_t FailureDetector::link_towards(int node) const {
  while (node > joined_.node) {
    const int above = (node - 1) / tree_arity;
    if (above == joined_.node) return static_cast<std::size_t>(node - joined_.node * tree_arity);
    node = above;
  }
  return 0;
}

std::vector<int> FailureDetector::ranks_behind(std::size_t link) const {
  std::vector<int> out;
  for (int rank = 0; rank < static_cast<int>(members().size()); ++rank) {
    const int node = members()[rank].node;
    if (node != joined_.node && link_towards(node) == link) out.push_back(rank);
  }
  return out;
}

}  // namespace hocket::internal
