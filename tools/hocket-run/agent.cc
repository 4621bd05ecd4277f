#include "agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "coordinator_listener.h"
#include "descendants.h"
#include "host.h"

namespace hocket::internal::launch {
namespace {
constexpr Nanos grace = 2 * nanos_per_s;  // between TERM and KILL
constexpr std::size_t most_pending = 1 << 20;

std::string text_of_end(const Exited& exited) {
  return fmt::format("rank {} (process {}) {} before all ranks had joined the job", exited.rank,
                     exited.pid, describe_end(exited.wait_status));
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
  const bool to_refuse = rank_0_ended_ && first_ended_;
  events.push_back({to_refuse ? listener_.get() : -1, POLLIN, 0});
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
  const Status status = refuse_joins(request_.key, request_.job_id, std::move(listener_),
                                     first_ended_->rank, text_of_end(*first_ended_));
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
    case Type::count:
      return count_parts(message);
    case Type::listen:
      return listen(message);
    case Type::start:
      return start(message);
    case Type::first_exited:
      return report_first_end(message);
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

void Agent::note(const std::string& text) { launcher_.send(Type::note, text); }

void Agent::fail(const Status& status) { launcher_.send(Type::failed, status.message()); }

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
  exited.reason = exec_failure(rank);
  rank.exec_error.reset();
  rank.input.reset();
  if (rank.rank == 0) rank_0_ended_ = true;
  launcher_.send(Type::exited, exited.encode());
}

/// On rank 0's host, where the coordinator is. The other ranks cannot all join without the rank.
/// The report ends the join, or the join has ended.
void Agent::report_first_end(const Message& message) {
  Exited exited;
  if (!exited.decode(message.payload)) {
    return fail(internal_error("the agent received a message of a wrong length"));
  }
  first_ended_ = exited;
  if (rank_0_ended_) return;  // refuse_latecomers() answers the ranks that join
  const Status status = report_end(request_.key, request_.job_id, request_.coordinator, exited.rank,
                                   text_of_end(exited));
  if (!status.ok())
    note("cannot tell the ranks that rank " + std::to_string(exited.rank) +
         " has ended: " + status.message());
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

}  // namespace hocket::internal::launch
