#include "transport/tcp/transport.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "base/address.h"
#include "base/descriptors.h"

namespace hocket::internal {
namespace {

constexpr std::uint64_t wake_tag = ~std::uint64_t{0};
constexpr unsigned collectives_without_poll = 8;
constexpr std::uint64_t idle_poll_interval = 64;  // polls; then idle links are checked once
// Receives without a sleep between them, after which epoll no longer watches a connection.
constexpr unsigned receives_before_unwatch = 8;
constexpr unsigned eager_writes_before_second = 64;  // then the second connection is opened
constexpr int drain_rounds = 200;  // in close(), over all links; drain_round_ms each
constexpr int drain_round_ms = 5;

std::uint64_t tag_of(int peer, std::size_t index) {
  return static_cast<std::uint64_t>(peer) << 16 | index;
}

}  // namespace

TcpTransport::TcpTransport(int rank, int ranks, std::uint64_t comm_id, TcpDialer dialer,
                           const TcpOptions& options)
    : rank_(rank),
      ranks_(ranks),
      comm_id_(comm_id),
      dialer_(std::move(dialer)),
      options_(options),
      links_(ranks) {}

TcpTransport::~TcpTransport() {
  best_effort([this] {
    if (active()) cancel({Code::aborted, "the transport was destroyed with transfers in flight"});
  });
}

Status TcpTransport::make(int rank, int ranks, std::uint64_t comm_id, TcpDialer dialer,
                          const TcpOptions& options, std::unique_ptr<TcpTransport>* out) {
  std::unique_ptr<TcpTransport> made(
      new TcpTransport(rank, ranks, comm_id, std::move(dialer), options));
  made->epoll_ = UniqueFd(open_with_room([] { return ::epoll_create1(EPOLL_CLOEXEC); }));
  made->wake_ = UniqueFd(open_with_room([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }));
  if (!made->epoll_ || !made->wake_)
    return system_error("cannot make an epoll instance and an eventfd for the tcp transport");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = wake_tag;
  if (::epoll_ctl(made->epoll_.get(), EPOLL_CTL_ADD, made->wake_.get(), &event) != 0) {
    return system_error("epoll refused the tcp transport's eventfd");
  }
  *out = std::move(made);
  return {};
}

// ---- Connections

void TcpTransport::adopt(int peer, int index, ByteStream stream, const Status& status) {
  {
    std::lock_guard lock(adopted_mutex_);
    adopted_.push_back({peer, index, std::move(stream), status});
    has_adopted_.store(true, std::memory_order_release);
  }
  const std::uint64_t one = 1;
  // The write fails only if the counter is full, and then the eventfd is readable already.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

bool TcpTransport::take_adopted() {
  std::vector<Adopted> taken;
  {
    std::lock_guard lock(adopted_mutex_);
    taken.swap(adopted_);
    has_adopted_.store(false, std::memory_order_relaxed);
    std::uint64_t count;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
  }
  bool any = false;
  for (Adopted& adopted : taken) any |= install(adopted);
  return any;
}

bool TcpTransport::install(Adopted& adopted) {
  if (!reaches(adopted.peer) || adopted.index < 0 || !cancelled_.ok()) return false;
  Link& to = link(adopted.peer);
  const auto index = static_cast<std::size_t>(adopted.index);
  if (to.matcher.ended() || index >= to.connections.size()) return false;
  if (!adopted.status.ok()) {
    // A link cannot work without its first connection. Further connections only make it faster.
    if (index == 0) fail(to, adopted.status);
    return index == 0;
  }
  if (to.connections[index] != nullptr) return false;
  to.dialled[index] = true;
  if (index == 0) {
    if (const auto address = peer_address(adopted.stream.fd())) to.name = "tcp " + address->text();
  }
  to.connections[index] = std::make_unique<Connection>(std::move(adopted.stream));
  if (index > 0) {
    to.connections[index]->append(to.matcher.signal(FrameKind::reading));
    to.connections[index]->flush(to.matcher, 0);
  }
  watch(to, index, EPOLLIN);
  if (to.connections[index] != nullptr) activate(to);
  return true;
}

TcpTransport::Link& TcpTransport::make_link(int peer) {
  std::unique_ptr<Link>& slot = links_[peer];
  slot = std::make_unique<Link>(rank_, peer, comm_id_, options_.matcher, pool_, sequence_check_);
  slot->connections.resize(std::max(1, options_.connections));
  slot->dialled.resize(slot->connections.size());
  slot->name = dialer_.address ? fmt::format("tcp {}", dialer_.address(peer)) : "tcp";
  return *slot;
}

void TcpTransport::dial(Link& link, int index) {
  if (link.dialled[index] || link.matcher.ended()) return;
  link.dialled[index] = true;
  if (dialer_.dial) dialer_.dial(link.matcher.peer(), index);
}

// ---- Posting

bool TcpTransport::begin(Transfer& transfer) {
  if (cancelled_.ok() && reaches(transfer.peer)) return true;
  transfer.status =
      !cancelled_.ok()
          ? cancelled_
          : invalid_argument("tcp does not reach rank " + std::to_string(transfer.peer));
  transfer.moved = 0;
  transfer.done = true;
  return false;
}

void TcpTransport::post_send(Transfer& transfer) {
  if (!begin(transfer)) return;
  Link& to = link(transfer.peer);
  to.matcher.post_send(transfer);
  finish_link(to);
  if (transfer.done && !to.matcher.has_frames()) return;
  dial(to, 0);
  flush_once(to, transfer.key);
  if (busy(to)) activate(to);
}

// Sends the first frame of a round at once. Later frames wait for the next poll and share its
// system call, because a system call costs much more than a frame. A round begins with a poll, or
// with a collective.
//
// So a rank that only sends in a collective, such as a rank of a gather other than the root, makes
// one system call and polls no connection. After `collectives_without_poll` such calls its frame
// waits for a poll again, so that the rank reads what peers say about earlier calls.
void TcpTransport::flush_once(Link& link, const MessageKey& key) {
  const bool begins = !key.p2p && key.sequence != latest_collective_;
  if (begins) {
    if (collectives_since_poll_ == collectives_without_poll) return;
    latest_collective_ = key.sequence;
    ++collectives_since_poll_;
    ++round_;
  }
  if (link.flushed_in_round == round_) return;
  link.flushed_in_round = round_;
  flush(link);
}

void TcpTransport::post_recv(Transfer& transfer) {
  if (!begin(transfer)) return;
  Link& from = link(transfer.peer);
  from.matcher.post_recv(transfer);
  from.expected = eager_connection_index(transfer.key, transfer.peer, rank_);
  finish_link(from);
  if (!from.matcher.busy()) return;
  dial(from, 0);
  if (from.matcher.has_frames()) flush_once(from, transfer.key);
  activate(from);
}

void TcpTransport::tell_call(int peer, std::uint64_t sequence, const Signature& call) {
  if (!cancelled_.ok() || !reaches(peer)) return;
  Link& to = link(peer);
  to.matcher.tell_call(sequence, call);
  if (!to.matcher.has_frames()) return;
  dial(to, 0);
  flush(to);
  if (busy(to)) activate(to);
}

void TcpTransport::activate(Link& link) {
  if (link.listed) return;
  link.listed = true;
  active_.push_back(&link);
}

bool TcpTransport::busy(const Link& link) const {
  if (link.matcher.open() > 0) return true;
  // The NACK of a link that has ended goes over the first connection, or nowhere.
  const bool may_send = !link.released || link.connections[0] != nullptr;
  if (may_send && link.matcher.has_frames()) return true;
  for (const auto& connection : link.connections) {
    if (connection != nullptr && connection->has_output()) return true;
  }
  return false;
}

bool TcpTransport::is_active() const {
  return std::any_of(active_.begin(), active_.end(), [&](const Link* link) { return busy(*link); });
}

// ---- Moving bytes

// Returns the connection, 0 or 1, that an eager message from rank `from` to rank `to` uses.
//
// Two ranks often send each other a small message at the same time. Over a single connection that
// is slow. While rank A is inside send(), the kernel holds the lock of A's socket. If the packet of
// rank B arrives at that moment, the kernel cannot process the packet: it puts the packet into the
// backlog queue of the socket, and processes that queue when send() releases the lock. With two
// connections A's message leaves through one socket while B's message arrives at the other.
//
// So two messages with the same key in opposite directions use different connections, and
// successive messages in the same direction alternate. If both ranks send and receive in turn, each
// sends its next message on the connection on which the last message has arrived. The packet then
// carries the TCP acknowledgement of that message, and the kernel sends no separate packet for it.
std::size_t TcpTransport::eager_connection_index(const MessageKey& key, int from, int to) const {
  return options_.connections > 1 ? (key.sequence + key.index + (from > to ? 1 : 0)) % 2 : 0;
}

std::size_t TcpTransport::eager_connection(Link& link) {
  const Transfer* const next = link.matcher.next_eager();
  const Connection* const first = link.connections[0].get();
  if (next == nullptr || first == nullptr || options_.connections < 2) return 0;
  if (!first->has_output() && ++link.eager_writes >= eager_writes_before_second &&
      active_.size() <= options_.busy_links) {
    dial(link, 1);
  }
  const std::size_t turn = eager_connection_index(next->key, rank_, link.matcher.peer());
  const Connection* const connection = link.connections[turn].get();
  return connection != nullptr && connection->heard() && !connection->has_output() ? turn : 0;
}

bool TcpTransport::flush(Link& link) {
  bool moved = false;
  if (link.matcher.bulk_bytes() >= options_.stripe_bytes) {
    for (std::size_t i = 1; i < link.connections.size(); ++i) dial(link, static_cast<int>(i));
  }
  const std::size_t for_eager = eager_connection(link);
  for (std::size_t i = 0; i < link.connections.size(); ++i) {
    Connection* const connection = link.connections[i].get();
    if (connection == nullptr) continue;
    MessageMatcher::Want want = i == 0 ? MessageMatcher::controls : 0;
    if (i == for_eager) want |= MessageMatcher::eager;
    if (i == 0 || connection->heard()) want |= MessageMatcher::bulk;
    if (!connection->has_output() && !link.matcher.has(want)) continue;
    moved |= connection->flush(link.matcher, want);
    if (connection->state() == Connection::State::failed) drop(link, i);
  }
  return moved;
}

bool TcpTransport::receive(Link& link, std::size_t index) {
  Connection* const connection = link.connections[index].get();
  if (connection == nullptr) return false;
  const bool moved = connection->receive(link.matcher);
  finish_link(link);
  if (link.connections[index].get() != connection) return moved;  // dropped with its link
  if (connection->state() != Connection::State::open) {
    drop(link, index);
  } else if (connection->said_goodbye()) {
    check_goodbyes(link);
  }
  return moved;
}

bool TcpTransport::progress_link(Link& link) {
  bool moved = flush(link);
  const std::size_t count = link.connections.size();
  for (std::size_t n = 0; n < count; ++n) {
    const std::size_t i = (link.expected + n) % count;
    const std::uint64_t latest = link.matcher.latest_sequence();
    if (!receive(link, i)) continue;
    moved = true;
    if (link.connections[i] != nullptr) unwatch_busy(link, i);
    // A message of a collective in between, which this rank perhaps did not call, may have arrived
    // before on the other connection.
    const bool skips = link.matcher.latest_sequence() > latest + 1;
    if (!link.matcher.busy() && !skips) break;
  }
  if (link.matcher.has_frames()) moved |= flush(link);
  return moved;
}

bool TcpTransport::poll() {
  bool moved = false;
  if (has_adopted_.load(std::memory_order_acquire)) [[unlikely]]
    moved |= take_adopted();
  const bool many = active_.size() > options_.busy_links;
  ++round_;
  collectives_since_poll_ = 0;
  if (many || ++polls_ % idle_poll_interval == 0) moved |= poll_idle_links();
  for (std::size_t i = 0; i < active_.size(); ++i) {
    if (many) {
      moved |= flush(*active_[i]);
    } else {
      moved |= progress_link(*active_[i]);
    }
  }
  for (std::size_t i = 0; i < active_.size();) {
    Link& link = *active_[i];
    if (busy(link)) {
      ++i;
      continue;
    }
    link.listed = false;
    active_[i] = active_.back();
    active_.pop_back();
  }
  return moved;
}

// Uses epoll to check the links that poll() does not check itself. First it makes epoll watch again
// the links that have become idle.
bool TcpTransport::poll_idle_links() {
  const bool many = active_.size() > options_.busy_links;
  std::erase_if(unwatched_, [&](Link* link) {
    if (link->listed && !many) return false;
    link->unwatched = false;
    watch_all(*link, false);
    return true;
  });
  return ask_epoll();
}

bool TcpTransport::ask_epoll() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  bool moved = false;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events[i].data.u64;
    if (tag == wake_tag) {
      moved |= take_adopted();
      continue;
    }
    Link* const link = links_[tag >> 16].get();
    if (link == nullptr) continue;
    const std::size_t index = tag & 0xffff;
    if (events[i].events & ~EPOLLOUT) {
      moved |= receive(*link, index);
    } else if (link->connections[index] != nullptr) {
      watch(*link, index, EPOLLIN);  // while awake, poll() finds the room by writing
    }
    if (busy(*link)) activate(*link);
  }
  return moved;
}

