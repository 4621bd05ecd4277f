// Ranks of a communicator inside the test program, connected by real transports: shm over an
// anonymous shared mapping, tcp over loopback sockets.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/byte_stream.h"
#include "base/unique_fd.h"
#include "memory/process_memory.h"
#include "transport/shm/transport.h"
#include "transport/tcp/transport.h"

namespace hocket::internal::testing {

inline constexpr std::uint64_t comm_id = 0x5eed;

/// The two ends of a loopback TCP connection, as the session hands them out.
inline std::pair<UniqueFd, UniqueFd> tcp_pair() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), generic, size) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), generic, &size) != 0) {
    std::abort();
  }
  UniqueFd dialled(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(dialled.get(), generic, size) != 0) std::abort();
  UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!accepted) std::abort();
  const int one = 1;
  for (const int fd : {dialled.get(), accepted.get()}) {
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  return {std::move(dialled), std::move(accepted)};
}

/// The two ends of a connection that uses TLS, after the TLS handshake.
inline std::pair<ByteStream, ByteStream> tls_pair(std::pair<UniqueFd, UniqueFd> sockets) {
  std::pair<ByteStream, ByteStream> ends(std::move(sockets.first), std::move(sockets.second));
  const Tls::Secret secret = {1, 2, 3};
  ends.first.start_tls(Tls::Role::client, secret);
  ends.second.start_tls(Tls::Role::server, secret);
  auto first = Tls::Progress::waits, second = Tls::Progress::waits;
  for (int i = 0; i < 1'000'000 && second == Tls::Progress::waits; ++i) {
    if (first == Tls::Progress::waits) first = ends.first.shake_hands();
    second = ends.second.shake_hands();
  }
  if (first != Tls::Progress::done || second != Tls::Progress::done) std::abort();
  ends.first.read_ahead();
  ends.second.read_ahead();
  return ends;
}

struct FabricOptions {
  int ranks = 2;
  bool tls = false;     // over tcp
  bool mapped = false;  // over shm: large messages are copied from the memory of the sender
  bool read = false;    // over shm: by the kernel
  bool checksum = false;
  std::size_t window_bytes = 0;  // 0: the default
  int connections = 2;
};

/// Polls the transports in turn until `ended` is true. The bound only turns a hang into a failure:
/// it counts polls in a row in which nothing at all moved.
template <class Ended>
void poll_until(const std::vector<Transport*>& transports, Ended ended) {
  for (int idle = 0; !ended();) {
    bool moved = false;
    for (Transport* const transport : transports) moved |= transport->poll();
    idle = moved ? 0 : idle + 1;
    if (idle > 100) std::this_thread::yield();
    ASSERT_LT(idle, 2'000'000) << "the transports are polled and nothing moves any more";
  }
}

/// Polls until nothing moves any more, as a rank does before it sleeps.
inline void settle(Transport& transport) {
  for (int idle = 0; idle < 200;) idle = transport.poll() ? 0 : idle + 1;
}

inline void poll_until_done(const std::vector<Transport*>& transports,
                            const std::vector<Transfer*>& transfers) {
  poll_until(transports, [&] {
    return std::all_of(transfers.begin(), transfers.end(),
                       [](const Transfer* transfer) { return transfer->done; });
  });
}

class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual Transport& at(int rank) = 0;
  /// The largest message that is sent eagerly.
  virtual std::size_t eager_bytes() const { return MatcherOptions().eager_bytes; }
  int ranks() const { return ranks_; }
  std::vector<Transport*> all() {
    std::vector<Transport*> found;
    for (int rank = 0; rank < ranks_; ++rank) found.push_back(&at(rank));
    return found;
  }

 protected:
  explicit Fabric(int ranks) : ranks_(ranks) {}
  const int ranks_;
};

class ShmFabric final : public Fabric {
 public:
  explicit ShmFabric(const FabricOptions& wanted) : Fabric(wanted.ranks) {
    bytes_ = Board::bytes(ranks_);
    base_ = static_cast<std::byte*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED) std::abort();
    // Local ranks run against the order of ranks, so that confusing the two shows.
    std::vector<int> ranks_of;
    for (int local = 0; local < ranks_; ++local) ranks_of.push_back(ranks_ - 1 - local);
    ShmOptions options;
    options.matcher.checksum = wanted.checksum;
    if (wanted.window_bytes > 0) options.matcher.window_bytes = wanted.window_bytes;
    if (wanted.mapped) {
      options.map = [this](int, const RegionOffset& location, std::size_t, std::uint64_t,
                           std::byte** out) {
        ++mapped;
        *out = reinterpret_cast<std::byte*>(location.offset);
        return map_result;
      };
    }
    if (wanted.read) {
      options.read = [this](int, std::uint64_t address, std::size_t bytes, std::byte* to) {
        return refuses(++reads) ? -1 : read_process(::getpid(), address, bytes, to);
      };
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      transports_.push_back(std::make_unique<ShmTransport>(Board(base_, ranks_, ranks_ - 1 - rank),
                                                           ranks_of, comm_id, nullptr, options));
      transports_.back()->store_non_temporal(rank % 2 == 0);
      transports_.back()->use_kernel_copies(wanted.read);
    }
  }
  ~ShmFabric() override {
    transports_.clear();
    ::munmap(base_, bytes_);
  }
  Transport& at(int rank) override { return *transports_[rank]; }
  std::size_t eager_bytes() const override { return ShmOptions().matcher.eager_bytes; }
  /// The fifo from a rank to another, for tests that write random bytes into it.
  std::byte* fifo(int from, int to) {
    return Board(base_, ranks_, 0).fifo(ranks_ - 1 - from, ranks_ - 1 - to);
  }
  /// The bytes of its ring that were read.
  std::uint64_t read_of_ring(int from, int to) {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(fifo(from, to) + 128)[1].load();
  }
  std::size_t fifo_bytes() { return Board(base_, ranks_, 0).fifo_bytes(); }

  Status map_result;            // of each mapping
  std::atomic<int> mapped = 0;  // how often a rank has mapped memory
  std::atomic<int> reads = 0;   // how often a rank has asked the kernel for a copy
  /// Whether the kernel refuses the n-th read.
  std::function<bool(int n)> refuses = [](int) { return false; };

 private:
  std::byte* base_;
  std::size_t bytes_;
  std::vector<std::unique_ptr<ShmTransport>> transports_;
};

