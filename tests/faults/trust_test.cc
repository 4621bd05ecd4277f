// What ranks check before they trust a peer: the key, the settings, the bytes of a frame, and the
// memory that they read.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <fstream>

#include "bootstrap/join/unique_id.h"
#include "faults/processes.h"
#include "transport/shm/board.h"

namespace faults {
namespace {

using ranks::Env;

hocketUniqueId with_another_key(hocketUniqueId id, bool same_job) {
  hocket::internal::UniqueIdBytes bytes;
  std::memcpy(bytes.data(), id.internal, bytes.size());
  hocket::internal::UniqueId parts;
  EXPECT_TRUE(hocket::internal::decode(bytes, &parts).ok());
  parts.key[7] ^= 1;
  if (!same_job) parts.job_id[7] ^= 1;
  bytes = hocket::internal::encode(parts);
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

/// A process of another job connects while the ranks wait for their last rank.
TEST(Joining, with_the_key_of_another_job_is_refused_and_harms_nobody) {
  for (const char* transport : {"shm", "tcp"}) {
    const Env env{{{"HOCKET_TRANSPORT", transport}}};
    SCOPED_TRACE(transport);
    Job job(3);
    const auto body = [](Process& self) {
      const hocketUniqueId id = share_new_id(self);
      hocketConfig_t config = ranks::patient_config();
      hocketComm_t comm = nullptr;
      if (self.rank == 2) {
        EXPECT_EQ(hocketRemoteError,
                  hocketCommInitRankConfig(&comm, 3, with_another_key(id, false), 2, &config));
        const std::string text = hocketGetLastError(nullptr);
        EXPECT_NE(std::string::npos, text.find("job key")) << text;
        EXPECT_EQ(nullptr, comm);
      }
      ASSERT_HOCKET(hocketCommInitRankConfig(&comm, 3, id, self.rank, &config));
      EXPECT_HOCKET(hocketBarrier(comm, nullptr));
      EXPECT_HOCKET(hocketCommDestroy(comm));
    };
    ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
    job.finish();
  }
}

TEST(Joining, with_a_wrong_key_ends_the_join_of_all_ranks_at_once_with_its_address) {
  for (const char* transport : {"shm", "tcp"}) {
    const Env env{{{"HOCKET_TRANSPORT", transport}}};
    SCOPED_TRACE(transport);
    Job job(3);
    const auto body = [](Process& self) {
      hocketUniqueId id = share_new_id(self);
      if (self.rank == 2) id = with_another_key(id, true);
      hocketConfig_t config = ranks::patient_config();
      hocketComm_t comm = nullptr;
      EXPECT_EQ(hocketRemoteError, hocketCommInitRankConfig(&comm, 3, id, self.rank, &config));
      const std::string text = hocketGetLastError(nullptr);
      if (self.rank == 2) {
        EXPECT_NE(std::string::npos, text.find("refused this rank's job key")) << text;
        return self.await_all();
      }
      for (const char* part : {"a process at ", "rank 2 of this job", "another job key"}) {
        EXPECT_NE(std::string::npos, text.find(part)) << text;
      }
      int culprit = -1;
      EXPECT_HOCKET(hocketGetLastCulprit(&culprit));
      EXPECT_EQ(2, culprit);
      self.await_all();
    };
    ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
    job.finish();
  }
}

struct Difference {
  const char *variable, *most, *odd;
};

/// Whoever has another setting hears of it at once, rank 0 and those that agree with it by their
/// next call.
void expect_mismatch(hocketResult_t result, hocketComm_t comm, const char* variable) {
  if (result == hocketSuccess) result = hocketBarrier(comm, nullptr);
  const std::string text = hocketGetLastError(comm);
  EXPECT_EQ(hocketMismatch, result) << variable << ": " << text;
  EXPECT_NE(std::string::npos, text.find(variable)) << text;
  EXPECT_HOCKET(hocketCommDestroy(comm));
}

TEST(Joining, names_a_setting_that_ranks_have_differently) {
  for (const Difference& difference : {Difference{"HOCKET_DETERMINISTIC", "0", "1"},
                                       {"HOCKET_ALGORITHM", "", "ring"},
                                       {"HOCKET_ALGORITHM", "ring", "tree"},
                                       {"HOCKET_TRANSPORT", "shm,tcp", "tcp"},
                                       {"HOCKET_TRACE", "", "/tmp"}}) {
    for (const int odd : {0, 1}) {
      SCOPED_TRACE(std::string(difference.variable) + ", odd rank " + std::to_string(odd));
      Job job(3);
      const auto body = [&](Process& self) {
        const hocketUniqueId id = share_new_id(self);
        const Env env{{{difference.variable, self.rank == odd ? difference.odd : difference.most}}};
        hocketConfig_t config = ranks::patient_config();
        hocketComm_t joined = nullptr, split = nullptr;
        hocketResult_t result = hocketCommInitRankConfig(&joined, 3, id, self.rank, &config);
        expect_mismatch(result, joined, difference.variable);
        result = hocketCommSplit(self.comm, 0, 0, &split, nullptr);
        expect_mismatch(result, split, difference.variable);
      };
      ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
      job.finish();
      if (testing::Test::HasFailure()) return;
    }
  }
}

// ---- A network that changes a bit

constexpr unsigned char mark_of_data = 0x5a;
constexpr std::size_t marked_bytes = 100'000;
std::atomic<int> bits_to_change{0};  // in the next marked payloads that this process sends

bool is_marked(const iovec& part) {
  const auto* bytes = static_cast<const unsigned char*>(part.iov_base);
  return part.iov_len >= 1000 &&
         std::all_of(bytes, bytes + 1000, [](unsigned char byte) { return byte == mark_of_data; });
}

}  // namespace
}  // namespace faults

/// Stands before libc's, in this program only.
extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  using namespace faults;
  static const auto real = reinterpret_cast<decltype(&sendmsg)>(dlsym(RTLD_NEXT, "sendmsg"));
  std::vector<iovec> parts(message->msg_iov, message->msg_iov + message->msg_iovlen);
  for (iovec& part : parts) {
    if (bits_to_change <= 0 || !is_marked(part)) continue;
    const auto* bytes = static_cast<const unsigned char*>(part.iov_base);
    std::vector<unsigned char> changed(bytes, bytes + part.iov_len);
    changed[500] ^= 0x10;
    part = {changed.data(), changed.size()};
    msghdr other = *message;
    other.msg_iov = parts.data();
    const ssize_t sent = real(fd, &other, flags);
    if (sent > 1000) --bits_to_change;
    return sent;
  }
  return real(fd, message, flags);
}

