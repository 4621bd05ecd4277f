// Messages between ranks of a node, through the fifos of the board. The sender copies a message
// into the fifo and the receiver copies it out, in pieces that stay in cache. A large message in
// memory that the receiver can map is copied once, by the receiver; where ranks share cores, so is
// a large message in other memory, by the kernel (docs/decisions/017-messages-in-mapped-memory.md).
// A peer writes only to fifos, never to the memory of a transfer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/limits.h"
#include "transport/message_matcher.h"
#include "transport/shm/board.h"
#include "transport/shm/connection.h"
#include "transport/transport.h"
#include "transport/unexpected.h"

namespace hocket::internal {

struct ShmOptions {
  MatcherOptions matcher = {
      .eager_bytes = shm_eager_bytes, .frame_bytes = 64 << 10, .window_bytes = 8 << 20};
  /// ExecutorHost::map_remote; may be empty: then every message goes through a fifo.
  std::function<Status(int peer, const RegionOffset& location, std::size_t bytes,
                       std::uint64_t operation, std::byte** out)>
      map;
  /// read_process() of a peer. May be empty: then no message is copied so.
  std::function<std::ptrdiff_t(int peer, std::uint64_t address, std::size_t bytes, std::byte* to)>
      read;
};

class ShmTransport final : public Transport {
 public:
  /// ranks_of: the rank in the communicator of each local rank. wake: called to wake a rank that
  /// sleeps in poll (Board::ring returned true); may be empty if no rank sleeps in poll.
  ShmTransport(const Board& board, std::vector<int> ranks_of, std::uint64_t comm_id,
               std::function<void(int rank)> wake, const ShmOptions& options);
  ~ShmTransport() override;

  const char* name() const override { return "shm"; }
  bool reaches(int peer) const override { return local_of(peer) >= 0; }
  void post_send(Transfer& transfer) override;
  void post_recv(Transfer& transfer) override;
  bool poll() override;
  void begin_collective(std::uint64_t sequence, const Signature& signature) override {
    sequence_check_.begin(sequence, signature);
  }
  void store_non_temporal(bool non_temporal) override {
    non_temporal_.store(non_temporal, std::memory_order_relaxed);
  }
  void use_kernel_copies(bool use) override {
    kernel_copies_.store(use, std::memory_order_relaxed);
  }
  void tell_call(int peer, std::uint64_t sequence, const Signature& call) override;
  const Status* failure() const override { return sequence_check_.failure(); }
  void cancel(const Status& why) override;
  void close() override;
  std::uint64_t latest_sequence_from(int peer) const override {
    const int link = local_of(peer);
    return link < 0 ? 0 : links_[link]->matcher.latest_sequence();
  }
  int wait_descriptor() const override { return -1; }

 private:
  bool is_active() const override;
  struct Link {
    Link(int rank, int peer, int local, std::uint64_t comm_id, const MatcherOptions& options,
         UnexpectedPool& pool, CollectiveSequenceCheck& sequence_check, FifoWriter to,
         FifoReader from)
        : local(local),
          matcher(rank, peer, comm_id, options, pool, sequence_check),
          to(to),
          from(from) {}
    int local;
    MessageMatcher matcher;
    FifoWriter to;
    FifoReader from;
    OutFrame out;                 // the latest frame sent
    InFrame frame;                // the latest frame received
    bool has_header = false;      // frame.header is that of a frame
    bool receive_closed = false;  // the transport no longer reads the fifo `from`
  };

  int local_of(int peer) const;
  Link* begin(Transfer& transfer);
  void posted(Link& link, bool was_active);
  bool write(Link& link);
  bool read(Link& link);
  void put(Link& link);
  Status read_header(Link& link);
  bool read_record(Link& link);
  bool copy_located(Link& link);
  Status copy_part(const Link& link, const Transfer& recv, std::ptrdiff_t* copied);
  void close_if_ended(Link& link);
  void fail(Link& link, const Status& why);
  void ring(const Link& link);

  const Board board_;
  SleepWatch watch_{board_};
  const std::vector<int> ranks_of_;
  const std::function<void(int rank)> wake_;
  const ShmOptions options_;
  const std::size_t frame_bytes_;
  std::atomic<bool> non_temporal_ = false, kernel_copies_ = false;
  Status cancelled_;
  UnexpectedPool pool_;
  CollectiveSequenceCheck sequence_check_;
  std::vector<std::unique_ptr<Link>> links_;  // to all local peers
  std::vector<int> link_of_rank_;  // index in links_ of a rank; -1: the rank is no local peer
};

}  // namespace hocket::internal
