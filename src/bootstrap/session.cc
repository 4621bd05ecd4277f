#include "bootstrap/session.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>

#include "base/descriptors.h"
#include "bootstrap/join/coordinator.h"
#include "bootstrap/net/address.h"
#include "bootstrap/session_core.h"

namespace hocket::internal {
namespace {

constexpr std::int64_t root_linger_ms = 60'000;
constexpr std::int64_t forever_ms = std::int64_t{1} << 40;  // 34 years

class CoreSession final : public Session {
 public:
  CoreSession(std::shared_ptr<SessionCore> core, EventLoopRef lease)
      : lease_(std::move(lease)), core_(std::move(core)) {}

  ~CoreSession() override {
    if (inherited()) {
      abandon(std::move(core_));
      return;
    }
    lease_->run([this] {
      core_->finish();
      core_.reset();
    });
  }

  int rank() const override { return core_->rank(); }
  int ranks() const override { return static_cast<int>(core_->members().size()); }
  const std::vector<Member>& members() const override { return core_->members(); }

  std::uint64_t fault_count() const override { return core_->faults().count(); }
  std::vector<Fault> faults() const override { return core_->faults().all(); }

  std::vector<Fault> faults_since(const FaultScope& scope, std::uint64_t* position) const override {
    return core_->faults().since(scope, position);
  }
  void open(std::uint64_t comm_id) override {
    if (!inherited()) core_->faults().open(comm_id);
  }
  void close(std::uint64_t comm_id) noexcept override {
    if (inherited()) return;
    core_->faults().close(comm_id);
    post_or_run([comm_id](SessionCore& core) { core.descriptors().close_space(comm_id); });
  }

  void report(const Fault& fault) override {
    if (inherited()) return;
    lease_->run([&] { core_->raise(fault); });
  }

  int watch(std::function<void()> wake) override { return core_->faults().watch(std::move(wake)); }
  void unwatch(int token) noexcept override {
    if (!inherited()) core_->faults().unwatch(token);
  }

  Status offer(DescriptorName name, int fd) override {
    if (inherited()) return forked();
    UniqueFd copy(open_with_room([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); }));
    if (!copy) return system_error("cannot offer a file descriptor");
    // std::function wants to copy what it holds.
    auto shared = std::make_shared<UniqueFd>(std::move(copy));
    post([name, shared](SessionCore& core) { core.descriptors().offer(name, std::move(*shared)); });
    return {};
  }

  void withdraw(DescriptorName name) override {
    if (inherited()) return;
    post([name](SessionCore& core) { core.descriptors().withdraw(name); });
  }

  Status fetch(int peer, const FaultScope& scope, DescriptorName name, Nanos deadline,
               UniqueFd* fd) override;
  Status post_fetch(int peer, const FaultScope& scope, DescriptorName name,
                    std::function<void(const Fetch&)> ended,
                    std::shared_ptr<Fetch>* fetch) override;
  void forget(const std::shared_ptr<Fetch>& fetch) noexcept override;

  void listen(std::uint64_t comm_id, AdoptConnection adopt) override {
    if (inherited()) return;
    core_->data().set_listener(comm_id, std::move(adopt));
    post([comm_id](SessionCore& core) { core.data().opened(comm_id); });
  }

  void unlisten(std::uint64_t comm_id) noexcept override {
    if (inherited()) return;
    core_->data().clear_listener(comm_id);
    post_or_run([comm_id](SessionCore& core) { core.data().closed(comm_id); });
  }

  void dial(int peer, std::uint64_t comm_id, int index) override {
    if (inherited() || peer < 0 || peer >= ranks() || peer == rank()) return;
    post([peer, comm_id, index](SessionCore& core) { core.dial(peer, comm_id, index); });
  }

  void leave() override {
    if (inherited()) return;
    lease_->run([this] { core_->leave(); });
  }

  Held held() const override {
    Held out;
    lease_->run([&] {
      out.faults = core_->faults().size();
      out.closed_channels = core_->data().retired();
      out.data = core_->data().records();
      out.offered = core_->descriptors().offered();
      out.wanted = core_->descriptors().wanted();
      out.requests = core_->descriptors().requests();
    });
    return out;
  }

 private:
  template <typename Task>
  void post(Task task) {
    lease_->post([core = std::weak_ptr<SessionCore>(core_), task] {
      if (const auto alive = core.lock()) task(*alive);
    });
  }
  /// The same for what a destructor ends: where there is no memory to post it, waits for it.
  template <typename Task>
  void post_or_run(Task task) noexcept {
    const Status posted = status_of_call([&]() -> Status {
      post(task);
      return {};
    });
    if (!posted.ok()) best_effort([&] { lease_->run([&] { task(*core_); }); });
  }
  /// In a forked child the session is the parent's.
  bool inherited() const { return core_->generation() != session_generation(); }
  static Status forked() {
    return invalid_usage(
        "this session belongs to the process that forked this one: join anew after a fork");
  }

