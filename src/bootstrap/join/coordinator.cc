#include "bootstrap/join/coordinator.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>
#include <vector>

#include "base/limits.h"
#include "base/log.h"
#include "bootstrap/control/join_result.h"

namespace hocket::internal {

namespace {
constexpr std::int64_t longest_latecomers_ms = 60'000;
constexpr std::int64_t longest_exit_delay_ms = 2000;
constexpr std::size_t most_other_keys = 64;

/// The coordinators of this process, of any loop.
struct Coordinators {
  std::mutex mutex;
  std::vector<Coordinator*> all;

  static Coordinators& instance() {
    static auto* coordinators = new Coordinators;
    return *coordinators;
  }
};
}  // namespace

Coordinator::Coordinator(EventLoop& loop, const Key& session_key)
    : loop_(loop), session_key_(session_key) {
  loop_.add(this);
  Coordinators& coordinators = Coordinators::instance();
  std::lock_guard lock(coordinators.mutex);
  coordinators.all.push_back(this);
}

Coordinator::~Coordinator() {
  Coordinators& coordinators = Coordinators::instance();
  {
    std::lock_guard lock(coordinators.mutex);
    std::erase(coordinators.all, this);
  }
  loop_.remove(this);
}

void Coordinator::join_has_failed(EventLoop& loop, const JobId& job_id, int rank) {
  Coordinators& coordinators = Coordinators::instance();
  Coordinator* found = nullptr;
  {
    std::lock_guard lock(coordinators.mutex);
    for (Coordinator* const coordinator : coordinators.all) {
      // Only the thread of the other coordinators' loops may read their other members.
      if (&coordinator->loop_ == &loop && coordinator->job_id_ == job_id) found = coordinator;
    }
  }
  if (found != nullptr && found->state_ == State::failed) found->will_not_come(rank);
}

std::unique_ptr<Coordinator> Coordinator::start(EventLoop& loop, const Key& session_key,
                                                std::int64_t deadline_ms,
                                                std::function<void()> ended) {
  std::unique_ptr<Coordinator> coordinator(new Coordinator(loop, session_key));
  coordinator->ended_ = std::move(ended);
  coordinator->latecomers_ms_ = std::min(deadline_ms / 10, longest_latecomers_ms);
  coordinator->set_deadline(loop.now() + deadline_ms * nanos_per_ms);
  return coordinator;
}

void Coordinator::listen(UniqueFd listener, const Credentials& credentials) {
  job_id_ = credentials.job_id;
  reserve_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  acceptor_ = std::make_unique<Acceptor>(
      loop_, std::move(listener), credentials,
      [](const Claim& claim) {
        return claim.purpose == Purpose::coordinator ? Verdict::accepted : Verdict::refused;
      },
      [this](const Claim&, ByteStream stream) { adopt(std::move(stream)); },
      [this](const Status& why) {
        fail(why);
        reserve_.reset();
      });
  acceptor_->on_other_key(
      [this](const Claim& claim, const std::string& address) { other_key(claim, address); });
}

void Coordinator::adopt(ByteStream stream) {
  const int number = next_node_++;
  nodes_[number].conn = ControlConnection::open(
      loop_, std::move(stream), 4096,
      [this, number](Message& message) { on_message(number, message); },
      [this, number](int error) { on_closed(number, error); });
}

std::string Coordinator::who(const JoinRequest& request) const {
  return fmt::format("rank {} (process {} on {}, {})", request.rank, request.pid, request.host,
                     request.address.text());
}

void Coordinator::set_deadline(Nanos deadline) {
  deadline_ = deadline;
  timer_ = loop_.at(deadline, [this] { deadline_passed(); });
}

void Coordinator::on_message(int node, Message& message) {
  if (message.type == MessageType::join_request) {
    JoinRequest request;
    if (decode(message.body, &request)) return take_request(node, request);
  } else if (message.type == MessageType::confirm) {
    return confirm(node);
  } else if (message.type == MessageType::fail) {
    Failure failure;
    if (decode(message.body, &failure)) {
      will_not_come(failure.culprit);
      return fail(failure.code, failure.culprit, failure.text);
    }
  }
  // A leader that has the key and sends an unknown message is another build of the library.
  fail(Code::remote_error, -1,
       "the coordinator received an unknown message: use the same library for all ranks");
}

void Coordinator::on_closed(int node, int error) {
  const Node gone = std::move(nodes_[node]);
  nodes_.erase(node);
  if (state_ == State::done || state_ == State::failed || gone.ranks.empty()) return;
  const JoinRequest& leader = requests_[gone.ranks.front()];
  std::vector<int> ranks = gone.ranks;
  std::sort(ranks.begin(), ranks.end());
  fail(Code::remote_error, leader.rank,
       fmt::format(
           "{} {} while the ranks were still joining{}", who(leader),
           error == EBADMSG ? "lost its connection (bytes were changed on the way, as TLS shows)"
                            : "ended",
           ranks.size() > 1 ? "; with it the coordinator lost ranks " + ranks_text(ranks) : ""));
}

std::string Coordinator::violation(const JoinRequest& request) const {
  if (request.ranks < 1 || request.ranks > max_ranks) {
    return fmt::format("{} says that the job has {} ranks: 1 to {} are possible", who(request),
                       request.ranks, max_ranks);
  }
  if (ranks_ != 0 && request.ranks != ranks_) {
    return fmt::format(
        "ranks disagree about their number: {} says {}, {} says {}; start all ranks of a job with "
        "the same number",
        who(request), request.ranks, who(requests_.at(first_rank_)), ranks_);
  }
  if (ranks_ != 0 && request.tls != requests_.at(first_rank_).tls) {
    return fmt::format(
        "ranks disagree about HOCKET_TLS: {} has HOCKET_TLS={}, {} has HOCKET_TLS={}; set it to "
        "the "
        "same value on all ranks",
        who(request), request.tls ? 1 : 0, who(requests_.at(first_rank_)), request.tls ? 0 : 1);
  }
  if (request.rank < 0 || request.rank >= request.ranks) {
    return fmt::format("{} is outside 0 to {}", who(request), request.ranks - 1);
  }
  if (const auto found = requests_.find(request.rank); found != requests_.end()) {
    return fmt::format(
        "two processes claim to be rank {}: process {} on {} and process {} on {}; every rank may "
        "join once (does the launcher number them as you think?)",
        request.rank, found->second.pid, found->second.host, request.pid, request.host);
  }
  return {};
}

/// If the join has ended already, tells the rank so and returns true.
bool Coordinator::refuse_late(int node, const JoinRequest& request) {
  ControlConnection& conn = *nodes_[node].conn;
  if (state_ == State::failed) {
    conn.send(MessageType::fail, encode(failure_));
    if (ranks_ == 0) ranks_ = request.ranks;
    absent_.erase(request.rank);
    if (all_know()) end();
    return true;
  }
  if (state_ == State::gathering) return false;
  const std::string bad = violation(request);
  const Failure late{Code::remote_error, request.rank,
                     bad.empty() ? "all ranks of this job have joined already" : bad};
  conn.send(MessageType::fail, encode(late));
  return true;
}

void Coordinator::take_request(int node, const JoinRequest& request) {
  ++came_;
  ranks_that_came_.insert(request.rank);
  if (refuse_late(node, request)) return;
  if (const std::string bad = violation(request); !bad.empty()) {
    return fail(Code::invalid_usage, request.rank, bad);
  }
  if (ranks_ == 0) {
    ranks_ = request.ranks;
    first_rank_ = request.rank;
  }
  requests_[request.rank] = request;
  other_keys_.erase(request.rank);  // not a process of this job, or an earlier attempt
  nodes_[node].ranks.push_back(request.rank);
  if (log_enabled(LogLevel::debug)) {
    log_line(LogLevel::debug,
             fmt::format("{} has come, {} of {}", who(request), requests_.size(), ranks_));
  }
  // The first rank's deadline replaces the coordinator's own; then the earliest counts.
  const Nanos deadline =
      loop_.now() + std::clamp<std::int64_t>(request.remaining_ms, 0, 1'000'000'000) * nanos_per_ms;
  if (requests_.size() == 1 || deadline < deadline_) set_deadline(deadline);
  if (static_cast<int>(requests_.size()) == ranks_) place_all();
  fail_by_other_key();
}

/// A process proved the id of this job, and not its key. If no rank that has come had its number,
/// that number is missing for ever, and the join ends.
void Coordinator::other_key(const Claim& claim, const std::string& address) {
  if (claim.purpose != Purpose::coordinator) return;
  if (state_ == State::failed) return will_not_come(claim.rank);
  if (state_ != State::gathering) return;
  if (claim.rank < 0 || claim.rank >= max_ranks || requests_.count(claim.rank) != 0) return;
  if (other_keys_.size() >= most_other_keys) return;
  other_keys_[claim.rank] = address;
  fail_by_other_key();
}

/// Waits for the first rank, which says how many ranks there are.
void Coordinator::fail_by_other_key() {
  if (state_ != State::gathering || ranks_ == 0 || other_keys_.empty()) return;
  const auto& [rank, address] = *other_keys_.begin();
  if (rank >= ranks_) return;
  will_not_come(rank);
  fail(Code::remote_error, rank,
       fmt::format("a process at {}, which says that it is rank {} of this job, presented another "
                   "job key and was refused: give all ranks the same key (the same unique id, one "
                   "hocket-run, or the same HOCKET_JOB_KEY_FILE)",
                   address, rank));
}

void Coordinator::place_all() {
  state_ = State::confirming;
  std::map<int, int> by_lowest;  // lowest rank -> connection
  for (auto it = nodes_.begin(); it != nodes_.end(); ++it) {
    const std::vector<int>& ranks = it->second.ranks;
    if (!ranks.empty()) by_lowest[*std::min_element(ranks.begin(), ranks.end())] = it->first;
  }
  Table table;
  table.session_key = session_key_;
  table.members.resize(static_cast<std::size_t>(ranks_));
  std::vector<int> order;  // node -> connection
  for (const auto& [lowest, number] : by_lowest) {
    const int node = static_cast<int>(order.size());
    order.push_back(number);
    table.leaders.push_back(nodes_[number].ranks.front());
    for (const int rank : nodes_[number].ranks) {
      const JoinRequest& request = requests_[rank];
      table.members[rank] = {
          node, 0, request.pid, request.host, request.address, request.machine, request.cores};
    }
  }
  for (std::size_t node = 0; node < order.size(); ++node) {
    TreePosition place;
    place.node = static_cast<int>(node);
    place.nodes = static_cast<int>(order.size());
    place.ranks = ranks_;
    if (node > 0) {
      place.parent_rank = table.leaders[(node - 1) / tree_arity];
      place.parent = table.members[place.parent_rank].address;
    }
    nodes_[order[node]].conn->send(MessageType::place, encode(place));
  }
  nodes_[order[0]].conn->send(MessageType::table, encode(table));
}

void Coordinator::confirm(int node) {
  if (state_ != State::confirming) return;
  nodes_[node].confirmed = true;
  for (const auto& [number, other] : nodes_) {
    if (!other.ranks.empty() && !other.confirmed) return;
  }
  state_ = State::done;
  acceptor_.reset();
  for (auto& [number, other] : nodes_) other.conn->send(MessageType::done);
  end();
}

void Coordinator::deadline_passed() {
  if (state_ == State::done || state_ == State::failed) return;
  std::vector<int> missing;
  if (ranks_ == 0) {
    return fail(Code::timeout, -1, "the coordinator's deadline passed, and no rank has come");
  }
  if (state_ == State::gathering) {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (requests_.find(rank) == requests_.end()) missing.push_back(rank);
    }
    fail(Code::timeout, missing.empty() ? -1 : missing.front(),
         fmt::format("the join deadline passed: {} of {} ranks have come, rank{} {} {} missing{}; "
                     "look at their output, or raise HOCKET_JOIN_DEADLINE_MS",
                     requests_.size(), ranks_, missing.size() == 1 ? "" : "s", ranks_text(missing),
                     missing.size() == 1 ? "is" : "are",
                     acceptor_ ? acceptor_->refusals() : std::string()));
    return;
  }
  for (const auto& [number, node] : nodes_) {
    if (!node.confirmed && !node.ranks.empty()) missing.push_back(node.ranks.front());
  }
  std::sort(missing.begin(), missing.end());
  fail(Code::timeout, missing.empty() ? -1 : missing.front(),
       fmt::format("the join deadline passed: all {} ranks came, but the nodes of ranks {} did not "
                   "connect to the others; can all hosts reach one another over TCP? "
                   "(HOCKET_INTERFACE chooses the network)",
                   ranks_, ranks_text(missing)));
}

void Coordinator::fail(Code code, int culprit, const std::string& text) {
  if (state_ == State::done || state_ == State::failed) return;
  state_ = State::failed;
  failure_ = {code, culprit, text};
  log_line(LogLevel::error, "the join failed: " + text);
  for (auto& [number, node] : nodes_) node.conn->send(MessageType::fail, encode(failure_));
  if (all_know()) return end();
  deadline_ = loop_.now() + latecomers_ms_ * nanos_per_ms;
  timer_ = loop_.at(deadline_, [this] { end(); });
}

/// The process of this rank has another key, has ended, or knows the error: a failed join does not
/// wait for it.
void Coordinator::will_not_come(int rank) {
  if (rank < 0 || rank >= max_ranks || ranks_that_came_.count(rank) != 0) return;
  absent_.insert(rank);
  if (state_ == State::failed && all_know()) end();
}

/// For a failed join. All ranks that have come have been told.
bool Coordinator::all_know() const {
  return ranks_ != 0 && came_ + static_cast<int>(absent_.size()) >= ranks_;
}

/// A rank that comes a moment later hears from this process why the join has failed. After the
/// process has ended, the rank would look for it until the rank's own join deadline. A rank that
/// missed the deadline of the join is not awaited again.
void Coordinator::process_exits() {
  if (state_ != State::failed || !ended_ || failure_.code == Code::timeout) return;
  exit_delay_.emplace(loop_);
  deadline_ = std::min(deadline_, loop_.now() + longest_exit_delay_ms * nanos_per_ms);
  timer_ = loop_.at(deadline_, [this] { end(); });
}

/// This process has no memory or no descriptor left: all ranks are told, or lose their connections.
bool Coordinator::fail(const Status& why) {
  if (state_ == State::done || state_ == State::failed) return true;
  try {
    fail(why.code(), -1, "the process of the coordinator cannot go on: " + why.message());
  } catch (const std::bad_alloc&) {
    state_ = State::failed;
    nodes_.clear();
  }
  return true;
}

/// While its owner keeps the coordinator afterwards, it still answers ranks that come late.
void Coordinator::end() {
  timer_.reset();
  exit_delay_.reset();
  const std::function<void()> ended = std::move(ended_);
  ended_ = nullptr;
  if (ended) ended();
}

}  // namespace hocket::internal
