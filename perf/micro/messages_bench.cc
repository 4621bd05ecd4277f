// Compares messages with their underlying mechanism: tcp with a plain loop over a loopback socket,
// shm with memcpy. "alternate": one thread runs both ends in turn, which measures the work per
// message without effects of the scheduler. "threads": a spinning thread for each end.
#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "transport/frame.h"
#include "transport/shm/transport.h"
#include "transport/tcp/transport.h"

namespace hocket::internal {
namespace {

std::pair<UniqueFd, UniqueFd> tcp_pair() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  UniqueFd dialled(::socket(AF_INET, SOCK_STREAM, 0));
  if (::bind(listener.get(), generic, size) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), generic, &size) != 0 ||
      ::connect(dialled.get(), generic, size) != 0) {
    std::abort();
  }
  UniqueFd accepted(::accept(listener.get(), nullptr, nullptr));
  const int one = 1;
  for (const int fd : {dialled.get(), accepted.get()}) {
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  return {std::move(dialled), std::move(accepted)};
}

/// Two ends that exchange bytes. No call blocks.
struct Ends {
  virtual ~Ends() = default;
  virtual void start_send(int end, std::byte* data, std::size_t bytes) = 0;
  virtual void start_recv(int end, std::byte* data, std::size_t bytes) = 0;
  virtual bool sent(int end) = 0;      // moves bytes; true: the send has ended
  virtual bool received(int end) = 0;  // the same for the receive
};

struct RawSockets final : Ends {
  RawSockets() { std::tie(fds[0], fds[1]) = tcp_pair(); }
  void start_send(int end, std::byte* data, std::size_t bytes) override {
    out[end] = {data, bytes};
    sent(end);
  }
  void start_recv(int end, std::byte* data, std::size_t bytes) override { in[end] = {data, bytes}; }
  bool sent(int end) override {
    return move(out[end], [&](auto& part) {
      return ::send(fds[end].get(), part.first, part.second, MSG_DONTWAIT | MSG_NOSIGNAL);
    });
  }
  bool received(int end) override {
    return move(in[end], [&](auto& part) {
      return ::recv(fds[end].get(), part.first, part.second, MSG_DONTWAIT);
    });
  }
  template <typename Call>
  static bool move(std::pair<std::byte*, std::size_t>& part, Call call) {
    while (part.second > 0) {
      const ssize_t moved = call(part);
      if (moved <= 0) return false;
      part.first += moved;
      part.second -= static_cast<std::size_t>(moved);
    }
    return true;
  }
  UniqueFd fds[2];
  std::pair<std::byte*, std::size_t> out[2], in[2];
};

struct Transports : Ends {
  void start_send(int end, std::byte* data, std::size_t bytes) override {
    start(send[end], end, ++sends[end], data, bytes);
    at[end]->post_send(send[end]);
  }
  void start_recv(int end, std::byte* data, std::size_t bytes) override {
    start(recv[end], end, ++recvs[end], data, bytes);
    at[end]->post_recv(recv[end]);
  }
  void start(Transfer& transfer, int end, std::uint64_t number, std::byte* data,
             std::size_t bytes) {
    transfer.key.sequence = number;
    transfer.peer = 1 - end;
    transfer.data = data;
    transfer.bytes = bytes;
    transfer.signature = &signature;
  }
  bool sent(int end) override {
    if (!send[end].done) at[end]->poll();
    return send[end].done;
  }
  bool received(int end) override {
    if (!recv[end].done) at[end]->poll();
    return recv[end].done;
  }
  std::unique_ptr<Transport> at[2];
  Transfer send[2], recv[2];
  std::uint64_t sends[2] = {0, 0}, recvs[2] = {0, 0};
  Signature signature;
};

struct Tcp final : Transports {
  explicit Tcp(int connections, std::size_t frame_bytes = 512 << 10, bool checksum = false) {
    TcpOptions options;
    options.connections = connections;
    options.matcher.frame_bytes = frame_bytes;
    options.matcher.checksum = checksum;
    std::unique_ptr<TcpTransport> made[2];
    for (int end = 0; end < 2; ++end) {
      if (!TcpTransport::make(end, 2, 1, {}, options, &made[end]).ok()) std::abort();
    }
    for (int index = 0; index < connections; ++index) {
      auto [a, b] = tcp_pair();
      made[0]->adopt(1, index, std::move(a), {});
      made[1]->adopt(0, index, std::move(b), {});
    }
    for (int end = 0; end < 2; ++end) {
      made[end]->poll();
      at[end] = std::move(made[end]);
    }
  }
};

