// Invalid arguments: the error names the argument, and nothing changes.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <set>

#include "api/wrong_calls.h"

namespace {

using ranks::Env;
using ranks::Rank;
using wrong_calls::argument;
using wrong_calls::expect_refused;
using wrong_calls::rank_of;
using wrong_calls::Wrongs;

float x[8];

Wrongs wrong_types_and_operators() {
  const auto bad_low = static_cast<hocketDataType_t>(-1);
  const auto bad_op = hocketNumOps;
  const auto f32 = hocketFloat32;
  return {
      {"a type that is float32 in its last 8 bits", argument, "hocketAllReduce: datatype 263",
       [=](hocketComm_t c) {
         return hocketAllReduce(x, x, 1, static_cast<hocketDataType_t>(263), hocketSum, c, nullptr);
       }},
      {"a large type", argument, "hocketRecv: datatype 268435463",
       [=](hocketComm_t c) {
         return hocketRecv(x, 1, static_cast<hocketDataType_t>(0x10000007), 0, c, nullptr);
       }},
      {"an operator that is max in its last 8 bits", argument, "operator 258",
       [=](hocketComm_t c) {
         return hocketAllReduce(x, x, 1, f32, static_cast<hocketRedOp_t>(258), c, nullptr);
       }},
      {"a negative type", argument, "hocketAllGather: datatype -1",
       [=](hocketComm_t c) { return hocketAllGather(x, x, 1, bad_low, c, nullptr); }},
      {"the largest operator", argument, "operator 2147483647",
       [=](hocketComm_t c) { return hocketAllReduce(x, x, 1, f32, hocketMaxRedOp, c, nullptr); }},
      {"an operator past the end", argument, "operator 5",
       [=](hocketComm_t c) { return hocketReduceScatter(x, x, 1, f32, bad_op, c, nullptr); }},
      {"a number behind the bitwise operators", argument, "operator 103",
       [=](hocketComm_t c) {
         return hocketAllReduce(x, x, 1, f32, static_cast<hocketRedOp_t>(103), c, nullptr);
       }},
      {"a number behind the types of 16 bits", argument, "datatype 102",
       [=](hocketComm_t c) {
         return hocketAllReduce(x, x, 1, static_cast<hocketDataType_t>(102), hocketSum, c, nullptr);
       }},
      {"a bitwise operator of floats", argument,
       "hocketReduce: operator xor is bitwise: bfloat16 is no integer type",
       [=](hocketComm_t c) {
         return hocketReduce(x, x, 1, hocketBfloat16, hocketXor, 0, c, nullptr);
       }},
  };
}

Wrongs wrong_collectives() {
  const auto f32 = hocketFloat32;
  return {
      {"a root below 0", argument, "root -1",
       [=](hocketComm_t c) { return hocketBroadcast(x, x, 1, f32, -1, c, nullptr); }},
      {"a root past the end", argument, "root 2",
       [=](hocketComm_t c) { return hocketBroadcast(x, x, 1, f32, 2, c, nullptr); }},
      {"a receive buffer beyond the address space", argument, "recvbuff would reach past the end",
       [=](hocketComm_t c) {
         return hocketAllGather(x, x, std::size_t{1} << 56, hocketInt8, c, nullptr);
       }},
      {"buffers that overlap by a byte", argument, "overlap",
       [=](hocketComm_t c) {
         auto* const bytes = reinterpret_cast<char*>(x);
         return hocketAllReduce(bytes, bytes + 3, 4, hocketInt8, hocketSum, c, nullptr);
       }},
      {"a scatter in the wrong place", argument, "overlap",
       [=](hocketComm_t c) {
         return hocketReduceScatter(x, x + 1, 2, f32, hocketSum, c, nullptr);
       }},
  };
}

// Of 2 ranks; rank 0 and rank 1 make the same calls, except where `comm` says otherwise.

Wrongs wrong_rooted_and_exchanging_calls() {
  const auto f32 = hocketFloat32;
  return {
      {"a reduce without an input", argument, "hocketReduce: sendbuff is NULL, but count is 1",
       [=](hocketComm_t c) { return hocketReduce(nullptr, x, 1, f32, hocketSum, 0, c, nullptr); }},
      {"a reduce without an output on its root", argument, "recvbuff is NULL",
       [=](hocketComm_t c) {
         return hocketReduce(x, nullptr, 1, f32, hocketSum, rank_of(c), c, nullptr);
       }},
      {"a reduce to no rank", argument, "root 2",
       [=](hocketComm_t c) { return hocketReduce(x, x, 1, f32, hocketSum, 2, c, nullptr); }},
      {"a reduce that overlaps on its root", argument, "sendbuff == recvbuff",
       [=](hocketComm_t c) {
         return hocketReduce(x, x + 1, 2, f32, hocketSum, rank_of(c), c, nullptr);
       }},
      {"an operator past the end", argument, "operator 5",
       [=](hocketComm_t c) { return hocketReduce(x, x, 1, f32, hocketNumOps, 0, c, nullptr); }},
      {"a broadcast of no buffer", argument, "hocketBcast: ",
       [=](hocketComm_t c) { return hocketBcast(nullptr, 1, f32, 0, c, nullptr); }},
      {"a broadcast from no rank", argument, "root -1",
       [=](hocketComm_t c) { return hocketBcast(x, 1, f32, -1, c, nullptr); }},
      {"a gather without an output on its root", argument, "hocketGather: recvbuff is NULL",
       [=](hocketComm_t c) { return hocketGather(x, nullptr, 1, f32, rank_of(c), c, nullptr); }},
      {"a gather to no rank", argument, "root 7",
       [=](hocketComm_t c) { return hocketGather(x, x, 1, f32, 7, c, nullptr); }},
      {"a gather in the wrong place", argument, "the block of this rank in recvbuff",
       [=](hocketComm_t c) {
         const int rank = rank_of(c);
         return hocketGather(x + (1 - rank) * 2, x, 2, f32, rank, c, nullptr);
       }},
      {"a scatter without an input on its root", argument, "hocketScatter: sendbuff is NULL",
       [=](hocketComm_t c) { return hocketScatter(nullptr, x, 1, f32, rank_of(c), c, nullptr); }},
      {"a scatter without an output", argument, "recvbuff is NULL",
       [=](hocketComm_t c) { return hocketScatter(x, nullptr, 1, f32, 0, c, nullptr); }},
      {"a scatter to the wrong place", argument, "the block of this rank in sendbuff",
       [=](hocketComm_t c) {
         const int rank = rank_of(c);
         return hocketScatter(x, x + (1 - rank) * 2, 2, f32, rank, c, nullptr);
       }},
      {"a scatter whose product wraps", argument, "more bytes than memory can",
       [=](hocketComm_t c) {
         return hocketScatter(x, x, SIZE_MAX / 8 + 2, f32, rank_of(c), c, nullptr);
       }},
      {"an all-to-all in place", argument, "cannot run in place",
       [=](hocketComm_t c) { return hocketAlltoAll(x, x, 1, f32, c, nullptr); }},
      {"an all-to-all without an output", argument, "hocketAlltoAll: recvbuff is NULL",
       [=](hocketComm_t c) { return hocketAlltoAll(x, nullptr, 1, f32, c, nullptr); }},
      {"an all-to-all beyond the address space", argument, "sendbuff would reach past the end",
       [=](hocketComm_t c) {
         return hocketAlltoAll(x, x, std::size_t{1} << 56, hocketInt8, c, nullptr);
       }},
  };
}

/// Counts and displacements of the two ranks' blocks.
struct Two {
  std::size_t at[2];
  const std::size_t* data() const { return at; }
};

Wrongs wrong_gathers_of_unequal_blocks() {
  const auto gather = [](Two counts, const Two* displs, hocketDataType_t type = hocketFloat32) {
    return [=](hocketComm_t c) {
      const std::size_t own = counts.at[rank_of(c)];
      float input = 0;
      return hocketAllGatherV(&input, own, x, counts.data(),
                              displs != nullptr ? displs->data() : nullptr, type, c, nullptr);
    };
  };
  static const Two descending{{2, 1}}, far{{0, SIZE_MAX}}, beyond{{0, std::size_t{1} << 57}};
  return {
      {"an own count that differs", argument, "recvcounts[",
       [](hocketComm_t c) {
         const Two counts{{1, 1}};
         return hocketAllGatherV(x, 2, x + 4, counts.data(), nullptr, hocketFloat32, c, nullptr);
       }},
      {"no output", argument, "recvbuff is NULL, but recvcounts[1] is 3",
       [](hocketComm_t c) {
         const Two counts{{0, 3}};
         return hocketAllGatherV(x, counts.at[rank_of(c)], nullptr, counts.data(), nullptr,
                                 hocketFloat32, c, nullptr);
       }},
      {"no input", argument, "sendbuff is NULL, but sendcount is 1",
       [](hocketComm_t c) {
         const Two counts{{1, 1}};
         return hocketAllGatherV(nullptr, 1, x, counts.data(), nullptr, hocketFloat32, c, nullptr);
       }},
      {"blocks that overlap in another order", argument, "from ranks 0 and 1 overlap in recvbuff",
       gather({{1, 2}}, &descending)},
      {"a displacement whose end wraps", argument, "displs[1] is 18446744073709551615",
       gather({{1, 1}}, &far)},
      {"a displacement beyond the address space", argument, "recvbuff would reach past the end",
       gather({{1, 1}}, &beyond, hocketInt8)},
      {"a sum that wraps", argument, "more bytes than memory can",
       gather({{1, SIZE_MAX}}, nullptr, hocketInt8)},
      {"an input in the block of another rank", argument, "the block of this rank in recvbuff",
       [](hocketComm_t c) {
         const Two counts{{2, 2}};
         return hocketAllGatherV(x + (1 - rank_of(c)) * 2, 2, x, counts.data(), nullptr,
                                 hocketFloat32, c, nullptr);
       }},
      {"a gather to a root without counts", argument, "hocketGatherV: recvcounts is NULL",
       [](hocketComm_t c) {
         return hocketGatherV(x, 1, x + 1, nullptr, nullptr, hocketFloat32, rank_of(c), c, nullptr);
       }},
      {"a gather to no rank", argument, "hocketGatherV: root 2",
       [](hocketComm_t c) {
         const Two counts{{1, 1}};
         return hocketGatherV(x, 1, x, counts.data(), nullptr, hocketFloat32, 2, c, nullptr);
       }},
  };
}

Wrongs wrong_scatters_of_unequal_blocks() {
  const auto f32 = hocketFloat32;
  static const Two ones{{1, 1}}, odd{{2, 1}};
  return {
      {"a scatter from a root without counts", argument, "hocketScatterV: sendcounts is NULL",
       [=](hocketComm_t c) {
         return hocketScatterV(x, nullptr, nullptr, x + 4, 1, f32, rank_of(c), c, nullptr);
       }},
      {"a scatter with another own count", argument, "but recvcount is 5",
       [=](hocketComm_t c) {
         return hocketScatterV(x, ones.data(), nullptr, x + 2, 5, f32, rank_of(c), c, nullptr);
       }},
      {"a scatter without an output", argument, "recvbuff is NULL, but recvcount is 1",
       [=](hocketComm_t c) {
         return hocketScatterV(x, ones.data(), nullptr, nullptr, 1, f32, 0, c, nullptr);
       }},
      {"a reduce-scatter without counts", argument, "hocketReduceScatterV: recvcounts is NULL",
       [=](hocketComm_t c) {
         return hocketReduceScatterV(x, x, nullptr, f32, hocketSum, c, nullptr);
       }},
      {"a reduce-scatter in the wrong place", argument, "the block of this rank in sendbuff",
       [=](hocketComm_t c) {
         return hocketReduceScatterV(x, x + 1 - rank_of(c), ones.data(), f32, hocketSum, c,
                                     nullptr);
       }},
      {"a reduce-scatter without an output", argument, "recvbuff is NULL, but recvcounts[",
       [=](hocketComm_t c) {
         return hocketReduceScatterV(x, nullptr, ones.data(), f32, hocketSum, c, nullptr);
       }},
      {"an all-to-all without counts to send", argument, "hocketAlltoAllV: sendcounts is NULL",
       [=](hocketComm_t c) {
         return hocketAlltoAllV(x, nullptr, nullptr, x + 4, ones.data(), nullptr, f32, c, nullptr);
       }},
      {"an all-to-all without counts to receive", argument, "recvcounts is NULL",
       [=](hocketComm_t c) {
         return hocketAlltoAllV(x, ones.data(), nullptr, x + 4, nullptr, nullptr, f32, c, nullptr);
       }},
      {"an all-to-all whose own counts differ", argument, "sends that block to itself",
       [=](hocketComm_t c) {
         const Two other = rank_of(c) == 0 ? odd : Two{{1, 2}};
         return hocketAlltoAllV(x, ones.data(), nullptr, x + 4, other.data(), nullptr, f32, c,
                                nullptr);
       }},
      {"an all-to-all that receives twice in one place", argument, "rdispls",
       [=](hocketComm_t c) {
         static const Two same{{1, 1}};
         return hocketAlltoAllV(x, ones.data(), nullptr, x + 4, ones.data(), same.data(), f32, c,
                                nullptr);
       }},
      {"an all-to-all in place", argument, "cannot run in place",
       [=](hocketComm_t c) {
         return hocketAlltoAllV(x, ones.data(), nullptr, x, ones.data(), nullptr, f32, c, nullptr);
       }},
  };
}

Wrongs wrong_memory_and_streams() {
  return {
      {"no place for memory", argument, "NULL",
       [](hocketComm_t) { return hocketMemAlloc(nullptr, 1); }},
      {"memory without a size", argument, "",
       [](hocketComm_t) {
         void* made = x;
         const hocketResult_t result = hocketMemAlloc(&made, 0);
         EXPECT_EQ(nullptr, made);
         return result;
       }},
      {"memory beyond memory", argument, "",
       [](hocketComm_t) {
         void* made = x;
         const hocketResult_t result = hocketMemAlloc(&made, SIZE_MAX);
         EXPECT_EQ(nullptr, made);
         return result;
       }},
      {"no buffer to register", argument, "NULL",
       [](hocketComm_t c) {
         void* handle = x;
         const hocketResult_t result = hocketCommRegister(c, nullptr, 4, &handle);
         EXPECT_EQ(nullptr, handle);
         return result;
       }},
      {"a registration that is none", argument, "handle",
       [](hocketComm_t c) { return hocketCommDeregister(c, x); }},
      {"no event", argument, "event",
       [](hocketComm_t) { return hocketStreamWaitEvent(nullptr, nullptr); }},
      {"no place for a stream", argument,
       "hocketStreamCreate: ", [](hocketComm_t) { return hocketStreamCreate(nullptr); }},
      {"no event to ask", argument, "hocketEventGetResult: the event",
       [](hocketComm_t) { return hocketEventGetResult(nullptr); }},
      {"no place for a depth", argument, "hocketGroupDepth: depth",
       [](hocketComm_t) { return hocketGroupDepth(nullptr); }},
      {"no place for the last culprit", argument, "hocketGetLastCulprit: rank",
       [](hocketComm_t) { return hocketGetLastCulprit(nullptr); }},
      {"no place for a version", argument, "version",
       [](hocketComm_t) { return hocketGetVersion(nullptr); }},
      {"no place for an id", argument, "uniqueId",
       [](hocketComm_t) { return hocketGetUniqueId(nullptr); }},
  };
}

Wrongs all_wrong_calls() {
  Wrongs all = wrong_collectives();
  for (const Wrongs& more : {wrong_types_and_operators(), wrong_rooted_and_exchanging_calls(),
                             wrong_gathers_of_unequal_blocks(), wrong_scatters_of_unequal_blocks(),
                             wrong_memory_and_streams()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

TEST(Arguments, that_are_wrong_are_named_and_change_nothing) {
  ranks::run_ranks(2, [](Rank& self) { expect_refused(self, all_wrong_calls()); });
}

TEST(Arguments, that_touch_are_no_overlap) {
  ranks::run_ranks(2, [](Rank& self) {
    for (const bool input_first : {true, false}) {
      signed char bytes[8] = {1, 1, 1, 1, 1, 1, 1, 1};
      signed char* const in = input_first ? bytes : bytes + 4;
      signed char* const out = input_first ? bytes + 4 : bytes;
      EXPECT_HOCKET(hocketAllReduce(in, out, 4, hocketInt8, hocketSum, self.comm, nullptr));
      for (int i = 0; i < 4; ++i) EXPECT_EQ(2, out[i]);
    }
  });
}

/// A rank may leave out buffers and counts that it does not have. Blocks that are sent may overlap,
/// and blocks may lie in any order.
TEST(Arguments, that_a_rank_does_not_need_may_be_missing) {
  ranks::run_ranks(2, [](Rank& self) {
    const bool root = self.rank == 1;
    const float mine = static_cast<float>(self.rank + 1);
    float all[2] = {}, got = 0;
    EXPECT_HOCKET(hocketReduce(&mine, root ? &got : nullptr, 1, hocketFloat32, hocketSum, 1,
                               self.comm, nullptr));
    EXPECT_EQ(root ? 3.0F : 0.0F, got);
    EXPECT_HOCKET(
        hocketGather(&mine, root ? all : nullptr, 1, hocketFloat32, 1, self.comm, nullptr));
    EXPECT_HOCKET(
        hocketScatter(root ? all : nullptr, &got, 1, hocketFloat32, 1, self.comm, nullptr));
    EXPECT_EQ(mine, got);
    const std::size_t counts[2] = {1, 0}, displs[2] = {1, SIZE_MAX};  // of an empty block: anything
    float place[3] = {};
    EXPECT_HOCKET(hocketGatherV(root ? nullptr : &mine, root ? 0 : 1, root ? place : nullptr,
                                root ? counts : nullptr, root ? displs : nullptr, hocketFloat32, 1,
                                self.comm, nullptr));
    EXPECT_EQ(root ? 1.0F : 0.0F, place[1]);
    EXPECT_HOCKET(hocketScatterV(root ? place : nullptr, root ? counts : nullptr,
                                 root ? displs : nullptr, root ? nullptr : &got, root ? 0 : 1,
                                 hocketFloat32, 1, self.comm, nullptr));
    EXPECT_EQ(root ? mine : 1.0F, got);
    // All blocks that are sent are the same bytes; those that are received lie between them.
    float both[4] = {mine, 0, 0, 0};
    const std::size_t ones[2] = {1, 1}, same[2] = {0, 0}, apart[2] = {3, 1};
    EXPECT_HOCKET(
        hocketAlltoAllV(both, ones, same, both, ones, apart, hocketFloat32, self.comm, nullptr));
    EXPECT_EQ(1.0F, both[3]);
    EXPECT_EQ(2.0F, both[1]);
    const std::size_t none[2] = {0, 0};
    EXPECT_HOCKET(
        hocketAllGatherV(nullptr, 0, nullptr, none, nullptr, hocketFloat32, self.comm, nullptr));
    EXPECT_HOCKET(
        hocketReduceScatterV(nullptr, nullptr, none, hocketFloat32, hocketSum, self.comm, nullptr));
  });
}

TEST(Arguments, of_a_join_are_checked) {
  hocketUniqueId id;
  ASSERT_HOCKET(hocketGetUniqueId(&id));
  for (const auto& [ranks, rank] : {std::pair{-1, 0}, {65'536, 0}}) {
    hocketComm_t comm = reinterpret_cast<hocketComm_t>(&id);
    EXPECT_EQ(hocketInvalidArgument, hocketCommInitRank(&comm, ranks, id, rank)) << ranks;
    EXPECT_EQ(nullptr, comm);
  }
  EXPECT_STREQ(
      "hocketCommInitRank: nranks is 65536: a communicator has at least 1 rank and at most 65535",
      hocketGetLastError(nullptr));
  EXPECT_EQ(hocketInvalidArgument, hocketCommInitRank(nullptr, 1, id, 0));
  for (int byte : {0, 5, 127}) {
    hocketUniqueId garbage;
    std::memset(&garbage, byte, sizeof garbage);
    hocketComm_t comm = nullptr;
    EXPECT_EQ(hocketInvalidArgument, hocketCommInitRank(&comm, 1, garbage, 0)) << byte;
  }
}

TEST(Arguments, of_a_configuration_are_checked_and_named) {
  hocketUniqueId id;
  ASSERT_HOCKET(hocketGetUniqueId(&id));
  struct Bad {
    const char* named;
    std::function<void(hocketConfig_t&)> spoil;
  };
  const Bad bads[] = {
      {"HOCKET_CONFIG_INITIALIZER", [](hocketConfig_t& c) { c.magic = 1; }},
      {"HOCKET_CONFIG_INITIALIZER", [](hocketConfig_t& c) { c.size = 8; }},
      {"blocking", [](hocketConfig_t& c) { c.blocking = 2; }},
      {"deterministic", [](hocketConfig_t& c) { c.deterministic = -1; }},
      {"deadline_ms", [](hocketConfig_t& c) { c.deadline_ms = 0; }},
      {"join_deadline_ms", [](hocketConfig_t& c) { c.join_deadline_ms = -5; }},
      {"silence_ms", [](hocketConfig_t& c) { c.silence_ms = 0; }},
  };
  for (const Bad& bad : bads) {
    hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
    bad.spoil(config);
    hocketComm_t comm = nullptr;
    EXPECT_EQ(hocketInvalidArgument, hocketCommInitRankConfig(&comm, 1, id, 0, &config));
    const std::string text = hocketGetLastError(nullptr);
    EXPECT_NE(std::string::npos, text.find(bad.named)) << text;
  }
  // A program compiled against a later header, whose config is longer.
  struct Longer {
    hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
    int more[10] = {};
  } longer;
  longer.config.size = sizeof longer;
  hocketComm_t comm = nullptr;
  EXPECT_HOCKET(hocketCommInitRankConfig(&comm, 1, id, 0, &longer.config));
  EXPECT_HOCKET(hocketCommDestroy(comm));
}

TEST(ErrorString, is_of_its_own_for_every_result_and_tells_what_is_none) {
  std::set<std::string> words;
  for (int result = 0; result < hocketNumResults; ++result) {
    words.insert(hocketGetErrorString(static_cast<hocketResult_t>(result)));
  }
  words.insert(hocketGetErrorString(hocketMismatch));
  words.insert(hocketGetErrorString(hocketAborted));
  EXPECT_EQ(hocketNumResults + 2U, words.size());
  EXPECT_FALSE(words.contains("unknown result"));
  for (const int none : {-1, static_cast<int>(hocketNumResults), 99, 102}) {
    EXPECT_STREQ("unknown result", hocketGetErrorString(static_cast<hocketResult_t>(none)));
  }
}

TEST(Environment, that_is_not_known_is_named) {
  struct Bad {
    const char *name, *value;
  };
  for (const Bad& bad : {Bad{"HOCKET_DEADLIN", "5"},
                         {"HOCKET_DEADLINE_MS", "soon"},
                         {"HOCKET_DEADLINE_MS", "-5"},
                         {"HOCKET_TRANSPORT", "pigeon"},
                         {"HOCKET_ALGORITHM", "magic"},
                         {"HOCKET_DETERMINISTIC", "maybe"}}) {
    const Env env{{{bad.name, bad.value}}};
    hocketComm_t comm = nullptr;
    EXPECT_EQ(hocketInvalidUsage, hocketCommInitFromEnv(&comm, nullptr)) << bad.name;
    const std::string text = hocketGetLastError(nullptr);
    EXPECT_NE(std::string::npos, text.find(bad.name)) << text;
    EXPECT_EQ(nullptr, comm);
  }
}

TEST(Environment, without_a_launcher_makes_a_communicator_of_one) {
  for (int i = 0; i < 2; ++i) {
    hocketComm_t comm = nullptr;
    ASSERT_HOCKET(hocketCommInitFromEnv(&comm, nullptr));
    int count = 0;
    EXPECT_HOCKET(hocketCommCount(comm, &count));
    EXPECT_EQ(1, count);
    EXPECT_HOCKET(hocketBarrier(comm, nullptr));
    EXPECT_HOCKET(hocketCommDestroy(comm));
  }
}

TEST(Handles, of_streams_and_events_are_refused_after_their_end) {
  ranks::run_ranks(1, [](Rank& self) {
    hocketStream_t stream = nullptr, other = nullptr;
    hocketEvent_t event = nullptr, another = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    ASSERT_HOCKET(hocketEventCreate(&event));
    EXPECT_HOCKET(hocketStreamDestroy(stream));
    EXPECT_HOCKET(hocketEventDestroy(event));
    ASSERT_HOCKET(hocketStreamCreate(&other));
    ASSERT_HOCKET(hocketEventCreate(&another));
    const std::string last = "was destroyed before";
    const auto refused = [&](hocketResult_t result, const std::string& function) {
      EXPECT_EQ(hocketInvalidArgument, result) << function;
      const std::string text = hocketGetLastError(nullptr);
      EXPECT_EQ(0u, text.find(function + ": this ")) << text;
      EXPECT_NE(std::string::npos, text.find(last)) << text;
    };
    refused(hocketBarrier(self.comm, stream), "hocketBarrier");
    refused(hocketStreamSynchronize(stream), "hocketStreamSynchronize");
    refused(hocketStreamQuery(stream), "hocketStreamQuery");
    refused(hocketStreamWaitEvent(stream, another), "hocketStreamWaitEvent");
    refused(hocketStreamWaitEvent(other, event), "hocketStreamWaitEvent");
    refused(hocketStreamDestroy(stream), "hocketStreamDestroy");
    refused(hocketEventRecord(event, other), "hocketEventRecord");
    refused(hocketEventRecord(another, stream), "hocketEventRecord");
    refused(hocketEventSynchronize(event), "hocketEventSynchronize");
    refused(hocketEventQuery(event), "hocketEventQuery");
    refused(hocketEventGetResult(event), "hocketEventGetResult");
    refused(hocketEventDestroy(event), "hocketEventDestroy");
    std::array<std::uint64_t, 128> memory{};
    EXPECT_EQ(hocketInvalidArgument,
              hocketStreamQuery(reinterpret_cast<hocketStream_t>(memory.data())));
    EXPECT_EQ(hocketInvalidArgument,
              hocketEventQuery(reinterpret_cast<hocketEvent_t>(memory.data())));
    EXPECT_HOCKET(hocketBarrier(self.comm, other));
    EXPECT_HOCKET(hocketStreamDestroy(other));
    EXPECT_HOCKET(hocketEventDestroy(another));
  });
}

TEST(Group, refuses_to_wait_for_what_it_has_collected) {
  hocketStream_t stream = nullptr;
  hocketEvent_t event = nullptr;
  ASSERT_HOCKET(hocketStreamCreate(&stream));
  ASSERT_HOCKET(hocketEventCreate(&event));
  ASSERT_HOCKET(hocketGroupStart());
  const auto refused = [](hocketResult_t result, const std::string& function) {
    EXPECT_EQ(hocketInvalidUsage, result) << function;
    const std::string text = hocketGetLastError(nullptr);
    EXPECT_EQ(0u, text.find(function + ": ")) << text;
    EXPECT_NE(std::string::npos, text.find("group")) << text;
  };
  refused(hocketStreamSynchronize(stream), "hocketStreamSynchronize");
  refused(hocketStreamSynchronize(nullptr), "hocketStreamSynchronize");
  refused(hocketStreamQuery(stream), "hocketStreamQuery");
  refused(hocketStreamWaitEvent(stream, event), "hocketStreamWaitEvent");
  refused(hocketLaunchHostFunc(
              stream, [](void*) {}, nullptr),
          "hocketLaunchHostFunc");
  refused(hocketEventRecord(event, stream), "hocketEventRecord");
  refused(hocketEventSynchronize(event), "hocketEventSynchronize");
  refused(hocketEventQuery(event), "hocketEventQuery");
  refused(hocketEventGetResult(event), "hocketEventGetResult");
  refused(hocketStreamDestroy(stream), "hocketStreamDestroy");
  ASSERT_HOCKET(hocketGroupEnd());
  EXPECT_HOCKET(hocketStreamSynchronize(stream));
  EXPECT_HOCKET(hocketEventDestroy(event));
  EXPECT_HOCKET(hocketStreamDestroy(stream));
}

TEST(Memory, is_mapped_where_the_library_or_a_descriptor_gave_it) {
  ranks::run_ranks(2, [](Rank& self) {
    constexpr std::size_t bytes = 1 << 20;
    const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(0, ::ftruncate(fd, 2 * bytes));
    auto* const mapped = static_cast<std::uint8_t*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096));
    ASSERT_NE(MAP_FAILED, static_cast<void*>(mapped));
    hocketMemoryPath_t path = hocketPathMapped;
    EXPECT_HOCKET(hocketCommMemoryPath(self.comm, mapped, bytes, &path));
    EXPECT_EQ(hocketPathStaged, path);
    void* handle = nullptr;
    EXPECT_EQ(hocketInvalidArgument,
              hocketCommRegisterFd(self.comm, mapped, bytes, fd, 100, &handle));
    EXPECT_EQ(hocketInvalidArgument,
              hocketCommRegisterFd(self.comm, mapped, 3 * bytes, fd, 4096, &handle));
    EXPECT_EQ(hocketInvalidArgument,
              hocketCommRegisterFd(self.comm, mapped, bytes, -1, 4096, &handle));
    const int unsealable = ::memfd_create("test", MFD_CLOEXEC);
    ASSERT_EQ(0, ::ftruncate(unsealable, 2 * bytes));
    EXPECT_EQ(hocketInvalidArgument,
              hocketCommRegisterFd(self.comm, mapped, bytes, unsealable, 4096, &handle));
    ::close(unsealable);
    EXPECT_EQ(nullptr, handle);
    ASSERT_HOCKET(hocketCommRegisterFd(self.comm, mapped, bytes, fd, 4096, &handle));
    ::close(fd);  // the library has a duplicate
    EXPECT_HOCKET(hocketCommMemoryPath(self.comm, mapped + 100, 1000, &path));
    EXPECT_EQ(hocketPathMapped, path);
    EXPECT_HOCKET(hocketCommMemoryPath(self.comm, mapped + 100, bytes, &path));
    EXPECT_EQ(hocketPathStaged, path) << "it reaches past the end";
    std::fill(mapped, mapped + bytes, static_cast<std::uint8_t>(self.rank + 1));
    EXPECT_HOCKET(
        hocketAllReduce(mapped, mapped, bytes, hocketUint8, hocketSum, self.comm, nullptr));
    EXPECT_EQ(3, mapped[0]);
    EXPECT_EQ(3, mapped[bytes - 1]);
    self.meet();
    EXPECT_HOCKET(hocketCommDeregister(self.comm, handle));
    EXPECT_EQ(hocketInvalidArgument, hocketCommDeregister(self.comm, handle));
    EXPECT_HOCKET(hocketCommMemoryPath(self.comm, mapped, bytes, &path));
    EXPECT_EQ(hocketPathStaged, path);
    ::munmap(mapped, bytes);
  });
}

/// More buffers than a rank keeps mapped of its peers, in turn.
TEST(Memory, is_deregistered_on_the_communicator_that_has_it) {
  ranks::run_ranks(2, [](Rank& self) {
    hocketComm_t part = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, 0, 0, &part, nullptr));
    float buffer[16];
    void* handle = nullptr;
    ASSERT_HOCKET(hocketCommRegister(self.comm, buffer, sizeof buffer, &handle));
    EXPECT_EQ(hocketInvalidArgument, hocketCommDeregister(part, handle));
    EXPECT_HOCKET(hocketCommDeregister(self.comm, handle));
    EXPECT_EQ(hocketInvalidArgument, hocketCommDeregister(self.comm, handle));
    EXPECT_HOCKET(hocketCommDestroy(part));
  });
}

TEST(Memory, of_many_buffers_is_mapped_in_turn) {
  const Env env{{{"HOCKET_ALGORITHM", "direct"}}};
  ranks::run_ranks(2, [](Rank& self) {
    std::vector<void*> buffers(300);
    for (void*& buffer : buffers) {
      ASSERT_HOCKET(hocketMemAlloc(&buffer, 1 << 14));
    }
    for (int round = 0; round < 2; ++round) {
      for (void* buffer : buffers) {
        auto* const x = static_cast<int*>(buffer);
        std::fill(x, x + 4096, 1);
        EXPECT_HOCKET(hocketAllReduce(x, x, 4096, hocketInt32, hocketSum, self.comm, nullptr));
        EXPECT_EQ(2, x[4095]);
      }
    }
    self.meet();
    for (void* buffer : buffers) {
      EXPECT_HOCKET(hocketMemFree(buffer));
    }
  });
}

}  // namespace
