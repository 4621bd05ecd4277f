// The manifest of a checkpoint, and what ranks tell one another before a save. The first byte
// selects, and says whether length and checksum are made right.
#include "training/checkpoint_manifest.h"

#include "fuzz/fuzz.h"
#include "training/crc32c.h"
#include "training/storage_failure.h"

namespace hocket::training::storage {
namespace {

constexpr std::size_t place_of_length = 24;

void correct(std::string* bytes) {
  if (bytes->size() < place_of_length + 8 + 4) return;
  const std::uint64_t length = bytes->size();
  std::memcpy(bytes->data() + place_of_length, &length, sizeof length);
  const std::uint32_t crc = crc32c(bytes->data(), bytes->size() - 4);
  std::memcpy(bytes->data() + bytes->size() - 4, &crc, sizeof crc);
}

void check_manifest(const std::string& bytes) {
  const Manifest manifest = decode(bytes, "fuzz");
  FUZZ_CHECK(encode(manifest) == bytes);
  for (const StoredTensor& stored : manifest.tensors) {
    FUZZ_CHECK(find(manifest, stored.tensor.name) == &stored);
    std::uint64_t elements = 0;
    for (const Piece& piece : stored.pieces) {
      FUZZ_CHECK(piece.begin == elements && piece.file < manifest.file_bytes.size());
      elements += piece.elements;
    }
    FUZZ_CHECK(elements == stored.tensor.elements());
  }
}

FUZZ_TARGET(checkpoint_manifest, input) {
  const std::uint8_t what = input.byte();
  std::string bytes(input.text());
  try {
    switch (what % 4) {
      case 0:
        return check_manifest(bytes);
      case 1:
        correct(&bytes);
        return check_manifest(bytes);
      case 2:
        FUZZ_CHECK(encode(decode_metadata(bytes)) == bytes);
        return;
      default:
        FUZZ_CHECK(encode(decode_ranges(bytes)) == bytes);
    }
  } catch (const Failure& failure) {
    const std::string_view text = failure.what();
    const std::size_t damaged = text.find("is damaged");
    FUZZ_CHECK(!text.empty());
    FUZZ_CHECK(damaged == std::string_view::npos ||
               text.find("is damaged", damaged + 1) == std::string_view::npos);
  }
}

}  // namespace
}  // namespace hocket::training::storage
