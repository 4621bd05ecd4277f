#include "bootstrap/join/launch.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/limits.h"
#include "memory/shared_memory.h"

namespace hocket::internal {
namespace {

// The record, byte for byte. Little-endian: it never leaves the host.
struct Record {
  char magic[8];
  std::uint32_t version;
  std::uint32_t size;  // of the record
  std::int32_t rank;
  std::int32_t ranks;
  std::int32_t listener;  // a descriptor number; -1: none
  std::uint32_t scope;
  std::uint8_t ip[16];
  std::uint16_t port;
  std::uint8_t v6;
  std::uint8_t zero[5];
  std::uint8_t job_id[16];
  std::uint8_t key[32];
};
static_assert(sizeof(Record) == 104);

constexpr char record_magic[8] = {'h', 'o', 'c', 'k', 'e', 't', 'L', 'R'};
constexpr std::uint32_t record_version = 1;
constexpr int record_seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

Status bad_record(int fd, const std::string& why) {
  return invalid_usage("HOCKET_LAUNCH_FD names descriptor " + std::to_string(fd) + ", but " + why +
                       "; start the program with hocket-run, with nothing in between that closes "
                       "inherited descriptors");
}

Status check_record(int fd, const Record& record, off_t length) {
  if (length < 16 || std::memcmp(record.magic, record_magic, sizeof record_magic) != 0) {
    return bad_record(fd, "it holds no launch record");
  }
  if (record.version != record_version || record.size != sizeof record ||
      length != static_cast<off_t>(sizeof record)) {
    return bad_record(fd, "its launch record has version " + std::to_string(record.version) +
                              " and this libhocket reads version " +
                              std::to_string(record_version) +
                              " (hocket-run and the library come from different releases)");
  }
  const bool zeros = std::ranges::all_of(record.zero, [](std::uint8_t byte) { return byte == 0; });
  if (record.v6 > 1 || !zeros) return bad_record(fd, "its launch record is damaged");
  if (record.ranks < 1 || record.ranks > max_ranks || record.rank < 0 ||
      record.rank >= record.ranks) {
    return bad_record(fd, "its launch record says rank " + std::to_string(record.rank) + " of " +
                              std::to_string(record.ranks));
  }
  return {};
}

Status take_listener(int fd, int listener, LaunchInfo* info) {
  int listening = 0;
  socklen_t size = sizeof listening;
  if (::getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || !listening) {
    return bad_record(fd, "the coordinator's listening socket, descriptor " +
                              std::to_string(listener) + ", was closed on the way");
  }
  // The process keeps the original for a second call; children of the rank do not inherit it.
  ::fcntl(listener, F_SETFD, FD_CLOEXEC);
  info->coordinator_listener = UniqueFd(::fcntl(listener, F_DUPFD_CLOEXEC, 3));
  if (!info->coordinator_listener)
    return system_error("cannot duplicate the coordinator's listening socket");
  return {};
}

Status parse_key(const std::string& path, std::string_view text, Key* key) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  const bool sound = text.size() == 2 * key->size() &&
                     std::ranges::all_of(text, [&](char c) { return digit(c) >= 0; });
  if (!sound) {
    return invalid_argument("the job key file " + path +
                            " must hold exactly 64 hexadecimal digits; `openssl rand -hex 32` "
                            "makes them");
  }
  for (std::size_t i = 0; i < key->size(); ++i) {
    (*key)[i] = static_cast<std::uint8_t>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  }
  return {};
}

}  // namespace

Status read_launch_record(const Settings& settings, LaunchInfo* info) {
  const int fd = *settings.launch_fd;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return bad_record(fd, errno == EBADF ? "it is not open" : "it holds no launch record");
  }
  if ((seals & record_seals) != record_seals) return bad_record(fd, "it is not sealed");
  Record record{};
  struct stat file {};
  if (::fstat(fd, &file) != 0 || ::pread(fd, &record, sizeof record, 0) < 0) {
    return system_error("cannot read the launch record");
  }
  HOCKET_RETURN_IF_ERROR(check_record(fd, record, file.st_size));
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);  // the key is not for the rank's children

  std::copy(std::begin(record.key), std::end(record.key), info->key.begin());
  info->has_key = true;
  std::copy(std::begin(record.job_id), std::end(record.job_id), info->job_id.begin());
  std::copy(std::begin(record.ip), std::end(record.ip), info->coordinator.ip.begin());
  info->coordinator.v6 = record.v6 != 0;
  info->coordinator.scope = record.scope;
  info->coordinator.port = record.port;
  info->rank = record.rank;
  info->ranks = record.ranks;
  return record.listener < 0 ? Status() : take_listener(fd, record.listener, info);
}

Status make_launch_record(const LaunchInfo& info, int listener, UniqueFd* record_fd) {
  Record record{};
  std::memcpy(record.magic, record_magic, sizeof record_magic);
  record.version = record_version;
  record.size = sizeof record;
  record.rank = info.rank;
  record.ranks = info.ranks;
  record.listener = listener;
  record.scope = info.coordinator.scope;
  std::copy(info.coordinator.ip.begin(), info.coordinator.ip.end(), record.ip);
  record.port = info.coordinator.port;
  record.v6 = info.coordinator.v6;
  std::copy(info.job_id.begin(), info.job_id.end(), record.job_id);
  std::copy(info.key.begin(), info.key.end(), record.key);

  return make_constant_memfd("hocket-launch", &record, sizeof record, record_fd);
}

Status read_key_file(const std::string& path, Key* key) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return system_error("cannot open the job key file " + path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error("cannot look at the job key file " + path);
  if (!S_ISREG(info.st_mode)) return invalid_argument("the job key " + path + " is not a file");
  if (info.st_uid != ::geteuid()) {
    return invalid_argument("the job key file " + path + " belongs to another user; use your own");
  }
  if ((info.st_mode & 077) != 0) {
    return invalid_argument("others may use the job key file " + path + "; run `chmod 600 " + path +
                            "`");
  }
  char text[80];
  if (info.st_size > static_cast<off_t>(sizeof text)) return parse_key(path, {}, key);  // too long
  const ssize_t length = ::pread(fd.get(), text, sizeof text, 0);
  if (length < 0) return system_error("cannot read the job key file " + path);
  return parse_key(path, std::string_view(text, static_cast<std::size_t>(length)), key);
}

}  // namespace hocket::internal