void TcpTransport::prepare_to_sleep() {
  for (Link* link : unwatched_) link->unwatched = false;
  unwatched_.clear();
  for (const std::unique_ptr<Link>& link : links_) {
    if (link != nullptr) watch_all(*link, true);
  }
}

// room: also wake the sleeping rank when a full socket has room again.
void TcpTransport::watch_all(Link& link, bool room) {
  for (std::size_t i = 0; i < link.connections.size(); ++i) {
    const Connection* const connection = link.connections[i].get();
    if (connection == nullptr) continue;
    const bool wants_room = room && connection->blocked() && connection->has_output();
    watch(link, i, wants_room ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
}

void TcpTransport::watch(Link& link, std::size_t index, std::uint32_t events) {
  Connection& connection = *link.connections[index];
  connection.received_unwaited = 0;
  if (connection.watched == events) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag_of(link.matcher.peer(), index);
  const int operation = connection.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (::epoll_ctl(epoll_.get(), operation, connection.fd(), &event) != 0) {
    return fail(link, system_error("cannot watch a connection with epoll"));
  }
  connection.watched = events;
}

void TcpTransport::unwatch_busy(Link& link, std::size_t index) {
  Connection& connection = *link.connections[index];
  if (connection.watched == 0 || ++connection.received_unwaited < receives_before_unwatch) return;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.fd(), nullptr) != 0) return;
  connection.watched = 0;
  if (link.unwatched) return;
  link.unwatched = true;
  unwatched_.push_back(&link);
}

