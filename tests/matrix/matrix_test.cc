// Every collective x type x operator, on worlds that differ in ranks, transport and algorithm.
#include "base/limits.h"
#include "matrix/world.h"

namespace matrix {
namespace {

using ranks::Env;
using ranks::Rank;

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ULL;
  return x ^ (x >> 29);
}

struct WorldKind {
  int ranks;
  const char* transport;  // empty: all
  const char* algorithm;  // empty: the selector's
  bool ordered;           // folds in rank order, as far as that algorithm serves
};

void PrintTo(const WorldKind& kind, std::ostream* out) {
  *out << kind.ranks << " ranks, transport '" << kind.transport << "', algorithm '"
       << kind.algorithm << "'";
}

/// Elements: nothing, one, a few, around what fits in an arrival line, middle sizes on
/// both sides of where algorithms change over, and an odd number of lines.
std::vector<std::size_t> counts_for(std::size_t size) {
  const std::size_t line = hocket::internal::line_payload_bytes / size;
  return {0, 1, 7, line - 1, line, line + 1, 1031, 4096 / size * 5 + 3, 65536 / size + 1};
}

/// Where the order of additions is free, only the ranks' results can be compared for any data.
Data data_for(const Case& c, const WorldKind& kind, std::uint64_t hash) {
  if (c.what == What::all_gather || c.what == What::broadcast) return Data::any;
  if (kind.ordered && c.op == hocketProd) return Data::any;
  if (c.what == What::all_reduce && (hash >> 25 & 3) == 3) return Data::any;
  const bool loose = c.op != hocketProd && (hash >> 24 & 1);
  return !loose ? Data::exact : kind.ordered ? Data::any : Data::small;
}

/// One of so many, each in one of the four ways that a call can have its memory: plain or the
/// library's, in place or not; all_ways: in each.
std::vector<Case> cases_of(const WorldKind& kind, std::size_t keep_one_of, bool all_ways) {
  std::vector<Case> cases;
  const std::uint64_t world =
      mix(static_cast<std::uint64_t>(kind.ranks) * 1000 + std::string(kind.algorithm).size() * 10 +
          std::string(kind.transport).size());
  std::uint64_t number = 0;
  const auto add = [&](Case c) {
    const std::uint64_t hash = mix(world + ++number * 0x9e3779b97f4a7c15ULL);
    if (hash % keep_one_of != 0) return;
    static constexpr std::size_t offsets[] = {0, 0, 64, 8, 1, 4};
    c.offset = offsets[(hash >> 10) % 6];
    c.root = static_cast<int>((hash >> 16) % static_cast<std::uint64_t>(kind.ranks));
    c.data = data_for(c, kind, hash);
    c.seed = hash >> 32;
    for (std::uint64_t way = 0; way < 4; ++way) {
      if (!all_ways && way != (hash >> 8 & 3)) continue;
      c.in_place = way & 1;
      c.alloc = way >> 1;
      cases.push_back(c);
    }
  };
  for (int type = 0; type < hocketNumTypes; ++type) {
    for (What what : {What::all_reduce, What::reduce_scatter, What::all_gather, What::broadcast}) {
      const bool reduces = what == What::all_reduce || what == What::reduce_scatter;
      for (int op = 0; op < (reduces ? hocketNumOps : 2); ++op) {
        Case c;
        c.what = what;
        c.type = static_cast<hocketDataType_t>(type);
        c.op = reduces ? static_cast<hocketRedOp_t>(op) : hocketSum;
        for (std::size_t count : counts_for(reference::size_of(c.type))) {
          c.count = count;
          add(c);
        }
      }
    }
    Case barrier;
    barrier.what = What::barrier;
    barrier.seed = static_cast<std::uint64_t>(type);
    cases.push_back(barrier);
  }
  return cases;
}

void run_world(const WorldKind& kind, const std::vector<Case>& cases, std::set<std::string>* ran) {
  const Env env({{"HOCKET_TRANSPORT", kind.transport}, {"HOCKET_ALGORITHM", kind.algorithm}});
  Ledger ledger(kind.ranks);
  std::size_t most = 0;
  for (const Case& c : cases) most = std::max(most, c.count * reference::size_of(c.type));
  most *= static_cast<std::size_t>(kind.ranks);
  ranks::run_ranks(kind.ranks, [&](Rank& self) {
    World world(self, ledger, most);
    for (const Case& c : cases) {
      world.run(c);
      if (testing::Test::HasFailure()) break;
    }
    self.meet();  // nobody's memory goes while a peer's case still runs
  });
  *ran = ledger.algorithms;
}

class Matrix : public testing::TestWithParam<WorldKind> {};

TEST_P(Matrix, every_rank_gets_what_the_reference_says) {
  const WorldKind& kind = GetParam();
  std::size_t keep_one_of = *kind.algorithm != '\0' ? 4 : kind.ranks > 4 ? 3 : 2;
  if (std::string(kind.transport) == "tcp" && kind.ranks > 2) keep_one_of *= 3;
  if (ranks::sanitized) keep_one_of *= 8;
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
};

std::string name_of_kind(const testing::TestParamInfo<WorldKind>& info) {
  std::string name = std::to_string(info.param.ranks) + "_ranks";
  for (const char* part : {info.param.transport, info.param.algorithm}) {
    if (*part != '\0') name += std::string("_") + part;
  }
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Worlds, Matrix, testing::ValuesIn(kinds), name_of_kind);

/// From rank 0 to rank 1: whatever the bits mean, they are moved and not computed with.
TEST(Messages, keep_every_bit_of_every_type) {
  for (const char* transport : {"shm", "tcp"}) {
    const Env env{{{"HOCKET_TRANSPORT", transport}}};
    ranks::run_ranks(2, [](Rank& self) {
      for (int type = 0; type < hocketNumTypes; ++type) {
        const auto dtype = static_cast<hocketDataType_t>(type);
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
                                 {hocketInt64, hocketProd}}) {
    for (What what : {What::all_reduce, What::reduce_scatter, What::all_gather, What::broadcast}) {
      Case c;
      c.what = what;
      c.type = type;
      c.op = op;
      c.seed = seed++;
      c.count = bytes / reference::size_of(type) + 1;
      if (what == What::all_gather || what == What::reduce_scatter) c.count = c.count / n + 1;
      c.in_place = seed & 1;
      c.alloc = seed >> 1 & 1;
      c.offset = type == hocketUint8 ? 1 : 0;
      c.root = static_cast<int>(seed % n);
      cases.push_back(c);
      c.alloc = !c.alloc;
      c.seed = seed++;
      if (type == hocketFloat32) cases.push_back(c);
    }
  }
  std::set<std::string> ran;
  run_world(kind, cases, &ran);
}

constexpr WorldKind large_kinds[] = {
    {1, "", "", true},        {2, "", "", false},        {3, "", "staged", true},
    {5, "", "direct", true},  {4, "", "", false},        {2, "shm", "ring", false},
    {2, "tcp", "", false},    {3, "tcp", "ring", false}, {4, "tcp", "owner-fold", true},
    {3, "tcp", "tree", false}};
INSTANTIATE_TEST_SUITE_P(Worlds, Large, testing::ValuesIn(large_kinds), name_of_kind);

}  // namespace
}  // namespace matrix