class TcpFabric final : public Fabric {
 public:
  explicit TcpFabric(const FabricOptions& wanted) : Fabric(wanted.ranks), tls_(wanted.tls) {
    TcpOptions options;
    options.matcher.checksum = wanted.checksum;
    options.connections = wanted.connections;
    if (wanted.window_bytes > 0) options.matcher.window_bytes = wanted.window_bytes;
    transports_.resize(ranks_);
    for (int rank = 0; rank < ranks_; ++rank) {
      TcpDialer dialer;
      dialer.dial = [this, rank](int peer, int index) { dial(rank, peer, index); };
      dialer.address = [](int peer) { return "127.0.0.1:" + std::to_string(peer); };
      if (!TcpTransport::make(rank, ranks_, comm_id, dialer, options, &transports_[rank]).ok()) {
        std::abort();
      }
    }
  }
  Transport& at(int rank) override { return *transports_[rank]; }
  std::size_t eager_bytes() const override { return TcpOptions().matcher.eager_bytes; }
  TcpTransport& tcp(int rank) { return *transports_[rank]; }
  std::size_t dialled() {
    std::lock_guard lock(mutex_);
    return dialled_.size();
  }

 private:
  void dial(int rank, int peer, int index) {
    {
      std::lock_guard lock(mutex_);
      if (!dialled_.insert({std::min(rank, peer), std::max(rank, peer), index}).second) return;
    }
    auto sockets = tcp_pair();
    auto [here, there] =
        tls_ ? tls_pair(std::move(sockets)) : std::pair<ByteStream, ByteStream>(std::move(sockets));
    transports_[rank]->adopt(peer, index, std::move(here), {});
    transports_[peer]->adopt(rank, index, std::move(there), {});
  }

  const bool tls_;
  std::mutex mutex_;
  std::set<std::tuple<int, int, int>> dialled_;
  std::vector<std::unique_ptr<TcpTransport>> transports_;
};

/// kind: shm, mapped: shm where ranks can map all memory, read: shm where the kernel copies,
/// refused: where it does so only at times, tcp, or tls: tcp with TLS.
inline std::unique_ptr<Fabric> make_fabric(const std::string& kind, FabricOptions options) {
  options.read = kind == "read" || kind == "refused";
  options.mapped = kind == "mapped";
  if (options.read || options.mapped || kind == "shm") {
    auto fabric = std::make_unique<ShmFabric>(options);
    if (kind == "refused") fabric->refuses = [](int n) { return n % 3 != 0; };
    return fabric;
  }
  options.tls = kind == "tls";
  return std::make_unique<TcpFabric>(options);
}

/// A vector whose comparisons are calls of memcmp: unoptimized loops over some MiB take a second.
struct Bytes : std::vector<std::byte> {
  using vector::vector;
  friend bool operator==(const Bytes& a, const Bytes& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
  }
  bool all_are(std::byte value) const {
    return empty() || (front() == value && std::memcmp(data(), data() + 1, size() - 1) == 0);
  }
};

/// Of a length that is no multiple of a chunk's, so that a message which repeats them has no two
/// equal chunks. Made once: without optimization new bytes for each message would take longer than
/// to send them.
inline const Bytes& random_bytes() {
  static const Bytes all = [] {
    Bytes bytes((1 << 20) + 1003);
    std::mt19937_64 random(1);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }();
  return all;
}

/// A transfer with the memory and the signature that it needs.
struct Message {
  Message(int peer, MessageKey key, std::size_t bytes) : memory(bytes) {
    signature.sequence = key.sequence;
    signature.count = bytes;
    signature.collective = Collective::all_gather;
    transfer.key = key;
    transfer.peer = peer;
    transfer.data = memory.data();
    transfer.bytes = bytes;
    transfer.signature = &signature;
    // As far as the transport maps anything, or has the kernel copy anything.
    transfer.mappable = transfer.readable = true;
    transfer.location = {1, reinterpret_cast<std::uintptr_t>(memory.data())};
  }
  Message(const Message&) = delete;

  /// The part of random_bytes() that begins where the seed says.
  void fill(std::uint64_t seed) {
    const Bytes& all = random_bytes();
    std::size_t from = seed * 0x9e3779b97f4a7c15U % all.size();
    for (std::size_t at = 0; at < memory.size(); from = 0) {
      const std::size_t bytes = std::min(memory.size() - at, all.size() - from);
      std::memcpy(memory.data() + at, all.data() + from, bytes);
      at += bytes;
    }
  }

  Bytes memory;
  Signature signature;
  // In memory of its own: the address sanitizer then finds a write after the message is gone.
  std::unique_ptr<Transfer> owned = std::make_unique<Transfer>();
  Transfer& transfer = *owned;
};

}  // namespace hocket::internal::testing
