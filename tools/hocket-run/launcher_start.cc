// The part of the launcher that runs until the ranks start.
#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>

#include "launcher.h"

namespace hocket::internal::launch {
namespace {

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD}) {
    sigaddset(&set, number);
  }
  return set;
}

}  // namespace

Status Launcher::prepare() {
  HOCKET_RETURN_IF_ERROR(split_command(options_.ssh, &ssh_));
  char path[4096] = {};
  if (::readlink("/proc/self/exe", path, sizeof path - 1) <= 0) {
    return system_error("cannot find the path of hocket-run");
  }
  executable_ = path;
  directory_ = options_.directory;
  if (!directory_.starts_with('/')) {
    if (::getcwd(path, sizeof path) == nullptr) {
      return system_error("cannot find the working directory");
    }
    directory_ = path + (directory_.empty() ? "" : "/" + directory_);
  }

  hangup_ignored_ = ::signal(SIGHUP, SIG_DFL) == SIG_IGN;
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);
  const sigset_t set = handled_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = UniqueFd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals_) return system_error("cannot make a signalfd");
  start_deadline_ =
      monotonic_now() + settings_.join_deadline_ms.value_or(600'000) * Nanos{nanos_per_ms};
  if (options_.timeout_s > 0)
    timeout_at_ = monotonic_now() + static_cast<Nanos>(options_.timeout_s * nanos_per_s);
  return start_agents();
}

Status Launcher::start_agents() {
  for (const HostSlots& slots : options_.hosts) {
    Host host;
    host.name = slots.name;
    host.remote = slots.remote;
    host.ranks = slots.ranks;
    hosts_.push_back(std::move(host));
  }
  for (Host& host : hosts_) HOCKET_RETURN_IF_ERROR(start_agent(ssh_, executable_, &host));
  return {};
}

void Launcher::on_hello(Host& host, const Message& message) {
  if (!host.hello.decode(message.payload) || host.hello.version != protocol_version) {
    return cannot_start("hocket-run on " + host.title() + " uses protocol version " +
                        std::to_string(host.hello.version) + ", and this hocket-run version " +
                        std::to_string(protocol_version) + "; install the same release on both");
  }
  host.greeted = true;
  if (options_.map_by.needs_parts()) {
    return host.stream.send(Type::count, CountRequest{options_.map_by.part}.encode());
  }
  if (std::ranges::all_of(hosts_, [](const Host& each) { return each.greeted; })) begin();
}

/// Places the ranks when the agents of all hosts have counted the parts of their hosts. Removes
/// hosts without ranks, so no reference to a host may be in use.
void Launcher::place_on_counted_hosts() {
  const auto counted = [](const Host& host) { return host.parts != 0; };
  if (begun_ || aborted_ || !std::ranges::all_of(hosts_, counted)) return;
  for (std::size_t i = 0; i < hosts_.size(); ++i) options_.hosts[i].parts = hosts_[i].parts;
  if (const Status status = place_ranks(&options_); !status.ok()) {
    return cannot_start(status.message());
  }
  // Ranks fill the hosts in their order, so the hosts without ranks are the last ones.
  const std::size_t used = options_.hosts.size();
  end_agents(std::span(hosts_).subspan(used));
  hosts_.erase(hosts_.begin() + static_cast<std::ptrdiff_t>(used), hosts_.end());
  for (std::size_t i = 0; i < used; ++i) hosts_[i].ranks = options_.hosts[i].ranks;
  begin();
}

void Launcher::begin() {
  begun_ = true;
  if (options_.show_placement) return start_ranks(Address());  // no rank connects to it
  if (!options_.output_directory.empty()) {
    const Status status = output_files_.create(options_.output_directory, options_.ranks);
    if (!status.ok()) return cannot_start(status.message());
  }
  request_listener();
}

// Asks the agent of rank 0 for the listening socket of the join. SSH_CONNECTION of an agent has two
// useful addresses: that of its host, at which ssh reached it, and that of the launcher's host.
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
    const bool is_first = &host == &hosts_[0];
    if (host.remote && is_first) request.candidates.push_back(words[2]);
    if (host.remote && !is_first && !hosts_[0].remote) request.candidates.push_back(words[0]);
    // If no candidate fits, the agent takes the address from which it routes to these hosts.
    if (host.remote && is_first) request.route_to.push_back(words[0]);
    if (!is_first) request.route_to.push_back(host.remote ? host.name : host.hello.host);
  }
  hosts_[0].stream.send(Type::listen, request.encode());
}

void Launcher::start_ranks(const Address& coordinator) {
  StartRequest request;
  if (::getrandom(request.key.data(), request.key.size(), 0) !=
          static_cast<ssize_t>(request.key.size()) ||
      ::getrandom(request.job_id.data(), request.job_id.size(), 0) !=
          static_cast<ssize_t>(request.job_id.size())) {
    return cannot_start("cannot make the job key: getrandom failed");
  }
  request.coordinator = coordinator;
  request.ranks = options_.ranks;
  request.tag_output = options_.tag_output;
  request.pty = options_.pty;
  request.terminal_size = own_terminal_size();
  request.binding = options_.binding;
  request.report_bindings = options_.report_bindings;
  request.show_placement = options_.show_placement;
  request.directory = directory_;
  request.environment = options_.environment;
  for (Host& host : hosts_) {
    request.here = host.ranks;
    request.programs = programs_of_ranks(options_.programs, host.ranks);
    host.stream.send(Type::start, request.encode());
    host.running = options_.show_placement ? 0 : static_cast<int>(host.ranks.size());
    host.ended.assign(host.ranks.size(), false);
  }
  started_ = true;
}

}  // namespace hocket::internal::launch
