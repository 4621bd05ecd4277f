// The part of the launcher that ends the job: failures, lost hosts, the time limit, and the exit
// status.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "bootstrap/types.h"
#include "launcher.h"

namespace hocket::internal::launch {
namespace {

constexpr int timeout_status = 124;  // as of timeout(1)
// Time between the failure of a rank and SIGTERM for the others, in which they can report the error
// that the library returns to them.
constexpr Nanos time_to_report = 2 * nanos_per_s;

// Time for which output may be blocked after the user has asked for the end; then it is dropped.
constexpr Nanos output_grace = 2 * nanos_per_s;

}  // namespace

/// Ends the agent of rank 0's host, which answers ranks that join too late, when no rank runs any
/// more.
void Launcher::release_host_of_rank_0() {
  if (hosts_.size() > 1 && !any_rank_runs() && !hosts_[0].gone)
    hosts_[0].stream.send(Type::end, payload_of(0));
}

Failure Launcher::failure_of(const Host& host, const Exited& exited) const {
  Failure failure;
  failure.rank = exited.rank;
  failure.status = exit_status_of(exited.wait_status);
  // A shell that runs the program returns 128 + signal if a signal killed the program.
  const int number = failure.status > 128 && failure.status < 128 + NSIG ? failure.status - 128 : 0;
  // An end by the user's own signal is not printed.
  failure.is_news = user_signal_ == 0 || failure.status != 128 + user_signal_;
  failure.origin = number == 0         ? Origin::exited
                   : number == SIGABRT ? Origin::aborted
                                       : Origin::cause;
  failure.subject = "rank " + std::to_string(exited.rank) + " on " + host.title() + " (pid " +
                    std::to_string(exited.pid) + ")";
  if (WIFSIGNALED(exited.wait_status) && ending_ && monotonic_now() >= term_at_ &&
      (number == SIGTERM || number == SIGKILL)) {
    failure.how = "was killed by hocket-run (" + signal_name(number) + ")";
  } else if (exited.reason.empty()) {
    failure.how = describe_end(exited.wait_status);
  } else {
    failure.subject += ":";
    failure.how = exited.reason;
  }
  return failure;
}

void Launcher::job_failed(Failure failure) {
  const bool is_late = failures_.any() && failures_.name_at() == 0;
  failures_.add(std::move(failure), monotonic_now());
  failed_ = true;
  if (options_.end_on_death) end_ranks(time_to_report);
  if (is_late && !options_.end_on_death) failures_.say_last(&console_);
}

void Launcher::end_ranks(Nanos wait) {
  const Nanos term_at = monotonic_now() + wait;
  if (ending_ && term_at >= term_at_) return;  // the ranks end sooner already
  ending_ = true;
  term_at_ = term_at;
  const std::string payload = payload_of(static_cast<std::uint32_t>(wait / nanos_per_ms));
  for (Host& host : hosts_) {
    if (!host.gone) host.stream.send(Type::end, payload);
  }
}

void Launcher::on_lost(Host& host) {
  if (!host.greeted) return failed_ ? void() : cannot_start(no_agent_text(ssh_, executable_, host));
  if (!started_)
    return cannot_start("the agent on " + host.title() +
                        " ended before the ranks were started; read its output");
  if (host.running == 0) return;
  host.running = 0;
  job_failed({-1, 128 + SIGKILL, Origin::cause, true, "",
              "lost " + host.title() + ": its " + (host.remote ? "ssh process " : "agent ") +
                  describe_end(host.wait_status) + "; its ranks (" + ranks_text(host.ranks) +
                  ") are ended there"});
  release_host_of_rank_0();
}

void Launcher::on_timeout() {
  timeout_at_ = 0;
  const std::string text =
      fmt::format("the job has not ended within {} s (--timeout)", options_.timeout_s);
  if (!started_ && !failed_) {
    const std::string missing = missing_answers();
    return cannot_start(text + (missing.empty() ? "" : ": no " + missing), timeout_status);
  }
  if (!any_rank_runs()) return;
  job_failed({-1, timeout_status, Origin::cause, true, "", text + "; ending all ranks"});
  end_ranks(0);
  end_reason_ = "--timeout";
  end_asked_at_ = monotonic_now();
}

/// When blocked output is dropped; 0: never, because there is none or the user has not asked for
/// the end.
Nanos Launcher::output_deadline() const {
  if (console_.empty() || end_asked_at_ == 0) return 0;
  return std::max(end_asked_at_, console_.blocked_since()) + output_grace;
}

/// An agent that still runs reads the end of its input and ends its ranks.
void Launcher::end_agents(std::span<Host> hosts) {
  for (Host& host : hosts) {
    host.stream.close();
    if (host.pid != 0 && host.remote) ::kill(host.pid, SIGKILL);
  }
  for (Host& host : hosts) {
    if (host.pid != 0) ::waitpid(host.pid, nullptr, 0);
    host.pid = 0;
  }
}

int Launcher::finish() {
  end_agents(hosts_);
  if (failures_.any()) {
    if (failures_.name_at() != 0) failures_.name_first(!options_.end_on_death, &console_);
    status_ = failures_.status();
    const std::string others = options_.end_on_death ? failures_.others() : std::string();
    const std::string when = failures_.first_is_news()
                                 ? "other failures: "
                                 : "after " + signal_name(user_signal_) + ": ";
    if (!others.empty()) console_.say(when + others);
  }
  if (console_.dropped() != 0) {
    console_.say("dropped " + std::to_string(console_.dropped()) +
                 " bytes of output, which were not read within 2 s after " + end_reason_);
  }
  if (status_ != 0) output_files_.remove_if_empty();
  empty_console();
  return status_;
}

/// Writes the rest of the output. If its reader does not read, this blocks until the user asks for
/// the end.
void Launcher::empty_console() {
  while (!console_.empty()) {
    pollfd events[] = {{signals_.get(), POLLIN, 0}, {console_.next_fd(), POLLOUT, 0}};
    ::poll(events, 2, poll_timeout_ms());
    if (events[1].revents != 0) console_.write_some();
    if (events[0].revents != 0) read_signals();
    keep_time();
  }
}

}  // namespace hocket::internal::launch
