// Random calls on several communicators and streams, compared with the reference. A seed makes the
// calls the same on all ranks.
#include "matrix/ranks.h"
#include "matrix/reference.h"
#include "seed.h"

namespace {

using ranks::Env;
using ranks::Rank;

struct Planned {
  int kind, comm, stream, root;
  std::size_t count;
  hocketDataType_t type;
  hocketRedOp_t op;
  bool alloc, grouped_with_next;
  std::uint64_t seed;
};

std::vector<Planned> plan(std::uint64_t seed, int ranks, int calls) {
  std::mt19937_64 random(seed);
  std::vector<Planned> out;
  static constexpr std::size_t counts[] = {0, 1, 3, 26, 27, 500, 5000, 40'000, 150'000};
  for (int i = 0; i < calls; ++i) {
    Planned p{};
    p.kind = static_cast<int>(random() % 6);
    p.comm = static_cast<int>(random() % 3);
    p.stream = static_cast<int>(random() % 3);
    p.root = static_cast<int>(random() % static_cast<std::uint64_t>(ranks));
    p.count = counts[random() % 9];
    p.type = reference::types[random() % std::size(reference::types)];
    do {
      p.op = reference::operators[random() % std::size(reference::operators)];
    } while (!reference::computes(p.op, p.type));
    p.alloc = random() % 2;
    p.grouped_with_next = random() % 3 == 0;
    p.seed = random();
    out.push_back(p);
  }
  return out;
}

/// The buffers of a call and its expected result.
struct Work {
  reference::Bytes plain_in, plain_out, expected;
  void *alloc_in = nullptr, *alloc_out = nullptr;
  std::uint8_t *in = nullptr, *out = nullptr;
  ~Work() {
    hocketMemFree(alloc_in);
    hocketMemFree(alloc_out);
  }
};

std::unique_ptr<Work> prepare(const Planned& p, const Rank& self) {
  auto work = std::make_unique<Work>();
  const auto n = static_cast<std::size_t>(self.ranks), me = static_cast<std::size_t>(self.rank);
  const std::size_t size = reference::size_of(p.type), bytes = p.count * size;
  const std::size_t in = p.kind == 1 ? n * bytes : bytes, out = p.kind == 2 ? n * bytes : bytes;
  std::vector<reference::Bytes> inputs(n, reference::Bytes(in));
  reference::Inputs pointers;
  for (std::size_t rank = 0; rank < n; ++rank) {
    reference::fill(reference::Data::exact, p.type, in / size, p.seed + rank, inputs[rank].data());
    pointers.push_back(inputs[rank].data());
  }
  reference::Bytes& expected = work->expected;
  if (p.kind <= 1) {
    reference::Bytes all(in);
    reference::reduce(p.type, p.op, pointers, in / size, all.data());
    expected.assign(all.begin() + static_cast<std::ptrdiff_t>(p.kind == 1 ? me * bytes : 0),
                    all.begin() + static_cast<std::ptrdiff_t>(p.kind == 1 ? (me + 1) * bytes : in));
  } else if (p.kind == 2) {
    for (const auto& input : inputs) expected.insert(expected.end(), input.begin(), input.end());
  } else {
    const std::size_t from = p.kind == 3 ? static_cast<std::size_t>(p.root) : (me + n - 1) % n;
    expected = inputs[from];
  }
  if (p.alloc) {
    EXPECT_HOCKET(hocketMemAlloc(&work->alloc_in, in + 1));
    EXPECT_HOCKET(hocketMemAlloc(&work->alloc_out, out + 1));
    work->in = static_cast<std::uint8_t*>(work->alloc_in);
    work->out = static_cast<std::uint8_t*>(work->alloc_out);
  } else {
    work->plain_in.resize(in + 1);
    work->plain_out.resize(out + 1);
    work->in = work->plain_in.data();
    work->out = work->plain_out.data();
  }
  std::copy(inputs[me].begin(), inputs[me].end(), work->in);
  return work;
}

void make_call(const Planned& p, const Work& work, const Rank& self, hocketComm_t comm,
               hocketStream_t stream) {
  switch (p.kind) {
    case 0:
      EXPECT_HOCKET(hocketAllReduce(work.in, work.out, p.count, p.type, p.op, comm, stream));
      break;
    case 1:
      EXPECT_HOCKET(hocketReduceScatter(work.in, work.out, p.count, p.type, p.op, comm, stream));
      break;
    case 2:
      EXPECT_HOCKET(hocketAllGather(work.in, work.out, p.count, p.type, comm, stream));
      break;
    case 3:
      EXPECT_HOCKET(hocketBroadcast(work.in, work.out, p.count, p.type, p.root, comm, stream));
      break;
    default: {
      const int next = (self.rank + 1) % self.ranks;
      const int previous = (self.rank + self.ranks - 1) % self.ranks;
      EXPECT_HOCKET(hocketGroupStart());
      EXPECT_HOCKET(hocketSend(work.in, p.count, p.type, next, comm, stream));
      EXPECT_HOCKET(hocketRecv(work.out, p.count, p.type, previous, comm, stream));
      EXPECT_HOCKET(hocketGroupEnd());
    }
  }
}

/// The ranks of a job make those calls; whatever streams they use, nothing waits for ever.
void run(const std::vector<Planned>& calls, Rank& self) {
  hocketComm_t comms[3] = {self.comm, nullptr, nullptr};
  hocketStream_t streams[3] = {};
  for (int i = 1; i < 3; ++i) {
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, self.rank, &comms[i], nullptr));
    ASSERT_HOCKET(hocketStreamCreate(&streams[i]));
  }
  constexpr std::size_t at_once = 8;
  for (std::size_t first = 0; first < calls.size(); first += at_once) {
    const std::size_t end = std::min(first + at_once, calls.size());
    std::vector<std::unique_ptr<Work>> works;
    for (std::size_t i = first; i < end; ++i) works.push_back(prepare(calls[i], self));
    bool in_group = false;
    for (std::size_t i = first; i < end; ++i) {
      const Planned& p = calls[i];
      if (!in_group && p.grouped_with_next) {
        EXPECT_HOCKET(hocketGroupStart());
        in_group = true;
      }
      make_call(p, *works[i - first], self, comms[p.comm], streams[p.stream]);
      if (in_group && (!p.grouped_with_next || i + 1 == end)) {
        EXPECT_HOCKET(hocketGroupEnd());
        in_group = false;
      }
    }
    for (hocketStream_t stream : streams) {
      EXPECT_HOCKET(hocketStreamSynchronize(stream));
    }
    for (std::size_t i = first; i < end; ++i) {
      const Work& work = *works[i - first];
      const bool right = std::equal(work.expected.begin(), work.expected.end(), work.out);
      EXPECT_TRUE(right) << "call " << i << " (kind " << calls[i].kind << ", " << calls[i].count
                         << " " << reference::name_of(calls[i].type) << " "
                         << reference::name_of(calls[i].op) << ") on rank " << self.rank;
    }
    self.meet();  // free memory only when no rank uses it
    if (testing::Test::HasFailure()) break;
  }
  self.meet();
  for (int i = 1; i < 3; ++i) {
    EXPECT_HOCKET(hocketStreamDestroy(streams[i]));
    EXPECT_HOCKET(hocketCommDestroy(comms[i]));
  }
}

class Stress : public testing::TestWithParam<const char*> {};

TEST_P(Stress, random_calls_give_what_the_reference_says) {
  const Env env{{{"HOCKET_TRANSPORT", GetParam()}}};
  for (int n : {2, 3, 5}) {
    const int calls = ranks::long_tests() ? 5000 : ranks::sanitized ? 32 : 200;
    const auto planned = plan(tests::seed() + static_cast<std::uint64_t>(n), n, calls);
    ranks::run_ranks(n, [&](Rank& self) { run(planned, self); });
    if (HasFailure()) {
      ADD_FAILURE() << n << " ranks";
      return;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Transports, Stress, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
