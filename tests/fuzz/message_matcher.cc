// The matcher behind the fifos of shared memory and behind sockets: a peer sends any frames in any
// order over two connections, while this rank posts and sends. No byte is written outside of the
// memory of a transfer, and every transfer ends once: complete, or with an error.
#include <deque>
#include <optional>

#include "fuzz/peer_frames.h"

namespace hocket::internal {
namespace {

struct Rank {
  void post(fuzz::Input& input, bool send) {
    static constexpr std::size_t sizes[] = {0, 1, 100, 300, 900};
    const std::size_t bytes = input.pick(sizes);
    const bool p2p = send || input.byte() % 4 == 0;
    const MessageKey key{.sequence = 1, .index = next_index[send]++, .p2p = p2p};
    Transfer& transfer = posted.emplace_back(bytes, key).transfer;
    send ? matcher.post_send(transfer) : matcher.post_recv(transfer);
  }
  void frame_arrives(fuzz::Input& input) {
    std::optional<InFrame>& frame = arriving[input.byte() % 2];
    if (frame) return payload_arrives(frame);
    frame.emplace();
    const Status status = matcher.accept(peer_frame(input), *frame);
    if (!status.ok()) matcher.end(status);
    if (matcher.ended()) return frame.reset();
    FUZZ_CHECK(frame->header.length == 0 || frame->data != nullptr);
    if (frame->header.length == 0 || input.byte() % 2 == 0) payload_arrives(frame);
  }
  void payload_arrives(std::optional<InFrame>& frame) {
    if (frame->header.length > 0) std::memset(frame->data, 7, frame->header.length);
    const Status status = matcher.payload_complete(*frame);
    if (!status.ok()) matcher.end(status);
    frame.reset();
  }
  void message_is_copied() {
    Transfer* const recv = matcher.next_located();
    if (recv == nullptr) return;
    if (recv->bytes > 0) std::memset(recv->data, 7, recv->bytes);
    recv->moved = recv->bytes;
    matcher.located_complete();
  }
  void frame_leaves(fuzz::Input& input) {
    OutFrame frame;
    if (!matcher.next_frame(MessageMatcher::any, 1 + input.below(600), frame)) return;
    seal(frame.header);
    FUZZ_CHECK(fault_of(frame.header, fuzzed_comm, 1) == nullptr);
    if (frame.transfer != nullptr) matcher.sent(*frame.transfer, frame.header.length);
  }
  void step(fuzz::Input& input) {
    const std::uint8_t what = input.byte() % 9;
    if (what < 2) return post(input, what == 1);
    if (what == 8) return message_is_copied();
    if (what == 2) return frame_leaves(input);
    if (what == 3) {
      check.begin(++begun, signature_for(300));
    } else {
      frame_arrives(input);
    }
  }

  UnexpectedPool pool;
  CollectiveSequenceCheck check;
  std::deque<Posted> posted;
  std::uint32_t next_index[2] = {};
  std::uint64_t begun = 0;
  std::optional<InFrame> arriving[2];  // payload that is still to come, by connection
  MessageMatcher matcher{1, 0, fuzzed_comm, small_matcher, pool, check};
};

FUZZ_TARGET(message_matcher, input) {
  Rank rank;
  for (int steps = 0; steps < 200 && input.left() > 0 && !rank.matcher.ended(); ++steps) {
    rank.step(input);
  }
  rank.matcher.end({Code::remote_error, "the link ends", 0});
  FUZZ_CHECK(rank.matcher.open() == 0);
  for (const Posted& each : rank.posted) each.check();
}

}  // namespace
}  // namespace hocket::internal
