#include "engine/communicator.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/descriptors.h"
#include "base/log.h"
#include "collectives/algorithms/builders.h"
#include "topology/machine.h"
#include "transport/self/transport.h"
#include "transport/shm/transport.h"
#include "transport/tcp/transport.h"

namespace hocket::internal {
namespace {

std::uint64_t derive_comm_id(std::uint64_t comm_id, std::uint64_t a, std::uint64_t b) {
  Signature seed;  // any well-mixed hash of three words will do
  seed.count = comm_id;
  seed.sequence = a;
  seed.root = static_cast<std::int32_t>(b);
  return fingerprint(call_hash(seed), a) | 1;
}

void write_event(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof one);
}

}  // namespace

double ranks_per_core(const Session& session) {
  const std::vector<Member>& members = session.members();
  const std::uint64_t machine = members[static_cast<std::size_t>(session.rank())].machine;
  std::vector<CoreSet> cores;
  for (const Member& member : members) {
    if (member.machine == machine) cores.push_back(member.cores);
  }
  return crowd(cores);
}

Communicator::Communicator(std::shared_ptr<Session> session, std::vector<int> members,
                           std::uint64_t comm_id, const CommConfig& config)
    : session_(std::move(session)),
      members_(std::move(members)),
      rank_of_member_(static_cast<std::size_t>(session_->ranks()), -1),
      comm_id_(comm_id),
      open_channel_(*session_, comm_id),
      config_(config),
      oversubscription_(ranks_per_core(*session_)) {
  scope_.comm_id = comm_id_;
  scope_.members = members_;
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks(); ++rank) {
    const int member = members_[static_cast<std::size_t>(rank)];
    rank_of_member_[static_cast<std::size_t>(member)] = rank;
    if (member == session_->rank()) rank_ = rank;
    if (session_->local(member)) local_members_.push_back(rank);
    nodes.push_back(session_->members()[static_cast<std::size_t>(member)].node);
  }
  std::sort(nodes.begin(), nodes.end());
  nodes_ = static_cast<int>(std::unique(nodes.begin(), nodes.end()) - nodes.begin());
  peer_events_.resize(local_members_.size());
}

Status Communicator::create(std::shared_ptr<Session> session, std::vector<int> members,
                            std::uint64_t comm_id, std::uint64_t parent, const CommConfig& config,
                            StopRequest* stop, std::unique_ptr<Communicator>* out) {
  std::unique_ptr<Communicator> made(
      new Communicator(std::move(session), std::move(members), comm_id, config));
  made->scope_.parent = parent;
  const Status status = status_of_call([&] { return made->make(stop); });
  if (!status.ok()) {
    best_effort([&] { made->tell_failure(status, 0); });
    return status;
  }
  made->scope_.parent = 0;
  *out = std::move(made);
  return {};
}

Status Communicator::make(StopRequest* stop) {
  {
    const StopRequest::Scope scope(stop, [this] { tell_abort(); });
    HOCKET_RETURN_IF_ERROR(open_board());
    HOCKET_RETURN_IF_ERROR(open_transports());
  }
  make_engine();
  const StopRequest::Scope scope(stop, [this] { abort(); });
  return agree();
}

Communicator::~Communicator() {
  if (engine_ != nullptr) flush();
  if (watch_ >= 0) session_->unwatch(watch_);
  for (const auto& [region, fetch] : region_fetches_) session_->forget(fetch);
  for (const PeerEvent& event : peer_events_) {
    if (event.fetch != nullptr) session_->forget(event.fetch);
  }
  if (has_error_.load()) {
    best_effort([this] {
      for (auto& transport : transports_) transport->cancel(error());
    });
  }
  leave();
}

void Communicator::leave() {
  if (left_) return;
  left_ = true;
  for (auto& transport : transports_) best_effort([&] { transport->close(); });
  session_->unlisten(comm_id_);
  if (ranks() == 1) return;
  best_effort([this] {
    Fault fault;
    fault.kind = Fault::Kind::left;
    fault.rank = session_->rank();
    fault.comm_id = comm_id_;
    fault.text = name_of_rank(rank_) + " has left the communicator '" + config_.name + "'";
    session_->report(fault);
  });
}

