// Jobs of real processes with HOCKET_TLS=1: what the network sees, and what happens when it changes
// a byte, when a rank dies, and when ranks have different settings.
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cstdarg>

#include "faults/processes.h"

namespace faults {
namespace {

using ranks::Env;

constexpr unsigned char mark = 0xa7;
std::atomic<int> marks_sent{0};       // sends with 64 bytes of the payload behind one another
std::atomic<std::int64_t> sent{0};    // bytes
std::atomic<int> bytes_to_change{0};  // one in each of the next large sends

bool has_mark(const unsigned char* bytes, std::size_t size) {
  std::size_t run = 0;
  for (std::size_t i = 0; i < size && run < 64; ++i) run = bytes[i] == mark ? run + 1 : 0;
  return run >= 64;
}

}  // namespace
}  // namespace faults

/// Stands before libc's, in this program only: the library sends by it on data connections. Like
/// libc's, it reads six arguments whether the caller gave them or not.
extern "C" [[gnu::no_sanitize_address]] long syscall(long number, ...) {
  using namespace faults;
  using Real = long (*)(long, ...);
  static std::atomic<Real> real{nullptr};  // without a guard, which may itself call syscall()
  if (real.load() == nullptr) real.store(reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "syscall")));
  long given[6];
  va_list list;
  va_start(list, number);
  for (long& value : given) value = va_arg(list, long);
  va_end(list);
  const auto call = [&](long data) {
    return real.load()(number, given[0], data, given[2], given[3], given[4], given[5]);
  };
  if (number != SYS_sendto) return call(given[1]);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given[1]);
  const auto size = static_cast<std::size_t>(given[2]);
  sent += static_cast<std::int64_t>(size);
  if (has_mark(bytes, size)) ++marks_sent;
  if (bytes_to_change <= 0 || size < 1000) return call(given[1]);
  std::vector<unsigned char> changed(bytes, bytes + size);
  changed[size / 2] ^= 0x10;
  const long taken = call(reinterpret_cast<long>(changed.data()));
  if (taken > static_cast<long>(size / 2)) --bytes_to_change;
  return taken;
}

