// The launch record of hocket-run, and the file of a job key.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bootstrap/join/launch.h"
#include "fuzz/fuzz.h"
#include "memory/shared_memory.h"

namespace hocket::internal {
namespace {

constexpr std::size_t record_bytes = 104;

Status read_record(int fd, LaunchInfo* info) {
  Settings settings;
  settings.launch_fd = fd;
  return read_launch_record(settings, info);
}

void check_record(std::span<const std::uint8_t> bytes) {
  UniqueFd record;
  FUZZ_CHECK(make_constant_memfd("fuzz", bytes.data(), bytes.size(), &record).ok());
  LaunchInfo info;
  if (!read_record(record.get(), &info).ok()) return;
  FUZZ_CHECK(bytes.size() == record_bytes && info.has_key);
  FUZZ_CHECK(info.rank >= 0 && info.rank < info.ranks);
  UniqueFd written;
  FUZZ_CHECK(make_launch_record(info, -1, &written).ok());
  std::uint8_t again[record_bytes + 1];
  FUZZ_CHECK(::pread(written.get(), again, sizeof again, 0) == record_bytes);
  std::uint8_t listener[4];
  std::memcpy(listener, &bytes[24], sizeof listener);
  std::memcpy(again + 24, listener, sizeof listener);
  FUZZ_CHECK(std::equal(bytes.begin(), bytes.end(), again));
}

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

void check_key_file(std::string_view text) {
  const UniqueFd file(::memfd_create("fuzz", MFD_CLOEXEC));
  FUZZ_CHECK(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  FUZZ_CHECK(::fchmod(file.get(), 0600) == 0);
  Key key{5};
  const bool read = read_key_file("/proc/self/fd/" + std::to_string(file.get()), &key).ok();
  const std::string_view digits = text.substr(0, 64);
  const std::string_view end = text.substr(digits.size());
  FUZZ_CHECK(read ==
             (text.size() <= 80 && digits.size() == 64 && std::ranges::all_of(digits, is_hex) &&
              end.find_first_not_of("\r\n") == std::string_view::npos));
  FUZZ_CHECK(read || key == Key{5});
}

FUZZ_TARGET(launch_record, input) {
  if (input.byte() % 2 == 1) return check_key_file(input.text());
  check_record(input.rest());
}

}  // namespace
}  // namespace hocket::internal
