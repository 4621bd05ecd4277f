#include "launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace hocket::launch {
namespace {

constexpr int cannot_start_status = 125;
// Survivors learn from the library which rank has died, and say so; then they are told to end.
constexpr Nanos time_to_report = 2 * nanos_per_s;
// For ssh (or the local supervisor) to end when the agent has ended.
constexpr Nanos time_to_go = 15 * nanos_per_s;
// A second Ctrl-C so soon means: now.
constexpr Nanos insisting = 2 * nanos_per_s;

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD}) {
    sigaddset(&set, number);
  }
  return set;
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(number);
}

}  // namespace

Launcher::Launcher(Options options, Settings settings)
    : options_(std::move(options)), settings_(std::move(settings)) {}

int Launcher::run() {
  if (const Status status = prepare(); !status.ok()) {
    console_.say(status.message());
    aborted_ = true;
    status_ = cannot_start_status;
  }
  while (!over()) {
    flush_all();
    wait_for_events();
  }
  return finish();
}

Status Launcher::prepare() {
  HOCKET_RETURN_IF_ERROR(split_command(options_.ssh, &ssh_));
  char path[4096] = {};
  if (::readlink("/proc/self/exe", path, sizeof path - 1) <= 0) {
    return system_error("cannot find the path of hocket-run");
  }
  executable_ = path;
  if (::getcwd(path, sizeof path) == nullptr) {
    return system_error("cannot find the working directory");
  }
  directory_ = path;

  hangup_ignored_ = ::signal(SIGHUP, SIG_DFL) == SIG_IGN;
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);
  const sigset_t set = handled_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = UniqueFd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals_) return system_error("cannot watch signals");
  start_deadline_ =
      monotonic_now() + settings_.join_deadline_ms.value_or(600'000) * Nanos{nanos_per_ms};
  return start_agents();
}

Status Launcher::start_agents() {
  int first_rank = 0;
  for (const HostSlots& slots : options_.hosts) {
    Host host;
    host.name = slots.name;
    host.remote = slots.remote;
    host.first_rank = first_rank;
    host.ranks = slots.slots;
    first_rank += slots.slots;
    hosts_.push_back(std::move(host));
  }
  for (Host& host : hosts_) HOCKET_RETURN_IF_ERROR(start_agent(ssh_, executable_, &host));
  return {};
}

bool Launcher::over() const {
  if (aborted_) return true;
  const auto ended = [](const Host& host) { return host.gone && host.pid == 0; };
  return console_.empty() && std::ranges::all_of(hosts_, ended);
}

int Launcher::finish() {
  // An agent that is still there sees the end of its input and ends its ranks.
  for (Host& host : hosts_) {
    host.stream.close();
    if (host.pid != 0 && host.remote) ::kill(host.pid, SIGKILL);
  }
  for (Host& host : hosts_) {
    if (host.pid != 0) ::waitpid(host.pid, nullptr, 0);
  }
  if (other_failures_ > 0) {
    console_.say(std::to_string(other_failures_) + " other rank" +
                 (other_failures_ == 1 ? "" : "s") + " failed after that");
  }
  while (!console_.empty() && console_.next_fd() >= 0) console_.write_some();
  return status_;
}

void Launcher::flush_all() {
  for (Host& host : hosts_) host.stream.flush();
}