namespace faults {
namespace {

/// Without checksums the changed bit arrives, which shows that it was changed.
TEST(Checksum, of_the_environment_finds_a_changed_bit) {
  for (const char* checksum : {"0", "1"}) {
    const Env env({{"HOCKET_TRANSPORT", "tcp"}, {"HOCKET_CHECKSUM", checksum}});
    SCOPED_TRACE(std::string("HOCKET_CHECKSUM=") + checksum);
    const bool finds = *checksum == '1';
    Job job(2);
    const auto body = [finds](Process& self) {
      std::vector<unsigned char> bytes(marked_bytes, self.rank == 0 ? mark_of_data : 0);
      if (self.rank == 0) {
        bits_to_change = 1;
        (void)hocketSend(bytes.data(), bytes.size(), hocketUint8, 1, self.comm, nullptr);
        EXPECT_EQ(0, bits_to_change);
        return;
      }
      const hocketResult_t result =
          hocketRecv(bytes.data(), bytes.size(), hocketUint8, 0, self.comm, nullptr);
      const std::string text = hocketGetLastError(self.comm);
      if (finds) {
        EXPECT_EQ(hocketRemoteError, result) << text;
        EXPECT_NE(std::string::npos, text.find("CRC32C")) << text;
        int culprit = -1;
        EXPECT_HOCKET(hocketCommGetCulprit(self.comm, &culprit));
        EXPECT_EQ(0, culprit);
      } else {
        EXPECT_EQ(hocketSuccess, result) << text;
        EXPECT_EQ(1, std::count_if(bytes.begin(), bytes.end(), [](unsigned char byte) {
                    return byte == (mark_of_data ^ 0x10);
                  }));
      }
    };
    ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
    job.finish();
  }
}

/// The shared memory of the communicator's ranks on this host, as this process has mapped it.
hocket::internal::Board board_of(const Process& self) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:hocket-board") == std::string::npos) continue;
    auto* const base = reinterpret_cast<std::byte*>(std::stoull(line, nullptr, 16));
    return {base, self.ranks, self.rank};
  }
  ADD_FAILURE() << "no board is mapped";
  return {};
}

