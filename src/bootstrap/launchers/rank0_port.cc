#include "bootstrap/launchers/rank0_port.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <utility>

#include "base/log.h"
#include "bootstrap/launchers/munge.h"
#include "bootstrap/launchers/resolve.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/socket.h"

namespace hocket::internal {
namespace {

constexpr std::int64_t first_pause_ms = 10;
constexpr std::int64_t longest_pause_ms = 250;
constexpr std::int64_t answer_limit_ms = 3000;

/// The whole answer of one connection; empty bytes: the other end sent something else or nothing.
Status read_answer(int fd, const JoinWait& wait, const std::string& doing,
                   std::vector<std::uint8_t>* bytes) {
  bytes->clear();
  while (bytes->size() <= longest_answer) {
    bool ready = false;
    HOCKET_RETURN_IF_ERROR(wait.until(fd, POLLIN, answer_limit_ms, &ready, doing));
    std::uint8_t part[1024];
    const ssize_t got = ready ? ::recv(fd, part, sizeof part, MSG_DONTWAIT) : -1;
    if (got == 0) return {};
    if (got < 0) break;
    bytes->insert(bytes->end(), part, part + got);
  }
  bytes->clear();
  return {};
}

/// One search over the ports of one address. trouble: why nothing was found.
Status ask_address(Address address, std::uint16_t first_port, const JobId& job_id,
                   const JoinWait& wait, const std::string& doing, Rank0Answer* out, bool* found,
                   std::string* trouble) {
  for (int i = 0; i < ports_per_job; ++i) {
    address.port = static_cast<std::uint16_t>(first_port + i);
    UniqueFd fd;
    if (const Status status = connect_to(address, wait, doing, &fd); !status.ok()) {
      if (status.code() != Code::system_error) return status;
      if (trouble->empty()) *trouble = status.message();
      continue;
    }
    std::vector<std::uint8_t> bytes;
    HOCKET_RETURN_IF_ERROR(read_answer(fd.get(), wait, doing, &bytes));
    if (!decode(bytes, out)) {
      *trouble = "another program, or another release of hocket, listens at " + address.text();
    } else if (out->job_id != job_id) {
      *trouble = "rank 0 of another job listens at " + address.text() +
                 " (did one launcher start all ranks, with one MASTER_PORT?)";
    } else {
      *found = true;
      return {};
    }
  }
  return {};
}

/// The same over all addresses of a host: rank 0 may listen on any of them.
Status ask_host(const std::string& host, std::uint16_t first_port, const JobId& job_id,
                const JoinWait& wait, const std::string& doing, Rank0Answer* out, bool* found,
                std::string* trouble) {
  std::vector<Address> addresses;
  if (const Status status = resolve_all(host, &addresses); !status.ok()) {
    *trouble = status.message();
    return {};
  }
  for (const Address& address : addresses) {
    HOCKET_RETURN_IF_ERROR(
        ask_address(address, first_port, job_id, wait, doing, out, found, trouble));
    if (*found) return {};
  }
  return {};
}

/// A thread that takes none of the process's signals.
std::thread quiet_thread(std::function<void()> work) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  std::thread thread(std::move(work));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

Rank0Server::Rank0Server(UniqueFd listener, const Rank0Answer& answer, const Key& key)
    : listener_(std::move(listener)),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      answer_(answer),
      key_(key),
      thread_(quiet_thread([this] { serve(); })) {}

Rank0Server::~Rank0Server() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(stop_.get(), &one, sizeof one));
  thread_.join();
}

Status Rank0Server::start(const Address& address, std::uint16_t first_port,
                          const Rank0Answer& answer, const Key& key,
                          std::shared_ptr<Rank0Server>* out) {
  Status last;
  for (int i = 0; i < ports_per_job; ++i) {
    Address local = address;
    local.port = static_cast<std::uint16_t>(first_port + i);
    UniqueFd listener;
    last = listen_tcp(&local, &listener);
    if (!last.ok()) continue;
    log_line(LogLevel::debug, "rank 0 answers the other ranks at " + local.text());
    out->reset(new Rank0Server(std::move(listener), answer, key));
    return {};
  }
  return {Code::system_error,
          fmt::format("none of the ports {} to {}, which all ranks compute from the launcher's "
                      "variables, is free: {}",
                      first_port, first_port + ports_per_job - 1, last.message())};
}

void Rank0Server::serve() {
  while (true) {
    pollfd events[2] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(events, 2, -1) < 0 && errno != EINTR) return;
    if (events[1].revents != 0) return;
    if (events[0].revents == 0) continue;
    const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection) best_effort([&] { answer_one(connection.get()); });
  }
}

/// Sends without reading, so that no connection can hold up the others.
void Rank0Server::answer_one(int connection) const {
  Rank0Answer answer = answer_;
  if (answer.key_from == Rank0Answer::KeyFrom::munge) {  // each credential can be opened once
    const Status sealed = seal_by_munge({key_.begin(), key_.end()}, &answer.credential);
    if (!sealed.ok()) return log_line(LogLevel::error, sealed.message());
  }
  const std::vector<std::uint8_t> bytes = encode(answer);
  static_cast<void>(!::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

Status find_rank0(const std::vector<std::string>& hosts, const std::string& host_variable,
                  std::uint16_t first_port, const JobId& job_id, const JoinWait& wait,
                  Rank0Answer* out) {
  const std::string doing =
      fmt::format("looking for rank 0 on {} ({}), ports {} to {}", fmt::join(hosts, ", "),
                  host_variable, first_port, first_port + ports_per_job - 1);
  for (std::int64_t pause_ms = first_pause_ms;;) {
    std::string trouble;
    bool found = false;
    for (const std::string& host : hosts) {
      HOCKET_RETURN_IF_ERROR(
          ask_host(host, first_port, job_id, wait, doing, out, &found, &trouble));
      if (found) return {};
    }
    HOCKET_RETURN_IF_ERROR(wait.pause(
        pause_ms, doing + ": " + trouble +
                      "; does rank 0 run there, and does a firewall let these ports in?"));
    pause_ms = std::min(2 * pause_ms, longest_pause_ms);
  }
}

}  // namespace hocket::internal
