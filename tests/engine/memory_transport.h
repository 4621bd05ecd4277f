// A transport inside one thread: the frames of the project's message matcher, in queues in memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "transport/message_matcher.h"

namespace hocket::internal::testing {

/// The frames under way between the ranks of one communicator.
class MemoryNetwork {
 public:
  struct Frame {
    FrameHeader header;
    std::vector<std::byte> payload;
  };
  explicit MemoryNetwork(int ranks)
      : ranks_(static_cast<std::size_t>(ranks)),
        queues_(ranks_ * ranks_),
        bytes_(ranks_ * ranks_) {}
  int ranks() const { return static_cast<int>(ranks_); }
  std::deque<Frame>& queue(int from, int to) { return queues_[link(from, to)]; }
  /// Of all frames until now, with their headers.
  std::uint64_t& bytes(int from, int to) { return bytes_[link(from, to)]; }

 private:
  std::size_t link(int from, int to) const {
    return static_cast<std::size_t>(from) * ranks_ + static_cast<std::size_t>(to);
  }

  std::size_t ranks_;
  std::vector<std::deque<Frame>> queues_;
  std::vector<std::uint64_t> bytes_;
};

class MemoryTransport final : public Transport {
 public:
  MemoryTransport(MemoryNetwork& network, int rank, const MatcherOptions& options)
      : network_(network), rank_(rank), frame_bytes_(options.frame_bytes) {
    for (int peer = 0; peer < network.ranks(); ++peer) {
      links_.push_back(
          std::make_unique<MessageMatcher>(rank, peer, 0x5eed, options, pool_, sequence_check_));
    }
  }

  const char* name() const override { return "memory"; }
  bool reaches(int peer) const override { return peer != rank_; }
  void post_send(Transfer& transfer) override { link_to(transfer.peer).post_send(transfer); }
  void post_recv(Transfer& transfer) override { link_to(transfer.peer).post_recv(transfer); }
  bool poll() override {
    bool moved = false;
    for (const auto& link : links_) {
      moved |= send(*link);
      moved |= receive(*link);
    }
    return moved;
  }
  void begin_collective(std::uint64_t sequence, const Signature& signature) override {
    sequence_check_.begin(sequence, signature);
  }
  const Status* failure() const override { return sequence_check_.failure(); }
  void cancel(const Status& why) override {
    for (const auto& link : links_) {
      if (!link->ended()) link->end(why);
    }
  }
  void close() override {}
  int wait_descriptor() const override { return -1; }
  std::uint64_t latest_sequence_from(int peer) const override {
    return links_[static_cast<std::size_t>(peer)]->latest_sequence();
  }
  bool is_active() const override {
    for (const auto& link : links_) {
      if (link->busy()) return true;
    }
    return false;
  }

 private:
  MessageMatcher& link_to(int peer) { return *links_[static_cast<std::size_t>(peer)]; }

  bool send(MessageMatcher& link) {
    bool moved = false;
    OutFrame frame;
    while (link.next_frame(MessageMatcher::any, frame_bytes_, frame)) {
      moved = true;
      seal(frame.header);
      network_.queue(rank_, link.peer())
          .push_back({frame.header, {frame.payload, frame.payload + frame.header.length}});
      network_.bytes(rank_, link.peer()) += sizeof frame.header + frame.header.length;
      if (frame.transfer != nullptr) link.sent(*frame.transfer, frame.header.length);
    }
    return moved;
  }

  bool receive(MessageMatcher& link) {
    bool moved = false;
    auto& queue = network_.queue(link.peer(), rank_);
    while (!queue.empty() && !link.ended()) {
      moved = true;
      const MemoryNetwork::Frame frame = std::move(queue.front());
      queue.pop_front();
      InFrame in;
      Status status = link.accept(frame.header, in);
      if (status.ok() && !link.ended()) {
        if (!frame.payload.empty()) {
          std::memcpy(in.data, frame.payload.data(), frame.payload.size());
        }
        status = link.payload_complete(in);
      }
      if (!status.ok()) link.end(status);
    }
    return moved;
  }

  MemoryNetwork& network_;
  const int rank_;
  const std::size_t frame_bytes_;
  UnexpectedPool pool_;
  CollectiveSequenceCheck sequence_check_;
  std::vector<std::unique_ptr<MessageMatcher>> links_;  // by peer; its own is never used
};

}  // namespace hocket::internal::testing
