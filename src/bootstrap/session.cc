#include "bootstrap/session.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/descriptors.h"
#include "bootstrap/join/coordinator.h"
#include "bootstrap/join/end_report.h"
#include "bootstrap/net/address.h"
#include "bootstrap/session_core.h"

namespace hocket::internal {
namespace {

constexpr std::int64_t answer_latecomers_ms = 60'000;

/// One thread waits until another one has finished.
class Completion {
 public:
  void finish() {
    std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();  // under the lock: the waiting thread destroys this object
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
  }
  /// Returns false if the deadline passes first.
  bool wait_until(Nanos deadline) {
    const auto until = std::chrono::steady_clock::time_point(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
            std::chrono::nanoseconds(deadline)));
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, until, [&] { return done_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

}  // namespace

Session::Session(std::shared_ptr<SessionCore> core, MonitorRef monitor)
    : monitor_(std::move(monitor)), core_(std::move(core)) {}

Session::~Session() {
  if (inherited()) {
    abandon(std::move(core_));
    return;
  }
  // monitor_ outlives the core, so that the monitor thread ends in this thread and not in itself.
  monitor_->run([this] { SessionCore::finish(std::move(core_)); });
}

/// Runs function(core) on the monitor thread.
template <typename Function>
void Session::post(Function function) {
  monitor_->post([core = core_, function = std::move(function)]() mutable { function(*core); });
}

/// The same, also if there is no memory.
template <typename Function>
void Session::post_or_run(Function function) noexcept {
  const Status posted = status_of_call([&]() -> Status {
    post(function);
    return {};
  });
  if (!posted.ok()) best_effort([&] { monitor_->run([&] { function(*core_); }); });
}

Status Session::join(const JoinOptions& options, std::shared_ptr<Session>* out) {
  MonitorRef monitor;
  HOCKET_RETURN_IF_ERROR(MonitorRef::take(&monitor));
  std::shared_ptr<SessionCore> core;
  HOCKET_RETURN_IF_ERROR(SessionCore::make(options, *monitor, &core));
  // From here on the core ends on the monitor thread, whatever fails.
  std::shared_ptr<Session> session(new Session(std::move(core), std::move(monitor)));
  Completion ended;
  Status joined;
  session->post([&](SessionCore& starting) {
    starting.start([&](const Status& status) {
      joined = status;
      ended.finish();
    });
  });
  {
    const StopRequest::Scope scope(
        options.stop, [&] { session->post([](SessionCore& joining) { joining.stop_join(); }); });
    ended.wait();
  }
  if (joined.ok()) *out = std::move(session);
  return joined;
}

/// In a forked child the session is the parent's.
bool Session::inherited() const { return generation_ != session_generation(); }

Status Session::forked() {
  return invalid_usage(
      "this session belongs to the process that forked this one: join anew after a fork");
}

int Session::rank() const { return core_->rank(); }
int Session::ranks() const { return static_cast<int>(core_->members().size()); }
const std::vector<Member>& Session::members() const { return core_->members(); }

// ---- Faults

std::uint64_t Session::fault_count() const { return core_->faults().count(); }
std::vector<Fault> Session::faults() const { return core_->faults().all(); }

std::vector<Fault> Session::faults_since(const FaultScope& scope, std::uint64_t* position) const {
  return core_->faults().since(scope, position);
}

void Session::open(std::uint64_t comm_id) {
  if (!inherited()) core_->faults().open(comm_id);
}

void Session::close(std::uint64_t comm_id) noexcept {
  if (inherited()) return;
  core_->faults().close(comm_id);
  post_or_run([comm_id](SessionCore& core) { core.descriptors().close_space(comm_id); });
}

void Session::report(const Fault& fault) {
  if (inherited()) return;
  monitor_->run([&] { core_->raise(fault); });
}

int Session::watch(std::function<void()> wake) { return core_->faults().watch(std::move(wake)); }

void Session::unwatch(int token) noexcept {
  if (!inherited()) core_->faults().unwatch(token);
}

// ---- Descriptors for local peers

Status Session::offer(DescriptorName name, int fd) {
  if (inherited()) return forked();
  UniqueFd copy(open_with_room([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); }));
  if (!copy) return system_error("cannot offer a file descriptor");
  post([name, copy = std::move(copy)](SessionCore& core) mutable {
    core.descriptors().offer(name, std::move(copy));
  });
  return {};
}

void Session::withdraw(DescriptorName name) {
  if (inherited()) return;
  post([name](SessionCore& core) { core.descriptors().withdraw(name); });
}

Status Session::post_fetch(int peer, const FaultScope& scope, DescriptorName name,
                           std::function<void(const Fetch&)> ended, std::shared_ptr<Fetch>* fetch) {
  if (inherited()) return forked();
  if (peer < 0 || peer >= ranks() || !local(peer) || peer == rank()) {
    return invalid_usage(fmt::format("rank {} is not a local peer of rank {}", peer, rank()));
  }
  *fetch = std::make_shared<Fetch>(peer, scope, name, std::move(ended));
  post([request = *fetch](SessionCore& core) {
    const Status status = status_of_call([&]() -> Status {
      core.descriptors().fetch(request);
      return {};
    });
    if (status.ok()) return;
    core.descriptors().forget(request);
    request->finish(status, {});
  });
  return {};
}

void Session::forget(const std::shared_ptr<Fetch>& fetch) noexcept {
  fetch->disregard();
  if (inherited() || fetch->done()) return;
  post_or_run([fetch](SessionCore& core) { core.descriptors().forget(fetch); });
}

Status Session::fetch(int peer, const FaultScope& scope, DescriptorName name, Nanos deadline,
                      UniqueFd* fd) {
  Completion ended;
  std::shared_ptr<Fetch> request;
  HOCKET_RETURN_IF_ERROR(post_fetch(
      peer, scope, name, [&](const Fetch&) { ended.finish(); }, &request));
  const bool in_time = ended.wait_until(deadline);
  forget(request);
  if (in_time || request->done()) return request->take(fd);
  const Member& member = members()[peer];
  return {
      Code::timeout,
      fmt::format("rank {} (process {} on {}) has not offered its memory by the deadline: it is "
                  "late, or in another call",
                  peer, member.pid, member.host),
      peer};
}

// ---- Data connections

void Session::listen(std::uint64_t comm_id, AdoptConnection adopt) {
  if (inherited()) return;
  core_->data().set_listener(comm_id, std::move(adopt));
  post([comm_id](SessionCore& core) { core.data().opened(comm_id); });
}

void Session::unlisten(std::uint64_t comm_id) noexcept {
  if (inherited()) return;
  core_->data().clear_listener(comm_id);
  post_or_run([comm_id](SessionCore& core) { core.data().closed(comm_id); });
}

void Session::dial(int peer, std::uint64_t comm_id, int index) {
  if (inherited() || peer < 0 || peer >= ranks() || peer == rank()) return;
  post([peer, comm_id, index](SessionCore& core) { core.dial(peer, comm_id, index); });
}

Session::Held Session::held() const {
  Held out;
  monitor_->run([&] {
    out.faults = core_->faults().size();
    out.closed_comm_ids = core_->data().retired();
    out.data = core_->data().records();
    out.offered = core_->descriptors().offered();
    out.wanted = core_->descriptors().wanted();
    out.requests = core_->descriptors().requests();
  });
  return out;
}

// ---- Coordinators

namespace {

/// A coordinator that its event loop owns.
struct KeptCoordinator {
  std::unique_ptr<Coordinator> coordinator;
  std::shared_ptr<void> until_all_know;
  Timer latecomers;
};

Status prepare_listener(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return system_error("cannot use the coordinator's listener");
  }
  return {};
}

/// Runs task(loop) on the monitor thread and returns its error.
Status run_on_monitor(const std::function<void(EventLoop& loop)>& task) {
  MonitorRef monitor;
  HOCKET_RETURN_IF_ERROR(MonitorRef::take(&monitor));
  Status status;
  monitor->run([&] {
    status = status_of_call([&]() -> Status {
      task(*monitor);
      return {};
    });
  });
  return status;
}

}  // namespace

Status start_coordinator(const Key& key, const JobId& job_id, const std::string& interface,
                         UniqueFd listener, Address* address, std::int64_t deadline_ms,
                         std::shared_ptr<void> until_all_know) {
  Address own;
  if (listener) {
    HOCKET_RETURN_IF_ERROR(prepare_listener(listener.get()));
    HOCKET_RETURN_IF_ERROR(own_address(listener.get(), &own));
  } else {
    if (interface.empty()) {
      own = default_address();
    } else {
      HOCKET_RETURN_IF_ERROR(interface_address(interface, false, &own));
    }
    own.port = 0;
    HOCKET_RETURN_IF_ERROR(listen_tcp(&own, &listener));
  }
  HOCKET_RETURN_IF_ERROR(run_on_monitor([&](EventLoop& loop) {
    const auto kept = std::make_shared<KeptCoordinator>();
    kept->until_all_know = std::move(until_all_know);
    kept->coordinator = Coordinator::start(loop, Key{}, deadline_ms, [&loop, self = kept.get()] {
      self->until_all_know.reset();
      best_effort([&] {
        self->latecomers =
            loop.after_ms(answer_latecomers_ms, [&loop, self] { loop.release(self); });
      });
      loop.let_loop_end(self);
    });
    kept->coordinator->listen(std::move(listener), {key, job_id, false});
    loop.keep(kept);
  }));
  *address = own;
  return {};
}

Status report_end(const Key& key, const JobId& job_id, const Address& coordinator, int culprit,
                  const std::string& text) {
  return run_on_monitor([&](EventLoop& loop) {
    // With TLS, because this process does not know whether the ranks use it.
    const Credentials credentials{key, job_id, false, true};
    const auto report = std::make_shared<EndReport>(loop, credentials, coordinator,
                                                    Failure{Code::remote_error, culprit, text});
    report->start();
    loop.keep(report);
  });
}

Status refuse_joins(const Key& key, const JobId& job_id, UniqueFd listener, int culprit,
                    const std::string& text) {
  HOCKET_RETURN_IF_ERROR(prepare_listener(listener.get()));
  return run_on_monitor([&](EventLoop& loop) {
    const auto kept = std::make_shared<KeptCoordinator>();
    kept->coordinator = Coordinator::start(loop, Key{}, 0, nullptr);  // it fails at once
    kept->coordinator->listen(std::move(listener), {key, job_id, false});
    kept->coordinator->fail(Code::remote_error, culprit, text);
    loop.keep(kept);
  });
}

}  // namespace hocket::internal
