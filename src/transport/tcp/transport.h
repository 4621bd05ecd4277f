// Messages over TCP. A link has one connection; it opens more when it sends a message of at least
// stripe_bytes or many small messages. A large message is sent as several frames, each over the
// connection that has room first. Small messages alternate between two connections
// (docs/decisions/009-turns-between-two-connections.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/byte_stream.h"
#include "base/unique_fd.h"
#include "transport/message_matcher.h"
#include "transport/tcp/connection.h"
#include "transport/transport.h"
#include "transport/unexpected.h"

namespace hocket::internal {

struct TcpOptions {
  // A CTS takes as long as 64 KiB and more of payload.
  MatcherOptions matcher = {.eager_bytes = 256 << 10};
  int connections = 2;                 // per peer, at most
  std::size_t stripe_bytes = 4 << 20;  // a message of at least this size opens all connections
  std::size_t busy_links = 8;          // with more active links, poll() uses epoll
};

/// Opens connections for the transport; the session implements it. When a connection is open, both
/// of its ends receive an adopt() call.
struct TcpDialer {
  /// Starts to open connection number `index` to peer; calling twice is harmless. Never blocks.
  std::function<void(int peer, int index)> dial;
  /// Returns "10.0.0.1:4000", for errors before a connection is open; may be empty.
  std::function<std::string(int peer)> address;
};

class TcpTransport final : public Transport {
 public:
  /// Fails if the process has no descriptors left.
  static Status make(int rank, int ranks, std::uint64_t comm_id, TcpDialer dialer,
                     const TcpOptions& options, std::unique_ptr<TcpTransport>* out);
  ~TcpTransport() override;

  /// Gives connection number `index` to peer to the transport. The stream is authenticated and has
  /// TCP_NODELAY; if the connection failed, it is empty and status is the error. Any thread may
  /// call it until the transport is destroyed.
  void adopt(int peer, int index, ByteStream stream, const Status& status);

  const char* name() const override { return "tcp"; }
  bool reaches(int peer) const override { return peer >= 0 && peer < ranks_ && peer != rank_; }
  void post_send(Transfer& transfer) override;
  void post_recv(Transfer& transfer) override;
  bool poll() override;
  void begin_collective(std::uint64_t sequence, const Signature& signature) override {
    sequence_check_.begin(sequence, signature);
  }
  void tell_call(int peer, std::uint64_t sequence, const Signature& call) override;
  const Status* failure() const override { return sequence_check_.failure(); }
  void cancel(const Status& why) override;
  void close() override;
  std::uint64_t latest_sequence_from(int peer) const override {
    return links_[peer] == nullptr ? 0 : links_[peer]->matcher.latest_sequence();
  }
  int wait_descriptor() const override { return epoll_.get(); }
  void prepare_to_sleep() override;

 private:
  bool is_active() const override;
  struct Link {
    Link(int rank, int peer, std::uint64_t comm_id, const MatcherOptions& options,
         UnexpectedPool& pool, CollectiveSequenceCheck& sequence_check)
        : matcher(rank, peer, comm_id, options, pool, sequence_check) {}
    MessageMatcher matcher;
    std::vector<std::unique_ptr<Connection>> connections;  // by index; null: not open
    std::vector<bool> dialled;
    std::string name;                    // "tcp 10.0.0.1:4000"
    std::uint64_t flushed_in_round = 0;  // value of round_ when a post last wrote at once
    unsigned eager_writes = 0;
    std::size_t expected = 0;  // index of the connection that the next eager message should use
    bool listed = false;       // in active_
    bool unwatched = false;    // in unwatched_
    bool released = false;     // its connections have released the memory of transfers
  };
  struct Adopted {
    int peer;
    int index;
    ByteStream stream;
    Status status;
  };

  TcpTransport(int rank, int ranks, std::uint64_t comm_id, TcpDialer dialer,
               const TcpOptions& options);
  Link& link(int peer) { return links_[peer] != nullptr ? *links_[peer] : make_link(peer); }
  Link& make_link(int peer);
  bool begin(Transfer& transfer);
  void dial(Link& link, int index);
  void activate(Link& link);
  bool busy(const Link& link) const;
  bool take_adopted();
  bool install(Adopted& adopted);
  std::size_t eager_connection_index(const MessageKey& key, int from, int to) const;
  std::size_t eager_connection(Link& link);
  bool flush(Link& link);
  void flush_once(Link& link, const MessageKey& key);
  bool progress_link(Link& link);
  bool receive(Link& link, std::size_t index);
  bool ask_epoll();
  void finish_link(Link& link);
  void check_goodbyes(Link& link);
  void leave(Link& link);
  void fail(Link& link, const Status& why);
  void release_link(Link& link);
  void drop(Link& link, std::size_t index);
  void watch(Link& link, std::size_t index, std::uint32_t events);
  void watch_all(Link& link, bool room);
  void unwatch_busy(Link& link, std::size_t index);
  bool poll_idle_links();
  void drain_before_close(Link& link, int& rounds);

  const int rank_;
  const int ranks_;
  const std::uint64_t comm_id_;
  const TcpDialer dialer_;
  const TcpOptions options_;
  Status cancelled_;
  UnexpectedPool pool_;
  CollectiveSequenceCheck sequence_check_;
  std::vector<std::unique_ptr<Link>> links_;  // by rank; null: never used
  std::vector<Link*> active_;
  // Each packet on a connection that epoll watches costs time in the kernel. So connections that
  // receive often are not watched while this rank is awake. Links with such connections:
  std::vector<Link*> unwatched_;
  std::uint64_t polls_ = 1;
  std::uint64_t round_ = 1;              // see flush_once()
  std::uint64_t latest_collective_ = 0;  // whose first frame began a round
  unsigned collectives_since_poll_ = 0;
  UniqueFd epoll_;
  UniqueFd wake_;  // eventfd: adopted_ is not empty

  std::mutex adopted_mutex_;
  std::vector<Adopted> adopted_;  // under adopted_mutex_
  std::atomic<bool> has_adopted_{false};
};

}  // namespace hocket::internal
