#include "agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/settings.h"
#include "bootstrap/join/launch.h"
#include "coordinator_listener.h"
#include "descendants.h"
#include "host.h"

namespace hocket::internal::launch {
namespace {
constexpr Nanos grace = 2 * nanos_per_s;  // between TERM and KILL
constexpr std::size_t most_pending = 1 << 20;
// Lowest number of a descriptor that a rank inherits; shell scripts use the numbers below 10.
constexpr int lowest_inherited = 64;

constexpr const char* invalid_message =
    "the agent received an invalid message; install the same release of hocket on all hosts";

constexpr unsigned long files_of_agent = 32;
constexpr unsigned long files_per_rank = 3;  // the read ends of its pipes

Status check_file_limit(int ranks) {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return system_error("cannot read the file limit");
  const unsigned long needed = std::max<unsigned long>(
      lowest_inherited + 2, files_of_agent + files_per_rank * static_cast<unsigned long>(ranks));
  if (limit.rlim_cur >= needed) return {};
  return Status(
      Code::system_error,
      fmt::format(
          "hocket-run needs {} open files here, and the limit is {}; raise it "
          "with `ulimit -n {}` before the start (if the hard limit forbids that, as root or "
          "in /etc/security/limits.conf)",
          needed, limit.rlim_cur, std::max(needed, 1024ul)));
}

Status to_high_number(UniqueFd* fd) {
  UniqueFd high(::fcntl(fd->get(), F_DUPFD_CLOEXEC, lowest_inherited));
  if (!high) return system_error("cannot duplicate a descriptor for a rank");
  *fd = std::move(high);
  return {};
}
}  // namespace

Agent::Agent(Stream launcher, UniqueFd signals, unsigned long file_limit)
    : launcher_(std::move(launcher)), signals_(std::move(signals)), file_limit_(file_limit) {}

void Agent::greet() {
  Hello hello;
  hello.pid = ::getpid();
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  hello.host = name;
  if (const char* connection = std::getenv("SSH_CONNECTION")) hello.ssh_connection = connection;
  launcher_.write_greeting();
  launcher_.send(Type::hello, hello.encode());
}

void Agent::run() {
  greet();
  while (!over_) {
    if (!launcher_gone_ && !launcher_.flush()) launcher_gone_ = true;
    if (launcher_gone_) end_ranks(0);
    keep_time();
    if (all_done()) return finish();
    wait_for_events();
  }
}

bool Agent::all_done() {
  if ((!started_ && !launcher_gone_) || running_ != 0) return false;
  if (!swept_) kill_descendants(5 * nanos_per_s);
  swept_ = true;
  return !listener_needed_;
}

bool Agent::launcher_listens() const {
  return launcher_gone_ || launcher_.pending() < most_pending;
}

int Agent::poll_timeout_ms() const {
  Nanos next = 0;
  const auto consider = [&](Nanos at) {
    if (at != 0 && (next == 0 || at < next)) next = at;
  };
  consider(term_at_ != 0 ? term_at_ : kill_at_);
  for (const RankProcess& rank : ranks_) {
    for (const Relay& relay : rank.relay) consider(relay.flush_at());
  }
  if (next == 0) return -1;
  return static_cast<int>(
      std::clamp<Nanos>((next - monotonic_now()) / nanos_per_ms + 1, 0, 60'000));
}

void Agent::wait_for_events() {
  std::vector<pollfd> events;
  events.push_back({signals_.get(), POLLIN, 0});
  events.push_back({launcher_gone_ ? -1 : launcher_.in(), POLLIN, 0});
  const bool to_write = !launcher_gone_ && launcher_.pending() != 0;
  events.push_back({to_write ? launcher_.out() : -1, POLLOUT, 0});
  const bool to_feed = !ranks_.empty() && ranks_[0].input && !input_.empty();
  events.push_back({to_feed ? ranks_[0].input.get() : -1, POLLOUT, 0});
  events.push_back({rank_0_end_.empty() ? -1 : listener_.get(), POLLIN, 0});
  const std::size_t first = events.size();
  for (const RankProcess& rank : ranks_) {
    for (const UniqueFd& output : rank.output) {
      events.push_back({launcher_listens() ? output.get() : -1, POLLIN, 0});
    }
  }
  if (::poll(events.data(), events.size(), poll_timeout_ms()) < 0) return;

  // Send the output of a rank before the message that it has ended.
  for (std::size_t i = first; i < events.size(); ++i) {
    if (events[i].revents != 0) read_output(ranks_[(i - first) / 2], (i - first) % 2);
  }
  flush_held();
  if (events[0].revents != 0) read_signals();
  if (events[3].revents != 0) feed_input();
  if (events[4].revents != 0) refuse_latecomers();
  if (events[1].revents != 0) read_launcher();
}

/// Answers a rank that joins although rank 0 has ended. Without an answer that rank would try again
/// until its join deadline.
void Agent::refuse_latecomers() {
  const Status status = refuse_joins(request_.key, request_.job_id, std::move(listener_), 0,
                                     rank_0_end_ + " before all ranks had joined the job");
  if (!status.ok()) fail(status);
}

void Agent::read_launcher() {
  const bool alive = launcher_.fill();
  Message message;
  while (launcher_.next(&message)) handle(message);
  if (!alive || launcher_.in() < 0) launcher_gone_ = true;
}

void Agent::handle(const Message& message) {
  Reader in = reader_of(message.payload);
  switch (message.type) {
    case Type::listen:
      return listen(message);
    case Type::start:
      return start(message);
    case Type::signal:
      return signal_ranks(in.i32());
    case Type::end:
      return end(in.u32());
    case Type::input:
      input_ += message.payload;
      return feed_input();
    case Type::input_end:
      input_ended_ = true;
      return feed_input();
    default:
      return fail(internal_error("the agent received a message of unknown type " +
                                 std::to_string(static_cast<int>(message.type)) +
                                 "; install the same release of hocket on all hosts"));
  }
}

void Agent::fail(const Status& status) { launcher_.send(Type::failed, status.message()); }

void Agent::listen(const Message& message) {
  ListenRequest request;
  if (!request.decode(message.payload)) return fail(internal_error(invalid_message));
  Address address;
  UniqueFd listener;
  Status status = check_file_limit(1);
  if (status.ok()) status = listen_for_coordinator(request, &listener, &address);
  if (status.ok()) status = to_high_number(&listener);
  if (!status.ok()) return fail(status);
  listener_ = std::move(listener);
  launcher_.send(Type::listening, payload_of(address));
}

void Agent::start(const Message& message) {
  if (started_ || !request_.decode(message.payload)) {
    return fail(internal_error(invalid_message));
  }
  started_ = true;
  Status status;
  if (::chdir(request_.directory.c_str()) != 0) {
    status = system_error("cannot change to the working directory " + request_.directory +
                          " (it must exist on every host; --wdir names another)");
  }
  if (status.ok()) status = check_file_limit(request_.count);
  if (status.ok()) status = start_ranks(request_);
  listener_needed_ = status.ok() && listener_ && request_.count < request_.ranks;
  if (!status.ok()) {
    fail(status);
    end_ranks(0);
  }
}

/// The environment that all ranks share: that of the agent, overridden by the variables of request.
std::vector<std::string> Agent::common_environment(const StartRequest& request) const {
  const auto name_of = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = name_of(*entry);
    const auto same = [&](const std::string& other) { return name_of(other) == name; };
    if (set_by_launcher(name) || std::ranges::any_of(request.environment, same)) continue;
    environment.emplace_back(*entry);
  }
  environment.insert(environment.end(), request.environment.begin(), request.environment.end());
  return environment;
}

/// Decides to which CPUs the ranks are bound, and reports it.
Status Agent::bind_ranks(const StartRequest& request, std::vector<Binding>* bindings) {
  Cpus allowed;
  HOCKET_RETURN_IF_ERROR(allowed_cpus(&allowed));
  const std::vector<Core> cores = read_cores(allowed, "/sys/devices/system");
  *bindings = launch::bindings(cores, request.bind_to, request.count);
  if (request.bind_to != BindTo::none && bindings->front().cpus.empty()) {
    launcher_.send(Type::note,
                   fmt::format("the ranks are not bound: {} ranks, but they may run on {} "
                               "only; --bind-to core needs a core for each rank",
                               request.count, cores_text(cores.size())));
  }
  for (std::size_t local = 0; request.report_bindings && local < bindings->size(); ++local) {
    const auto& [cpus, where] = (*bindings)[local];
    const std::string rank = fmt::format("rank {}", request.first_rank + static_cast<int>(local));
    launcher_.send(Type::note,
                   cpus.empty()
                       ? fmt::format("{} is not bound: CPUs {}", rank, cpus_text(allowed))
                       : fmt::format("{} is bound to CPUs {} ({})", rank, cpus_text(cpus), where));
  }
  return {};
}

Status Agent::start_ranks(const StartRequest& request) {
  LaunchInfo info;
  info.key = request.key;
  info.job_id = request.job_id;
  info.coordinator = request.coordinator;
  info.ranks = request.ranks;
  Command command;
  command.file_limit = file_limit_;
  ranks_.reserve(static_cast<std::size_t>(request.count));
  const std::vector<std::string> common = common_environment(request);
  std::vector<Binding> bindings;
  HOCKET_RETURN_IF_ERROR(bind_ranks(request, &bindings));
  for (int local = 0; local < request.count; ++local) {
    info.rank = request.first_rank + local;
    command.arguments = arguments_of(request.programs, local);
    command.cpus = bindings[static_cast<std::size_t>(local)].cpus;
    command.wants_input = info.rank == 0;
    command.listener = info.rank == 0 ? listener_.get() : -1;
    UniqueFd record;
    HOCKET_RETURN_IF_ERROR(make_launch_record(info, command.listener, &record));
    HOCKET_RETURN_IF_ERROR(to_high_number(&record));
    command.record = record.get();
    command.environment = common;
    for (const auto& [name, value] : {std::pair("LAUNCH_FD", command.record),
                                      {"RANK", info.rank},
                                      {"RANKS", request.ranks},
                                      {"LOCAL_RANK", local},
                                      {"LOCAL_RANKS", request.count}}) {
      command.environment.push_back(fmt::format("HOCKET_{}={}", name, value));
    }
    const std::string tag = request.tag_output ? fmt::format("[{}] ", info.rank) : "";
    RankProcess rank{info.rank, 0, false, {}, {Relay(tag), Relay(tag)}, {}, {}};
    HOCKET_RETURN_IF_ERROR(start_rank(command, &rank));
    ranks_.push_back(std::move(rank));
    ++running_;
  }
  return {};
}

void Agent::read_signals() {
  signalfd_siginfo info;
  bool children = false;
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) {
      children = true;
    } else {
      end_ranks(0);  // the supervisor has died, or a user has sent SIGTERM
    }
  }
  if (children) reap();
}

