// The frame: the unit in which messages travel between two ranks, in shm and tcp alike. A header of
// 112 bytes (little endian), then `length` bytes of payload. docs/protocol/frames.md draws it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "transport/transport.h"

namespace hocket::internal {

enum class FrameKind : std::uint8_t {
  data = 1,      // a piece of a message
  rts = 2,       // request to send: the sender has a message that is not eager
  cts = 3,       // clear to send: the receive is posted
  credit = 4,    // total: bytes of the peer's eager traffic that were consumed so far
  nack = 5,      // sender and receiver disagree; the payload (a Nack) quotes the peer
  goodbye = 6,   // the last frame of a connection
  reading = 7,   // the first frame on a second or later connection: its sender reads from it
  call = 8,      // says in which collective the sender waits for the receiver
  location = 9,  // where the message is in memory which the receiver can map: a RegionOffset
  fin = 10,      // the receiver has copied the message from its location
  refusal = 11,  // the receiver cannot copy the message from its location: send the payload
};

namespace frame_flag {
inline constexpr std::uint16_t p2p = 1;
inline constexpr std::uint16_t eager = 2;     // data: sent without a CTS, counts against the window
inline constexpr std::uint16_t rts_sent = 4;  // data: an RTS was sent too; it may arrive later
inline constexpr std::uint16_t checked = 8;   // payload_check is set
inline constexpr std::uint16_t all = 15;
}  // namespace frame_flag

inline constexpr std::uint32_t frame_magic = 0x31746b68;  // "hkt1"
inline constexpr std::uint8_t frame_version = 5;

struct FrameHeader {
  std::uint32_t magic = frame_magic;
  std::uint8_t version = frame_version;
  FrameKind kind = FrameKind::data;
  std::uint16_t flags = 0;
  std::uint64_t comm_id = 0;  // of the communicator
  std::uint64_t sequence = 0;
  std::uint32_t index = 0;
  std::uint32_t source = 0;  // rank that sent the frame
  std::uint64_t offset = 0;  // of the payload in its message
  std::uint64_t total = 0;   // bytes of the whole message
  Signature signature;
  std::uint32_t length = 0;  // bytes of payload that follow
  std::uint32_t tag = 0;
  std::uint32_t payload_check = 0;  // CRC32C of the payload with flag `checked`, else 0
  std::uint32_t header_check = 0;   // CRC32C of the 108 bytes before
};
static_assert(sizeof(FrameHeader) == 112);
static_assert(std::endian::native == std::endian::little, "frames are copied as they lie");

/// Payload of a NACK: the signature and the total that its receiver had sent.
struct Nack {
  Signature signature;
  std::uint64_t total = 0;
};
static_assert(sizeof(Nack) == 56);

static_assert(sizeof(RegionOffset) == 16, "the payload of a location frame");

inline constexpr std::size_t max_frame_bytes = 1 << 20;  // of payload; more is a protocol violation

inline MessageKey key_of(const FrameHeader& header) {
  return {header.sequence, header.index, header.tag, (header.flags & frame_flag::p2p) != 0};
}

void seal(FrameHeader& header);  // sets header_check

/// Checks a header that came from a peer. Returns what is wrong with it; null: nothing.
const char* fault_of(const FrameHeader& header, std::uint64_t comm_id, std::uint32_t source);

/// CRC-32C (Castagnoli), as in iSCSI. crc32c(b, crc32c(a)) is the CRC of a followed by b.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before = 0);
/// The same by table: for processors without the CRC instruction, and for the test of crc32c.
std::uint32_t crc32c_by_table(const void* data, std::size_t bytes, std::uint32_t before = 0);

}  // namespace hocket::internal
