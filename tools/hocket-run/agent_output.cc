// The part of the agent that passes on the output of the ranks, and the input of rank 0.
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "agent.h"

namespace hocket::internal::launch {
namespace {
// More than a pipe or a pseudo terminal holds. A pseudo terminal gives at most 4 KiB at a time.
constexpr std::size_t most_at_once = 256 << 10;
}  // namespace

void Agent::read_output(RankProcess& rank, int which) {
  char buffer[64 << 10];
  UniqueFd& output = rank.output[which];
  std::size_t taken = 0;
  while (output && taken < most_at_once) {
    ssize_t got = ::read(output.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EIO) got = 0;  // no process has the slave of the pseudo terminal
    if (got < 0) return;                   // there is nothing to read
    taken += static_cast<std::size_t>(got);
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
