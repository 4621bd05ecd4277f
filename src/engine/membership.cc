#include "engine/membership.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/comm_id.h"
#include "topology/machine.h"

namespace hocket::internal {
namespace {

// Messages that a rank sent before it left can arrive after the news that it has left.
constexpr Nanos patience_with_left = nanos_per_s;
// The end of a rank's connections is exact. This is for a rank without a connection to this one.
constexpr Nanos patience_with_exited = 200 * nanos_per_ms;

/// True if the fault ends only operations that wait for the rank.
bool is_gone_in_order(const Fault& fault) {
  return fault.kind == Fault::Kind::left || fault.kind == Fault::Kind::exited;
}

bool ends_operations(const Fault& fault) {
  return !is_gone_in_order(fault) && fault.kind != Fault::Kind::overdue;
}

}  // namespace

double ranks_per_core(const Session& session) {
  return ranks_per_core(session, session.members()[static_cast<std::size_t>(session.rank())]);
}

double ranks_per_core(const Session& session, const Member& there) {
  std::vector<CoreSet> cores;
  for (const Member& member : session.members()) {
    if (member.machine == there.machine) cores.push_back(member.cores);
  }
  return ranks_per_core(cores);
}

Membership::Membership(Session& session, std::vector<int> members, std::uint64_t comm_id,
                       std::string name)
    : session_(session),
      members_(std::move(members)),
      rank_of_member_(static_cast<std::size_t>(session_.ranks()), -1),
      open_comm_id_(session_, comm_id),
      name_(std::move(name)) {
  scope_.comm_id = comm_id;
  scope_.members = members_;
  std::vector<std::uint32_t> node_of;
  for (int rank = 0; rank < ranks(); ++rank) {
    const int member = members_[static_cast<std::size_t>(rank)];
    rank_of_member_[static_cast<std::size_t>(member)] = rank;
    if (member == session_.rank()) rank_ = rank;
    if (session_.local(member)) local_members_.push_back(rank);
    node_of.push_back(
        static_cast<std::uint32_t>(session_.members()[static_cast<std::size_t>(member)].node));
  }
  layout_ = std::make_shared<const Layout>(node_of);
  const auto me = std::find(local_members_.begin(), local_members_.end(), rank_);
  local_rank_ = static_cast<int>(me - local_members_.begin());
}

int Membership::rank_of_session(int session_rank) const {
  if (session_rank < 0 || session_rank >= session_.ranks()) return -1;
  return rank_of_member_[static_cast<std::size_t>(session_rank)];
}

std::string Membership::name_of_rank(int rank) const {
  const Member& member =
      session_.members()[static_cast<std::size_t>(members_[static_cast<std::size_t>(rank)])];
  return "rank " + std::to_string(rank) + " (host " + member.host + ", pid " +
         std::to_string(member.pid) + ")";
}

Status Membership::status_of(const Fault& fault) const {
  Status::Detail detail;
  detail.code = fault.code;
  detail.message = fault.text;
  detail.culprit = rank_of_session(fault.rank);
  detail.sequence = fault.sequence;
  // Of two ranks that make different calls each names the other.
  if (fault.code == Code::mismatch && detail.culprit == rank_ && fault.reporter >= 0) {
    detail.culprit = rank_of_session(fault.reporter);
  }
  if (fault.kind == Fault::Kind::dead || fault.kind == Fault::Kind::silent) {
    detail.code = Code::remote_error;
    if (detail.culprit >= 0) detail.message = with_both_numbers(detail.culprit, fault.text);
  }
  if (fault.kind == Fault::Kind::exited && detail.culprit >= 0) {
    const Member& member = session_.members()[static_cast<std::size_t>(fault.rank)];
    detail.message = "rank " + std::to_string(detail.culprit) +
                     " ended its process without finalizing the communicator (host " + member.host +
                     ", pid " + std::to_string(member.pid) + ")";
  }
  return Status(std::move(detail));
}

std::uint64_t Membership::comm_id_of_next_split(int color) {
  return comm_id_of_split(comm_id(), ++splits_, color);
}

std::uint64_t Membership::comm_id_of_next_group(std::span<const int> members, int tag) {
  const std::uint64_t number = ++groups_[comm_id_of_group(comm_id(), members, tag, 0)];
  return comm_id_of_group(comm_id(), members, tag, number);
}

std::vector<Membership::RankOnNode> Membership::ranks_on_nodes() const {
  std::vector<RankOnNode> out;
  for (std::uint32_t rank = 0; rank < layout_->ranks(); ++rank) {
    out.push_back(
        {static_cast<int>(layout_->node_of(rank)), static_cast<int>(layout_->local_rank(rank))});
  }
  return out;
}

FaultScope Membership::scope(std::uint64_t operation) const {
  FaultScope scope = scope_;
  scope.operation = operation;
  return scope;
}

Status Membership::first_fault() const {
  std::uint64_t first = 0;
  for (const Fault& fault : session_.faults_since(scope_, &first)) {
    if (ends_operations(fault)) return status_of(fault);
  }
  return {};
}

void Membership::poll_faults(FaultNews* news) {
  if (session_.fault_count() == faults_seen_) return;
  for (const Fault& fault : session_.faults_since(scope_, &faults_seen_)) {
    if (is_gone_in_order(fault)) {
      add_gone(fault, news);
    } else if (!ends_operations(fault)) {
      continue;
    } else if (news->error.ok()) {
      news->error = status_of(fault);
      news->operation = fault.kind == Fault::Kind::failed ? fault.sequence : 0;
    } else if (fault.kind == Fault::Kind::failed) {
      // The end of a rank after a failure explains nothing; another failure may be earlier.
      news->operation = std::min(news->operation, fault.sequence);
    }
    news->at_once |= fault.kind == Fault::Kind::aborted;
  }
}

void Membership::add_gone(const Fault& fault, FaultNews* news) const {
  const int rank = rank_of_session(fault.rank);
  if (rank < 0 || rank == rank_) return;
  FaultNews::Gone gone{rank, {}, patience_with_left};
  if (fault.kind == Fault::Kind::exited) {
    gone.why = status_of(fault);
    gone.patience = session_.local(fault.rank) ? 0 : patience_with_exited;
  }
  news->gone.push_back(std::move(gone));
}

/// text: of the session, which uses the numbers of the job.
std::string Membership::with_both_numbers(int rank, const std::string& text) const {
  if (session_rank(rank) == rank) return text;
  return fmt::format("rank {} of this communicator is rank {} of the job: {}", rank,
                     session_rank(rank), text);
}

/// The session uses its own rank numbers, and does not know the faults of this communicator.
Status Membership::error_of_peer(int peer, const Status& status) const {
  if (status.ok()) return {};
  const int named = status.culprit() < 0 ? -1 : rank_of_session(status.culprit());
  const int culprit = named < 0 ? peer : named;
  std::uint64_t first = 0;
  Status gone;
  for (const Fault& fault : session_.faults_since(scope_, &first)) {
    if (ends_operations(fault)) return status_of(fault);
    if (rank_of_session(fault.rank) == culprit && !fault.text.empty()) gone = status_of(fault);
  }
  if (!gone.ok()) return gone;
  const std::string text = named < 0 ? name_of_rank(peer) + ": " + status.message()
                                     : with_both_numbers(named, status.message());
  return {status.code(), text, culprit};
}

void Membership::report_failure(const Status& status, std::uint64_t operation) {
  Fault fault;
  fault.kind = Fault::Kind::failed;
  const int culprit = status.culprit() >= 0 ? status.culprit() : rank_;
  fault.rank = members_[static_cast<std::size_t>(culprit)];
  fault.comm_id = comm_id();
  fault.sequence = operation;
  fault.code = status.code();
  fault.text = name_of_rank(rank_) + " reports: " + status.message();
  fault.reporter = session_.rank();
  session_.report(fault);
}

void Membership::report_overdue(std::uint64_t collective, const std::string& what_waits) {
  Fault fault;
  fault.kind = Fault::Kind::overdue;
  fault.rank = session_.rank();
  fault.comm_id = comm_id();
  fault.sequence = collective;
  fault.text = name_of_rank(rank_) + " reports: " + what_waits;
  session_.report(fault);
}

void Membership::answer_overdue(std::uint64_t begun) {
  FaultScope scope;
  scope.comm_id = comm_id();
  for (const Fault& asked : session_.faults_since(scope, &overdue_seen_)) {
    if (asked.kind != Fault::Kind::overdue || asked.sequence <= begun) continue;
    Fault fault = asked;
    fault.kind = Fault::Kind::failed;
    fault.rank = session_.rank();
    fault.code = Code::timeout;
    fault.text += ": " + name_of_rank(rank_) +
                  " has not begun it; find out what that rank does, or raise HOCKET_DEADLINE_MS";
    session_.report(fault);
  }
}

void Membership::report_left() {
  Fault fault;
  fault.kind = Fault::Kind::left;
  fault.rank = session_.rank();
  fault.comm_id = comm_id();
  fault.text = name_of_rank(rank_) + " has left the communicator '" + name_ + "'";
  session_.report(fault);
}

Status Membership::own_abort() const {
  const std::string text = name_of_rank(rank_) + " aborted the communicator '" + name_ + "'";
  return {Code::aborted, text, rank_};
}

void Membership::report_abort(const Status& status) {
  Fault fault;
  fault.kind = Fault::Kind::aborted;
  fault.rank = session_.rank();
  fault.comm_id = comm_id();
  fault.code = status.code();
  fault.text = status.message();
  session_.report(fault);
}

void Membership::report_failed_split(std::uint64_t part, const Status& status) {
  Fault fault;
  fault.kind = Fault::Kind::failed;
  fault.rank = members_[static_cast<std::size_t>(status.culprit() >= 0 ? status.culprit() : rank_)];
  fault.comm_id = part;
  fault.code = status.code();
  fault.text = name_of_rank(rank_) + " could not split '" + name_ + "': " + status.message();
  session_.report(fault);
}

}  // namespace hocket::internal
