// The message matcher by itself: frames that no honest peer sends, and orders of frames that a
// network may produce, but seldom does.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "fabric.h"
#include "transport/message_matcher.h"

namespace hocket::internal::testing {
namespace {

constexpr std::size_t eager_bytes = 1000, window_bytes = 4000;

/// The matcher of rank 1 for its link with rank 0, which is the test.
struct Rank1 {
  explicit Rank1(bool maps = true, bool checksum = false) {
    MatcherOptions options;
    options.eager_bytes = eager_bytes;
    options.window_bytes = window_bytes;
    options.max_unexpected_entries = 2;
    options.maps = maps;
    options.checksum = checksum;
    matcher = std::make_unique<MessageMatcher>(1, 0, comm_id, options, pool, sequence_check);
  }
  static FrameHeader frame(FrameKind kind, std::uint32_t index, std::uint64_t total) {
    FrameHeader header;
    header.kind = kind;
    header.comm_id = comm_id;
    header.sequence = 1;
    header.index = index;
    header.total = total;
    header.signature.sequence = 1;
    header.signature.count = total;
    header.signature.collective = Collective::all_gather;
    return header;
  }
  /// An eager message or a piece of it.
  static FrameHeader data(std::uint32_t index, std::uint64_t total, std::uint64_t offset,
                          std::uint32_t length) {
    FrameHeader header = frame(FrameKind::data, index, total);
    header.offset = offset;
    header.length = length;
    header.flags = frame_flag::eager;
    return header;
  }
  /// The payload is that of take().
  static FrameHeader location(std::uint32_t index, std::uint64_t total) {
    FrameHeader header = frame(FrameKind::location, index, total);
    header.length = sizeof(RegionOffset);
    return header;
  }
  static FrameHeader asked_for(FrameHeader header) {
    header.flags &= ~frame_flag::eager;
    return header;
  }
  /// Hands the matcher a frame with its payload; what it has against it.
  std::string take(FrameHeader header) {
    seal(header);
    InFrame in;
    Status status = matcher->accept(header, in);
    if (status.ok() && in.data != nullptr && header.length > 0) {
      std::memset(in.data, 7, header.length);
    }
    if (status.ok()) status = matcher->payload_complete(in);
    return status.ok() ? "" : status.message();
  }