namespace faults {
namespace {

Env with_tls(const char* tls) {
  return Env({{"HOCKET_TRANSPORT", "tcp"}, {"HOCKET_TLS", tls}, {"HOCKET_ALGORITHM", "ring"}});
}

/// The payload of small messages goes through syscall() without TLS too, which shows that the test
/// sees it.
TEST(Tls, all_reduces_give_the_right_result_and_the_network_sees_no_byte_of_it) {
  for (const char* tls : {"0", "1"}) {
    const Env env = with_tls(tls);
    SCOPED_TRACE(std::string("HOCKET_TLS=") + tls);
    const bool encrypted = *tls == '1';
    Job job(3);
    const auto body = [encrypted](Process& self) {
      marks_sent = 0;
      sent = 0;
      const std::size_t sizes[] = {300, 100'000, 9'000'001};
      for (const std::size_t count : sizes) {
        std::vector<unsigned char> x(count, mark);
        ASSERT_HOCKET(
            hocketAllReduce(x.data(), x.data(), count, hocketUint8, hocketMax, self.comm, nullptr));
        EXPECT_EQ(std::count(x.begin(), x.end(), mark), static_cast<std::ptrdiff_t>(count));
        std::fill(x.begin(), x.end(), static_cast<unsigned char>(self.rank + 1));
        ASSERT_HOCKET(
            hocketAllReduce(x.data(), x.data(), count, hocketUint8, hocketSum, self.comm, nullptr));
        EXPECT_EQ(std::count(x.begin(), x.end(), 6), static_cast<std::ptrdiff_t>(count));
      }
      if (encrypted) {
        EXPECT_EQ(0, marks_sent);
        EXPECT_LT(9'000'000, sent) << "the payload has gone another way";
      } else {
        EXPECT_LT(0, marks_sent);
      }
    };
    ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
    job.finish();
  }
}

TEST(Tls, a_byte_that_the_network_changed_is_an_error_that_names_the_peer_and_the_link) {
  const Env env = with_tls("1");
  Job job(2);
  const auto body = [](Process& self) {
    std::vector<unsigned char> x(1'000'000, 3);
    ASSERT_HOCKET(hocketBarrier(self.comm, nullptr));
    if (self.rank == 0) {
      bytes_to_change = 1;
      self.keep(hocketSend(x.data(), x.size(), hocketUint8, 1, self.comm, nullptr));
      // The send may have ended before the other rank saw the changed byte.
      if (self.report().result == hocketSuccess) self.keep(hocketBarrier(self.comm, nullptr));
      EXPECT_EQ(0, bytes_to_change);
    } else {
      self.keep(hocketRecv(x.data(), x.size(), hocketUint8, 0, self.comm, nullptr));
    }
  };
  ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
  job.finish();
  const Report& receiver = job.report(1);
  EXPECT_EQ(hocketRemoteError, receiver.result) << receiver.text;
  EXPECT_EQ(0, receiver.culprit) << receiver.text;
  for (const char* part : {"rank 0", "tcp ", "TLS has found that bytes were changed on the way"}) {
    EXPECT_NE(nullptr, std::strstr(receiver.text, part)) << receiver.text;
  }
  EXPECT_NE(hocketSuccess, job.report(0).result);
}

TEST(Tls, survivors_learn_which_rank_died) {
  for (const std::size_t count : {std::size_t{2}, std::size_t{3'000'000}}) {
    const Env env = with_tls("1");
    Job job(3);
    const auto body = [count](Process& self) {
      std::vector<float> x(count);
      for (;;) {
        const hocketResult_t result = hocketAllReduce(x.data(), x.data(), count, hocketFloat32,
                                                      hocketMax, self.comm, nullptr);
        if (result != hocketSuccess) return self.keep(result);
        ++self.report().rounds;
      }
    };
    ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
    ASSERT_NO_FATAL_FAILURE(job.await_rounds(5));
    const std::int64_t killed = now_ns();
    job.kill(2, SIGKILL);
    job.wait(2);
    job.finish();
    for (const int rank : {0, 1}) {
      const Report& report = job.report(rank);
      EXPECT_EQ(hocketRemoteError, report.result) << report.text;
      EXPECT_EQ(2, report.culprit) << report.text;
      EXPECT_GT(ranks::patient_config().silence_ms * 1'000'000LL, report.error_ns - killed);
    }
  }
}

TEST(Tls, of_ranks_that_differ_in_the_setting_no_rank_joins) {
  for (const char* transport : {"shm", "tcp"}) {
    for (const int odd : {0, 2}) {
      SCOPED_TRACE(std::string(transport) + ", odd rank " + std::to_string(odd));
      const Env env{{{"HOCKET_TRANSPORT", transport}}};
      Job job(3);
      const auto body = [odd](Process& self) {
        const hocketUniqueId id = share_new_id(self);
        const Env own{{{"HOCKET_TLS", self.rank == odd ? "1" : "0"}}};
        hocketConfig_t config = ranks::patient_config();
        hocketComm_t comm = nullptr;
        EXPECT_EQ(hocketInvalidUsage, hocketCommInitRankConfig(&comm, 3, id, self.rank, &config));
        const std::string text = hocketGetLastError(nullptr);
        const std::string name = "rank " + std::to_string(odd) + " ";
        for (const char* part : {"HOCKET_TLS=1", "HOCKET_TLS=0", name.c_str()}) {
          EXPECT_NE(std::string::npos, text.find(part)) << text;
        }
        self.await_all();
      };
      ASSERT_NO_FATAL_FAILURE(job.start(ranks::patient_config(), body));
      job.finish();
    }
  }
}

}  // namespace
}  // namespace faults