int Launcher::poll_timeout_ms() const {
  Nanos next = started_ || failed_ ? 0 : start_deadline_;
  for (const Host& host : hosts_) {
    if (!host.gone || host.pid == 0) continue;
    const Nanos at = host.gone_at + time_to_go;
    next = next == 0 ? at : std::min(next, at);
  }
  if (next == 0) return -1;
  const Nanos left = next - monotonic_now();
  return static_cast<int>(std::clamp<Nanos>(left / nanos_per_ms + 1, 0, 60'000));
}

void Launcher::keep_time() {
  const Nanos now = monotonic_now();
  for (Host& host : hosts_) {
    if (!host.gone || host.pid == 0 || now <= host.gone_at + time_to_go) continue;
    ::kill(host.pid, SIGKILL);
    host.gone_at = now;
  }
  if (started_ || failed_ || now <= start_deadline_) return;
  std::string missing;
  for (const Host& host : hosts_) {
    if (!host.greeted) missing += (missing.empty() ? "" : ", ") + host.title();
  }
  cannot_start("the join deadline has passed without an agent on " + missing +
               "; HOCKET_JOIN_DEADLINE_MS changes it");
}

bool Launcher::may_read_input() const {
  if (!started_ || input_ended_ || input_on_its_way_ >= input_window || hosts_[0].gone)
    return false;
  // A job in the background leaves the terminal's input alone.
  return !::isatty(0) || ::tcgetpgrp(0) == ::getpgrp();
}

void Launcher::wait_for_events() {
  std::vector<pollfd> events;
  events.push_back({signals_.get(), POLLIN, 0});
  events.push_back({console_.next_fd(), POLLOUT, 0});
  events.push_back({may_read_input() ? 0 : -1, POLLIN, 0});
  const std::size_t first = events.size();
  for (const Host& host : hosts_) {
    const bool listens = !host.gone && !console_.full();
    events.push_back({listens ? host.stream.in() : -1, POLLIN, 0});
    const bool writes = !host.gone && host.stream.pending() != 0;
    events.push_back({writes ? host.stream.out() : -1, POLLOUT, 0});
  }
  if (::poll(events.data(), events.size(), poll_timeout_ms()) < 0) return;

  if (events[1].revents != 0) console_.write_some();
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (events[first + 2 * i].revents != 0) read_host(hosts_[i]);
  }
  if (events[0].revents != 0) read_signals();
  if (events[2].revents != 0) read_input();
  if (console_.output_error() != 0 && !ending_) {
    rank_failed(128 + SIGPIPE, "cannot write standard output: " +
                                   std::generic_category().message(console_.output_error()));
    end_ranks(0);
  }
  keep_time();
}

void Launcher::cannot_start(const std::string& text) {
  console_.say(text);
  if (!failed_) status_ = cannot_start_status;
  failed_ = true;
  aborted_ = true;
}

void Launcher::read_host(Host& host) {
  const bool alive = host.stream.fill();
  Message message;
  while (host.stream.next(&message)) handle(host, message);
  if (alive && host.stream.in() >= 0) return;
  host.gone = true;
  host.gone_at = monotonic_now();
  host.stream.close();
  if (host.pid == 0) return on_lost(host);
  reap();  // else when it comes: how the process ended is part of the message
}

void Launcher::handle(Host& host, const Message& message) {
  Reader in(message.payload);
  switch (message.type) {
    case Type::hello:
      return on_hello(host, message);
    case Type::listening: {
      const Address root = in.address();
      return in.done() ? start_ranks(root) : cannot_start("bad answer from " + host.title());
    }
    case Type::output: {
      const int fd = in.u8() == 2 ? 2 : 1;
      return console_.put(fd, in.rest());
    }
    case Type::exited:
      return on_exit(host, message);
    case Type::input_taken:
      input_on_its_way_ -= std::min(input_on_its_way_, in.u32());
      return;
    case Type::failed:
      if (!started_) return cannot_start(host.title() + ": " + message.payload);
      host.running = 0;
      rank_failed(cannot_start_status, host.title() + ": " + message.payload);
      return end_ranks(0);
    default:
      return cannot_start("message of unknown type from " + host.title());
  }
}

void Launcher::on_hello(Host& host, const Message& message) {
  if (!host.hello.decode(message.payload) || host.hello.version != protocol_version) {
    return cannot_start("hocket-run on " + host.title() + " speaks version " +
                        std::to_string(host.hello.version) + " and this one " +
                        std::to_string(protocol_version) + "; install the same release on both");
  }
  host.greeted = true;
  if (std::ranges::all_of(hosts_, [](const Host& each) { return each.greeted; })) {
    request_listener();
  }
}

// The root listens where rank 0 runs. SSH_CONNECTION of an agent has two good addresses: the
// host's own, at which ssh reached it, and this host's, from which it came.
void Launcher::request_listener() {
  ListenRequest request;
  request.interface = options_.interface;
  request.local_only = hosts_.size() == 1;
  for (const Host& host : hosts_) {
    std::string words[4];
    std::size_t begin = 0;
    for (std::string& word : words) {
      const std::size_t end =
          std::min(host.hello.ssh_connection.find(' ', begin), host.hello.ssh_connection.size());
      word = host.hello.ssh_connection.substr(begin, end - begin);
      begin = std::min(end + 1, host.hello.ssh_connection.size());
    }
    const bool root_here = &host == &hosts_[0];
    if (host.remote && root_here) request.candidates.push_back(words[2]);
    if (host.remote && !root_here && !hosts_[0].remote) request.candidates.push_back(words[0]);
    // Where a packet to the others would leave rank 0's host is the next best guess.
    if (host.remote && root_here) request.route_to.push_back(words[0]);
    if (!root_here) request.route_to.push_back(host.remote ? host.name : host.hello.host);
  }
  hosts_[0].stream.send(Type::listen, request.encode());
}

void Launcher::start_ranks(const Address& root) {
  StartRequest request;
  if (::getrandom(request.key.data(), request.key.size(), 0) !=
          static_cast<ssize_t>(request.key.size()) ||
      ::getrandom(request.job_id.data(), request.job_id.size(), 0) !=
          static_cast<ssize_t>(request.job_id.size())) {
    return cannot_start("the kernel gives no random numbers for the job key");
  }
  request.root = root;
  request.ranks = options_.ranks;
  request.tag_output = options_.tag_output;
  request.directory = directory_;
  request.arguments = options_.program;
  request.environment = options_.environment;
  for (Host& host : hosts_) {
    request.first_rank = host.first_rank;
    request.count = host.ranks;
    host.stream.send(Type::start, request.encode());
    host.running = host.ranks;
    host.ended.assign(static_cast<std::size_t>(host.ranks), false);
  }
  started_ = true;
}

void Launcher::on_exit(Host& host, const Message& message) {
  Exited exited;
  const bool sound = exited.decode(message.payload) && exited.rank >= host.first_rank &&
                     exited.rank < host.first_rank + host.ranks && started_;
  const auto index = static_cast<std::size_t>(exited.rank - host.first_rank);
  if (!sound || host.ended[index]) return cannot_start("bad news of a rank from " + host.title());
  host.ended[index] = true;
  --host.running;
  const int status = exit_status_of(exited.wait_status);
  if (status == 0) return;
  const std::string how = exited.reason.empty() ? describe_end(exited.wait_status) : exited.reason;
  rank_failed(status, "rank " + std::to_string(exited.rank) + " on " + host.title() + " (pid " +
                          std::to_string(exited.pid) + ")" + (exited.reason.empty() ? " " : ": ") +
                          how);
}

void Launcher::rank_failed(int status, const std::string& text) {
  const bool first = !failed_;
  // What the user asked for is no news.
  const bool asked = user_signal_ != 0 && status == 128 + user_signal_;
  if (first) status_ = status;
  failed_ = true;
  if (!first && ending_) {
    ++other_failures_;
    return;
  }
  if (!asked) console_.say(text);
  if (options_.end_on_death) end_ranks(time_to_report);
}

void Launcher::end_ranks(Nanos wait) {
  ending_ = true;
  const std::string payload = Writer().u32(static_cast<std::uint32_t>(wait / nanos_per_ms)).take();
  for (Host& host : hosts_) {
    if (!host.gone) host.stream.send(Type::end, payload);
  }
}

void Launcher::on_lost(Host& host) {
  if (!host.greeted) return failed_ ? void() : cannot_start(no_agent_text(ssh_, executable_, host));
  if (!started_) return cannot_start("the agent on " + host.title() + " has gone");
  if (host.running == 0) return;
  const int first = host.first_rank;
  const int last = first + host.ranks - 1;
  host.running = 0;
  rank_failed(128 + SIGKILL,
              "lost " + host.title() + ": its " + (host.remote ? "connection " : "agent ") +
                  describe_end(host.wait_status) + "; its ranks (" + std::to_string(first) +
                  " to " + std::to_string(last) + ") are ended there");
}

void Launcher::reap() {
  for (Host& host : hosts_) {
    if (host.pid == 0 || ::waitpid(host.pid, &host.wait_status, WNOHANG) != host.pid) continue;
    host.pid = 0;
    if (host.gone) on_lost(host);
  }
}

void Launcher::read_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) {
      reap();
    } else {
      on_user_signal(static_cast<int>(info.ssi_signo));
    }
  }
}