  CollectiveSequenceCheck sequence_check;
  UnexpectedPool pool;
  std::unique_ptr<MessageMatcher> matcher;
};

TEST(Frames, of_an_older_version_are_refused_with_both_versions) {
  Rank1 rank;
  FrameHeader header = Rank1::data(0, 100, 0, 100);
  header.version = frame_version - 1;
  EXPECT_EQ(rank.take(header),
            "rank 0 broke the protocol: it sent a frame of another version of hocket: version " +
                std::to_string(frame_version - 1) + ", where this process has version " +
                std::to_string(frame_version) +
                ". Check that all ranks use the same version of hocket, and the network between "
                "the hosts");
  Rank1 other;
  header.magic = 0;
  EXPECT_EQ(other.take(header).find("version " + std::to_string(frame_version - 1)),
            std::string::npos)
      << "what is no frame has no version";
}

/// Tags have 32 bits, as ranks have in plans.
TEST(Frames, whose_tags_differ_above_16_bits_are_other_messages) {
  Rank1 rank;
  Signature signature = Rank1::data(0, 4, 0, 4).signature;
  std::byte low[4] = {}, high[4] = {};
  Transfer recvs[2];
  for (std::uint32_t i = 0; i < 2; ++i) {
    recvs[i].key = {.sequence = 1, .index = 0, .tag = 3 + (i << 16), .p2p = false};
    recvs[i].peer = 0;
    recvs[i].data = i == 0 ? low : high;
    recvs[i].bytes = 4;
    recvs[i].signature = &signature;
    rank.matcher->post_recv(recvs[i]);
  }
  FrameHeader header = Rank1::data(0, 4, 0, 4);
  header.tag = 3 + (1U << 16);
  EXPECT_EQ(rank.take(header), "");
  EXPECT_FALSE(recvs[0].done);
  EXPECT_TRUE(recvs[1].done);
  EXPECT_EQ(high[0], std::byte{7});
  EXPECT_EQ(low[0], std::byte{0});
  header.tag = 3;
  EXPECT_EQ(rank.take(header), "");
  EXPECT_TRUE(recvs[0].done);
}

struct Violation {
  const char* name;
  std::size_t posted;  // a receive of so many bytes under index 0; 0: none
  std::vector<FrameHeader> frames;
  const char* sentence;  // of the last frame; those before it are in order
};

std::vector<Violation> violations_of_data() {
  const auto data = Rank1::data;
  const auto asked_for = Rank1::asked_for;
  return {
      {"beyond the end, not posted", 0, {data(0, 100, 60, 50)}, "beyond the end of its message"},
      {"beyond the end, posted", 100, {data(0, 100, 60, 50)}, "beyond the end of its message"},
      {"an offset that wraps", 100, {data(0, 100, ~0ull - 9, 50)}, "beyond the end of its message"},
      {"an empty piece", 100, {data(0, 100, 0, 0)}, "an empty piece"},
      {"a piece twice, posted",
       100,
       {data(0, 100, 0, 60), data(0, 100, 0, 60)},
       "more payload than its message has"},
      {"a piece twice, not posted",
       0,
       {data(0, 100, 0, 60), data(0, 100, 0, 60)},
       "more payload than its message has"},
      {"not asked for, posted", 100, {asked_for(data(0, 100, 0, 100))}, "before the CTS"},
      {"not asked for, not posted", 0, {asked_for(data(0, 100, 0, 100))}, "before the CTS"},
      {"eager in part",
       100,
       {data(0, 100, 0, 60), asked_for(data(0, 100, 60, 40))},
       "eager only in part"},
      {"eager and too large", 0, {data(0, 1001, 0, 1001)}, "more eager payload than its window"},
      {"more than the window",
       0,
       {data(0, 1000, 0, 1000), data(1, 1000, 0, 1000), data(2, 1000, 0, 1000),
        data(3, 1000, 0, 1000)},
       "more eager payload than its window"},
  };
}

std::vector<Violation> violations_of_control() {
  const auto frame = Rank1::frame;
  const auto location = Rank1::location;
  return {
      {"an offer twice, posted",
       2000,
       {frame(FrameKind::rts, 0, 2000), frame(FrameKind::rts, 0, 2000)},
       "that it has sent already"},
      {"an offer twice, not posted",
       0,
       {frame(FrameKind::rts, 0, 2000), frame(FrameKind::rts, 0, 2000)},
       "the same control frame twice"},
      {"a CTS twice",
       0,
       {frame(FrameKind::cts, 0, 2000), frame(FrameKind::cts, 0, 2000)},
       "the same control frame twice"},
      {"more offers than there is room for",
       0,
       {frame(FrameKind::rts, 0, 2000), frame(FrameKind::cts, 1, 2000),
        frame(FrameKind::rts, 2, 2000)},
       "more RTS and CTS frames than allowed"},
      {"a location twice, not posted",
       0,
       {location(0, 2000), location(0, 2000)},
       "the same control frame"},
      {"a location after an offer",
       2000,
       {frame(FrameKind::rts, 0, 2000), location(0, 2000)},
       "a message in two ways"},
      {"a location after a piece",
       2000,
       {Rank1::asked_for(Rank1::data(0, 2000, 0, 100)), location(0, 2000)},
       "a message in two ways"},
      {"a FIN of a message that was not sent",
       0,
       {frame(FrameKind::fin, 0, 2000)},
       "that it has copied a message that is not under way"},
      {"a refusal of a message that was not sent",
       0,
       {frame(FrameKind::refusal, 0, 2000)},
       "that it cannot copy a message that is not under way"},
      {"a credit for what was never sent",
       0,
       {frame(FrameKind::credit, 0, 1)},
       "more bytes than this rank has sent"},
  };
}

TEST(Matcher, refuses_frames_that_break_the_protocol) {
  for (const auto& violations : {violations_of_data(), violations_of_control()}) {
    for (const Violation& violation : violations) {
      SCOPED_TRACE(violation.name);
      Rank1 rank;
      Message recv(0, {.sequence = 1}, violation.posted);
      if (violation.posted > 0) rank.matcher->post_recv(recv.transfer);
      for (std::size_t i = 0; i + 1 < violation.frames.size(); ++i) {
        ASSERT_EQ("", rank.take(violation.frames[i]));
      }
      const std::string complaint = rank.take(violation.frames.back());
      EXPECT_NE(std::string::npos, complaint.find(violation.sentence)) << complaint;
      EXPECT_NE(std::string::npos, complaint.find("rank 0 broke the protocol")) << complaint;
      rank.matcher->end({Code::aborted, "the test is over"});
    }
  }
}

/// Only links within a node map memory; only messages that are not eager are worth it; and a
/// checksum is of a payload.
TEST(Matcher, sends_the_location_of_a_large_message_if_it_is_mappable_and_the_link_maps) {
  for (int bits = 0; bits < 16; ++bits) {
    const bool maps = (bits & 1) != 0, checksum = (bits & 2) != 0, mappable = (bits & 4) != 0;
    const bool readable = (bits & 8) != 0;
    Rank1 rank(maps, checksum);
    Message large(0, {.sequence = 1}, 2000), small(0, {.sequence = 2}, 100);
    for (Message* const message : {&large, &small}) {
      message->transfer.mappable = mappable;
      message->transfer.readable = readable;
      rank.matcher->post_send(message->transfer);
    }
    OutFrame out;
    ASSERT_TRUE(rank.matcher->next_frame(MessageMatcher::any, 5000, out));
    const bool sends_location = maps && (mappable || readable) && !checksum;
    EXPECT_EQ(sends_location ? FrameKind::location : FrameKind::rts, out.header.kind) << bits;
    if (sends_location) {
      RegionOffset sent;
      ASSERT_EQ(sizeof sent, out.header.length);
      std::memcpy(&sent, out.payload, sizeof sent);
      EXPECT_EQ(large.transfer.location.offset, sent.offset);
      EXPECT_EQ(large.transfer.location.region, sent.region);
    }
    ASSERT_TRUE(rank.matcher->next_frame(MessageMatcher::any, 5000, out));
    EXPECT_EQ(FrameKind::data, out.header.kind);
    rank.matcher->end({Code::aborted, "the test is over"});
  }
  Rank1 rank(false);
  EXPECT_NE(std::string::npos,
            rank.take(Rank1::location(0, 2000)).find("over a link that maps none"));
}

/// A receive of such a message sends no CTS, and takes the location whenever it comes.
TEST(Matcher, sends_the_location_of_an_eager_message_only_if_the_sender_prefers_that) {
  for (int bits = 0; bits < 8; ++bits) {
    const bool maps = (bits & 1) != 0, prefers = (bits & 2) != 0, mappable = (bits & 4) != 0;
    Rank1 rank(maps);
    Message small(0, {.sequence = 1}, 100);
    small.transfer.mappable = mappable;
    small.transfer.readable = false;
    small.transfer.prefers_location = prefers;
    rank.matcher->post_send(small.transfer);
    OutFrame out;
    ASSERT_TRUE(rank.matcher->next_frame(MessageMatcher::any, 5000, out));
    const bool located = maps && mappable && prefers;
    EXPECT_EQ(located ? FrameKind::location : FrameKind::data, out.header.kind) << bits;
    rank.matcher->end({Code::aborted, "the test is over"});
  }
  for (const bool posted_first : {true, false}) {
    Rank1 rank;
    Message recv(0, {.sequence = 1}, 100);
    recv.signature = Rank1::location(0, 100).signature;
    if (posted_first) rank.matcher->post_recv(recv.transfer);
    EXPECT_FALSE(rank.matcher->has_frames()) << "no CTS";
    ASSERT_EQ("", rank.take(Rank1::location(0, 100)));
    if (!posted_first) rank.matcher->post_recv(recv.transfer);
    ASSERT_EQ(&recv.transfer, rank.matcher->next_located());
    rank.matcher->end({Code::aborted, "the test is over"});
  }
}

/// A receive that was posted before the location arrived has sent a CTS.
TEST(Matcher, a_message_with_a_location_ends_by_a_fin_and_takes_one_cts) {
  Rank1 rank;
  Message send(0, {.sequence = 1}, 2000);
  send.signature = Rank1::location(0, 2000).signature;
  rank.matcher->post_send(send.transfer);
  ASSERT_EQ("", rank.take(Rank1::frame(FrameKind::cts, 0, 2000)));
  EXPECT_FALSE(send.transfer.done);
  ASSERT_EQ("", rank.take(Rank1::frame(FrameKind::fin, 0, 2000)));
  EXPECT_TRUE(send.transfer.done && send.transfer.status.ok());
  EXPECT_EQ(2000u, send.transfer.moved);
  Message again(0, {.sequence = 1, .index = 1}, 2000);
  again.signature = send.signature;
  rank.matcher->post_send(again.transfer);
  ASSERT_EQ("", rank.take(Rank1::frame(FrameKind::cts, 1, 2000)));
  EXPECT_NE(std::string::npos,
            rank.take(Rank1::frame(FrameKind::cts, 1, 2000)).find("the same control frame twice"));
  rank.matcher->end({Code::aborted, "the test is over"});
}

TEST(Matcher, a_location_of_another_call_is_a_mismatch) {
  for (const bool posted_first : {true, false}) {
    Rank1 rank;
    Message recv(0, {.sequence = 1}, 2001);
    if (posted_first) rank.matcher->post_recv(recv.transfer);
    ASSERT_EQ("", rank.take(Rank1::location(0, 2000)));
    if (!posted_first) rank.matcher->post_recv(recv.transfer);
    ASSERT_TRUE(recv.transfer.done);
    EXPECT_EQ(Code::mismatch, recv.transfer.status.code());
  }
}

TEST(Matcher, a_credit_never_goes_back) {
  Rank1 rank;
  Message send(0, {.sequence = 1}, 100);
  rank.matcher->post_send(send.transfer);
  EXPECT_EQ("", rank.take(Rank1::frame(FrameKind::credit, 0, 356)));
  EXPECT_NE("", rank.take(Rank1::frame(FrameKind::credit, 0, 355)));
  rank.matcher->end({Code::aborted, "the test is over"});
}

TEST(Matcher, a_receive_ends_when_its_offer_has_come_too) {
  Rank1 rank;
  Message recv(0, {.sequence = 1}, 2000);
  rank.matcher->post_recv(recv.transfer);  // asks for the message, because it is large
  FrameHeader data = Rank1::asked_for(Rank1::data(0, 2000, 0, 2000));
  data.flags |= frame_flag::rts_sent;  // the sender had sent an offer, which this frame overtakes
  ASSERT_EQ("", rank.take(data));
  EXPECT_FALSE(recv.transfer.done) << "the offer would wait for ever for its receive";
  ASSERT_EQ("", rank.take(Rank1::frame(FrameKind::rts, 0, 2000)));
  EXPECT_TRUE(recv.transfer.done && recv.transfer.status.ok());
}

TEST(Matcher, a_message_of_a_collective_that_was_not_called_is_found) {
  Rank1 rank;
  // Nothing of collective 1 has been posted, so rank 0 may be right about it.
  ASSERT_EQ("", rank.take(Rank1::frame(FrameKind::rts, 5, 2000)));
  EXPECT_EQ(nullptr, rank.sequence_check.failure());
  Signature mine = Rank1::frame(FrameKind::rts, 5, 2000).signature;
  mine.count = 100;  // another call
  rank.sequence_check.begin(1, mine);
  ASSERT_NE(nullptr, rank.sequence_check.failure());
  EXPECT_EQ(Code::mismatch, rank.sequence_check.failure()->code());
  EXPECT_EQ(0, rank.sequence_check.failure()->culprit());
  rank.matcher->end({Code::aborted, "the test is over"});
}

/// A peer may run ahead by thousands of collectives. Their messages take no time until this rank
/// begins these collectives, in whatever order they arrive.
TEST(Matcher, compares_only_messages_of_collectives_that_have_begun) {
  Rank1 rank;
  const auto message_of = [](std::uint64_t sequence) {
    FrameHeader header = Rank1::data(0, 4, 0, 4);
    header.sequence = header.signature.sequence = sequence;
    return header;
  };
  const auto begin = [&](std::uint64_t sequence) {
    return rank.sequence_check.begin(sequence, message_of(sequence).signature);
  };
  EXPECT_EQ(0u, begin(1));
  for (const std::uint64_t sequence : {4, 3, 7, 5, 8, 6}) {
    ASSERT_EQ("", rank.take(message_of(sequence)));
  }
  FrameHeader p2p = message_of(1);
  p2p.flags |= frame_flag::p2p;
  ASSERT_EQ("", rank.take(p2p));
  EXPECT_EQ(0u, begin(2));
  for (std::uint64_t sequence = 3; sequence <= 7; ++sequence) {
    EXPECT_EQ(1u, begin(sequence)) << sequence;
    EXPECT_EQ(nullptr, rank.sequence_check.failure());
    Message recv(0, {.sequence = sequence}, 4);
    rank.matcher->post_recv(recv.transfer);
    EXPECT_TRUE(recv.transfer.done && recv.transfer.status.ok()) << sequence;
  }
  // No receive takes the message of collective 8, which ends all the same.
  EXPECT_EQ(1u, begin(8));
  EXPECT_EQ(nullptr, rank.sequence_check.failure());
  EXPECT_EQ(1u, begin(9));
  ASSERT_NE(nullptr, rank.sequence_check.failure());
  EXPECT_EQ(Code::mismatch, rank.sequence_check.failure()->code());
}

/// The peer tells in which collective it waits for this rank.
TEST(Matcher, compares_the_call_in_which_the_peer_waits) {
  const Signature theirs = Rank1::frame(FrameKind::call, 0, 0).signature;
  Signature other = theirs;
  other.collective = Collective::barrier;
  const auto told = [](Rank1& rank, std::uint64_t sequence) {
    FrameHeader header = Rank1::frame(FrameKind::call, 0, 0);
    header.sequence = sequence;
    EXPECT_EQ("", rank.take(header));
  };
  for (const bool told_first : {true, false}) {
    Rank1 same, different, later;
    for (Rank1* rank : {&same, &different, &later}) {
      if (told_first) told(*rank, 5);
      rank->sequence_check.begin(4, theirs);
      EXPECT_EQ(nullptr, rank->sequence_check.failure());
      rank->sequence_check.begin(5, rank == &same ? theirs : other);
      if (rank == &later) rank->sequence_check.begin(6, theirs);
      if (!told_first) told(*rank, 5);
    }
    EXPECT_EQ(nullptr, same.sequence_check.failure());
    for (Rank1* rank : {&different, &later}) {
      ASSERT_NE(nullptr, rank->sequence_check.failure()) << told_first;
      EXPECT_EQ(Code::mismatch, rank->sequence_check.failure()->code());
      EXPECT_EQ(0, rank->sequence_check.failure()->culprit());
    }
  }
  // A call that is older than those that this rank keeps tells nothing.
  Rank1 rank;
  for (std::uint64_t sequence = 5; sequence <= 5 + run_ahead_operations; ++sequence)
    rank.sequence_check.begin(sequence, other);
  told(rank, 5);
  EXPECT_EQ(nullptr, rank.sequence_check.failure());
}

TEST(Matcher, sends_its_call_once) {
  Rank1 rank;
  Signature mine;
  mine.count = 77;
  rank.matcher->tell_call(3, mine);
  rank.matcher->tell_call(4, mine);  // replaces the first, which was not sent
  OutFrame frame;
  ASSERT_TRUE(rank.matcher->next_frame(MessageMatcher::any, 1000, frame));
  EXPECT_EQ(FrameKind::call, frame.header.kind);
  EXPECT_EQ(4U, frame.header.sequence);
  EXPECT_EQ(77U, frame.header.signature.count);
  EXPECT_EQ(0U, frame.header.length);
  EXPECT_FALSE(rank.matcher->has_frames());
}

}  // namespace
}  // namespace hocket::internal::testing
