#include "bootstrap/session.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <chrono>

#include "base/descriptors.h"
#include "bootstrap/address.h"
#include "bootstrap/core.h"
#include "bootstrap/root.h"

namespace hocket {
namespace {

constexpr std::int64_t root_linger_ms = 60'000;
constexpr std::int64_t forever_ms = std::int64_t{1} << 40;  // 34 years

class CoreSession final : public Session {
 public:
  CoreSession(std::shared_ptr<Core> core, MonitorLease lease)
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

  CoreSet cores_of(int peer) const override { return core_->cores_of(peer); }

  std::vector<Fault> faults() const override { return core_->faults().all(); }

  void report(const Fault& fault) override {
    if (inherited() || !core_->faults().add(fault)) return;
    post([fault](Core& core) { core.publish(fault); });
  }

  int watch(std::function<void()> wake) override { return core_->faults().watch(std::move(wake)); }
  void unwatch(int token) override {
    if (!inherited()) core_->faults().unwatch(token);
  }

  Status offer(DescriptorName name, int fd) override {
    if (inherited()) return forked();
    UniqueFd copy(open_with_room([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); }));
    if (!copy) return system_error("cannot offer a file descriptor");
    // std::function wants to copy what it holds.
    auto shared = std::make_shared<UniqueFd>(std::move(copy));
    post([name, shared](Core& core) { core.descriptors().offer(name, std::move(*shared)); });
    return {};
  }

  void withdraw(DescriptorName name) override {
    if (inherited()) return;
    post([name](Core& core) { core.descriptors().withdraw(name); });
  }

  Status fetch(int peer, std::uint64_t channel, DescriptorName name, Nanos deadline,
               UniqueFd* fd) override;

  void listen(std::uint64_t channel, Adopt adopt) override {
    if (inherited()) return;
    core_->data().set_listener(channel, std::move(adopt));
    post([channel](Core& core) { core.data().opened(channel); });
  }

  void unlisten(std::uint64_t channel) override {
    if (inherited()) return;
    core_->data().clear_listener(channel);
    post([channel](Core& core) { core.data().closed(channel); });
  }

  void dial(int peer, std::uint64_t channel, int index) override {
    if (inherited() || peer < 0 || peer >= ranks() || peer == rank()) return;
    post([peer, channel, index](Core& core) { core.dial(peer, channel, index); });
  }

  void leave() override {
    if (inherited()) return;
    lease_->run([this] { core_->leave(); });
  }

 private:
  template <typename Task>
  void post(Task task) {
    lease_->post([core = std::weak_ptr<Core>(core_), task] {
      if (const auto alive = core.lock()) task(*alive);
    });
  }
  /// In a forked child the session is the parent's.
  bool inherited() const { return core_->generation() != session_generation(); }
  static Status forked() {
    return invalid_usage(
        "this session belongs to the process that forked this one: join anew after a fork");
  }

  MonitorLease lease_;
  std::shared_ptr<Core> core_;
};

Status CoreSession::fetch(int peer, std::uint64_t channel, DescriptorName name, Nanos deadline,
                          UniqueFd* fd) {
  if (inherited()) return forked();
  if (peer < 0 || peer >= ranks() || !local(peer) || peer == rank()) {
    return invalid_usage(fmt::format("rank {} is not a local peer of rank {}", peer, rank()));
  }
  auto request = std::make_shared<Descriptors::Request>();
  request->peer = peer;
  request->channel = channel;
  request->name = name;
  post([request](Core& core) {
    const Status status = status_of_call([&]() -> Status {
      core.descriptors().fetch(request);
      return {};
    });
    if (!status.ok()) request->end(status, {});
  });
  const auto until = std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::nanoseconds(deadline)));
  std::unique_lock lock(request->mutex);
  if (request->ended.wait_until(lock, until, [&] { return request->done; })) {
    *fd = std::move(request->fd);
    return request->status;
  }
  lock.unlock();
  post([request](Core& core) { core.descriptors().forget(request); });
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
  MonitorLease lease;
  HOCKET_RETURN_IF_ERROR(MonitorLease::take(&lease));
  std::shared_ptr<Core> core;
  HOCKET_RETURN_IF_ERROR(Core::make(options, &core));
  lease->post([core] { core->start(); });
  Status status;
  {
    const StopRequest::Scope scope(options.stop, [&core] { core->stop_join(); });
    status = core->wait_joined();
  }
  if (!status.ok()) {
    lease->run([&core] {
      core->finish();
      core.reset();
    });
    return status;
  }
  *out = std::make_shared<CoreSession>(std::move(core), std::move(lease));
  return {};
}

Status start_root(const Key& key, const JobId& job_id, const std::string& interface,
                  UniqueFd listener, Address* root, std::int64_t deadline_ms) {
  Address address;
  if (listener) {
    const int flags = ::fcntl(listener.get(), F_GETFL);
    if (flags < 0 || ::fcntl(listener.get(), F_SETFL, flags | O_NONBLOCK) != 0 ||
        ::fcntl(listener.get(), F_SETFD, FD_CLOEXEC) != 0) {
      return system_error("cannot use the root's listener");
    }
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
  MonitorLease taken;
  HOCKET_RETURN_IF_ERROR(MonitorLease::take(&taken));
  auto lease = std::make_shared<MonitorLease>(std::move(taken));
  const Credentials credentials{key, job_id, false};
  const std::shared_ptr<Monitor> monitor = lease->monitor();
  const auto start = [&]() -> Status {
    // Held by its timer: until the join has ended and, where it failed, the latecomers know; and
    // then a while for those who come after all, which does not keep the thread running.
    auto holder = std::make_shared<Monitor::Token>(0);
    auto root_of = std::make_shared<std::weak_ptr<Root>>();
    const std::shared_ptr<Root> root =
        Root::start(*monitor, credentials.key, deadline_ms, [monitor, lease, holder, root_of] {
          const auto alive = root_of->lock();
          monitor->cancel(*holder);
          best_effort([&] { monitor->after_ms(root_linger_ms, [alive] {}); });
          lease->release();
        });
    *root_of = root;
    root->listen(std::move(listener), credentials);
    *holder = monitor->after_ms(forever_ms, [root] {});
    return {};
  };
  Status started;
  monitor->run([&] { started = status_of_call(start); });
  if (started.ok()) *root = address;
  return started;
}

}  // namespace hocket