Status Communicator::open_board() {
  const int local_ranks = static_cast<int>(local_members_.size());
  const auto me = std::find(local_members_.begin(), local_members_.end(), rank_);
  const int local_rank = static_cast<int>(me - local_members_.begin());
  const std::size_t bytes = Board::bytes(local_ranks);
  UniqueFd fd;
  if (local_rank == 0) {
    HOCKET_RETURN_IF_ERROR(make_memfd("hocket-board", bytes, &fd));
    if (local_ranks > 1) HOCKET_RETURN_IF_ERROR(session_->offer({comm_id_, 0}, fd.get()));
  } else {
    const Nanos deadline = monotonic_now() + config_.join_deadline_ms * nanos_per_ms;
    HOCKET_RETURN_IF_ERROR(fetch(local_members_[0], {comm_id_, 0}, deadline, &fd));
  }
  HOCKET_RETURN_IF_ERROR(Mapping::of(fd.get(), &mapping_));
  if (mapping_->size() < bytes) return internal_error("the node's shared segment is too small");
  board_ = Board(mapping_->data(), local_ranks, local_rank);
  event_fd_ = UniqueFd(open_with_room([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }));
  if (!event_fd_) return system_error("cannot make an eventfd");
  if (local_ranks > 1) {
    const auto number = 1 + static_cast<std::uint64_t>(local_rank);
    HOCKET_RETURN_IF_ERROR(session_->offer({comm_id_, number}, event_fd_.get()));
  }
  return {};
}

Status Communicator::open_transports() {
  transports_.push_back(std::make_unique<SelfTransport>(rank_));
  if (local_members_.size() > 1) {
    ShmOptions options;
    options.matcher.checksum = config_.checksum;
    options.matcher.sequence_check = &sequence_check_;
    transports_.push_back(std::make_unique<ShmTransport>(
        board_, local_members_, comm_id_,
        [this](int rank) {
          const auto at = std::find(local_members_.begin(), local_members_.end(), rank);
          const int local = static_cast<int>(at - local_members_.begin());
          ring(local);
        },
        options));
  }
  if (nodes_ == 1) return {};
  if (!config_.use_tcp) {
    return invalid_usage("ranks of '" + config_.name + "' are on " + std::to_string(nodes_) +
                         " nodes, but HOCKET_TRANSPORT leaves tcp out: add it, or run on one host");
  }
  TcpDialer dialer;
  dialer.dial = [this](int peer, int index) { session_->dial(members_[peer], comm_id_, index); };
  dialer.address = [this](int peer) {
    return session_->members()[static_cast<std::size_t>(members_[peer])].address.text();
  };
  TcpOptions options;
  options.matcher.checksum = config_.checksum;
  options.matcher.sequence_check = &sequence_check_;
  std::unique_ptr<TcpTransport> tcp;
  HOCKET_RETURN_IF_ERROR(
      TcpTransport::make(rank_, ranks(), comm_id_, std::move(dialer), options, &tcp));
  TcpTransport* adopter = tcp.get();
  transports_.push_back(std::move(tcp));
  session_->listen(comm_id_,
                   [this, adopter](int peer, int index, UniqueFd fd, const Status& status) {
                     const int rank = rank_of_session(peer);
                     if (rank >= 0) adopter->adopt(rank, index, std::move(fd), status);
                     wake();
                   });
  return {};
}

