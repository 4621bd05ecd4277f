// What ranks find out about one another before they rely on it: the key and the settings.
#include "bootstrap/unique_id.h"
#include "faults/processes.h"

namespace faults {
namespace {

using ranks::Env;

hocketUniqueId with_another_key(hocketUniqueId id) {
  hocket::UniqueIdBytes bytes;
  std::memcpy(bytes.data(), id.internal, bytes.size());
  hocket::UniqueId parts;
  EXPECT_TRUE(hocket::decode(bytes, &parts).ok());
  parts.key[7] ^= 1;
  bytes = hocket::encode(parts);
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

/// A stranger who has everything but the key comes while the others wait for their last rank.
TEST(Joining, with_a_wrong_key_is_refused_and_harms_nobody) {
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
                  hocketCommInitRankConfig(&comm, 3, with_another_key(id), 2, &config));
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
                                       {"HOCKET_TRANSPORT", "shm,tcp", "tcp"}}) {
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

}  // namespace
}  // namespace faults
