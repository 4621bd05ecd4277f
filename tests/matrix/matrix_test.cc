// Every combination of collective, type and operator, with different numbers of ranks, transports
// and algorithms.
#include "matrix/cases.h"

namespace matrix {
namespace {

using ranks::Env;
using ranks::Rank;

void run_world(const WorldKind& kind, const std::vector<Case>& cases, std::set<std::string>* ran) {
  const Env env(settings_of(kind));
  SharedLedger shared{};
  Ledger ledger(kind.ranks, shared, false);
  const std::size_t most = most_bytes(cases, kind.ranks);
  ranks::run_ranks(kind.ranks, [&](Rank& self) {
    World world(self, ledger, most);
    for (const Case& c : cases) {
      world.run(c);
      if (testing::Test::HasFailure()) break;
    }
    self.meet();  // keep the memory while a peer's case still runs
  });
  *ran = ledger.algorithms;
}

class Matrix : public testing::TestWithParam<WorldKind> {};

TEST_P(Matrix, every_rank_gets_what_the_reference_says) {
  const WorldKind& kind = GetParam();
  std::size_t keep_one_of = *kind.algorithm != '\0' || kind.ranks > 4 ? 12 : 6;
  if (std::string(kind.transport) == "tcp" && kind.ranks > 2) keep_one_of *= 3;
  if (ranks::sanitized) keep_one_of *= 16;
  if (ranks::long_tests()) keep_one_of = 1;
  std::set<std::string> ran;
  run_world(kind, cases_of(kind, keep_one_of, ranks::long_tests()), &ran);
  if (*kind.algorithm != '\0' && kind.ranks > 1) {
    EXPECT_TRUE(ran.contains(kind.algorithm)) << "the forced algorithm never ran";
  }
}

constexpr WorldKind kinds[] = {
    {1, "", "", true},
    {2, "", "", false},
    {3, "", "", false},
    {4, "", "", false},
    {5, "", "", false},
    {7, "", "", false},
    {8, "", "", false},
    {13, "", "", false},
    {1, "tcp", "", true},
    {2, "tcp", "", false},
    {3, "tcp", "", false},
    {4, "tcp", "", false},
    {5, "tcp", "", false},
    {7, "tcp", "", false},
    {8, "tcp", "", false},
    {13, "tcp", "", false},
    {2, "shm", "inline", true},
    {5, "shm", "inline", true},
    {2, "", "one-shot", true},
    {7, "", "one-shot", true},
    {2, "", "staged", true},
    {3, "", "staged", true},
    {8, "", "staged", true},
    {2, "", "root-fold", true},
    {3, "", "root-fold", true},
    {8, "", "root-fold", true},
    {2, "", "eager", true},
    {5, "", "eager", true},
    {13, "", "eager", true},
    {2, "", "direct", true},
    {5, "", "direct", true},
    {8, "", "direct", true},
    {3, "shm", "ring", false},
    {8, "shm", "ring", false},
    {4, "shm", "tree", false},
    {7, "shm", "tree", false},
    {3, "", "owner-fold", true},
    {8, "", "owner-fold", true},
    {2, "tcp", "ring", false},
    {5, "tcp", "ring", false},
    {3, "tcp", "tree", false},
    {8, "tcp", "tree", false},
    {4, "tcp", "owner-fold", true},
    {7, "tcp", "owner-fold", true},
    {3, "tcp", "one-shot", true},
    {3, "shm", "recursive-doubling", false},
    {4, "tcp", "recursive-doubling", false},
    {3, "shm", "double-tree", false},
    {4, "tcp", "double-tree", false},
    {7, "tcp", "k-nomial", false},
    {3, "shm", "circulant", false},
    {7, "tcp", "circulant", false},
    {5, "shm", "pat", false},
    {17, "tcp", "pat", false},
    {3, "shm", "bruck", true},
    {4, "tcp", "bruck", true},
    {5, "shm", "pairs", true},
    {4, "tcp", "pairs", true},
    {4, "shm", "cube", false},
    {7, "tcp", "chain", false},
    {3, "", "", false, "2,1"},
    {4, "", "", false, "2,2"},
    {4, "", "", false, "3,1"},
    {7, "", "", false, "1,4,2"},
    {3, "", "leaders", false, "2,1"},
    {7, "", "leaders", false, "1,4,2"},
    {3, "", "two-level", false, "2,1"},
    {4, "", "two-level", false, "2,2"},
    {4, "", "rails", false, "2,2"},
    {4, "", "two-level", false, "3,1"},
    {7, "", "two-level", false, "1,4,2"},
};

INSTANTIATE_TEST_SUITE_P(Worlds, Matrix, testing::ValuesIn(worlds_of(kinds)), name_of_kind);

/// From rank 0 to rank 1: whatever the bits mean, they are moved and not computed with.
TEST(Messages, keep_every_bit_of_every_type) {
  for (const char* transport : {"shm", "tcp"}) {
    const Env env{{{"HOCKET_TRANSPORT", transport}}};
    ranks::run_ranks(2, [](Rank& self) {
      for (const hocketDataType_t dtype : reference::types) {
        for (std::size_t count : {3, 1031, 100'000}) {
          reference::Bytes sent(count * reference::size_of(dtype)), got(sent.size());
          reference::fill(Data::any, dtype, count, count, sent.data());
          if (self.rank == 0) {
            EXPECT_HOCKET(hocketSend(sent.data(), count, dtype, 1, self.comm, nullptr));
          } else {
            EXPECT_HOCKET(hocketRecv(got.data(), count, dtype, 0, self.comm, nullptr));
            EXPECT_TRUE(sent == got) << count << " " << reference::name_of(dtype);
          }
        }
      }
    });
  }
}

class Large : public testing::TestWithParam<WorldKind> {};

/// Messages of many chunks, larger than every scratch area, with a ragged end.
TEST_P(Large, messages_of_many_chunks_arrive_whole) {
  const WorldKind& kind = GetParam();
  std::vector<Case> cases;
  const std::size_t bytes = ranks::sanitized ? (1 << 20) + 3000 : (5 << 20) + 3000;
  const auto n = static_cast<std::size_t>(kind.ranks);
  std::uint64_t seed = 1;
  for (const auto& [type, op] : {std::pair{hocketFloat32, hocketSum},
                                 {hocketUint8, hocketMax},
                                 {hocketBfloat16, hocketAvg},
                                 {hocketFloat16, reference::pre_mul_sum},
                                 {hocketInt64, hocketProd}}) {
    // Under a sanitizer a type that is folded as it is, and a type whose sums are wide.
    const hocketDataType_t plain = tests::thread_sanitized ? hocketFloat32 : hocketUint8;
    if (ranks::sanitized && type != plain && type != hocketBfloat16) continue;
    for (const Row& row : rows) {
      if (!row.reduces && op != hocketSum && op != hocketMax) continue;
      Case c;
      c.what = row.what;
      c.type = type;
      c.op = op;
      c.seed = seed++;
      c.count = bytes / reference::size_of(type) + 1;
      if (row.input == Parts::per_rank || row.output == Parts::per_rank) c.count = c.count / n + 1;
      c.in_place = seed & 1;
      c.alloc = seed >> 1 & 1;
      c.offset = type == hocketUint8 ? 1 : 0;
      c.root = static_cast<int>(seed % n);
      cases.push_back(c);
      c.alloc = !c.alloc;
      c.seed = seed++;
      const bool again = type == hocketFloat32 && !ranks::sanitized;
      if (again || ranks::long_tests()) cases.push_back(c);
    }
  }
  std::set<std::string> ran;
  run_world(kind, cases, &ran);
  if (*kind.algorithm != '\0') {
    EXPECT_TRUE(ran.contains(kind.algorithm)) << "the forced algorithm never ran";
  }
}

constexpr WorldKind large_kinds[] = {{1, "", "", true},
                                     {2, "", "", false},
                                     {3, "", "staged", true},
                                     {3, "", "root-fold", true},
                                     {5, "", "direct", true},
                                     {4, "", "", false},
                                     {2, "shm", "ring", false},
                                     {2, "tcp", "", false},
                                     {3, "tcp", "ring", false},
                                     {4, "tcp", "owner-fold", true},
                                     {3, "tcp", "tree", false},
                                     {4, "tcp", "cube", false},
                                     {5, "shm", "chain", false},
                                     {4, "", "two-level", false, "2,2"},
                                     {4, "", "two-level", false, "3,1"},
                                     {7, "", "two-level", false, "1,4,2"}};
INSTANTIATE_TEST_SUITE_P(Worlds, Large, testing::ValuesIn(worlds_of(large_kinds, true)),
                         name_of_kind);

}  // namespace
}  // namespace matrix
