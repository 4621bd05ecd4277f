#include "bootstrap/session_core.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/limits.h"
#include "bootstrap/net/address.h"

namespace hocket::internal {
namespace {

constexpr std::int64_t linger_check_ms = 100;

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
    return options.root.port != 0 ? Status() : invalid_argument("the root's address has no port");
  }
  const char* remedy = "start all ranks with hocket-run, which gives them one key";
  if (!options.share_memory) {
    return invalid_usage(
        fmt::format("ranks without a job key meet over shared memory only, and it is switched off "
                    "(HOCKET_TRANSPORT); {}",
                    remedy));
  }
  if (options.root.port != 0 && !is_own(options.root)) {
    return invalid_usage(
        fmt::format("the root at {} is on another host, and without a job key only ranks of one "
                    "user on one host may meet; {}",
                    options.root.text(), remedy));
  }
  return {};
}

std::string host_name() {
  char name[host_cap + 1] = {};
  return ::gethostname(name, host_cap) == 0 ? std::string(name) : std::string("unknown host");
}

}  // namespace

SessionCore::SessionCore(const JoinOptions& options, EventLoopRef lease)
    : options_(options),
      lease_(std::move(lease)),
      descriptors_(*lease_, faults_, options.rank),
      data_(*lease_, options.rank, std::max<std::int64_t>(options.silence_ms, 5000)) {}

SessionCore::~SessionCore() {
  descriptors_.close(status_of_call([] { return internal_error("the session has ended"); }));
  data_.close();
}

Status SessionCore::make(const JoinOptions& options, std::shared_ptr<SessionCore>* out) {
  HOCKET_RETURN_IF_ERROR(check(options));
  EventLoopRef lease;
  HOCKET_RETURN_IF_ERROR(EventLoopRef::take(&lease));
  std::shared_ptr<SessionCore> core(new SessionCore(options, std::move(lease)));
  HOCKET_RETURN_IF_ERROR(core->open_listener());
  JoinRequest& self = core->self_;  // open_listener() has filled in the address
  self.rank = options.rank;
  self.ranks = options.ranks;
  self.pid = static_cast<int>(::getpid());
  self.process = process_number();
  self.host = host_name();
  self.machine = options.machine;
  self.cores = options.cores;
  *out = std::move(core);
  return {};
}

Status SessionCore::open_listener() {
  Address& address = self_.address;
  if (!options_.has_key) {
    address = loopback(false);  // whoever may meet without a key is on this host
  } else if (!options_.interface.empty()) {
    HOCKET_RETURN_IF_ERROR(interface_address(options_.interface, options_.root.v6, &address));
    if (is_link_local(options_.root) && options_.root.scope == 0) {
      options_.root.scope = address.scope;
    }
  } else {
    HOCKET_RETURN_IF_ERROR(address_towards(options_.root, &address));
  }
  address.port = 0;
  return listen_tcp(&address, &listener_);
}

void SessionCore::start() noexcept {
  const Status status = status_of_call([this]() -> Status {
    lease_->add(this);
    start_joining();
    return {};
  });
  if (!status.ok()) end_join(status);
}

void SessionCore::start_joining() {
  JoinProtocol::Handlers handlers;
  handlers.table_known = [this](const Key& key) { return table_known(key); };
  handlers.joined = [this](JoinResult joined) { this->joined(std::move(joined)); };
  handlers.failed = [this](const Status& status) { end_join(status); };
  joining_ = std::make_shared<JoinProtocol>(*lease_, options_, self_, std::move(handlers));
  if (options_.has_key) accept_tcp({options_.key, options_.job_id, false});
  joining_->start();
}

void SessionCore::accept_tcp(const Credentials& credentials) {
  data_.start(credentials);
  acceptor_ = std::make_unique<Acceptor>(
      *lease_, std::move(listener_), credentials,
      [this](const Claim& claim) {
        if (claim.rank < 0 || claim.rank >= options_.ranks) return Verdict::refused;
        if (claim.purpose == Purpose::data) return data_.judge(claim);
        if (claim.purpose == Purpose::tree && joining_) return joining_->judge_tree(claim);
        return Verdict::refused;
      },
      [this](const Claim& claim, UniqueFd fd) {
        if (claim.purpose == Purpose::data) {
          data_.accept(claim, std::move(fd));
        } else if (joining_) {
          joining_->accept_tree(claim, std::move(fd));
        }
      });
}

