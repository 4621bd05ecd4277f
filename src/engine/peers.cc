// What a communicator knows of its peers: their names, their faults, their memory.
#include <unistd.h>

#include <algorithm>

#include "engine/communicator.h"

namespace hocket::internal {
namespace {

// What a rank sent before it left may still be on its way, and news of the leaving overtakes it.
constexpr Nanos patience_with_left = nanos_per_s;
// The end of the rank's connections tells more exactly: this is for a rank that has none here.
constexpr Nanos patience_with_exited = 200 * nanos_per_ms;
constexpr std::size_t most_peer_regions = 256;

/// Ends no operation but one that waits for the rank.
bool is_gone_in_order(const Fault& fault) {
  return fault.kind == Fault::Kind::left || fault.kind == Fault::Kind::exited;
}

}  // namespace

int Communicator::rank_of_session(int session_rank) const {
  if (session_rank < 0 || session_rank >= session_->ranks()) return -1;
  return rank_of_member_[static_cast<std::size_t>(session_rank)];
}

std::string Communicator::name_of_rank(int rank) const {
  const Member& member =
      session_->members()[static_cast<std::size_t>(members_[static_cast<std::size_t>(rank)])];
  return "rank " + std::to_string(rank) + " (host " + member.host + ", pid " +
         std::to_string(member.pid) + ")";
}

Status Communicator::status_of(const Fault& fault) const {
  Status::Detail detail;
  detail.code = fault.code;
  detail.message = fault.text;
  detail.culprit = rank_of_session(fault.rank);
  detail.sequence = fault.sequence;
  if (fault.kind == Fault::Kind::dead || fault.kind == Fault::Kind::silent) {
    detail.code = Code::remote_error;
    if (detail.culprit >= 0 && detail.culprit != fault.rank) {
      // The text counts ranks as the session does; this communicator counts otherwise.
      detail.message = name_of_rank(detail.culprit) + " of this communicator: " + fault.text;
    }
  }
  if (fault.kind == Fault::Kind::exited && detail.culprit >= 0) {
    const Member& member = session_->members()[static_cast<std::size_t>(fault.rank)];
    detail.message = "rank " + std::to_string(detail.culprit) +
                     " ended its process without finalizing the communicator (host " + member.host +
                     ", pid " + std::to_string(member.pid) + ")";
  }
  return Status(std::move(detail));
}

/// The first that ends operations. Any thread.
Status Communicator::first_fault() const {
  std::uint64_t first = 0;
  for (const Fault& fault : session_->faults_since(scope_, &first)) {
    if (!is_gone_in_order(fault)) return status_of(fault);
  }
  return {};
}

void Communicator::poll_faults(FaultNews* news) {
  if (aborted_.load()) {
    if (news->error.ok()) news->error = error();
    news->at_once = true;
    return;
  }
  if (session_->fault_count() == faults_seen_) return;
  for (const Fault& fault : session_->faults_since(scope_, &faults_seen_)) {
    if (is_gone_in_order(fault)) {
      add_gone(fault, news);
    } else if (news->error.ok()) {
      news->error = status_of(fault);
      news->operation = fault.kind == Fault::Kind::failed ? fault.sequence : 0;
    } else if (fault.kind == Fault::Kind::failed) {
      // An end that follows a failure explains nothing, another failure may have been earlier.
      news->operation = std::min(news->operation, fault.sequence);
    }
    news->at_once |= fault.kind == Fault::Kind::aborted;
  }
}

void Communicator::add_gone(const Fault& fault, FaultNews* news) const {
  const int rank = rank_of_session(fault.rank);
  if (rank < 0 || rank == rank_) return;
  FaultNews::Gone gone{rank, {}, patience_with_left};
  if (fault.kind == Fault::Kind::exited) {
    gone.why = status_of(fault);
    gone.patience = session_->local(fault.rank) ? 0 : patience_with_exited;
  }
  news->gone.push_back(std::move(gone));
}

void Communicator::tell_failure(const Status& status, std::uint64_t operation) {
  Fault fault;
  fault.kind = Fault::Kind::failed;
  const int culprit = status.culprit() >= 0 ? status.culprit() : rank_;
  fault.rank = members_[static_cast<std::size_t>(culprit)];
  fault.comm_id = comm_id_;
  fault.sequence = operation;
  fault.code = status.code();
  fault.text = name_of_rank(rank_) + " reports: " + status.message();
  session_->report(fault);
}

bool Communicator::export_region(std::uint64_t region) {
  Regions& regions = Regions::instance();
  if (offered_generation_ != regions.generation()) {
    offered_generation_ = regions.generation();
    std::erase_if(awaiting_cts_, [&](std::uint64_t number) {
      if (regions.descriptor(number)) return false;
      session_->withdraw({DescriptorName::memory_space, number});
      return true;
    });
  }
  if (awaiting_cts_.contains(region)) return true;
  const UniqueFd fd = regions.descriptor(region);
  if (!fd) return false;
  if (!session_->offer({DescriptorName::memory_space, region}, fd.get()).ok()) return false;
  awaiting_cts_.insert(region);
  return true;
}

bool Communicator::is_mapped(const void* pointer, std::size_t bytes) const {
  RegionOffset place;
  return nodes_ == 1 && Regions::instance().find(pointer, bytes, &place);
}

FaultScope Communicator::scope_of(std::uint64_t operation) const {
  FaultScope scope = scope_;
  scope.operation = operation;
  return scope;
}

Status Communicator::fetch(int peer, DescriptorName name, Nanos deadline, UniqueFd* fd) {
  const int member = members_[static_cast<std::size_t>(peer)];
  return of_peer(peer, session_->fetch(member, scope_of(0), name, deadline, fd));
}

/// The session names its own ranks, and does not know what this communicator's faults tell.
Status Communicator::of_peer(int peer, const Status& status) const {
  if (status.ok()) return {};
  const int named = status.culprit() < 0 ? -1 : rank_of_session(status.culprit());
  const int culprit = named < 0 ? peer : named;
  std::uint64_t first = 0;
  Status gone;
  for (const Fault& fault : session_->faults_since(scope_, &first)) {
    if (!is_gone_in_order(fault)) return status_of(fault);
    if (rank_of_session(fault.rank) == culprit && !fault.text.empty()) gone = status_of(fault);
  }
  if (!gone.ok()) return gone;
  return {status.code(), name_of_rank(culprit) + " of this communicator: " + status.message(),
          culprit};
}

Status Communicator::map_remote(int peer, RegionOffset place, std::size_t bytes,
                                std::uint64_t operation, std::byte** out) {
  auto found = peer_regions_.find({peer, place.region});
  if (found == peer_regions_.end()) {
    const int member = members_[static_cast<std::size_t>(peer)];
    if (session_->members()[static_cast<std::size_t>(member)].pid == ::getpid()) {
      // Ranks that are threads of one process share its address: a second mapping would only hide
      // races.
      *out = Regions::instance().address(place, bytes);
      if (*out != nullptr) return {};
    }
    UniqueFd fd;
    HOCKET_RETURN_IF_ERROR(fetch_region(peer, place.region, operation, &fd));
    PeerMapping fresh;
    HOCKET_RETURN_IF_ERROR(Mapping::of(fd.get(), &fresh.mapping));
    if (peer_regions_.size() >= most_peer_regions) drop_peer_regions(operation);
    found = peer_regions_.emplace(PeerRegion{peer, place.region}, std::move(fresh)).first;
  }
  found->second.used_by = operation;
  return place_in(*found->second.mapping, peer, place, bytes, out);
}

/// in_progress until the descriptor has come, which wakes this rank.
Status Communicator::fetch_region(int peer, std::uint64_t region, std::uint64_t operation,
                                  UniqueFd* fd) {
  static const Status on_its_way(Code::in_progress, "a peer's memory is not mapped yet");
  std::shared_ptr<Fetch>& fetch = region_fetches_[{peer, region}];
  if (fetch == nullptr) {
    const int member = members_[static_cast<std::size_t>(peer)];
    HOCKET_RETURN_IF_ERROR(session_->post_fetch(
        member, scope_of(operation), {DescriptorName::memory_space, region},
        [this](const Fetch&) { wake(); }, &fetch));
  }
  if (!fetch->done()) return on_its_way;
  const Status status = fetch->take(fd);
  region_fetches_.erase({peer, region});
  return of_peer(peer, status);
}

/// All but those that the collective under way has addresses in.
void Communicator::drop_peer_regions(std::uint64_t in_use) {
  std::erase_if(peer_regions_,
                [in_use](const auto& entry) { return entry.second.used_by != in_use; });
}

Status Communicator::place_in(const Mapping& mapping, int peer, RegionOffset place,
                              std::size_t bytes, std::byte** out) const {
  if (place.offset > mapping.size() || bytes > mapping.size() - place.offset) {
    return {Code::remote_error,
            name_of_rank(peer) + " named a buffer that reaches past the end of its memory", peer};
  }
  *out = mapping.data() + place.offset;
  return {};
}

}  // namespace hocket::internal
