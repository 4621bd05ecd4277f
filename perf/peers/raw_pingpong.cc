// raw-pingpong: measures half a round trip between two hosts over a TCP socket that both sides poll
// without blocking: the lower bound for every small message over TCP.
//   raw-pingpong --listen ADDRESS:PORT          echoes until the other side closes
//   raw-pingpong --connect ADDRESS:PORT         prints one JSON line
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

constexpr int batch_rounds = 64;
constexpr int dial_attempts = 500;

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int fail(const char* what) {
  std::fprintf(stderr, "raw-pingpong: %s: %s\n", what, std::strerror(errno));
  return 1;
}

bool parse(const std::string& text, sockaddr_in* address) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return false;
  *address = {};
  address->sin_family = AF_INET;
  address->sin_port = htons(static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1)));
  return inet_pton(AF_INET, text.substr(0, colon).c_str(), &address->sin_addr) == 1;
}

/// Moves all bytes, spinning. 0: the other side has closed the socket; -1: an error.
ssize_t receive_all(int fd, char* data, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::recv(fd, data + done, bytes - done, MSG_DONTWAIT);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n == 0) {
      return 0;
    } else if (errno != EAGAIN && errno != EINTR) {
      return -1;
    }
  }
  return static_cast<ssize_t>(done);
}

bool send_all(int fd, const char* data, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::send(fd, data + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) done += static_cast<std::size_t>(n);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
  }
  return true;
}

int echo(const sockaddr_in& address, std::size_t bytes) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, 1) != 0) {
    return fail("listen");
  }
  pollfd waiting{listener, POLLIN, 0};
  if (::poll(&waiting, 1, 10'000) != 1) {
    std::fprintf(stderr, "raw-pingpong: nobody connected within 10 s\n");
    return 1;
  }
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return fail("accept");
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  std::vector<char> buffer(bytes);
  for (;;) {
    const ssize_t n = receive_all(fd, buffer.data(), bytes);
    if (n == 0) return 0;
    if (n < 0 || !send_all(fd, buffer.data(), bytes)) return fail("echo");
  }
}

int dial(const sockaddr_in& address) {
  for (int attempt = 0; attempt < dial_attempts; ++attempt) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    ::close(fd);
    ::usleep(10'000);  // the listener starts at the same time as this process
  }
  return -1;
}

int measure(const sockaddr_in& address, std::size_t bytes, double seconds) {
  const int fd = dial(address);
  if (fd < 0) return fail("connect");
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  std::vector<char> buffer(bytes, 'x');
  std::vector<double> halves_us;
  for (const double end = now_us() + seconds * 1e6; now_us() < end;) {
    const double start = now_us();
    for (int i = 0; i < batch_rounds; ++i) {
      if (!send_all(fd, buffer.data(), bytes) || receive_all(fd, buffer.data(), bytes) <= 0) {
        return fail("ping");
      }
    }
    halves_us.push_back((now_us() - start) / batch_rounds / 2);
  }
  std::sort(halves_us.begin(), halves_us.end());
  const std::size_t n = halves_us.size();
  double sum = 0;
  for (double t : halves_us) sum += t;
  const nlohmann::json line = {{"backend", "raw-socket"},
                               {"bytes", bytes},
                               {"ranks", 2},
                               {"memory", "plain"},
                               {"iterations", n},
                               {"operations", batch_rounds},
                               {"min_us", halves_us.front()},
                               {"p50_us", halves_us[n / 2]},
                               {"mean_us", sum / n},
                               {"p99_us", halves_us[n * 99 / 100]},
                               {"wrong", 0}};
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string listen_at, connect_to;
  std::size_t bytes = 8;
  double seconds = 0.3;
  CLI::App app{"Half a round trip over one spinning TCP socket."};
  auto* listens = app.add_option("--listen", listen_at, "ADDRESS:PORT");
  app.add_option("--connect", connect_to, "ADDRESS:PORT")->excludes(listens);
  app.add_option("--bytes", bytes)->check(CLI::Range(1, 1 << 20));
  app.add_option("--seconds", seconds)->check(CLI::Range(0.001, 600.0));
  CLI11_PARSE(app, argc, argv);
  sockaddr_in address;
  if (!parse(listen_at.empty() ? connect_to : listen_at, &address)) {
    std::fprintf(stderr, "raw-pingpong: --listen or --connect needs IPV4:PORT\n");
    return 1;
  }
  return listen_at.empty() ? measure(address, bytes, seconds) : echo(address, bytes);
}