void Agent::reap() {
  int wait_status = 0;
  pid_t pid = 0;
  while ((pid = ::waitpid(-1, &wait_status, WNOHANG)) > 0) {
    const auto same = [&](const RankProcess& rank) { return rank.running && rank.pid == pid; };
    const auto rank = std::ranges::find_if(ranks_, same);
    if (rank != ranks_.end())
      report_exit(*rank, wait_status);  // else: a process that a rank had started
  }
}

void Agent::report_exit(RankProcess& rank, int wait_status) {
  rank.running = false;
  --running_;
  for (int which = 0; which < 2; ++which) {
    read_output(rank, which);
    std::string rest;
    rank.relay[which].flush(&rest);
    pass_on(rank, which, rest);
  }
  Exited exited;
  exited.rank = rank.rank;
  exited.pid = rank.pid;
  exited.wait_status = wait_status;
  exited.reason =
      exec_failure(rank, arguments_of(request_.programs, rank.rank - request_.first_rank).front());
  rank.exec_error.reset();
  rank.input.reset();
  if (rank.rank == 0) {
    rank_0_end_ = fmt::format("rank 0 (process {}) {}", rank.pid, describe_end(wait_status));
  }
  launcher_.send(Type::exited, exited.encode());
}

void Agent::read_output(RankProcess& rank, int which) {
  char buffer[64 << 10];
  UniqueFd& output = rank.output[which];
  for (int reads = 0; output && reads < 4; ++reads) {
    const ssize_t got = ::read(output.get(), buffer, sizeof buffer);
    if (got < 0) return;  // the pipe is empty
    std::string ready;
    if (got == 0) {
      output.reset();
      rank.relay[which].flush(&ready);
    } else {
      rank.relay[which].add({buffer, static_cast<std::size_t>(got)}, monotonic_now(), &ready);
    }
    pass_on(rank, which, ready);
  }
}