/// Something writes into the line of a rank that has arrived, before a peer reads it.
TEST(Board, that_something_has_overwritten_is_an_error_that_says_so) {
  for (const int victim : {0, 2}) {
    // A barrier of messages, which the selector may find cheaper, writes no arrival lines.
    const Env env{{{"HOCKET_TRANSPORT", "shm"}, {"HOCKET_ALGORITHM", "inline"}}};
    Job job(3);
    const auto body = [victim](Process& self) {
      const hocket::internal::Board board = board_of(self);
      ASSERT_HOCKET(hocketBarrier(self.comm, nullptr));
      if (self.rank == 1) {
        std::uint64_t last = 0;
        for (std::uint64_t i = 0; i < hocket::internal::run_ahead_operations; ++i) {
          last = std::max(last, board.arrival(1, i).sequence.load());
        }
        hocket::internal::ArrivalLine& line = board.arrival(victim, last + 1);
        while (line.sequence.load() <= last) ::usleep(1000);
        line.fingerprint ^= 1;
      }
      hocketResult_t result = hocketBarrier(self.comm, nullptr);
      // A rank that had read the line before ends the call, and learns of it in the next one.
      if (result == hocketSuccess) result = hocketBarrier(self.comm, nullptr);
      self.keep(result);
    };
    ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
    job.finish();
    for (int rank = 0; rank < 3; ++rank) {
      const Report& report = job.report(rank);
      EXPECT_EQ(hocketInternalError, report.result) << report.text;
      EXPECT_EQ(victim, report.culprit) << report.text;
      EXPECT_NE(nullptr, std::strstr(report.text, "shared memory of this communicator is damaged"))
          << report.text;
    }
  }
}

/// Another process maps the caller's memfd only if it is sealed against shrinking.
TEST(Registered, memory_is_mapped_by_other_processes_and_cannot_shrink) {
  const Env env({{"HOCKET_TRANSPORT", "shm"}, {"HOCKET_ALGORITHM", "direct"}});
  Job job(2);
  const auto body = [](Process& self) {
    constexpr std::size_t bytes = 1 << 20;
    const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(0, ::ftruncate(fd, bytes));
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(MAP_FAILED, mapped);
    void* handle = nullptr;
    ASSERT_HOCKET(hocketCommRegisterFd(self.comm, mapped, bytes, fd, 0, &handle));
    EXPECT_EQ(-1, ::ftruncate(fd, 0)) << "the file could be shrunk under its readers";
    EXPECT_EQ(EPERM, errno);
    auto* const x = static_cast<unsigned char*>(mapped);
    std::fill(x, x + bytes, static_cast<unsigned char>(self.rank + 1));
    EXPECT_HOCKET(hocketAllReduce(x, x, bytes, hocketUint8, hocketSum, self.comm, nullptr));
    EXPECT_EQ(static_cast<std::ptrdiff_t>(bytes), std::count(x, x + bytes, 3));
    const char *algorithm = "", *transport = "";
    EXPECT_HOCKET(hocketCommLastAlgorithm(self.comm, &algorithm, &transport));
    EXPECT_STREQ("direct", algorithm);
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
    EXPECT_HOCKET(hocketCommDeregister(self.comm, handle));
    ::munmap(mapped, bytes);
    ::close(fd);
  };
  ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
  job.finish();
}

/// A file that its owner makes longer, to register more of it: nothing forbids that.
TEST(Registered, memory_of_a_file_that_has_grown_is_mapped_too) {
  const Env env{{{"HOCKET_TRANSPORT", "shm"}, {"HOCKET_ALGORITHM", "direct"}}};
  Job job(2);
  const auto body = [](Process& self) {
    constexpr std::size_t bytes = 1 << 20;
    const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void* handles[2] = {};
    for (int half = 0; half < 2; ++half) {
      const auto offset = static_cast<off_t>(bytes) * half;
      ASSERT_EQ(0, ::ftruncate(fd, offset + static_cast<off_t>(bytes)));
      void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
      ASSERT_NE(MAP_FAILED, mapped);
      ASSERT_HOCKET(hocketCommRegisterFd(self.comm, mapped, bytes, fd, offset, &handles[half]));
      auto* const x = static_cast<unsigned char*>(mapped);
      std::fill(x, x + bytes, static_cast<unsigned char>(self.rank + 1));
      ASSERT_HOCKET(hocketAllReduce(x, x, bytes, hocketUint8, hocketSum, self.comm, nullptr));
      EXPECT_EQ(static_cast<std::ptrdiff_t>(bytes), std::count(x, x + bytes, 3));
    }
    EXPECT_HOCKET(hocketBarrier(self.comm, nullptr));
    for (void* handle : handles) EXPECT_HOCKET(hocketCommDeregister(self.comm, handle));
    ::close(fd);
  };
  ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
  job.finish();
}

}  // namespace
}  // namespace faults
