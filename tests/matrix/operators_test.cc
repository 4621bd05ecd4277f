// Reductions by operators of the program, with a process for each rank: the result is the right
// fold in the order of ranks, and no element is ever split.
#include <set>
#include <string>

#include "faults/processes.h"
#include "matrix/cases.h"

namespace matrix {
namespace {

/// What an operator is given as its context, and keeps of its calls.
struct Seen {
  hocketDataType_t type = hocketInt8;
  int wrong = 0;  // calls with another datatype, or with parts of elements
};

/// Neither associative nor commutative, so that the result shows order and grouping.
void subtract(void* context, const void* in, void* inout, std::size_t count,
              hocketDataType_t type) {
  auto* const seen = static_cast<Seen*>(context);
  seen->wrong += type != seen->type;
  const auto* a = static_cast<const std::int64_t*>(in);
  auto* b = static_cast<std::int64_t*>(inout);
  for (std::size_t i = 0; i < count; ++i) {
    b[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(a[i]) -
                                     static_cast<std::uint64_t>(b[i]));
  }
}

/// Products of matrices of 2 x 2 uint32: not commutative.
void multiply(void* context, const void* in, void* inout, std::size_t count,
              hocketDataType_t type) {
  auto* const seen = static_cast<Seen*>(context);
  seen->wrong += type != seen->type;
  const auto* a = static_cast<const std::uint32_t*>(in);
  auto* b = static_cast<std::uint32_t*>(inout);
  for (; count > 0; --count, a += 4, b += 4) {
    const std::uint32_t product[] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
                                     a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
    std::memcpy(b, product, sizeof product);
  }
}

/// Sums of the bits of fp16, whose partial results are no fp32 here.
void add_bits(void* context, const void* in, void* inout, std::size_t count,
              hocketDataType_t type) {
  auto* const seen = static_cast<Seen*>(context);
  seen->wrong += type != seen->type;
  const auto* a = static_cast<const std::uint16_t*>(in);
  auto* b = static_cast<std::uint16_t*>(inout);
  for (std::size_t i = 0; i < count; ++i) b[i] = static_cast<std::uint16_t>(a[i] + b[i]);
}

constexpr std::uint8_t tag = 0xa5;

/// Sums of all bytes of an element but the first, which is a tag: a split element is seen.
template <std::size_t size>
void add_tagged(void* context, const void* in, void* inout, std::size_t count,
                hocketDataType_t type) {
  auto* const seen = static_cast<Seen*>(context);
  seen->wrong += type != seen->type;
  const auto* a = static_cast<const std::uint8_t*>(in);
  auto* b = static_cast<std::uint8_t*>(inout);
  for (; count > 0; --count, a += size, b += size) {
    seen->wrong += a[0] != tag || b[0] != tag;
    for (std::size_t i = 1; i < size; ++i) b[i] = static_cast<std::uint8_t>(a[i] + b[i]);
  }
}

struct UserCase {
  const char* name;
  hocketUserFunction_t function;
  bool commutative;
  hocketDataType_t base;
  int n;
  bool tagged;
  std::vector<std::size_t> counts;