void Agent::pass_on(const RankProcess& rank, int which, std::string_view bytes) {
  if (bytes.empty() || launcher_gone_) return;
  std::string payload = payload_of(static_cast<std::uint32_t>(rank.rank));
  payload += static_cast<char>(which + 1);
  payload += bytes;
  launcher_.send(Type::output, payload);
}

void Agent::flush_held() {
  const Nanos now = monotonic_now();
  for (RankProcess& rank : ranks_) {
    for (int which = 0; which < 2; ++which) {
      if (rank.relay[which].flush_at() == 0 || rank.relay[which].flush_at() > now) continue;
      std::string held;
      rank.relay[which].flush(&held);
      pass_on(rank, which, held);
    }
  }
}

void Agent::feed_input() {
  if (ranks_.empty()) return;
  UniqueFd& input = ranks_[0].input;
  std::size_t taken = 0;
  while (input && taken < input_.size()) {
    const ssize_t written = ::write(input.get(), input_.data() + taken, input_.size() - taken);
    if (written < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (written < 0) {
      input.reset();  // rank 0 has closed its standard input
    } else {
      taken += static_cast<std::size_t>(written);
    }
  }
  if (!input) taken = input_.size();
  input_.erase(0, taken);
  if (taken != 0) {
    launcher_.send(Type::input_taken, payload_of(static_cast<std::uint32_t>(taken)));
  }
  if (input_ended_ && input_.empty()) input.reset();
}

void Agent::signal_ranks(int number) {
  if (number < 1 || number >= NSIG) return;
  for (const RankProcess& rank : ranks_) {
    if (rank.running) ::kill(-rank.pid, number);
  }
}

void Agent::end(std::uint32_t wait_ms) {
  if (wait_ms == 0) listener_needed_ = false;
  end_ranks(wait_ms * nanos_per_ms);
}

void Agent::end_ranks(Nanos term_after) {
  const Nanos term_at = monotonic_now() + term_after;
  if (kill_at_ != 0 && kill_at_ <= term_at + grace) return;  // the ranks end sooner already
  term_at_ = term_at;
  kill_at_ = term_at + grace;
}

void Agent::keep_time() {
  const Nanos now = monotonic_now();
  if (term_at_ != 0 && now >= term_at_) {
    term_at_ = 0;
    listener_needed_ = false;
    signal_ranks(SIGTERM);
    signal_ranks(SIGCONT);  // a stopped process would not notice
  }
  if (term_at_ == 0 && kill_at_ != 0 && now >= kill_at_) {
    kill_at_ = now + grace;
    listener_needed_ = false;
    signal_ranks(SIGKILL);
  }
}

void Agent::finish() {
  over_ = true;
  // All writers are dead, so the pipes hold the last output.
  for (RankProcess& rank : ranks_) {
    for (int which = 0; which < 2; ++which) {
      while (rank.output[which]) {
        const std::size_t before = launcher_.pending();
        read_output(rank, which);
        if (launcher_.pending() == before) break;
      }
      std::string rest;
      rank.relay[which].flush(&rest);
      pass_on(rank, which, rest);
    }
  }
  while (!launcher_gone_ && launcher_.flush() && launcher_.pending() != 0) {
    pollfd events[] = {{launcher_.out(), POLLOUT, 0}, {launcher_.in(), POLLIN, 0}};
    ::poll(events, 2, -1);
    if (events[1].revents != 0) read_launcher();
  }
}

}  // namespace hocket::internal::launch
