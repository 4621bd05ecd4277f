// The header of a frame as it lies on the wire: what passes the check is within the limits, and
// the check and seal() agree.
#include "fuzz/peer_frames.h"

namespace hocket::internal {
namespace {

FUZZ_TARGET(frame_header, input) {
  const bool resealed = input.byte() % 2 == 1;  // as from a peer that computes checksums
  FrameHeader header;
  const auto raw = input.bytes<sizeof header>();
  std::memcpy(&header, raw.data(), sizeof header);
  if (resealed) seal(header);
  const char* const fault = fault_of(header, fuzzed_comm, 0);
  FrameHeader sealed = header;
  seal(sealed);
  const bool is_sealed = sealed.header_check == header.header_check;
  if (fault != nullptr) {
    FUZZ_CHECK(std::strlen(fault) > 10);
    return;
  }
  FUZZ_CHECK(is_sealed);
  FUZZ_CHECK(header.magic == frame_magic && header.version == frame_version);
  FUZZ_CHECK(header.comm_id == fuzzed_comm && header.source == 0);
  FUZZ_CHECK(header.length <= max_frame_bytes);
  const std::size_t payload = header.kind == FrameKind::nack       ? sizeof(Nack)
                              : header.kind == FrameKind::location ? sizeof(RegionOffset)
                                                                   : 0;
  FUZZ_CHECK(header.kind == FrameKind::data || header.length == payload);
  FUZZ_CHECK(crc32c(&header, 108) == crc32c_by_table(&header, 108));
  FUZZ_CHECK(key_of(header) == key_of(sealed));
}

}  // namespace
}  // namespace hocket::internal
