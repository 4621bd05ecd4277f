// Large messages between processes that the receiver copies from the memory of the sender: memory
// that it can map, or, where ranks share cores, other memory by the kernel.
#include <fstream>
#include <numeric>

#include "faults/processes.h"
#include "one_core.h"

namespace {

using faults::Job;
using faults::Process;
using tests::OneCore;

constexpr int ranks_of_job = 3;
constexpr std::size_t most = 700'001;  // elements of a block
constexpr std::size_t room = ranks_of_job * (most + 3);

/// How many shared mappings of regions this process has, of its own and of its peers.
std::size_t mapped_regions() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("rw-s") != std::string::npos && line.find("memfd:") != std::string::npos;
  }
  return count;
}

/// The elements of block `to` of the input of rank `from`: none, a few, or many.
std::size_t count_of(int from, int to, int round) {
  constexpr std::size_t counts[] = {most, 0, 9, 16'385, 100'003, 1, 300'000, 4'096};
  return counts[static_cast<std::size_t>(3 * from + to + round) % std::size(counts)];
}
std::uint32_t element(int from, int to, int round, std::size_t i) {
  return static_cast<std::uint32_t>(i * 2654435761U) + static_cast<std::uint32_t>(100 * from + to) +
         7919U * static_cast<std::uint32_t>(round);
}

/// The buffers of a rank: mapped in some rounds, plain in others; or always plain.
struct Buffers {
  explicit Buffers(const Process& self, bool always_plain = false)
      : self(self), always_plain(always_plain), plain_in(room), plain_out(room) {
    void* memory = nullptr;
    EXPECT_HOCKET(hocketMemAlloc(&memory, 2 * room * sizeof(std::uint32_t)));
    mapped = static_cast<std::uint32_t*>(memory);
  }
  ~Buffers() { EXPECT_HOCKET(hocketMemFree(mapped)); }
  Buffers(const Buffers&) = delete;

  void begin(int round) {
    const bool is_mapped = !always_plain && (round + self.rank) % 3 != 0;
    // An odd element: locations need no alignment beyond that of the type.
    in = (is_mapped ? mapped : plain_in.data()) + round % 2;
    out = is_mapped ? mapped + room : plain_out.data();
    std::fill_n(out, room - 1, 0xa5a5a5a5U);
  }
  /// Lays out a block for each rank, with a gap before each. from_me: in the input.
  std::vector<std::size_t> lay(bool from_me, int round, std::vector<std::size_t>* offsets) const {
    std::vector<std::size_t> counts;
    std::size_t at = 0;
    for (int peer = 0; peer < self.ranks; ++peer) {
      counts.push_back(from_me ? count_of(self.rank, peer, round)
                               : count_of(peer, self.rank, round));
      offsets->push_back(++at);
      at += counts.back();
    }
    return counts;
  }
  void fill(int to, std::size_t at, std::size_t count, int round) const {
    for (std::size_t i = 0; i < count; ++i) in[at + i] = element(self.rank, to, round, i);
  }
  void check(int from, int to, std::size_t at, std::size_t count, int round) const {
    EXPECT_EQ(0xa5a5a5a5U, at == 0 ? 0xa5a5a5a5U : out[at - 1]) << "before the block";
    EXPECT_EQ(0xa5a5a5a5U, out[at + count]) << "after the block";
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(element(from, to, round, i), out[at + i])
          << "element " << i << " from rank " << from << " in round " << round;
    }
  }

  const Process& self;
  const bool always_plain;
  std::vector<std::uint32_t> plain_in, plain_out;
  std::uint32_t *mapped = nullptr, *in = nullptr, *out = nullptr;
};

void all_to_all(Buffers& buffers, int round) {
  const Process& self = buffers.self;
  std::vector<std::size_t> to, from;
  const std::vector<std::size_t> sent = buffers.lay(true, round, &to);
  const std::vector<std::size_t> received = buffers.lay(false, round, &from);
  for (int peer = 0; peer < self.ranks; ++peer) buffers.fill(peer, to[peer], sent[peer], round);
  ASSERT_HOCKET(hocketAlltoAllV(buffers.in, sent.data(), to.data(), buffers.out, received.data(),
                                from.data(), hocketUint32, self.comm, nullptr));
  for (int peer = 0; peer < self.ranks; ++peer) {
    buffers.check(peer, self.rank, from[peer], received[peer], round);
  }
}

/// Every rank sends to the next one, and receives from the one before.
void exchange(Buffers& buffers, int round) {
  const Process& self = buffers.self;
  const int next = (self.rank + 1) % self.ranks, before = (self.rank + self.ranks - 1) % self.ranks;
  const std::size_t sent = count_of(self.rank, next, round);
  const std::size_t received = count_of(before, self.rank, round);
  buffers.fill(next, 0, sent, round);
  ASSERT_HOCKET(hocketGroupStart());
  EXPECT_HOCKET(hocketSend(buffers.in, sent, hocketUint32, next, self.comm, nullptr));
  EXPECT_HOCKET(hocketRecv(buffers.out, received, hocketUint32, before, self.comm, nullptr));
  ASSERT_HOCKET(hocketGroupEnd());
  buffers.check(before, self.rank, 0, received, round);
}