/// The key for everything after the join is known now; local peers may ask as soon as they have it.
Status SessionCore::table_known(const Key& key) {
  const Credentials credentials{key, options_.job_id, false};
  if (!acceptor_) accept_tcp(credentials);
  if (!options_.share_memory) return {};
  UniqueFd listener;
  bool taken = false;
  HOCKET_RETURN_IF_ERROR(
      listen_unix(socket_name(credentials, "descriptors", options_.rank), &listener, &taken));
  descriptors_.serve(std::move(listener), credentials,
                     std::max<std::int64_t>(options_.silence_ms, 5000));
  return {};
}

void SessionCore::joined(JoinResult joined) {
  faults_.prepare_own_failure(
      {Fault::Kind::failed, options_.rank, 0, 0, Code::system_error,
       fmt::format("rank {} (process {} on {}) cannot go on: {}", options_.rank, self_.pid,
                   self_.host, out_of_memory().message())});
  control_ =
      std::make_unique<FailureDetector>(*lease_, options_.rank, options_.silence_ms,
                                        std::move(joined), faults_, [this](const Fault& fault) {
                                          // Whoever returns from a wait for a descriptor must
                                          // find the communicator's engine alerted already.
                                          faults_.wake_all();
                                          descriptors_.new_fault(fault);
                                          if (lingering_) static_cast<void>(linger_soon(0));
                                        });
  control_->start();
  exit_task_ = lease_->on_exit([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->say_exit();
  });
  end_join({});
}

void SessionCore::end_join(const Status& status) noexcept {
  // JoinProtocol calls this: it may go only when it has returned.
  best_effort([this] {
    lease_->post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->joining_.reset();
    });
  });
  std::lock_guard lock(mutex_);
  if (join_done_) return;
  join_done_ = true;
  join_status_ = status;
  join_ended_.notify_all();
}

Status SessionCore::wait_joined() {
  std::unique_lock lock(mutex_);
  join_ended_.wait(lock, [&] { return join_done_; });
  return join_status_;
}

void SessionCore::stop_join() {
  std::weak_ptr<SessionCore> weak = weak_from_this();
  lease_->post([weak] {
    const auto self = weak.lock();
    if (self && self->joining_) self->joining_->stop();
  });
}

/// Memory is out in this process. The own threads learn of it without any; the other ranks as soon
/// as there is a little.
bool SessionCore::fail(const Status& why) {
  bool joining;
  {
    std::lock_guard lock(mutex_);
    joining = !join_done_;
  }
  if (joining) {
    if (joining_) joining_->give_up(why);
    end_join(why);
    return true;
  }
  if (!control_) return true;
  if (faults_.add_own_failure()) {
    descriptors_.fail_all(why);
    faults_.wake_all();
  }
  control_->publish(faults_.own_failure());
  return true;
}

void SessionCore::leave() {
  if (control_) control_->leave();
}

void SessionCore::say_exit() {
  if (control_) control_->say_exit();
}

void SessionCore::dial(int peer, std::uint64_t comm_id, int index) {
  Address address = members()[peer].address;
  if (is_link_local(address)) address.scope = self_.address.scope;
  data_.dial(peer, address, comm_id, index);
}

void SessionCore::finish() noexcept {
  lease_->remove(this);
  lease_->cancel_exit(exit_task_);
  best_effort([this] { leave(); });
  acceptor_.reset();
  joining_.reset();
  data_.close();
  descriptors_.close(status_of_call(
      [] { return invalid_usage("the session was closed while a thread waited in it"); }));
  linger();
}

void SessionCore::linger() noexcept {
  if (control_ && control_->carries()) {
    lingering_ = true;
    if (linger_soon(linger_check_ms)) return;
  }
  control_.reset();
  lease_.release();
}

/// A fault may have been the last goodbye that this rank had to carry; a connection that closes
/// without one is found by looking from time to time. False where there is no memory for it.
bool SessionCore::linger_soon(std::int64_t ms) noexcept {
  std::shared_ptr<SessionCore> self =
      shared_from_this();  // the old timer may be the last that holds it
  lease_->cancel(linger_timer_);
  linger_timer_ = 0;
  best_effort([&] { linger_timer_ = lease_->after_ms(ms, [self] { self->linger(); }); });
  return linger_timer_ != 0;
}

}  // namespace hocket::internal