// ---- Ends

// Makes the connections of a link that has ended release all memory of transfers.
void TcpTransport::finish_link(Link& link) {
  if (!link.matcher.ended() || link.released) return;
  link.released = true;
  // Only the first connection still sends a frame: the NACK.
  for (std::size_t i = 0; i < link.connections.size(); ++i) {
    if (link.connections[i] == nullptr) continue;
    link.connections[i]->release_buffers(link.matcher, i == 0);
  }
  if (link.matcher.has_frames()) {
    flush(link);
    activate(link);
  }
}

// Removes a connection that has ended: after a goodbye, or by an error, which ends the link too.
void TcpTransport::drop(Link& link, std::size_t index) {
  const std::unique_ptr<Connection> connection = std::move(link.connections[index]);
  if (link.matcher.ended()) return connection->release_buffers(link.matcher, false);
  const int peer = link.matcher.peer();
  Status why = connection->status();
  const bool of_the_socket = why.culprit() < 0;  // no violation of the peer, no bad buffer here
  if (of_the_socket && connection->said_goodbye()) {
    connection->has_output() ? leave(link) : check_goodbyes(link);
    return connection->release_buffers(link.matcher, false);
  }
  // The peer had ended the link before it used this connection; neither rank has written to it.
  if (of_the_socket && index > 0 && !connection->heard()) return check_goodbyes(link);
  if (connection->state() == Connection::State::closed) {
    why = {Code::remote_error,
           "lost the connection to rank " + std::to_string(peer) +
               ": it was closed without a goodbye. The process of that rank has probably ended: "
               "read its output",
           peer};
  } else if (of_the_socket) {
    why = {Code::remote_error,
           "lost the connection to rank " + std::to_string(peer) + ": " + why.message(), peer};
  }
  if (of_the_socket) {
    // The connections of a process that has ended break in any order.
    for (const std::unique_ptr<Connection>& other : link.connections) {
      if (other != nullptr && !link.matcher.ended()) other->receive_rest(link.matcher);
    }
    if (link.matcher.ended()) {
      connection->release_buffers(link.matcher, false);
      return finish_link(link);
    }
    // Messages that have arrived completely stay valid: a call that has ended on the peer can end
    // here too.
    link.matcher.leave(why.on_link(link.name));
  } else {
    link.matcher.end(why.on_link(link.name));
  }
  connection->release_buffers(link.matcher, false);
  release_link(link);
}

