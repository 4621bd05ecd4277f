#pragma once

#include <cstddef>
#include <cstdint>

namespace hocket::training::storage {

/// CRC-32C (Castagnoli), as in iSCSI. crc32c(b, crc32c(a)) is the CRC of a followed by b.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t before = 0);
/// The same by a table: for processors without the CRC instruction, and for the test of crc32c.
std::uint32_t crc32c_by_table(const void* data, std::size_t bytes, std::uint32_t before = 0);

}  // namespace hocket::training::storage
