// Every kind of bad input that a program can give: a call that is refused, with its whole sentence,
// or the test that has it elsewhere, because it needs several processes or a limit of the system.
// arguments_test.cc and making_arguments_test.cc have the same mistakes in all the other calls.
#include <fnmatch.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "api/wrong_calls.h"
#include "source_root.h"

namespace {

using ranks::Rank;

constexpr auto f32 = hocketFloat32;
constexpr std::size_t most = PTRDIFF_MAX;
float x[8];
std::size_t one_each[2] = {1, 1};

struct Bad {
  const char* input;
  hocketResult_t expected;
  const char* sentence;  // the whole of it; *: what differs from run to run
  std::function<hocketResult_t(hocketComm_t)> call;  // on a communicator of two ranks
};
using Bads = std::vector<Bad>;
constexpr hocketResult_t argument = hocketInvalidArgument, usage = hocketInvalidUsage;

hocketResult_t sum(const void* in, void* out, std::size_t count, hocketComm_t comm,
                   hocketDataType_t type = f32) {
  return hocketAllReduce(in, out, count, type, hocketSum, comm, nullptr);
}

/// A communicator of this process alone, for calls that end it.
hocketComm_t alone() {
  hocketUniqueId id;
  hocketComm_t comm = nullptr;
  EXPECT_HOCKET(hocketGetUniqueId(&id));
  EXPECT_HOCKET(hocketCommInitRank(&comm, 1, id, 0));
  return comm;
}

Bads bad_communicators() {
  return {
      {"a communicator that is NULL", argument,
       "hocketAllReduce: the communicator is NULL: make one first",
       [](hocketComm_t) { return sum(x, x, 1, nullptr); }},
      {"a communicator that was destroyed", argument,
       "hocketAllReduce: this communicator was destroyed before: no call may follow "
       "hocketCommDestroy",
       [](hocketComm_t) {
         hocketComm_t gone = alone();
         EXPECT_HOCKET(hocketCommDestroy(gone));
         return sum(x, x, 1, gone);
       }},
      {"a communicator that is destroyed twice", argument,
       "hocketCommDestroy: this communicator was destroyed before: no call may follow "
       "hocketCommDestroy",
       [](hocketComm_t) {
         hocketComm_t gone = alone();
         EXPECT_HOCKET(hocketCommDestroy(gone));
         return hocketCommDestroy(gone);
       }},
      {"memory that is no communicator", argument,
       "hocketBarrier: this pointer is no communicator: use a hocketComm_t that hocket has made",
       [](hocketComm_t) {
         alignas(64) std::array<std::uint64_t, 128> memory{};
         const auto foreign = reinterpret_cast<hocketComm_t>(memory.data());
         for (const hocketResult_t result :
              {hocketCommAbort(foreign), hocketCommDestroy(foreign)}) {
           EXPECT_EQ(argument, result);
         }
         const hocketResult_t result = hocketBarrier(foreign, nullptr);
         EXPECT_EQ((std::array<std::uint64_t, 128>{}), memory) << "it was left alone";
         return result;
       }},
      {"a communicator after hocketCommAbort", hocketAborted,
       "hocketAllReduce: rank 0 (*) aborted the communicator 'world'",
       [](hocketComm_t) {
         hocketComm_t aborted = alone();
         EXPECT_HOCKET(hocketCommAbort(aborted));
         const hocketResult_t result = sum(x, x, 1, aborted);
         EXPECT_HOCKET(hocketCommDestroy(aborted));
         return result;
       }},
      {"a communicator after hocketCommFinalize", usage,
       "hocketAllReduce: this communicator was finalized: destroy it, and make another one",
       [](hocketComm_t) {
         hocketComm_t finalized = alone();
         EXPECT_HOCKET(hocketCommFinalize(finalized));
         const hocketResult_t result = sum(x, x, 1, finalized);
         EXPECT_HOCKET(hocketCommDestroy(finalized));
         return result;
       }},
  };
}

Bads bad_buffers() {
  return {
      {"no send buffer", argument,
       "hocketAllReduce: sendbuff is NULL, but count is 3: give its address, or count no elements",
       [](hocketComm_t c) { return sum(nullptr, x, 3, c); }},
      {"no receive buffer", argument,
       "hocketAllReduce: recvbuff is NULL, but count is 3: give its address, or count no elements",
       [](hocketComm_t c) { return sum(x, nullptr, 3, c); }},
      {"count x size beyond 2^64", argument,
       "hocketAllReduce: count is 4611686018427387905: so many elements have more bytes than "
       "memory can have: check how the number was computed",
       [](hocketComm_t c) { return sum(x, x, SIZE_MAX / 4 + 2, c); }},
      {"ranks x count x size beyond 2^64", argument,
       "hocketAllGather: count is 2305843009213693953: so many elements have more bytes than "
       "memory can have: check how the number was computed",
       [](hocketComm_t c) { return hocketAllGather(x, x, SIZE_MAX / 8 + 2, f32, c, nullptr); }},
      {"a buffer beyond the address space", argument,
       "hocketAllReduce: count is 2305843009213693952: sendbuff would reach past the end of the "
       "address space: check how the number was computed",
       [](hocketComm_t c) { return sum(x, x, std::size_t{1} << 61, c, hocketInt8); }},
      {"buffers that overlap in part", argument,
       "hocketAllReduce: the buffers overlap: in place means sendbuff == recvbuff",
       [](hocketComm_t c) { return sum(x, x + 1, 4, c); }},
      {"a block in the wrong place", argument,
       "hocketAllGather: the buffers overlap: in place means that sendbuff is the block of this "
       "rank in recvbuff",
       [](hocketComm_t c) { return hocketAllGather(x + 1, x, 2, f32, c, nullptr); }},
      {"an all-to-all in place", argument,
       "hocketAlltoAll: the buffers overlap: this collective cannot run in place: give it two "
       "buffers",
       [](hocketComm_t c) { return hocketAlltoAll(x, x, 1, f32, c, nullptr); }},
  };
}

Bads bad_numbers() {
  return {
      {"a datatype past the end", argument,
       "hocketAllReduce: datatype 12 does not exist: use a hocketDataType_t",
       [](hocketComm_t c) { return sum(x, x, 1, c, hocketNumTypes); }},
      {"a datatype below 0", argument,
       "hocketAllReduce: datatype -1 does not exist: use a hocketDataType_t",
       [](hocketComm_t c) { return sum(x, x, 1, c, static_cast<hocketDataType_t>(-1)); }},
      {"an operator past the end", argument,
       "hocketAllReduce: operator 5 does not exist: use a hocketRedOp_t",
       [](hocketComm_t c) { return hocketAllReduce(x, x, 1, f32, hocketNumOps, c, nullptr); }},
      {"a bitwise operator of floats", argument,
       "hocketAllReduce: operator xor is bitwise: float32 is no integer type: use sum, prod, max, "
       "min or avg",
       [](hocketComm_t c) { return hocketAllReduce(x, x, 1, f32, hocketXor, c, nullptr); }},
      {"a root past the end", argument,
       "hocketBcast: root 2 does not exist: the communicator has ranks 0 to 1",
       [](hocketComm_t c) { return hocketBcast(x, 1, f32, 2, c, nullptr); }},
      {"a root below 0", argument,
       "hocketBcast: root -1 does not exist: the communicator has ranks 0 to 1",
       [](hocketComm_t c) { return hocketBcast(x, 1, f32, -1, c, nullptr); }},
      {"a peer past the end", argument,
       "hocketSend: peer 2 does not exist: the communicator has ranks 0 to 1",
       [](hocketComm_t c) { return hocketSend(x, 1, f32, 2, c, nullptr); }},
      {"a peer below 0", argument,
       "hocketRecv: peer -1 does not exist: the communicator has ranks 0 to 1",
       [](hocketComm_t c) { return hocketRecv(x, 1, f32, -1, c, nullptr); }},
      {"a message to oneself", usage,
       "hocketSend: a message to oneself would wait for ever: put hocketSend and hocketRecv in one "
       "group",
       [](hocketComm_t c) { return hocketSend(x, 1, f32, wrong_calls::rank_of(c), c, nullptr); }},
  };
}

Bads bad_blocks() {
  return {
      {"no counts", argument, "hocketAllGatherV: recvcounts is NULL: it has a count for each rank",
       [](hocketComm_t c) {
         return hocketAllGatherV(x + 4, 1, x, nullptr, nullptr, f32, c, nullptr);
       }},
      {"counts whose sum is beyond 2^63 bytes", argument,
       "hocketAllGatherV: recvcounts[1] is 2305843009213693951 after 1 elements: so many elements "
       "have more bytes than memory can have: check how the number was computed",
       [](hocketComm_t c) {
         const std::size_t counts[2] = {1, most / 4};
         return hocketAllGatherV(x + 4, counts[wrong_calls::rank_of(c)], x, counts, nullptr, f32, c,
                                 nullptr);
       }},
      {"a displacement beyond 2^63 bytes", argument,
       "hocketAllGatherV: recvcounts[1] is 1 and displs[1] is 9223372036854775807: so many "
       "elements have more bytes than memory can have: check how the number was computed",
       [](hocketComm_t c) {
         const std::size_t displs[2] = {0, most};
         return hocketAllGatherV(x + 4, 1, x, one_each, displs, f32, c, nullptr);
       }},
      {"blocks that are received overlap", argument,
       "hocketAllGatherV: the blocks that are received from ranks 0 and 1 overlap in recvbuff: "
       "look at recvcounts and displs",
       [](hocketComm_t c) {
         const std::size_t counts[2] = {2, 2}, displs[2] = {0, 1};
         return hocketAllGatherV(x + 4, 2, x, counts, displs, f32, c, nullptr);
       }},
      {"two counts of the block that a rank sends to itself", argument,
       "hocketAlltoAllV: sendcounts[*] is 1, but recvcounts[*] is 2: this rank sends that block to "
       "itself, so both must be equal",
       [](hocketComm_t c) {
         const std::size_t own[2][2] = {{2, 1}, {1, 2}};
         return hocketAlltoAllV(x, one_each, nullptr, x + 4, own[wrong_calls::rank_of(c)], nullptr,
                                f32, c, nullptr);
       }},
  };
}

Bads bad_makings() {
  const auto join = [](int ranks, int rank, const std::function<void(hocketUniqueId*)>& spoil) {
    return [=](hocketComm_t c) {
      hocketUniqueId id;
      EXPECT_HOCKET(hocketGetUniqueId(&id));
      spoil(&id);
      hocketComm_t made = c;
      const hocketResult_t result = hocketCommInitRank(&made, ranks, id, rank);
      EXPECT_EQ(nullptr, made);
      return result;
    };
  };
  const auto kept = [](hocketUniqueId*) {};
  return {
      {"no ranks", argument,
       "hocketCommInitRank: nranks is 0: a communicator has at least 1 rank and at most 65535",
       join(0, 0, kept)},
      {"2^31 - 1 ranks", argument,
       "hocketCommInitRank: nranks is 2147483647: a communicator has at least 1 rank and at most "
       "65535",
       join(INT_MAX, 0, kept)},
      {"a rank past the end", argument,
       "hocketCommInitRank: rank 2 does not exist: a communicator of 2 ranks has ranks 0 to 1",
       join(2, 2, kept)},
      {"a rank below 0", argument,
       "hocketCommInitRank: rank -1 does not exist: a communicator of 2 ranks has ranks 0 to 1",
       join(2, -1, kept)},
      {"a unique id of garbage", argument,
       "hocketCommInitRank: the unique id was not made by hocketGetUniqueId: was another buffer "
       "sent?",
       join(1, 0, [](hocketUniqueId* id) { std::memset(id, 40, sizeof *id); })},
      {"a unique id that is cut off", argument,
       "hocketCommInitRank: the unique id was cut or damaged on its way: send all 128 bytes of it, "
       "as bytes and not as a string",
       join(1, 0, [](hocketUniqueId* id) { std::memset(id->internal + 64, 0, 64); })},
      {"a unique id that was used", hocketRemoteError,
       "hocketCommInitRank: cannot reach the coordinator at *: the coordinator's process has "
       "ended, or all ranks have joined already and none is missing; look at the output of rank 0, "
       "and make a new id with hocketGetUniqueId for each communicator",
       [](hocketComm_t c) {
         hocketUniqueId id;
         hocketComm_t first = nullptr, second = c;
         EXPECT_HOCKET(hocketGetUniqueId(&id));
         EXPECT_HOCKET(hocketCommInitRank(&first, 1, id, 0));
         const hocketResult_t result = hocketCommInitRank(&second, 1, id, 0);
         EXPECT_EQ(nullptr, second);
         EXPECT_HOCKET(hocketCommDestroy(first));
         return result;
       }},
  };
}

Bads bad_groups_and_configurations() {
  return {
      {"a rank twice in a group", argument,
       "hocketCommCreateGroup: rank 1 is in ranks[0] and in ranks[1]: give each rank once",
       [](hocketComm_t c) {
         const int twice[2] = {1, 1};
         hocketComm_t made = c;
         return hocketCommCreateGroup(c, twice, 2, 0, &made, nullptr);
       }},
      {"a configuration that was not begun", argument,
       "hocketCommInitRankConfig: config was not begun with HOCKET_CONFIG_INITIALIZER",
       [](hocketComm_t) {
         hocketUniqueId id;
         hocketComm_t made = nullptr;
         EXPECT_HOCKET(hocketGetUniqueId(&id));
         hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
         config.magic = 0;
         return hocketCommInitRankConfig(&made, 1, id, 0, &config);
       }},
      {"a deadline of nothing", argument,
       "hocketCommInitRankConfig: config.deadline_ms is 0: give milliseconds, at least 1",
       [](hocketComm_t) {
         hocketUniqueId id;
         hocketComm_t made = nullptr;
         EXPECT_HOCKET(hocketGetUniqueId(&id));
         hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
         config.deadline_ms = 0;
         return hocketCommInitRankConfig(&made, 1, id, 0, &config);
       }},
  };
}

Bads bad_memory() {
  return {
      {"memory that is not hocket's", argument,
       "hocketMemFree: ptr did not come from hocketMemAlloc, or was freed before: free each "
       "address that hocketMemAlloc returned once",
       [](hocketComm_t) { return hocketMemFree(x); }},
      {"memory that is freed twice", argument,
       "hocketMemFree: ptr did not come from hocketMemAlloc, or was freed before: free each "
       "address that hocketMemAlloc returned once",
       [](hocketComm_t) {
         // The other rank is a thread of this process: it must not get the address in between.
         static std::mutex mutex;
         const std::lock_guard lock(mutex);
         void* memory = nullptr;
         EXPECT_HOCKET(hocketMemAlloc(&memory, 100));
         EXPECT_HOCKET(hocketMemFree(memory));
         return hocketMemFree(memory);
       }},
      {"memory of no bytes", argument, "hocketMemAlloc: size is 0: ask for at least one byte",
       [](hocketComm_t) {
         void* memory = x;
         const hocketResult_t result = hocketMemAlloc(&memory, 0);
         EXPECT_EQ(nullptr, memory);
         return result;
       }},
  };
}

Bads bad_groups() {
  return {
      {"a group's end without its start", usage,
       "hocketGroupEnd: this thread has no open group: call hocketGroupStart before",
       [](hocketComm_t) { return hocketGroupEnd(); }},
      {"a group's end too many", usage,
       "hocketGroupEnd: this thread has no open group: call hocketGroupStart before",
       [](hocketComm_t) {
         EXPECT_HOCKET(hocketGroupStart());
         EXPECT_HOCKET(hocketGroupEnd());
         return hocketGroupEnd();
       }},
      {"a group that is not ended before its communicator is", usage,
       "hocketCommDestroy: this call is not allowed inside a group: call it before "
       "hocketGroupStart or after hocketGroupEnd",
       [](hocketComm_t c) {
         EXPECT_HOCKET(hocketGroupStart());
         const hocketResult_t result = hocketCommDestroy(c);
         EXPECT_HOCKET(hocketGroupCancel());
         return result;
       }},
  };
}

/// Brackets are no pattern here.
std::string pattern_of(const std::string& sentence) {
  std::string pattern;
  for (const char c : sentence) {
    if (c == '[') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

TEST(BadInput, is_refused_with_a_sentence_and_changes_nothing) {
  ranks::run_ranks(2, [](Rank& self) {
    for (const Bads& bads :
         {bad_communicators(), bad_buffers(), bad_numbers(), bad_blocks(), bad_makings(),
          bad_groups_and_configurations(), bad_memory(), bad_groups()}) {
      for (const Bad& bad : bads) {
        EXPECT_EQ(bad.expected, bad.call(self.comm)) << bad.input;
        EXPECT_EQ(0, ::fnmatch(pattern_of(bad.sentence).c_str(), hocketGetLastError(nullptr), 0))
            << bad.input << ": " << hocketGetLastError(nullptr);
        int ones = 1;
        EXPECT_HOCKET(sum(&ones, &ones, 1, self.comm, hocketInt32));
        EXPECT_EQ(2, ones) << "after " << bad.input;
      }
    }
  });
}

/// Other memory at an address that hocketMemFree gave back is like any memory.
void use_an_address_again(hocketComm_t comm) {
  constexpr std::size_t count = 1 << 18, bytes = count * sizeof(float);
  void* freed = nullptr;
  ASSERT_HOCKET(hocketMemAlloc(&freed, bytes));
  EXPECT_HOCKET(sum(freed, freed, count, comm));
  EXPECT_HOCKET(hocketMemFree(freed));
  void* const again = ::mmap(freed, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  std::vector<float> elsewhere(count);  // where something else has the address now
  float* const values = again == freed ? static_cast<float*>(again) : elsewhere.data();
  std::fill_n(values, count, 1.0F);
  EXPECT_HOCKET(sum(values, values, count, comm));
  EXPECT_EQ(count, static_cast<std::size_t>(std::count(values, values + count, 2.0F)));
  if (again != MAP_FAILED) ::munmap(again, bytes);
}

/// Input that looks bad, and is none.
TEST(BadInput, that_is_none_is_accepted) {
  ranks::run_ranks(2, [](Rank& self) {
    // No elements: no buffers either.
    EXPECT_HOCKET(sum(nullptr, nullptr, 0, self.comm));
    EXPECT_HOCKET(hocketAlltoAll(nullptr, nullptr, 0, f32, self.comm, nullptr));
    EXPECT_HOCKET(hocketBcast(nullptr, 0, f32, 1, self.comm, nullptr));
    // Any alignment.
    alignas(16) char bytes[64];
    for (std::size_t offset = 0; offset < 16; ++offset) {
      const double mine = 2.5;
      std::memcpy(bytes + offset, &mine, sizeof mine);
      EXPECT_HOCKET(sum(bytes + offset, bytes + offset, 1, self.comm, hocketFloat64));
      double got = 0;
      std::memcpy(&got, bytes + offset, sizeof got);
      EXPECT_EQ(5.0, got) << offset;
    }
    use_an_address_again(self.comm);
    // A communicator that is destroyed while its operations run: it waits for them.
    hocketStream_t stream = nullptr;
    hocketComm_t ended = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    ASSERT_HOCKET(hocketCommDuplicate(self.comm, &ended, nullptr));
    std::vector<float> data(100'000, 1);
    EXPECT_HOCKET(
        hocketAllReduce(data.data(), data.data(), data.size(), f32, hocketSum, ended, stream));
    EXPECT_HOCKET(hocketCommDestroy(ended));
    EXPECT_HOCKET(hocketStreamSynchronize(stream));
    EXPECT_EQ(std::vector<float>(100'000, 2), data);
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
  EXPECT_HOCKET(hocketCommDestroy(alone()));  // one rank
}

/// The rest of the list.
struct Elsewhere {
  const char* input;
  const char* file;  // in tests/
  const char* test;
};
constexpr Elsewhere elsewhere[] = {
    {"ranks make different calls", "engine/mismatch_test.cc",
     "TEST_P(Mismatch, is_told_to_every_rank_and_quotes_both_sides)"},
    {"one rank's counts of blocks differ", "engine/mismatch_test.cc",
     "TEST_P(Mismatch, of_the_counts_of_blocks_tells_what_differs)"},
    {"a rank twice", "bootstrap/join_test.cc", "TEST(Join, a_duplicate_rank_is_an_error_for_all)"},
    {"different numbers of ranks", "bootstrap/join_test.cc",
     "TEST(Join, ranks_that_disagree_about_their_number_are_both_named)"},
    {"a rank too many for a unique id", "bootstrap/join_test.cc",
     "TEST(Join, a_rank_that_comes_when_all_have_joined_is_refused_at_once)"},
    {"any changed bit of a unique id", "bootstrap/unique_id_test.cc",
     "TEST(UniqueId, any_changed_bit_is_found)"},
    {"a communicator that is poisoned", "api/making_arguments_test.cc",
     "TEST(Making, from_a_communicator_that_is_finalized_aborted_or_poisoned_is_refused)"},
    {"two threads on one communicator", "engine/endings_test.cc",
     "TEST_P(Endings, a_second_thread_is_refused_while_another_thread_is_inside_a_call)"},
    {"a group with a wrong call", "engine/groups_test.cc",
     "TEST(Group, with_a_wrong_argument_begins_nothing)"},
    {"a group with half a message", "engine/groups_test.cc",
     "TEST(Group, with_half_a_message_to_oneself_begins_nothing)"},
    {"a child by fork", "faults/fork_test.cc",
     "TEST(Fork, leaves_the_child_without_communicators_and_the_parent_unharmed)"},
    {"memory, streams and events in a child by fork", "api/process_test.cc",
     "TEST(ForkedChild, refuses_its_parents_streams_and_events_and_makes_its_own)"},
    {"malformed settings", "base/settings_test.cc",
     "TEST(Settings, a_bad_value_is_refused_by_name_with_what_is_allowed)"},
    {"settings that do not exist", "api/arguments_test.cc",
     "TEST(Environment, that_is_not_known_is_named)"},
    {"a malformed plan file", "faults/plan_files_test.cc",
     "TEST_P(PlanFilesOfRanks, that_are_wrong_are_refused_by_step_and_the_other_ranks_are_told)"},
    {"malformed configurations", "api/arguments_test.cc",
     "TEST(Arguments, of_a_configuration_are_checked_and_named)"},
    {"a tiny /dev/shm", "api/launched_test.cc", "TEST(Launched, ranks_need_nothing_of_dev_shm)"},
    {"few descriptors", "exhaustion/descriptors_test.cc",
     "TEST_P(OutOfDescriptors, however_few_there_are_is_an_error_with_a_reason)"},
    {"little memory", "exhaustion/memory_test.cc",
     "TEST_P(OutOfMemory, at_any_allocation_is_an_error_with_a_reason)"},
    {"a file size limit", "exhaustion/descriptors_test.cc",
     "TEST(FileSize, limit_is_an_error_that_names_it)"},
    {"a limit of locked memory", "faults/memory_test.cc",
     "TEST(LockedMemory, limit_of_nothing_does_not_matter)"},
    {"memory that was freed, or is a device's", "faults/memory_test.cc",
     "TEST(MemoryOutOfReach, ends_that_process_or_its_call_and_the_others_are_told)"},
    {"streams and events that were destroyed", "api/arguments_test.cc",
     "TEST(Handles, of_streams_and_events_are_refused_after_their_end)"},
};

TEST(BadInput, of_other_kinds_has_a_test_elsewhere) {
  const auto tests = ::tests::source_root() / "tests";
  for (const Elsewhere& row : elsewhere) {
    std::ifstream file(tests / row.file);
    std::ostringstream text;
    text << file.rdbuf();
    EXPECT_NE(std::string::npos, text.str().find(std::string("\n") + row.test + " {"))
        << row.input << ": " << row.file << " has no " << row.test;
  }
}

}  // namespace
