#include "bootstrap/session_core.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/limits.h"
#include "bootstrap/net/address.h"

namespace hocket::internal {
namespace {

constexpr std::int64_t forwarding_check_ms = 100;
// A rank that aborted its join tries for this time to reach the coordinator or its node leader, in
// order to tell the other ranks.
constexpr std::int64_t stop_limit_ms = 10'000;

Status check(const JoinOptions& options) {
  if (options.ranks < 1 || options.ranks > max_ranks) {
    return invalid_argument(
        fmt::format("a job of {} ranks: 1 to {} are possible", options.ranks, max_ranks));
  }
  if (options.rank < 0 || options.rank >= options.ranks) {
    return invalid_argument(fmt::format("rank {} of {}: ranks go from 0 to {}", options.rank,
                                        options.ranks, options.ranks - 1));
  }
  if (options.join_deadline_ms < 1) return invalid_argument("the join deadline must be positive");
  if (options.silence_ms < least_silence_ms) {
    return invalid_argument(
        fmt::format("a silence limit of {} ms: at least {} are needed to tell "
                    "silence from a busy machine",
                    options.silence_ms, least_silence_ms));
  }
  if (options.has_key) {
    return options.coordinator.port != 0
               ? Status()
               : invalid_argument("the coordinator's address has no port");
  }
  const char* remedy =
      "start all ranks with hocket-run, which gives them one key, or name "
      "a file with a key by HOCKET_JOB_KEY_FILE";
  if (!options.share_memory || options.node_of_host >= 0) {
    return invalid_usage(
        fmt::format("ranks without a job key meet over shared memory only, and it is switched off "
                    "({}); {}",
                    options.share_memory ? "HOCKET_NODES" : "HOCKET_TRANSPORT", remedy));
  }
  if (options.coordinator.port != 0 && !is_own(options.coordinator)) {
    return invalid_usage(fmt::format(
        "the coordinator at {} is on another host, and without a job key only ranks of one "
        "user on one host may meet; {}",
        options.coordinator.text(), remedy));
  }
  return {};
}

std::string host_name() {
  char name[host_cap + 1] = {};
  return ::gethostname(name, host_cap) == 0 ? std::string(name) : std::string("unknown host");
}

}  // namespace

SessionCore::SessionCore(const JoinOptions& options, EventLoop& loop)
    : options_(options),
      loop_(loop),
      descriptors_(loop, faults_, options.rank),
      data_(loop, options.rank, std::max<std::int64_t>(options.silence_ms, 5000)) {}

Status SessionCore::make(const JoinOptions& options, EventLoop& loop,
                         std::shared_ptr<SessionCore>* out) {
  HOCKET_RETURN_IF_ERROR(check(options));
  std::shared_ptr<SessionCore> core(new SessionCore(options, loop));
  HOCKET_RETURN_IF_ERROR(core->open_listener());
  JoinRequest& self = core->self_;  // open_listener() has filled in the address
  self.rank = options.rank;
  self.ranks = options.ranks;
  self.pid = static_cast<int>(::getpid());
  self.process = process_number();
  self.host = host_name();
  self.machine = options.machine;
  self.cores = options.cores;
  self.tls = options.tls;
  *out = std::move(core);
  return {};
}

Status SessionCore::open_listener() {
  Address& address = self_.address;
  if (!options_.has_key) {
    address = loopback(false);  // without a key all ranks are on this host
  } else if (!options_.interface.empty()) {
    HOCKET_RETURN_IF_ERROR(
        interface_address(options_.interface, options_.coordinator.v6, &address));
    if (is_link_local(options_.coordinator) && options_.coordinator.scope == 0) {
      options_.coordinator.scope = address.scope;
    }
  } else {
    HOCKET_RETURN_IF_ERROR(address_towards(options_.coordinator, &address));
  }
  address.port = 0;
  return listen_tcp(&address, &listener_);
}

void SessionCore::start(JoinEnded ended) noexcept {
  join_ended_ = std::move(ended);
  const Status status = status_of_call([this]() -> Status {
    loop_.add(this);
    start_joining();
    return {};
  });
  if (!status.ok()) end_join(status);
}

JoinHandlers SessionCore::join_handlers() {
  JoinHandlers handlers;
  handlers.table_known = [this](const Key& key) { return table_known(key); };
  handlers.joined = [this](JoinResult joined) { this->joined(std::move(joined)); };
  handlers.failed = [this](const Status& status) { end_join(status); };
  return handlers;
}

void SessionCore::start_joining() {
  if (options_.has_key) accept_tcp({options_.key, options_.job_id, false, options_.tls});
  const JoinSetup setup(options_, self_, loop_.now());
  if (!options_.share_memory) return lead(setup, UniqueFd());
  rank_join_ = std::make_unique<RankJoin>(
      loop_, setup, join_handlers(),
      [this, setup](UniqueFd listener) { lead(setup, std::move(listener)); });
  rank_join_->start();
}

/// If rank_join_ exists, it has ended. It is not destroyed yet, because it calls this function.
void SessionCore::lead(const JoinSetup& setup, UniqueFd listener) {
  node_leader_ = std::make_unique<NodeLeader>(loop_, setup, join_handlers());
  node_leader_->start(std::move(listener));
  if (stopping_) node_leader_->stop();
}

JoinRole* SessionCore::role() const {
  if (node_leader_) return node_leader_.get();
  return rank_join_.get();
}

void SessionCore::accept_tcp(const Credentials& credentials) {
  data_.start(credentials);
  acceptor_ = std::make_unique<Acceptor>(
      loop_, std::move(listener_), credentials,
      [this](const Claim& claim) {
        if (claim.rank < 0 || claim.rank >= options_.ranks) return Verdict::refused;
        if (claim.tls != options_.tls) return Verdict::refused;
        if (claim.purpose == Purpose::data) return data_.judge(claim);
        if (claim.purpose == Purpose::tree && node_leader_) return node_leader_->judge_child(claim);
        return Verdict::refused;
      },
      [this](const Claim& claim, ByteStream stream) {
        if (claim.purpose == Purpose::data) {
          data_.accept(claim, std::move(stream));
        } else if (node_leader_) {
          node_leader_->accept_child(claim, std::move(stream));
        }
      },
      [this](const Status& why) { out_of_descriptors(why); });
}

/// The key for all connections after the join is known now; local peers that have it may connect.
Status SessionCore::table_known(const Key& key) {
  const Credentials credentials{key, options_.job_id, false, options_.tls};
  if (!acceptor_) accept_tcp(credentials);
  if (!options_.share_memory) return {};
  UniqueFd listener;
  bool taken = false;
  HOCKET_RETURN_IF_ERROR(
      listen_unix(socket_name(credentials, "descriptors", options_.rank), &listener, &taken));
  descriptors_.serve(std::move(listener), credentials,
                     std::max<std::int64_t>(options_.silence_ms, 5000),
                     [this](const Status& why) { out_of_descriptors(why); });
  return {};
}

void SessionCore::joined(JoinResult joined) {
  faults_.prepare_own_failure({Fault::Kind::failed, options_.rank, 0, 0, Code::system_error,
                               cannot_go_on(out_of_memory())});
  detector_ =
      std::make_unique<FailureDetector>(loop_, options_.rank, options_.silence_ms,
                                        std::move(joined), faults_, [this](const Fault& fault) {
                                          // First wakes the engines: a thread whose wait for a
                                          // descriptor ends must find that its communicator's
                                          // engine knows of the fault.
                                          faults_.wake_all();
                                          descriptors_.new_fault(fault);
                                          if (forwarding_) check_forwarding_in(0);
                                        });
  detector_->start();
  end_join({});
}

void SessionCore::end_join(const Status& status) noexcept {
  // drop_roles() runs in a later round, because a role is calling this function.
  best_effort([this] { drop_roles_ = loop_.at(loop_.now(), [this] { drop_roles(); }); });
  return_to_user(status);
}

void SessionCore::drop_roles() noexcept {
  node_leader_.reset();
  rank_join_.reset();
  if (!finished_) return;
  close();
  loop_.release(this);
}

void SessionCore::return_to_user(const Status& status) noexcept {
  if (!join_ended_) return;
  const JoinEnded ended = std::move(join_ended_);
  join_ended_ = nullptr;
  ended(status);
}

void SessionCore::stop_join() noexcept {
  JoinRole* const joining = role();
  if (joining == nullptr || !join_ended_) return;
  stopping_ = true;
  const Status stopped = status_of_call([&]() -> Status {
    joining->stop();
    return role()->stopped();
  });
  return_to_user(stopped);
}

/// Returns false if there is nothing to tell any more.
bool SessionCore::keep_telling_abort(const std::shared_ptr<SessionCore>& core) noexcept {
  if (!stopping_ || role() == nullptr) return false;
  const Status kept = status_of_call([&]() -> Status {
    stop_limit_ = loop_.after_ms(stop_limit_ms, [this] { drop_roles(); });
    loop_.keep(core);
    return {};
  });
  finished_ = kept.ok();
  return finished_;
}

/// This process has no memory left. The threads of this process are told without an allocation; the
/// other ranks are told as soon as an allocation succeeds again.
bool SessionCore::fail(const Status& why) {
  if (join_ended_) {
    if (JoinRole* const joining = role()) joining->give_up(why);
    end_join(why);
    return true;
  }
  if (!detector_) return true;
  if (faults_.add_own_failure()) {
    descriptors_.fail_all(why);
    faults_.wake_all();
  }
  detector_->publish(faults_.own_failure());
  return true;
}

std::string SessionCore::cannot_go_on(const Status& why) const {
  return fmt::format("rank {} (process {} on {}) cannot go on: {}", options_.rank, self_.pid,
                     self_.host, why.message());
}

/// A connection of another rank cannot be accepted, so that rank would wait in vain.
void SessionCore::out_of_descriptors(const Status& why) {
  if (join_ended_) {
    if (JoinRole* const joining = role()) joining->give_up(why);
  } else if (detector_) {
    detector_->raise(
        {Fault::Kind::failed, options_.rank, 0, 0, Code::system_error, cannot_go_on(why)});
  }
}

void SessionCore::process_exits() {
  if (detector_) detector_->say_exit();
}

void SessionCore::dial(int peer, std::uint64_t comm_id, int index) {
  Address address = members()[peer].address;
  if (is_link_local(address)) address.scope = self_.address.scope;
  data_.dial(peer, address, comm_id, index);
}

void SessionCore::close() noexcept {
  loop_.remove(this);
  if (detector_) best_effort([this] { detector_->leave(); });
  acceptor_.reset();
  node_leader_.reset();
  rank_join_.reset();
  data_.close();
  descriptors_.close(status_of_call(
      [] { return invalid_usage("the session was closed while a thread waited in it"); }));
}

void SessionCore::finish(std::shared_ptr<SessionCore> core) noexcept {
  if (core->keep_telling_abort(core)) return;
  core->close();
  if (!core->detector_ || !core->detector_->forwards()) return;
  best_effort([&] {
    EventLoop& loop = core->loop_;
    SessionCore& kept = *core;
    loop.keep(std::move(core));
    kept.forwarding_ = true;
    kept.check_forwarding_in(forwarding_check_ms);
  });
}

/// Other ranks may stop needing this rank when a fault arrives: the handler of faults then checks
/// at once. They may also stop needing it when a connection closes without a fault; only a check
/// from time to time finds that. Without memory for the timer, forwarding ends.
void SessionCore::check_forwarding_in(std::int64_t ms) noexcept {
  const Status status = status_of_call([&]() -> Status {
    forwarding_check_ = loop_.after_ms(ms, [this] {
      if (detector_->forwards()) return check_forwarding_in(forwarding_check_ms);
      loop_.release(this);
    });
    return {};
  });
  if (!status.ok()) loop_.release(this);
}

}  // namespace hocket::internal
