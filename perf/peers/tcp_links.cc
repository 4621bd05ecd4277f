#include "tcp_links.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace hocket::peers {
namespace {

constexpr int address_waits = 1000;  // of 10 ms

/// The address of an interface, in text; empty: it has none.
std::string address_of(const char* interface) {
  ifaddrs* list = nullptr;
  std::string text;
  if (::getifaddrs(&list) != 0) return text;
  for (const ifaddrs* one = list; one != nullptr && text.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if (std::strcmp(one->ifa_name, interface) != 0) continue;
    char buffer[INET_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr, buffer,
                sizeof buffer);
    text = buffer;
  }
  ::freeifaddrs(list);
  return text;
}

/// Returns a socket that listens, and writes its address into the file; -1: it cannot.
int listen_for(int connections, const std::string& file) {
  const char* const interface = std::getenv("FLOOR_INTERFACE");
  const std::string text = address_of(interface == nullptr ? "lo" : interface);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  if (::inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) return -1;
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t bytes = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      ::listen(listener, connections) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return -1;
  }
  const std::string made = file + ".made";
  std::ofstream(made) << text << ' ' << ntohs(address.sin_port) << '\n';
  return std::rename(made.c_str(), file.c_str()) == 0 ? listener : -1;
}

/// Returns a socket to the rank that has written its address into the file, and tells that rank
/// which rank this is; -1: it cannot.
int connect_to(const std::string& file, int rank) {
  std::string text;
  int port = 0;
  for (int i = 0; i < address_waits && !(std::ifstream(file) >> text >> port); ++i) {
    ::usleep(10'000);
  }
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) return -1;
  const int link = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool told = ::connect(link, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                    ::send(link, &rank, sizeof rank, MSG_NOSIGNAL) == sizeof rank;
  return told ? link : -1;
}

bool make_quick(int link) {
  const int one = 1;
  return ::setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0 &&
         ::fcntl(link, F_SETFL, O_NONBLOCK) == 0;
}

/// The connections of ranks that are higher than this rank.
bool accept_from(int listener, std::size_t first, std::vector<int>* links) {
  for (std::size_t i = first; i < links->size(); ++i) {
    const int link = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    int from = -1;
    if (link < 0 || ::recv(link, &from, sizeof from, MSG_WAITALL) != sizeof from) return false;
    if (from < static_cast<int>(first) || from >= static_cast<int>(links->size())) return false;
    (*links)[static_cast<std::size_t>(from)] = link;
  }
  return true;
}

bool connect_all(int rank, int ranks, const std::string& meeting_file, std::vector<int>* links) {
  const auto file_of = [&](int of) { return meeting_file + '.' + std::to_string(of); };
  links->assign(static_cast<std::size_t>(ranks), -1);
  const int listener = rank + 1 < ranks ? listen_for(ranks, file_of(rank)) : -1;
  if (rank + 1 < ranks && listener < 0) return false;
  for (int to = 0; to < rank; ++to) {
    const int link = connect_to(file_of(to), rank);
    if (link < 0) return false;
    (*links)[static_cast<std::size_t>(to)] = link;
  }
  if (!accept_from(listener, static_cast<std::size_t>(rank) + 1, links)) return false;
  if (listener >= 0) ::close(listener);
  for (const int link : *links) {
    if (link >= 0 && !make_quick(link)) return false;
  }
  return true;
}

}  // namespace

bool connect_ranks(int rank, int ranks, const std::string& meeting_file, std::vector<int>* links,
                   std::string* error) {
  if (rank >= 0 && rank < ranks && connect_all(rank, ranks, meeting_file, links)) return true;
  *error = std::string("no connections between the ranks: ") + std::strerror(errno);
  return false;
}

}  // namespace hocket::peers
