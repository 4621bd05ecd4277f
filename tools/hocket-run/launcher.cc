#include "launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace hocket::internal::launch {
namespace {

constexpr int output_status = 128 + SIGPIPE;
// Time for ssh (or the local supervisor) to end when the agent has ended.
constexpr Nanos time_to_go = 15 * nanos_per_s;

std::string invalid_message_of(const Host& host) {
  return "the agent on " + host.title() +
         " sent an invalid message; install the same release of hocket on all hosts";
}

}  // namespace

Launcher::Launcher(Options options, Settings settings)
    : options_(std::move(options)), settings_(std::move(settings)) {}

int Launcher::run() {
  if (const Status status = prepare(); !status.ok()) {
    cannot_start(status.message());
  }
  while (!over()) {
    flush_all();
    wait_for_events();
  }
  return finish();
}

bool Launcher::over() const {
  if (aborted_) return true;
  const auto ended = [](const Host& host) { return host.gone && host.pid == 0; };
  return console_.empty() && std::ranges::all_of(hosts_, ended);
}

void Launcher::flush_all() {
  for (Host& host : hosts_) host.stream.flush();
}

int Launcher::poll_timeout_ms() const {
  Nanos next = 0;
  const auto consider = [&](Nanos at) {
    if (at != 0 && (next == 0 || at < next)) next = at;
  };
  if (!started_ && !failed_) consider(start_deadline_);
  consider(timeout_at_);
  consider(failures_.name_at());
  consider(output_deadline());
  for (const Host& host : hosts_) {
    if (host.gone && host.pid != 0) consider(host.gone_at + time_to_go);
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
  if (timeout_at_ != 0 && now >= timeout_at_) on_timeout();
  if (failures_.name_at() != 0 && (now >= failures_.name_at() || !any_rank_runs())) {
    failures_.name_first(!options_.end_on_death, &console_);
  }
  if (output_deadline() != 0 && now >= output_deadline()) console_.drop_blocked();
  if (started_ || failed_ || now <= start_deadline_) return;
  const std::string missing = missing_answers();
  cannot_start("the join deadline has passed" + (missing.empty() ? "" : " without an " + missing) +
               ": check that the login shell there runs a command without a question, or raise "
               "HOCKET_JOIN_DEADLINE_MS");
}

/// "agent on a, b": which answers of the agents the launcher still waits for; empty: none.
std::string Launcher::missing_answers() const {
  const auto titles_where = [&](bool (*misses)(const Host&)) {
    std::string titles;
    for (const Host& host : hosts_) {
      if (misses(host)) titles += (titles.empty() ? "" : ", ") + host.title();
    }
    return titles;
  };
  std::string titles = titles_where([](const Host& host) { return !host.greeted; });
  if (!titles.empty()) return "agent on " + titles;
  if (!options_.map_by.needs_parts()) return "";
  titles = titles_where([](const Host& host) { return host.parts == 0; });
  return titles.empty() ? "" : "answer from the agent on " + titles + ", which counts the parts";
}

bool Launcher::any_rank_runs() const {
  return std::ranges::any_of(hosts_, [](const Host& host) { return host.running != 0; });
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
  if (options_.map_by.needs_parts()) place_on_counted_hosts();
  if (events[0].revents != 0) read_signals();
  if (events[2].revents != 0) read_input();
  if (console_.output_error() != 0 && !ending_) {
    job_failed({-1, output_status, Origin::cause, true, "",
                "cannot write standard output: " +
                    std::generic_category().message(console_.output_error())});
    end_ranks(0);
  }
  keep_time();
}

void Launcher::cannot_start(const std::string& text, int status) {
  console_.say(text);
  if (!failed_) status_ = status;
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
  reap();  // calls on_lost() when the process has ended, because the error says how it ended
}

void Launcher::handle(Host& host, const Message& message) {
  Reader in = reader_of(message.payload);
  switch (message.type) {
    case Type::hello:
      return on_hello(host, message);
    case Type::counted:
      return on_counted(host, message);
    case Type::listening: {
      Address coordinator;
      const bool expected = begun_ && !started_ && &host == &hosts_[0];
      return expected && decode(message.payload, &coordinator)
                 ? start_ranks(coordinator)
                 : cannot_start(invalid_message_of(host));
    }
    case Type::output:
      return on_output(host, message);
    case Type::note:
      return console_.say(host.title() + ": " + message.payload);
    case Type::exited:
      return on_exit(host, message);
    case Type::input_taken:
      input_on_its_way_ -= std::min(input_on_its_way_, in.u32());
      return;
    case Type::failed:
      if (!started_) return cannot_start(host.title() + ": " + message.payload);
      host.running = 0;
      job_failed({-1, cannot_start_status, Origin::cause, true, "",
                  host.title() + ": " + message.payload});
      return end_ranks(0);
    default:
      return cannot_start(invalid_message_of(host));
  }
}

void Launcher::on_counted(Host& host, const Message& message) {
  Counted counted;
  const bool expected = options_.map_by.needs_parts() && host.greeted && host.parts == 0;
  if (!expected || !counted.decode(message.payload)) {
    return cannot_start(invalid_message_of(host));
  }
  host.parts = counted.parts;
}

void Launcher::on_output(const Host& host, const Message& message) {
  constexpr std::size_t header_bytes = 5;
  Reader in = reader_of(message.payload);
  const std::int32_t rank = in.i32();
  const int fd = in.u8() == 2 ? 2 : 1;
  if (!in.good() || !host.local_rank(rank)) return cannot_start(invalid_message_of(host));
  const std::string_view bytes = std::string_view(message.payload).substr(header_bytes);
  if (!output_files_.in_use()) return console_.put(fd, bytes);
  if (output_failed_) return;
  const Status status = output_files_.append(rank, fd, bytes);
  if (status.ok()) return;
  output_failed_ = true;
  job_failed({-1, output_status, Origin::cause, true, "", status.message()});
  end_ranks(0);
}

void Launcher::on_exit(Host& host, const Message& message) {
  Exited exited;
  std::optional<std::size_t> local;
  if (started_ && exited.decode(message.payload)) local = host.local_rank(exited.rank);
  if (!local || host.ended[*local]) return cannot_start(invalid_message_of(host));
  host.ended[*local] = true;
  --host.running;
  // Other ranks may end because this rank has. Its host does not tell them: which rank ended first
  // is known only here.
  if (!std::exchange(first_exited_, true) && !hosts_[0].gone) {
    hosts_[0].stream.send(Type::first_exited, message.payload);
  }
  if (exited.wait_status != 0) job_failed(failure_of(host, exited));
  release_host_of_rank_0();
}

void Launcher::reap() {
  for (Host& host : hosts_) {
    if (host.pid == 0 || ::waitpid(host.pid, &host.wait_status, WNOHANG) != host.pid) continue;
    host.pid = 0;
    if (host.gone) on_lost(host);
  }
}

}  // namespace hocket::internal::launch