void Launcher::on_user_signal(int number) {
  if (number == SIGHUP && hangup_ignored_) return;  // nohup
  const bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
  if (!started_) {
    if (!ends) return;
    status_ = 128 + number;
    failed_ = aborted_ = true;
    return;
  }
  const Nanos now = monotonic_now();
  if (ends && user_signal_ != 0 && now - user_signal_at_ < insisting) {
    if (!ending_) console_.say(signal_name(number) + " again: ending all ranks");
    end_ranks(0);
  }
  if (ends) {
    user_signal_ = number;
    user_signal_at_ = now;
  }
  const std::string payload = Writer().i32(number).take();
  for (Host& host : hosts_) {
    if (!host.gone) host.stream.send(Type::signal, payload);
  }
  if (number == SIGTSTP) suspend();
}

void Launcher::suspend() {
  // The ranks stop first: an agent gets the message while this process still runs.
  for (int tries = 0; tries < 100; ++tries) {
    flush_all();
    const auto sent = [](const Host& host) { return host.gone || host.stream.pending() == 0; };
    if (std::ranges::all_of(hosts_, sent)) break;
    ::poll(nullptr, 0, 10);
  }
  ::raise(SIGSTOP);
}

void Launcher::read_input() {
  char buffer[32 << 10];
  const std::size_t room = std::min<std::size_t>(sizeof buffer, input_window - input_on_its_way_);
  const ssize_t got = ::read(0, buffer, room);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {
    input_ended_ = true;
    return hosts_[0].stream.send(Type::input_end);
  }
  input_on_its_way_ += static_cast<std::uint32_t>(got);
  hosts_[0].stream.send(Type::input, {buffer, static_cast<std::size_t>(got)});
}

}  // namespace hocket::launch
