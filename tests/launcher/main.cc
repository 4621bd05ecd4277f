// This test program is also the program that its jobs run: `test_launcher --rank WHAT`.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <set>
#include <string>

#include "bootstrap/launchers/launcher.h"
#include "bootstrap/session.h"

namespace hocket::internal::launch_test {
namespace {

template <std::size_t size>
std::string hex(const std::array<std::uint8_t, size>& bytes) {
  std::string text;
  char digits[3];
  for (const std::uint8_t byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

std::string ip_text(const Address& address) {
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(address.v6 ? AF_INET6 : AF_INET, address.ip.data(), text, sizeof text);
  return text;
}

int print_place(const LaunchInfo& info) {
  std::printf("rank %d of %d listener %d coordinator %s key %s job %s\n", info.rank, info.ranks,
              info.coordinator_listener ? 1 : 0, ip_text(info.coordinator).c_str(),
              hex(info.key).c_str(), hex(info.job_id).c_str());
  return 0;
}

/// Every rank but 0 connects to the listener of rank 0, at the address in its launch record. When
/// ranks have ended, agents connect too: they send something else, or nothing if they end first.
int meet(const LaunchInfo& info) {
  if (info.rank == 0) {
    std::set<int> met;
    while (static_cast<int>(met.size()) < info.ranks - 1) {
      pollfd event{info.coordinator_listener.get(), POLLIN, 0};  // it does not block
      ::poll(&event, 1, -1);
      const UniqueFd peer(::accept(info.coordinator_listener.get(), nullptr, nullptr));
      int rank = -1;
      const bool whole = ::recv(peer.get(), &rank, sizeof rank, MSG_WAITALL) == sizeof rank;
      if (whole && rank > 0 && rank < info.ranks) met.insert(rank);
    }
    std::printf("rank 0 met %zu\n", met.size());
    return 0;
  }
  sockaddr_in coordinator{};
  coordinator.sin_family = AF_INET;
  coordinator.sin_port = htons(info.coordinator.port);
  std::memcpy(&coordinator.sin_addr, info.coordinator.ip.data(), 4);
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&coordinator), sizeof coordinator) != 0)
    return 21;
  return ::send(fd.get(), &info.rank, sizeof info.rank, 0) == sizeof info.rank ? 0 : 22;
}

/// Joins the job as the library does, with the default join deadline.
int join(LaunchInfo info) {
  if (info.coordinator_listener) {
    const Status status =
        start_coordinator(info.key, info.job_id, "", std::move(info.coordinator_listener),
                          &info.coordinator, JoinOptions().join_deadline_ms);
    if (!status.ok()) return 12;
  }
  JoinOptions options;
  options.key = info.key;
  options.job_id = info.job_id;
  options.coordinator = info.coordinator;
  options.rank = info.rank;
  options.ranks = info.ranks;
  std::shared_ptr<Session> session;
  const Status status = Session::join(options, &session);
  std::printf("%s\n", status.ok() ? "joined" : status.message().c_str());
  return status.ok() ? 0 : 13;
}

/// Leaves it to the C library when the lines are written.
void print_lines() {
  for (int line = 0; line < 3; ++line) std::printf("line %d\n", line);
}

int rank_main(const std::string& what) {
  Settings settings;
  LaunchInfo info;
  Status status = read_settings(&settings);
  if (status.ok()) status = detect_launch(settings, &info);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 10;
  }
  if (what == "place") return print_place(info);
  if (what == "meet") return meet(info);
  if (what == "join") return join(std::move(info));
  if (what.starts_with("print-and-")) print_lines();
  if (what == "print-and-die") return ::raise(SIGKILL);
  if (what == "print-and-wait") ::pause();
  if (what == "hold") {
    print_place(info);
    std::fflush(stdout);
    while (true) ::pause();
  }
  return 11;
}

}  // namespace
}  // namespace hocket::internal::launch_test

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--rank") == 0) {
    return hocket::internal::launch_test::rank_main(argv[2]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