void Communicator::make_engine() {
  EngineOptions options;
  options.rank = rank_;
  options.ranks = ranks();
  options.deadline = config_.deadline_ms * nanos_per_ms;
  options.sequence_check = &sequence_check_;
  options.name_of_rank = [this](int rank) { return name_of_rank(rank); };
  options.ring = [this](int local_rank) { ring(local_rank); };
  options.export_region = [this](std::uint64_t region) { return export_region(region); };
  options.poll_faults = [this](FaultNews* news) { poll_faults(news); };
  options.on_failure = [this](const Status& status, std::uint64_t operation, bool tell) {
    // Without memory for it, the others find out by their deadline, or because this rank leaves.
    if (tell) best_effort([&] { tell_failure(status, operation); });
    set_error(status);
  };
  Links links;
  links.rank = rank_;
  links.board = &board_;
  links.transport_to.resize(static_cast<std::size_t>(ranks()));
  std::vector<Transport*> transports;
  for (auto& transport : transports_) {
    transports.push_back(transport.get());
    for (int peer = 0; peer < ranks(); ++peer) {
      Transport*& to = links.transport_to[static_cast<std::size_t>(peer)];
      if (to == nullptr && transport->reaches(peer)) to = transport.get();
    }
  }
  links.private_scratch = [this](std::size_t bytes) { return private_scratch(bytes); };
  links.map_remote = [this](int peer, RegionOffset place, std::size_t bytes, std::byte** base) {
    return map_remote(peer, place, bytes, base);
  };
  // Before the ranks have agreed, nothing that may differ between them takes part in a choice.
  SelectorOptions common;
  common.rank = rank_;
  common.ranks = ranks();
  common.one_node = nodes_ == 1;
  common.board_scratch_bytes = board_.scratch_bytes();
  engine_ = std::make_unique<Engine>(std::move(options), std::move(links), std::move(transports),
                                     std::make_unique<Selector>(common));
  watch_ = session_->watch([this] {
    engine_->fault_pending().store(true, std::memory_order_relaxed);
    wake();
  });
  engine_->fault_pending().store(true, std::memory_order_relaxed);  // faults from before the watch
}

Status Communicator::run(std::span<const Call> calls) {
  try {
    for (const Call& call : calls) engine_->submit(call);
    const Sleeper self = sleeper();
    drive({&self, 1}, oversubscription_);
  } catch (const std::exception&) {
    engine_->fail(caught());
  }
  return engine_->status();
}

void Communicator::fail(const Status& status) { engine_->fail(status); }

void Communicator::await_ticket(Ticket ticket) {
  for (;;) {
    const std::uint64_t served = served_.load(std::memory_order_acquire);
    if (served == ticket) return;
    served_.wait(served, std::memory_order_acquire);
  }
}

void Communicator::serve_next() {
  served_.fetch_add(1, std::memory_order_release);
  served_.notify_all();
}

void Communicator::flush() { await_ticket(issued_.load(std::memory_order_relaxed)); }

Status Communicator::error() {
  if (!has_error_.load(std::memory_order_acquire)) {
    // Nobody may be driving the engine: what the monitor has heard counts all the same.
    if (engine_->fault_pending().load(std::memory_order_relaxed)) [[unlikely]]
      set_error(first_fault());
    if (!has_error_.load(std::memory_order_acquire)) return {};
  }
  std::lock_guard lock(error_mutex_);
  return error_;
}

void Communicator::set_error(const Status& status) {
  std::lock_guard lock(error_mutex_);
  if (status.ok() || !error_.ok()) return;
  error_ = status;
  has_error_.store(true, std::memory_order_release);
}

void Communicator::abort() noexcept {
  if (aborted_.exchange(true)) return;
  tell_abort();
  engine_->fault_pending().store(true, std::memory_order_relaxed);
  wake();
}

void Communicator::tell_abort() noexcept {
  const Status aborted = status_of_call([this]() -> Status {
    return {Code::aborted, name_of_rank(rank_) + " aborted the communicator '" + config_.name + "'",
            rank_};
  });
  set_error(aborted);
  best_effort([&] {
    Fault fault;
    fault.kind = Fault::Kind::aborted;
    fault.rank = session_->rank();
    fault.comm_id = comm_id_;
    fault.code = Code::aborted;
    fault.text = aborted.message();
    session_->report(fault);
  });
}

const char* Communicator::last_algorithm() const {
  const Program* program = engine_->last_program();
  if (program == nullptr) return "none";
  // The program is the communicator's, the name outlives it.
  for (const Builder& builder : builders()) {
    if (program->algorithm == builder.algorithm) return builder.algorithm;
  }
  return "none";
}