void TcpTransport::check_goodbyes(Link& link) {
  if (link.matcher.ended()) return;
  for (const auto& connection : link.connections) {
    if (connection != nullptr && !connection->said_goodbye()) return;
  }
  leave(link);
}

void TcpTransport::leave(Link& link) {
  const int peer = link.matcher.peer();
  const Status why(Code::remote_error,
                   "rank " + std::to_string(peer) +
                       " has left the communicator (it finalized or destroyed it), so this "
                       "operation cannot end: all ranks must make the same calls before they leave",
                   peer);
  link.matcher.leave(why.on_link(link.name));
  finish_link(link);
}

void TcpTransport::fail(Link& link, const Status& why) {
  link.matcher.end(why.on_link(link.name));
  release_link(link);
}

void TcpTransport::release_link(Link& link) {
  link.released = true;
  for (std::unique_ptr<Connection>& connection : link.connections) {
    if (connection != nullptr) connection->release_buffers(link.matcher, false);
    connection.reset();
  }
}

void TcpTransport::cancel(const Status& why) {
  if (!cancelled_.ok()) return;
  cancelled_ = why;
  for (const std::unique_ptr<Link>& link : links_) {
    if (link != nullptr) fail(*link, why);
  }
  for (Link* link : active_) link->listed = false;
  active_.clear();
}