  std::size_t size() const { return reference::size_of(base) * static_cast<std::size_t>(n); }
};

const std::vector<UserCase>& user_cases() {
  static const std::vector<UserCase> cases = {
      {"subtract", subtract, false, hocketInt64, 1, false, {0, 1, 3, 1031, 300'000}},
      {"multiply", multiply, false, hocketUint32, 4, false, {1, 7, 500, 100'003}},
      {"add bits", add_bits, true, hocketFloat16, 1, false, {1, 33, 1031, 200'000}},
      {"add 37", add_tagged<37>, true, hocketUint8, 37, true, {1, 2, 100, 20'011}},
      {"add 20000", add_tagged<20'000>, false, hocketUint8, 20'000, true, {1, 3, 50}},
      {"add 300000", add_tagged<300'000>, true, hocketUint8, 300'000, true, {1, 5}}};
  return cases;
}

/// Whole elements of a rank.
reference::Bytes input_of(const UserCase& c, int rank, std::size_t count) {
  reference::Bytes bytes(count * c.size());
  reference::fill_bytes(static_cast<std::uint64_t>(rank) * 1000 + count, &bytes);
  for (std::size_t i = 0; c.tagged && i < count; ++i) bytes[i * c.size()] = tag;
  return bytes;
}

/// x0 op (x1 op (x2 op ...)).
reference::Bytes right_fold(const UserCase& c, int ranks, std::size_t count, Seen* seen) {
  reference::Bytes result = input_of(c, ranks - 1, count);
  for (int r = ranks - 2; r >= 0; --r) {
    const reference::Bytes left = input_of(c, r, count);
    c.function(seen, left.data(), result.data(), count, seen->type);
  }
  return result;
}

class Caller {
 public:
  /// ran: receives the algorithms of all calls.
  Caller(faults::Process& self, const UserCase& user, std::set<std::string>* ran)
      : self_(self), user_(user), ran_(ran) {
    seen_.type = user.base;
    if (user.n > 1) {
      EXPECT_HOCKET(hocketTypeCreateContiguous(&seen_.type, user.n, user.base));
    }
    EXPECT_HOCKET(
        hocketRedOpCreateUser(&op_, user.function, &seen_, user.commutative, user.name, self.comm));
  }
  ~Caller() {
    EXPECT_HOCKET(hocketRedOpDestroy(op_, self_.comm));
    if (user_.n > 1) {
      EXPECT_HOCKET(hocketTypeDestroy(seen_.type));
    }
    EXPECT_EQ(0, seen_.wrong) << user_.name;
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  /// All reducing collectives. alloc: in memory that peers can map.
  void call(std::size_t count, bool in_place, bool alloc) {
    const auto n = static_cast<std::size_t>(self_.ranks), me = static_cast<std::size_t>(self_.rank);
    const int root = self_.ranks / 2;
    const std::size_t size = user_.size();
    const auto run = [&](std::size_t whole, std::size_t first, std::size_t mine, bool result,
                         const char* what, auto&& collective) {
      const reference::Bytes input = input_of(user_, self_.rank, whole);
      Arena in_arena(input.size(), alloc), out_arena(in_place ? 0 : mine * size, alloc);
      std::uint8_t* const in = in_arena.take(0, input.size());
      std::ranges::copy(input, in);
      std::uint8_t* const out = in_place ? in + first * size : out_arena.take(0, mine * size);
      EXPECT_HOCKET(collective(in, out)) << user_.name << " " << what;
      EXPECT_TRUE(in_arena.guards_hold() && (in_place || out_arena.guards_hold())) << what;
      ran_->insert(algorithm());
      if (!result || mine == 0) return;
      const reference::Bytes expected = right_fold(user_, self_.ranks, whole, &seen_);
      EXPECT_EQ(0, std::memcmp(expected.data() + first * size, out, mine * size))
          << user_.name << ", " << what << " of " << count << " by " << algorithm();
    };
    run(count, 0, count, true, "all-reduce", [&](void* in, void* out) {
      return hocketAllReduce(in, out, count, seen_.type, op_, self_.comm, nullptr);
    });
    run(count, 0, count, self_.rank == root, "reduce", [&](void* in, void* out) {
      return hocketReduce(in, out, count, seen_.type, op_, root, self_.comm, nullptr);
    });
    const std::size_t part = count / n + 1;
    run(part * n, part * me, part, true, "reduce-scatter", [&](void* in, void* out) {
      return hocketReduceScatter(in, out, part, seen_.type, op_, self_.comm, nullptr);
    });
    std::vector<std::size_t> counts;
    std::size_t before = 0, whole = 0;
    for (std::size_t r = 0; r < n; ++r) {
      counts.push_back(r % 2 == 0 ? part + r : 0);
      if (r < me) before += counts[r];
      whole += counts[r];
    }
    run(whole, before, counts[me], true, "reduce-scatter-v", [&](void* in, void* out) {
      return hocketReduceScatterV(in, out, counts.data(), seen_.type, op_, self_.comm, nullptr);
    });
  }

 private:
  const char* algorithm() const {
    const char *algorithm = "", *transport = "";
    EXPECT_HOCKET(hocketCommLastAlgorithm(self_.comm, &algorithm, &transport));
    return algorithm;
  }

  faults::Process& self_;
  const UserCase& user_;
  std::set<std::string>* const ran_;
  Seen seen_;
  hocketRedOp_t op_ = hocketSum;
};

class UserOperators : public testing::TestWithParam<WorldKind> {};

TEST_P(UserOperators, give_the_right_fold_in_rank_order_and_never_split_an_element) {
  const WorldKind& kind = GetParam();
  const bool small = tests::sanitized || (kind.ranks > 8 && !ranks::long_tests());
  const ranks::Env env(settings_of(kind));
  faults::Job job(kind.ranks);
  job.start(ranks::patient_config(), [&](faults::Process& self) {
    std::set<std::string> ran;
    unsigned way = 0;
    for (const UserCase& user : user_cases()) {
      if (!user.commutative && !kind.ordered) continue;
      Caller caller(self, user, &ran);
      for (const std::size_t count : user.counts) {
        ++way;
        if (small && count * user.size() > 500'000) continue;
        caller.call(count, way % 2 == 0, way / 2 % 2 == 0);
      }
    }
    self.report().phase = ran.contains(kind.algorithm) ? 1 : 0;
  });
  job.finish();
  if (*kind.algorithm != '\0') {
    EXPECT_EQ(1, job.report(0).phase.load()) << "the forced algorithm never ran";
  }
}

/// ordered: operators that do not commute run too, by another algorithm where the forced one does
/// not keep their order.
constexpr WorldKind operator_kinds[] = {{1, "", "", true},
                                        {2, "shm", "", true},
                                        {3, "shm", "inline", true},
                                        {5, "shm", "one-shot", true},
                                        {3, "", "staged", true},
                                        {4, "", "direct", true},
                                        {3, "shm", "ring", true},
                                        {4, "shm", "tree", false},
                                        {2, "tcp", "", true},
                                        {5, "tcp", "", true},
                                        {3, "tcp", "ring", false},
                                        {4, "tcp", "tree", true},
                                        {3, "tcp", "owner-fold", true},
                                        {4, "tcp", "pairs", true},
                                        {3, "tcp", "one-shot", true},
                                        {7, "tcp", "circulant", false},
                                        {4, "tcp", "pat", false},
                                        {5, "tcp", "double-tree", false},
                                        {13, "shm", "k-nomial", false},
                                        {8, "shm", "recursive-doubling", false},
                                        {4, "", "", true, "3,1"},
                                        {4, "", "two-level", false, "2,2"},
                                        {4, "", "leaders", false, "3,1"},
                                        {7, "", "two-level", false, "1,4,2"}};
/// The thread sanitizer does not follow a fork of a job of one process.
std::vector<WorldKind> worlds() {
  std::vector<WorldKind> worlds = worlds_of(operator_kinds, true);
  if (tests::sanitized)
    std::erase_if(worlds, [](const WorldKind& kind) { return kind.ranks == 1; });
  return worlds;
}
INSTANTIATE_TEST_SUITE_P(Worlds, UserOperators, testing::ValuesIn(worlds()), name_of_kind);

/// What rank 1 does otherwise than rank 0, and what both errors quote.
struct Difference {
  const char* name;
  int commutative, n;
  const char* quoted;
};

TEST(UserOperators, that_differ_between_ranks_are_a_mismatch_that_quotes_both) {
  for (const char* transport : {"shm", "tcp"}) {
    for (const Difference& other :
         {Difference{"longest", 1, 2, "user operator 'longest'"},
          Difference{"shortest", 0, 2, "user operator 'shortest', not commutative"},
          Difference{"shortest", 1, 4, "user operator 'shortest', on elements of 4"}}) {
      const ranks::Env env{{{"HOCKET_TRANSPORT", transport}}};
      faults::Job job(2);
      job.start(ranks::patient_config(), [&](faults::Process& self) {
        const bool differs = self.rank == 1;
        hocketRedOp_t op = hocketSum;
        hocketDataType_t type = hocketInt64;
        Seen seen;
        EXPECT_HOCKET(hocketTypeCreateContiguous(&type, differs ? other.n : 2, hocketInt32));
        EXPECT_HOCKET(hocketRedOpCreateUser(&op, subtract, &seen, differs ? other.commutative : 1,
                                            differs ? other.name : "shortest", self.comm));
        std::int32_t x[8] = {};
        const std::size_t count = differs ? 8 / static_cast<std::size_t>(other.n) : 4;
        hocketResult_t result = hocketAllReduce(x, x, count, type, op, self.comm, nullptr);
        if (result == hocketSuccess) result = hocketBarrier(self.comm, nullptr);
        EXPECT_EQ(hocketMismatch, result);
        const std::string text = hocketGetLastError(self.comm);
        EXPECT_NE(std::string::npos, text.find("user operator 'shortest', on elements of 2"))
            << text;
        EXPECT_NE(std::string::npos, text.find(other.quoted)) << text;
      });
      job.finish();
    }
  }
}

}  // namespace
}  // namespace matrix