const char* Communicator::last_transport() const {
  const Program* program = engine_->last_program();
  if (program == nullptr || ranks() == 1) return "none";
  if (nodes_ == 1) return "shm";
  return local_members_.size() > 1 ? "shm,tcp" : "tcp";
}

Status Communicator::split(Ticket ticket, int color, int key, const CommConfig& config,
                           StopRequest* stop, std::unique_ptr<Communicator>* out) {
  struct Entry {
    std::int32_t color, key;
  };
  const Entry mine{color, key};
  std::vector<Entry> all;
  std::vector<int> members, group;
  // Without memory for the part in it, there is none: the others wait for it until the deadline.
  const Status prepared = status_of_call([&]() -> Status {
    all.resize(static_cast<std::size_t>(ranks()));
    members = members_;
    group.reserve(members.size());
    return {};
  });
  Call call;
  call.collective = Collective::all_gather;
  call.input = &mine;
  call.output = all.data();
  call.count = 2;
  call.dtype = Dtype::int32;
  await_ticket(ticket);
  if (!prepared.ok()) engine_->fail(prepared);
  const Status gathered = prepared.ok() ? run({&call, 1}) : prepared;
  const std::uint64_t comm_id =
      derive_comm_id(comm_id_, ++splits_, static_cast<std::uint64_t>(color));
  const std::shared_ptr<Session> session = session_;
  const std::uint64_t parent = comm_id_;
  const OpenChannel parents_faults(*session, parent);  // for the second time: allocates nothing
  if (!gathered.ok() && color >= 0) best_effort([&] { tell_part(comm_id, gathered); });
  serve_next();  // from here on this communicator may be gone
  if (!gathered.ok() || color < 0) return gathered;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    if (all[rank].color == color) group.push_back(static_cast<int>(rank));
  }
  std::stable_sort(group.begin(), group.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  for (int& rank : group) rank = members[static_cast<std::size_t>(rank)];
  return create(session, std::move(group), comm_id, parent, config, stop, out);
}

/// This rank takes no part in the making of a part, for which other ranks may wait already.
void Communicator::tell_part(std::uint64_t comm_id, const Status& status) {
  Fault fault;
  fault.kind = Fault::Kind::failed;
  fault.rank = members_[static_cast<std::size_t>(status.culprit() >= 0 ? status.culprit() : rank_)];
  fault.comm_id = comm_id;
  fault.code = status.code();
  fault.text = name_of_rank(rank_) + " could not split '" + config_.name + "': " + status.message();
  session_->report(fault);
}

std::byte* Communicator::private_scratch(std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes, 1);  // a message of nothing has a scratch area too
  if (bytes > scratch_bytes_) {
    scratch_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, round_up(bytes, 4096))));
    scratch_bytes_ = scratch_ == nullptr ? 0 : bytes;
  }
  return scratch_.get();
}

void Communicator::ring(int local_rank) {
  if (!board_.ring(local_rank)) return;
  if (local_rank == board_.local_rank()) return write_event(event_fd_.get());
  if (fetch_event(local_rank)) {
    write_event(peer_events_[static_cast<std::size_t>(local_rank)].fd.get());
  }
}

/// False: the descriptor of the peer's doorbell is on its way, and rings when it comes. Where it
/// cannot be had the peer is only late: it looks around by itself ten times a second.
bool Communicator::fetch_event(int local_rank) {
  PeerEvent& event = peer_events_[static_cast<std::size_t>(local_rank)];
  if (event.fd) return true;
  if (event.fetch == nullptr) {
    const int peer = local_members_[static_cast<std::size_t>(local_rank)];
    const DescriptorName name{comm_id_, 1 + static_cast<std::uint64_t>(local_rank)};
    const Status posted = session_->post_fetch(
        members_[static_cast<std::size_t>(peer)], scope_, name,
        [](const Fetch& fetch) { write_event(fetch.fd()); }, &event.fetch);
    if (!posted.ok()) return false;
  }
  if (!event.fetch->done()) return false;
  const Status taken = event.fetch->take(&event.fd);
  event.fetch.reset();
  return taken.ok();
}

void Communicator::wake() { ring(board_.local_rank()); }

}  // namespace hocket::internal