void TcpTransport::close() {
  if (!cancelled_.ok()) return;
  if (has_adopted_.load(std::memory_order_acquire)) take_adopted();
  for (const std::unique_ptr<Link>& link : links_) {
    if (link == nullptr) continue;
    for (const std::unique_ptr<Connection>& connection : link->connections) {
      if (connection != nullptr) connection->append(link->matcher.signal(FrameKind::goodbye));
    }
    flush(*link);
  }
  int rounds = drain_rounds;
  for (const std::unique_ptr<Link>& link : links_) {
    if (link != nullptr) drain_before_close(*link, rounds);
  }
  cancel({Code::invalid_usage, "the transport is closed"});
}

// If a socket is closed while the peer still writes to it, the connection is reset, and the peer
// loses bytes that it has not read yet. So wait until the peer has said goodbye, which is the last
// that it writes, or its kernel has acknowledged all bytes, or it has closed its end.
void TcpTransport::drain_before_close(Link& link, int& rounds) {
  for (std::size_t i = 0; i < link.connections.size(); ++i) {
    for (; rounds > 0; --rounds) {
      Connection* const connection = link.connections[i].get();
      if (connection == nullptr) break;
      connection->flush(link.matcher, 0);
      connection->receive(link.matcher);
      finish_link(link);
      if (link.connections[i].get() != connection) break;
      if (connection->state() != Connection::State::open) break;
      int unsent = 0;
      if (!connection->has_output() &&
          (connection->said_goodbye() ||
           (::ioctl(connection->fd(), SIOCOUTQ, &unsent) == 0 && unsent == 0))) {
        break;
      }
      pollfd wait{connection->fd(), POLLIN, 0};
      if (connection->has_output()) wait.events |= POLLOUT;
      ::poll(&wait, 1, drain_round_ms);
    }
  }
}

}  // namespace hocket::internal
