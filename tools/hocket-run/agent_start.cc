// The part of the agent that starts the ranks.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "agent.h"
#include "base/settings.h"
#include "bootstrap/join/launch.h"
#include "bootstrap/launchers/launched_rank.h"
#include "coordinator_listener.h"

namespace hocket::internal::launch {
namespace {

// Lowest number of a descriptor that a rank inherits; shell scripts use the numbers below 10.
constexpr int lowest_inherited = 64;

constexpr const char* invalid_message =
    "the agent received an invalid message; install the same release of hocket on all hosts";

constexpr unsigned long files_of_agent = 32;
constexpr unsigned long files_per_rank = 3;  // the read ends of its pipes; or its terminal

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

/// The environment that all ranks share: that of the agent, overridden by the variables of request,
/// without those by which an outer launcher told this process that it is a rank.
std::vector<std::string> common_environment(const StartRequest& request) {
  const auto name_of = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = name_of(*entry);
    const auto same = [&](const std::string& other) { return name_of(other) == name; };
    const bool of_another_rank = set_by_launcher(name) || marks_rank(name);
    if (of_another_rank || std::ranges::any_of(request.environment, same)) continue;
    environment.emplace_back(*entry);
  }
  environment.insert(environment.end(), request.environment.begin(), request.environment.end());
  return environment;
}

}  // namespace

void Agent::count_parts(const Message& message) {
  CountRequest request;
  if (!request.decode(message.payload)) return fail(internal_error(invalid_message));
  Cpus allowed;
  Cores cores;
  Status status = allowed_cpus(&allowed);
  if (status.ok()) status = read_cores(allowed, &cores);
  Counted counted;
  counted.parts = static_cast<std::int32_t>(launch::count_parts(cores.list, request.part));
  if (status.ok() && counted.parts == 0) {
    status = Status(
        Code::system_error,
        fmt::format("hwloc knows no {} of the CPUs on which ranks may run", name_of(request.part)));
  }
  if (status.ok()) return launcher_.send(Type::counted, counted.encode());
  fail(Status(Code::system_error,
              fmt::format("cannot place ranks by {}: {}; write ppr:N:node with the number of ranks "
                          "of a host",
                          name_of(request.part), status.message())));
}

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
  const auto count = static_cast<int>(request_.here.size());
  if (status.ok()) status = check_file_limit(count);
  if (status.ok()) status = start_ranks();
  listener_needed_ = status.ok() && listener_ && count < request_.ranks;
  if (!status.ok()) {
    fail(status);
    end_ranks(0);
  }
}

/// Decides to which CPUs the ranks are bound, and says why they are not bound if that was asked
/// for. The number of bindings is that of the ranks.
void Agent::bind_ranks(const Cpus& allowed, std::vector<Binding>* bindings) {
  const auto count = static_cast<int>(request_.here.size());
  bindings->assign(request_.here.size(), Binding());
  if (request_.binding.to == Part::none) return;
  Cores cores;
  const Status status = read_cores(allowed, &cores);
  *bindings = launch::bindings(cores.list, request_.binding, count);
  if (!status.ok() || cores.list.empty()) {
    note("the ranks are not bound: " +
         (status.ok() ? std::string("hwloc knows none of the CPUs on which they may run")
                      : status.message()));
  } else if (bindings->front().cpus.empty()) {
    note("the ranks are not bound: " + no_room_text(cores.list, request_.binding, count));
  } else if (!cores.of_this_host) {
    note(
        "the ranks are not bound: hwloc describes another machine (HWLOC_SYNTHETIC, HWLOC_XMLFILE "
        "or HWLOC_FSROOT)");
    for (Binding& binding : *bindings) binding.of_this_host = false;
  }
}

void Agent::report_bindings(const Cpus& allowed, const std::vector<Binding>& bindings) {
  for (std::size_t local = 0; local < bindings.size(); ++local) {
    const Binding& binding = bindings[local];
    const int rank = request_.here[local];
    const bool runs_there = binding.of_this_host && !request_.show_placement;
    if (binding.cpus.empty()) {
      note(fmt::format("rank {} {} bound: CPUs {}", rank, runs_there ? "is not" : "would not be",
                       cpus_text(allowed)));
    } else {
      note(fmt::format("rank {} {} bound to CPUs {} ({})", rank, runs_there ? "is" : "would be",
                       cpus_text(binding.cpus), binding.where));
    }
  }
}

Status Agent::start_ranks() {
  LaunchInfo info;
  info.key = request_.key;
  info.job_id = request_.job_id;
  info.coordinator = request_.coordinator;
  info.ranks = request_.ranks;
  Command command;
  command.file_limit = file_limit_;
  ranks_.reserve(request_.here.size());
  const std::vector<std::string> common = common_environment(request_);
  Cpus allowed;
  HOCKET_RETURN_IF_ERROR(allowed_cpus(&allowed));
  std::vector<Binding> bindings;
  bind_ranks(allowed, &bindings);
  if (request_.report_bindings || request_.show_placement) report_bindings(allowed, bindings);
  if (request_.show_placement) return {};
  // All before the first rank starts: if there are too few, no rank starts. The slaves are closed
  // here when the ranks have them, so that a master tells when its rank has closed the slave.
  std::vector<PseudoTerminal> terminals(request_.here.size());
  if (request_.pty) {
    HOCKET_RETURN_IF_ERROR(
        make_pseudo_terminals(terminals.size(), request_.terminal_size, &terminals));
  }
  for (std::size_t local = 0; local < request_.here.size(); ++local) {
    info.rank = request_.here[local];
    command.arguments = arguments_of(request_.programs, static_cast<int>(local));
    command.cpus = bindings[local].of_this_host ? bindings[local].cpus : Cpus();
    command.wants_input = info.rank == 0;
    command.listener = info.rank == 0 ? listener_.get() : -1;
    command.terminal = terminals[local].slave.get();
    UniqueFd record;
    HOCKET_RETURN_IF_ERROR(make_launch_record(info, command.listener, &record));
    HOCKET_RETURN_IF_ERROR(to_high_number(&record));
    command.record = record.get();
    command.environment = common;
    for (const auto& [name, value] : {std::pair("LAUNCH_FD", command.record),
                                      {"RANK", info.rank},
                                      {"RANKS", request_.ranks},
                                      {"LOCAL_RANK", static_cast<int>(local)},
                                      {"LOCAL_RANKS", static_cast<int>(request_.here.size())}}) {
      command.environment.push_back(fmt::format("HOCKET_{}={}", name, value));
    }
    const std::string tag = request_.tag_output ? fmt::format("[{}] ", info.rank) : "";
    RankProcess rank;
    rank.rank = info.rank;
    for (Relay& relay : rank.relay) relay = Relay(tag);
    rank.output[0] = std::move(terminals[local].master);
    HOCKET_RETURN_IF_ERROR(start_rank(command, &rank));
    ranks_.push_back(std::move(rank));
    ++running_;
  }
  return {};
}

}  // namespace hocket::internal::launch