/// A ring of messages of the pieces that a plan forwards from its output.
void all_gather(Buffers& buffers, int round) {
  const Process& self = buffers.self;
  const std::size_t count = 50'000 + static_cast<std::size_t>(round);
  buffers.fill(0, 0, count, round);
  ASSERT_HOCKET(hocketAllGather(buffers.in, buffers.out, count, hocketUint32, self.comm, nullptr));
  for (int peer = 0; peer < self.ranks; ++peer) {
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(element(peer, 0, round, i), buffers.out[static_cast<std::size_t>(peer) * count + i])
          << "rank " << peer << ", element " << i;
    }
  }
}

TEST(MappedMessages, between_processes_have_the_bytes_of_the_sender) {
  for (const char* algorithm : {"pairs", "ring"}) {
    const ranks::Env env({{"HOCKET_TRANSPORT", "shm"}, {"HOCKET_ALGORITHM", algorithm}});
    Job job(ranks_of_job);
    job.start(ranks::patient_config(), [](Process& self) {
      Buffers buffers(self);
      const std::size_t before = mapped_regions();
      for (int round = 0; round < 14; ++round) {
        buffers.begin(round);
        switch (round % 3) {
          case 0:
            all_to_all(buffers, round);
            break;
          case 1:
            exchange(buffers, round);
            break;
          default:
            all_gather(buffers, round);
            break;
        }
        ASSERT_HOCKET(hocketBarrier(self.comm, nullptr));
      }
      EXPECT_LT(before, mapped_regions()) << "no message was copied from its location";
    });
    job.finish();
  }
}

/// Notes in rank 0 of a communicator whether its figures have that of the kernel copy.
struct KernelCopyNoted {
  KernelCopyNoted() {
    const auto note = [](int, const char* line, void* user) {
      const std::string text = line;
      if (text.find("kernel copy") != text.npos) static_cast<KernelCopyNoted*>(user)->found = true;
    };
    EXPECT_HOCKET(hocketSetLogCallback(note, this));
  }
  ~KernelCopyNoted() { EXPECT_HOCKET(hocketSetLogCallback(nullptr, nullptr)); }
  KernelCopyNoted(const KernelCopyNoted&) = delete;
  bool found = false;
};

TEST(KernelCopies, between_processes_have_the_bytes_of_the_sender) {
  const OneCore one_core;
  const KernelCopyNoted noted;
  const ranks::Env env({{"HOCKET_TRANSPORT", "shm"}, {"HOCKET_ALGORITHM", "pairs"}});
  Job job(ranks_of_job);
  job.start(ranks::patient_config(), [&](Process& self) {
    self.report().phase = noted.found ? 1 : 0;
    Buffers buffers(self, true);
    for (int round = 0; round < 12; ++round) {
      buffers.begin(round);
      round % 2 == 0 ? all_to_all(buffers, round) : exchange(buffers, round);
      ASSERT_HOCKET(hocketBarrier(self.comm, nullptr));
    }
  });
  job.finish();
  if (job.report(0).phase == 0) {
    GTEST_SKIP() << "the kernel copied no message: it may not, or it takes longer here";
  }
}

/// A rank is killed before a round of an exchange. A message of the kernel's copy is complete, or
/// it is an error that names the rank; and the memory of a killed rank that peers have mapped stays
/// as it is.
void kill_a_rank(bool plain) {
  for (const int point : {1, 4, 9}) {
    const ranks::Env env{{{"HOCKET_TRANSPORT", "shm"}}};
    Job job(ranks_of_job);
    job.start(ranks::patient_config(), [&](Process& self) {
      Buffers buffers(self, plain);
      hocketResult_t result = hocketSuccess;
      for (int round = 0; result == hocketSuccess; ++round) {
        if (self.rank == 1 && round == point) ::kill(::getpid(), SIGKILL);
        buffers.begin(1);
        const std::size_t count = 400'000;
        const int next = (self.rank + 1) % 3, before = (self.rank + 2) % 3;
        buffers.fill(next, 0, count, round);
        hocketGroupStart();
        hocketSend(buffers.in, count, hocketUint32, next, self.comm, nullptr);
        hocketRecv(buffers.out, count, hocketUint32, before, self.comm, nullptr);
        result = hocketGroupEnd();
        if (result == hocketSuccess) buffers.check(before, self.rank, 0, count, round);
      }
      self.keep(result);
    });
    job.wait(1);
    job.finish();
    for (const int rank : {0, 2}) {
      EXPECT_EQ(hocketRemoteError, job.report(rank).result) << job.report(rank).text;
      EXPECT_EQ(1, job.report(rank).culprit) << job.report(rank).text;
    }
  }
}

TEST(MappedMessages, of_a_killed_rank_end_with_an_error_that_names_it) { kill_a_rank(false); }

TEST(KernelCopies, of_a_killed_rank_end_with_an_error_that_names_it) {
  const OneCore one_core;
  kill_a_rank(true);
}

}  // namespace
