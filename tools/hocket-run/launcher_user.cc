// The part of the launcher that passes the user's signals and standard input to the ranks.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher.h"

namespace hocket::internal::launch {
namespace {

// A second Ctrl-C within this time ends the ranks at once.
constexpr Nanos insisting = 2 * nanos_per_s;

}  // namespace

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
  if (ends) {
    end_reason_ = signal_name(number);
    end_asked_at_ = monotonic_now();
  }
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
  const std::string payload = payload_of(static_cast<std::uint32_t>(number));
  for (Host& host : hosts_) {
    if (!host.gone) host.stream.send(Type::signal, payload);
  }
  if (number == SIGTSTP) suspend();
}

void Launcher::suspend() {
  // Stop the ranks first: the agents must get the message before this process stops.
  for (int tries = 0; tries < 100; ++tries) {
    flush_all();
    const auto sent = [](const Host& host) { return host.gone || host.stream.pending() == 0; };
    if (std::ranges::all_of(hosts_, sent)) break;
    ::poll(nullptr, 0, 10);
  }
  ::raise(SIGSTOP);
}

bool Launcher::may_read_input() const {
  if (options_.show_placement || !started_ || input_ended_ || input_on_its_way_ >= input_window ||
      hosts_[0].gone)
    return false;
  // A background job must not read from the terminal.
  return !::isatty(0) || ::tcgetpgrp(0) == ::getpgrp();
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

}  // namespace hocket::internal::launch