  EventLoopRef lease_;
  std::shared_ptr<SessionCore> core_;
};

Status CoreSession::post_fetch(int peer, const FaultScope& scope, DescriptorName name,
                               std::function<void(const Fetch&)> ended,
                               std::shared_ptr<Fetch>* fetch) {
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

void CoreSession::forget(const std::shared_ptr<Fetch>& fetch) noexcept {
  fetch->disregard();
  if (inherited() || fetch->done()) return;
  post_or_run([fetch](SessionCore& core) { core.descriptors().forget(fetch); });
}

Status CoreSession::fetch(int peer, const FaultScope& scope, DescriptorName name, Nanos deadline,
                          UniqueFd* fd) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::shared_ptr<Fetch> request;
  const auto ended = [&](const Fetch&) {
    std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  };
  HOCKET_RETURN_IF_ERROR(post_fetch(peer, scope, name, ended, &request));
  const auto until = std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::nanoseconds(deadline)));
  bool in_time = false;
  {
    std::unique_lock lock(mutex);
    in_time = changed.wait_until(lock, until, [&] { return done; });
  }
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

}  // namespace

Status Session::join(const JoinOptions& options, std::shared_ptr<Session>* out) {
  // A lease of its own outlives the core, so that the thread ends in the thread that closes the
  // last session and not in itself.
  EventLoopRef lease;
  HOCKET_RETURN_IF_ERROR(EventLoopRef::take(&lease));
  std::shared_ptr<SessionCore> made;
  HOCKET_RETURN_IF_ERROR(SessionCore::make(options, &made));
  SessionCore& core = *made;
  // From here on the core ends on the monitor thread, whatever fails.
  auto session = std::make_shared<CoreSession>(std::move(made), std::move(lease));
  core.loop().post([joining = core.shared_from_this()] { joining->start(); });
  {
    const StopRequest::Scope scope(options.stop, [&core] { core.stop_join(); });
    HOCKET_RETURN_IF_ERROR(core.wait_joined());
  }
  *out = std::move(session);
  return {};
}

namespace {

Status prepare_listener(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return system_error("cannot use the root's listener");
  }
  return {};
}

}  // namespace

Status start_coordinator(const Key& key, const JobId& job_id, const std::string& interface,
                         UniqueFd listener, Address* root, std::int64_t deadline_ms) {
  Address address;
  if (listener) {
    HOCKET_RETURN_IF_ERROR(prepare_listener(listener.get()));
    HOCKET_RETURN_IF_ERROR(own_address(listener.get(), &address));
  } else {
    if (interface.empty()) {
      address = default_address();
    } else {
      HOCKET_RETURN_IF_ERROR(interface_address(interface, false, &address));
    }
    address.port = 0;
    HOCKET_RETURN_IF_ERROR(listen_tcp(&address, &listener));
  }
  EventLoopRef taken;
  HOCKET_RETURN_IF_ERROR(EventLoopRef::take(&taken));
  auto lease = std::make_shared<EventLoopRef>(std::move(taken));
  const Credentials credentials{key, job_id, false};
  const std::shared_ptr<EventLoop> loop = lease->loop();
  const auto start = [&]() -> Status {
    // Held by its timer: until the join has ended and, where it failed, the latecomers know; and
    // then a while for those who come after all, which does not keep the thread running.
    auto holder = std::make_shared<EventLoop::Token>(0);
    auto root_of = std::make_shared<std::weak_ptr<Coordinator>>();
    const std::shared_ptr<Coordinator> root =
        Coordinator::start(*loop, credentials.key, deadline_ms, [loop, lease, holder, root_of] {
          const auto alive = root_of->lock();
          loop->cancel(*holder);
          best_effort([&] { loop->after_ms(root_linger_ms, [alive] {}); });
          lease->release();
        });
    *root_of = root;
    root->listen(std::move(listener), credentials);
    *holder = loop->after_ms(forever_ms, [root] {});
    return {};
  };
  Status started;
  loop->run([&] { started = status_of_call(start); });
  if (started.ok()) *root = address;
  return started;
}

Status refuse_joins(const Key& key, const JobId& job_id, UniqueFd listener, int culprit,
                    const std::string& text) {
  HOCKET_RETURN_IF_ERROR(prepare_listener(listener.get()));
  EventLoopRef taken;
  HOCKET_RETURN_IF_ERROR(EventLoopRef::take(&taken));
  auto lease = std::make_shared<EventLoopRef>(std::move(taken));
  auto socket = std::make_shared<UniqueFd>(std::move(listener));
  const Credentials credentials{key, job_id, false};
  const std::shared_ptr<EventLoop> loop = lease->loop();
  loop->post([loop, lease, socket, credentials, culprit, text] {
    const std::shared_ptr<Coordinator> root =
        Coordinator::start(*loop, credentials.key, forever_ms, [] {});
    root->listen(std::move(*socket), credentials);
    root->fail(Code::remote_error, culprit, text);
    loop->after_ms(forever_ms, [root, lease] {});
  });
  return {};
}

}  // namespace hocket::internal
