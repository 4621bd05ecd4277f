// A sample of the matrix with a process for each rank, as programs run: peers' memory is fetched as
// a descriptor and mapped, where ranks that are threads use the owner's address.
#include <pthread.h>

#include "faults/processes.h"
#include "matrix/cases.h"

namespace matrix {
namespace {

/// In memory that the processes of a job share.
struct Meeting {
  pthread_barrier_t all;
  SharedLedger ledger;
  std::atomic<int> ran;  // 1: the forced algorithm ran
};

Meeting* make_meeting(int ranks) {
  void* memory =
      ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* made = new (memory) Meeting{};
  pthread_barrierattr_t attributes;
  ::pthread_barrierattr_init(&attributes);
  ::pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  EXPECT_EQ(0, ::pthread_barrier_init(&made->all, &attributes, static_cast<unsigned>(ranks)));
  return made;
}

class Processes : public testing::TestWithParam<WorldKind> {};

TEST_P(Processes, get_what_the_reference_says) {
  const WorldKind& kind = GetParam();
  const bool all = ranks::long_tests();
  const std::vector<Case> cases = cases_of(kind, all ? 1 : tests::sanitized ? 96 : 12, all);
  const ranks::Env env(settings_of(kind));
  Meeting* const meeting = make_meeting(kind.ranks);
  {
    faults::Job job(kind.ranks);
    job.start(ranks::patient_config(), [&](faults::Process& process) {
      Ledger ledger(kind.ranks, meeting->ledger, true);
      ranks::Rank self{process.rank, process.ranks, process.comm,
                       [meeting] { ::pthread_barrier_wait(&meeting->all); }};
      World world(self, ledger, most_bytes(cases, kind.ranks));
      // All cases, also after a failure: the other ranks wait for this one.
      for (const Case& c : cases) world.run(c);
      if (ledger.algorithms.contains(kind.algorithm)) meeting->ran = 1;
      self.meet();  // no rank frees memory while a peer's case still runs
    });
    job.finish();
  }
  if (*kind.algorithm != '\0') {
    EXPECT_EQ(1, meeting->ran.load()) << "the forced algorithm never ran";
  }
  ::munmap(meeting, sizeof *meeting);
}

constexpr WorldKind process_kinds[] = {
    {2, "", "", false},
    {5, "", "", false},
    {3, "", "direct", true},
    {4, "", "staged", true},
    {7, "", "one-shot", true},
    {3, "shm", "ring", false},
    {2, "tcp", "", false},
    {5, "tcp", "", false},
    {3, "tcp", "tree", false},
    {4, "tcp", "owner-fold", true},
    {4, "shm", "cube", false},
    {4, "tcp", "cube", false},
    {5, "shm", "chain", false},
    {3, "tcp", "chain", false},
    {4, "", "two-level", false, "2,2"},
    {4, "", "", false, "3,1"},
    {7, "", "two-level", false, "1,4,2"},
};

INSTANTIATE_TEST_SUITE_P(Worlds, Processes, testing::ValuesIn(worlds_of(process_kinds, true)),
                         name_of_kind);

}  // namespace
}  // namespace matrix