struct Shm final : Transports {
  Shm() {
    bytes = Board::bytes(2);
    base = static_cast<std::byte*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (base == MAP_FAILED) std::abort();
    for (int end = 0; end < 2; ++end) {
      at[end] = std::make_unique<ShmTransport>(Board(base, 2, end), std::vector<int>{0, 1}, 1,
                                               nullptr, ShmOptions{});
    }
  }
  ~Shm() override {
    for (auto& transport : at) transport.reset();
    ::munmap(base, bytes);
  }
  std::byte* base;
  std::size_t bytes;
};

// An iteration is a round trip.
void alternate(benchmark::State& state, Ends& ends, std::size_t bytes) {
  std::vector<std::byte> memory[2] = {std::vector<std::byte>(bytes), std::vector<std::byte>(bytes)};
  for (auto _ : state) {
    for (int from = 0; from < 2; ++from) {
      ends.start_recv(1 - from, memory[1 - from].data(), bytes);
      ends.start_send(from, memory[from].data(), bytes);
      while (!ends.received(1 - from)) ends.sent(from);
      while (!ends.sent(from)) ends.received(1 - from);
    }
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(2 * bytes * state.iterations()));
}

void threads(benchmark::State& state, Ends& ends, std::size_t bytes) {
  std::vector<std::byte> memory[2] = {std::vector<std::byte>(bytes), std::vector<std::byte>(bytes)};
  std::atomic<bool> stop{false};
  std::thread echo([&] {
    for (;;) {
      ends.start_recv(1, memory[1].data(), bytes);
      while (!ends.received(1)) {
        if (stop.load(std::memory_order_relaxed)) return;
      }
      ends.start_send(1, memory[1].data(), bytes);
      while (!ends.sent(1)) {
      }
    }
  });
  for (auto _ : state) {
    ends.start_recv(0, memory[0].data(), bytes);
    ends.start_send(0, memory[0].data(), bytes);
    while (!ends.received(0)) ends.sent(0);
  }
  stop = true;
  echo.join();
  state.SetBytesProcessed(static_cast<std::int64_t>(2 * bytes * state.iterations()));
}

using Maker = std::function<std::unique_ptr<Ends>()>;

void add(const std::string& name, std::size_t bytes, const Maker& make) {
  for (const bool both : {false, true}) {
    benchmark::RegisterBenchmark((name + (both ? "/threads" : "/alternate")).c_str(),
                                 [=](benchmark::State& state) {
                                   const std::unique_ptr<Ends> ends = make();
                                   (both ? threads : alternate)(state, *ends, bytes);
                                 })
        ->UseRealTime();
  }
}

void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<std::byte> from(bytes), to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::DoNotOptimize(to.data());
    std::memcpy(from.data(), to.data(), bytes);
    benchmark::DoNotOptimize(from.data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(2 * bytes * state.iterations()));
}

void checksum(benchmark::State& state) {
  std::vector<std::byte> data(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(crc32c(data.data(), data.size()));
  state.SetBytesProcessed(static_cast<std::int64_t>(data.size() * state.iterations()));
}

}  // namespace
}  // namespace hocket::internal

int main(int argc, char** argv) {
  using namespace hocket::internal;
  constexpr std::size_t kib = 1 << 10, mib = 1 << 20;
  for (const std::size_t bytes : {std::size_t{8}, 64 * kib, 64 * mib}) {
    const std::string size = fmt::format("/{}", bytes);
    add("raw_socket" + size, bytes, [] { return std::make_unique<RawSockets>(); });
    add("tcp" + size, bytes, [] { return std::make_unique<Tcp>(1); });
    add("shm" + size, bytes, [] { return std::make_unique<Shm>(); });
  }
  for (const int connections : {1, 2, 4}) {
    for (const std::size_t frame : {128 * kib, 256 * kib, 512 * kib, mib}) {
      add(fmt::format("tcp_64MiB/connections:{}/frame:{}", connections, frame), 64 * mib,
          [=] { return std::make_unique<Tcp>(connections, frame); });
    }
  }
  add("tcp_checked/67108864", 64 * mib, [=] { return std::make_unique<Tcp>(1, 512 * kib, true); });
  benchmark::RegisterBenchmark("memcpy", copy)->Arg(64 << 20)->UseRealTime();
  benchmark::RegisterBenchmark("crc32c", checksum)->Arg(8)->Arg(84)->Arg(64 << 10)->Arg(1 << 20);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
