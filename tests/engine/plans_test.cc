// Plans that a program loads by hocketCommLoadPlan.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "collectives/algorithms/builders.h"
#include "collectives/plan/json.h"
#include "matrix/ranks.h"
#include "source_root.h"

namespace {

using ranks::Env;
using ranks::Rank;

std::string example(const std::string& name) {
  const auto& root = ::tests::source_root();
  std::stringstream text;
  text << std::ifstream(root / "examples" / "plans" / (name + ".json")).rdbuf();
  EXPECT_FALSE(text.str().empty());
  return text.str();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(std::string::npos, at) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// The algorithm of an all-reduce, whose result is checked.
std::string all_reduce(hocketComm_t comm, int ranks) {
  std::vector<std::int32_t> data(100'000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::int32_t>(i);
  EXPECT_HOCKET(hocketAllReduce(data.data(), data.data(), data.size(), hocketInt32, hocketSum, comm,
                                nullptr));
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (data[i] == ranks * static_cast<std::int32_t>(i)) continue;
    ADD_FAILURE() << "element " << i << " is " << data[i];
    break;
  }
  const char *algorithm = "", *transport = "";
  EXPECT_HOCKET(hocketCommLastAlgorithm(comm, &algorithm, &transport));
  return algorithm;
}

/// The algorithm of a broadcast, whose result is checked.
std::string broadcast(hocketComm_t comm, int rank, int root) {
  std::vector<std::int16_t> data(10'000, static_cast<std::int16_t>(rank));
  EXPECT_HOCKET(hocketBcast(data.data(), data.size(), hocketFloat16, root, comm, nullptr));
  EXPECT_EQ(std::vector<std::int16_t>(data.size(), static_cast<std::int16_t>(root)), data);
  const char *algorithm = "", *transport = "";
  EXPECT_HOCKET(hocketCommLastAlgorithm(comm, &algorithm, &transport));
  return algorithm;
}

class Plans : public testing::TestWithParam<const char*> {
  Env env_{{{"HOCKET_TRANSPORT", GetParam()}, {"HOCKET_ALGORITHM", ""}}};
};
class LoadPlan : public testing::Test {
  Env env_{Env::List{{"HOCKET_ALGORITHM", ""}}};
};

TEST_P(Plans, of_a_program_run_where_they_are_forced) {
  ranks::run_ranks(4, [](Rank& self) {
    EXPECT_NE("cube", all_reduce(self.comm, 4));
    ASSERT_HOCKET(hocketCommLoadPlan(self.comm, example("cube").c_str(), 1));
    ASSERT_HOCKET(hocketCommLoadPlan(self.comm, example("chain").c_str(), 0));
    EXPECT_EQ("cube", all_reduce(self.comm, 4));
    for (int root = 0; root < 4; ++root) broadcast(self.comm, self.rank, root);
    hocketComm_t half = nullptr;
    ASSERT_HOCKET(hocketCommSplit(self.comm, self.rank / 2, 0, &half, nullptr));
    EXPECT_NE("cube", all_reduce(half, 2)) << "a split communicator does not get it";
    EXPECT_HOCKET(hocketCommDestroy(half));
  });
}

TEST_P(Plans, that_are_forced_all_run_in_whatever_order_they_are_loaded) {
  for (const bool chain_first : {false, true}) {
    ranks::run_ranks(4, [&](Rank& self) {
      for (const char* const name :
           {chain_first ? "chain" : "cube", chain_first ? "cube" : "chain"})
        ASSERT_HOCKET(hocketCommLoadPlan(self.comm, example(name).c_str(), 1));
      EXPECT_EQ("cube", all_reduce(self.comm, 4));
      EXPECT_EQ("chain", broadcast(self.comm, self.rank, 3));
      const std::string other = replaced(example("cube"), "\"cube\"", "\"other\"");
      ASSERT_HOCKET(hocketCommLoadPlan(self.comm, other.c_str(), 1));
      EXPECT_EQ("other", all_reduce(self.comm, 4)) << "of two for a call that loaded last";
      EXPECT_EQ("chain", broadcast(self.comm, self.rank, 3));
    });
  }
}

TEST_P(Plans, that_one_rank_refuses_no_rank_loads) {
  const std::string wrong = replaced(example("cube"), "{\"await\": \"send input\"},\n", "");
  ranks::run_ranks(4, [&](Rank& self) {
    const std::string text = self.rank == 2 ? wrong : example("cube");
    const hocketResult_t result = hocketCommLoadPlan(self.comm, text.c_str(), 1);
    const std::string said = hocketGetLastError(nullptr);
    int culprit = -1;
    EXPECT_HOCKET(hocketCommGetCulprit(nullptr, &culprit));
    if (self.rank == 2) {
      EXPECT_EQ(hocketInvalidArgument, result);
      EXPECT_NE(std::string::npos, said.find("lane 'second', step 2")) << said;
    } else {
      EXPECT_EQ(hocketMismatch, result);
      EXPECT_EQ(2, culprit) << said;
      EXPECT_NE(std::string::npos, said.find("has refused the plan")) << said;
    }
    EXPECT_NE("cube", all_reduce(self.comm, 4)) << "the communicator goes on without the plan";
    EXPECT_HOCKET(hocketCommLoadPlan(self.comm, example("cube").c_str(), 1));
    EXPECT_EQ("cube", all_reduce(self.comm, 4));
  });
}

TEST_P(Plans, that_differ_are_refused_on_all_ranks_with_both_names) {
  ranks::run_ranks(4, [](Rank& self) {
    const std::string cube = example("cube");
    const std::string other = replaced(replaced(cube, "\"cube\"", "\"other\""), "exchange", "E");
    const std::string text = self.rank == 3 ? other : cube;
    EXPECT_EQ(hocketMismatch, hocketCommLoadPlan(self.comm, text.c_str(), 0));
    const std::string said = hocketGetLastError(nullptr);
    int culprit = -1;
    EXPECT_HOCKET(hocketCommGetCulprit(nullptr, &culprit));
    EXPECT_EQ(3, culprit);
    for (const char* part : {"rank 0", "'cube'", "rank 3", "'other'"}) {
      EXPECT_NE(std::string::npos, said.find(part)) << part << " in " << said;
    }
    EXPECT_EQ(hocketMismatch, hocketCommLoadPlan(self.comm, cube.c_str(), self.rank == 1));
    EXPECT_NE(std::string::npos, std::string(hocketGetLastError(nullptr)).find(", forced"));
    EXPECT_NE("cube", all_reduce(self.comm, 4));
  });
}

TEST_P(Plans, that_are_loaded_twice_are_refused_with_their_first_source) {
  const auto& root = ::tests::source_root();
  const std::string chain = root / "examples" / "plans" / "chain.json";
  const Env files({{"HOCKET_PLAN_FILES", chain}, {"HOCKET_TRANSPORT", GetParam()}});
  ranks::run_ranks(4, [&](Rank& self) {
    ASSERT_HOCKET(hocketCommLoadPlan(self.comm, example("cube").c_str(), 0));
    const std::pair<std::string, std::string> twice[] = {
        {"cube", "a text that was given before"}, {"chain", chain + " of HOCKET_PLAN_FILES"}};
    for (const auto& [name, source] : twice) {
      EXPECT_EQ(hocketInvalidArgument, hocketCommLoadPlan(self.comm, example(name).c_str(), 0));
      EXPECT_EQ("hocketCommLoadPlan: the given text: plan '" + name +
                    "': a plan of this name, collective and links is loaded already, from " +
                    source,
                hocketGetLastError(nullptr));
    }
    all_reduce(self.comm, 4);  // the communicator goes on
  });
}

/// A built-in plan of an all-reduce as a user's plan of another name.
std::string renamed(const char* algorithm, bool in_node, std::uint32_t ranks) {
  using namespace hocket::internal;
  std::vector<Plan> plans;
  Shape shape{.collective = Collective::all_reduce, .ranks = ranks, .widened = true};
  for (const Builder& builder : builders()) {
    if (builder.collective != shape.collective || std::string(algorithm) != builder.algorithm) {
      continue;
    }
    if (builder.build(shape).uses_node() != in_node) continue;
    for (shape.rank = 0; shape.rank < ranks; ++shape.rank) plans.push_back(builder.build(shape));
    break;
  }
  return replaced(write_json(plans, false), "\"name\": \"", "\"name\": \"my-");
}

TEST_F(LoadPlan, runs_plans_of_every_kind_of_link_in_every_kind_of_memory) {
  // more: keys that do not change what the plan does, but how long its chunks are.
  struct Case {
    const char* algorithm;
    bool in_node;
    const char* more = "";
  };
  static constexpr Case built_in[] = {{"inline", true},
                                      {"one-shot", true},
                                      {"staged", true},
                                      {"direct", true},
                                      {"direct", true, "\"scratch_blocks\": 3, "},
                                      {"direct", true, "\"single_chunk\": true, "},
                                      {"ring", false}};
  for (const Case& of : built_in) {
    ranks::run_ranks(3, [of, name = std::string(of.algorithm)](Rank& self) {
      const std::string text = replaced(renamed(of.algorithm, of.in_node, 3),
                                        "\"lanes\": ", std::string(of.more) + "\"lanes\": ");
      ASSERT_HOCKET(hocketCommLoadPlan(self.comm, text.c_str(), 1));
      const std::size_t count = name == "inline" ? 5 : 300'001;
      void* mapped = nullptr;
      ASSERT_HOCKET(hocketMemAlloc(&mapped, count * sizeof(float)));
      std::vector<float> plain(count);
      for (const bool maps : {true, false}) {
        // Without mapping on rank 1 alone, `staged` runs on all ranks.
        auto* const data = maps || self.rank != 1 ? static_cast<float*>(mapped) : plain.data();
        std::fill_n(data, count, static_cast<float>(self.rank + 1));
        EXPECT_HOCKET(
            hocketAllReduce(data, data, count, hocketFloat32, hocketSum, self.comm, nullptr));
        EXPECT_EQ(static_cast<std::ptrdiff_t>(count), std::count(data, data + count, 6.0F)) << name;
        const char *ran = "", *transport = "";
        EXPECT_HOCKET(hocketCommLastAlgorithm(self.comm, &ran, &transport));
        EXPECT_EQ(name == "direct" && !maps ? "staged" : "my-" + name, ran);
      }
      self.meet();
      EXPECT_HOCKET(hocketMemFree(mapped));
    });
  }
}

/// A gather-v through scratch for blocks of up to 512 bytes, and by messages for larger ones. With
/// `told` ranks publish that they have put a block into scratch, and that the root has taken it,
/// and wait for that.
std::string gather_of_small_blocks(bool told) {
  const auto if_told = [told](const char* text) { return told ? text : ""; };
  return std::string(R"({"name": "own-gather", "collective": "gather", "ranks": "p == 3",
    "links": "node", "varying": true, "scratch_blocks": 1, "single_chunk": true,
    "small_bytes": 512, "lanes": [
    {"name": "copy", "when": "r == root", "of": "output", "block": "r", "steps": [
      {"arrive": true}, {"copy": "in[0]", "into": "out[r]"}]},
    {"name": "take", "when": "r == root", "of": "output", "block": "(r + 1) mod p",)") +
         if_told(R"("publishes": 0,)") + R"("steps": [
      {"await_arrival": "(r + 1) mod p"},
      {"copy": "s[0]@(r + 1) mod p", "into": "out[(r + 1) mod p]", "when": "small"},
      {"recv": "out[(r + 1) mod p]", "from": "(r + 1) mod p", "when": "large"})" +
         if_told(R"(, {"wait": 2, "of": "(r + 1) mod p"})") + R"(]},
    {"name": "take", "when": "r == root", "of": "output", "block": "(r - 1) mod p",)" +
         if_told(R"("publishes": 1,)") + R"("steps": [
      {"await_arrival": "(r - 1) mod p"},
      {"copy": "s[0]@(r - 1) mod p", "into": "out[(r - 1) mod p]", "when": "small"},
      {"recv": "out[(r - 1) mod p]", "from": "(r - 1) mod p", "when": "large"})" +
         if_told(R"(, {"wait": 2, "of": "(r - 1) mod p"})") + R"(]},
    {"name": "put", "when": "r != root", "of": "input", "block": 0,)" +
         if_told(R"("publishes": 2,)") + R"("steps": [
      {"copy": "in[0]", "into": "s[0]", "when": "small"}, {"arrive": true},
      {"send": "in[0]", "to": "root", "when": "large"}]})" +
         if_told(R"(,
    {"name": "told", "when": "r == (root + 1) mod p", "of": "input", "block": 0, "steps": [
      {"wait": 0, "of": "root"}]},
    {"name": "told", "when": "r == (root - 1) mod p", "of": "input", "block": 0, "steps": [
      {"wait": 1, "of": "root"}]})") +
         "]}";
}

/// The root waits for nothing, but publishes that it has put the block into scratch.
TEST_F(LoadPlan, repeats_calls_in_which_a_rank_only_publishes) {
  const std::string text = R"({"name": "own-broadcast", "collective": "broadcast",
      "ranks": "p == 2", "links": "node", "scratch_blocks": 1, "single_chunk": true, "lanes": [
        {"name": "put", "when": "r == root", "of": "output", "block": 0, "publishes": 0, "steps": [
          {"arrive": true}, {"copy": "in[0]", "into": "s[0]"},
          {"copy": "in[0]", "into": "out[0]"}]},
        {"name": "take", "when": "r != root", "of": "output", "block": 0, "steps": [
          {"arrive": true}, {"await_arrival": "root"}, {"wait": 0, "of": "root"},
          {"copy": "s[0]@root", "into": "out[0]"}]}]})";
  ranks::run_ranks(2, [&](Rank& self) {
    ASSERT_HOCKET(hocketCommLoadPlan(self.comm, text.c_str(), 1));
    for (int root = 0; root < 2; ++root) {
      for (std::int64_t call = 0; call < 5; ++call) {
        const std::int64_t sent = self.rank == root ? call : -1;
        std::int64_t got = -2;
        EXPECT_HOCKET(hocketBroadcast(&sent, &got, 1, hocketInt64, root, self.comm, nullptr));
        EXPECT_EQ(call, got) << "root " << root;
      }
    }
    const char *ran = "", *transport = "";
    EXPECT_HOCKET(hocketCommLastAlgorithm(self.comm, &ran, &transport));
    EXPECT_STREQ("own-broadcast", ran);
  });
}

TEST_F(LoadPlan, repeats_calls_of_small_blocks_whether_or_not_lanes_publish_their_progress) {
  for (const bool told : {false, true}) {
    const std::string text = gather_of_small_blocks(told);
    ranks::run_ranks(3, [&](Rank& self) {
      ASSERT_HOCKET(hocketCommLoadPlan(self.comm, text.c_str(), 1));
      // Bytes of each rank's block. Each root is called four times: after the first call, a call
      // may run the steps that were found for the call before.
      static constexpr std::size_t lines[][3] = {{8, 8, 8},   {8, 512, 4},    {0, 4, 0},
                                                 {4, 513, 8}, {70'000, 4, 4}, {2000, 70'000, 516}};
      for (const auto& counts : lines) {
        const std::size_t places[] = {0, counts[0], counts[0] + counts[1]};
        for (int root = 0; root < 3; root += 2) {
          for (int call = 0; call < 4; ++call) {
            const auto value = [&](int rank) { return static_cast<char>(16 * call + rank + 1); };
            std::vector<char> sent(counts[self.rank], value(self.rank));
            std::vector<char> all(places[2] + counts[2]);
            EXPECT_HOCKET(hocketGatherV(sent.data(), sent.size(), all.data(), counts, places,
                                        hocketInt8, root, self.comm, nullptr));
            if (self.rank != root) continue;
            for (int rank = 0; rank < 3; ++rank) {
              const char* const block = all.data() + places[rank];
              EXPECT_EQ(counts[rank], std::count(block, block + counts[rank], value(rank)))
                  << "block of rank " << rank << ", call " << call << ", root " << root;
            }
          }
        }
      }
      const char *ran = "", *transport = "";
      EXPECT_HOCKET(hocketCommLastAlgorithm(self.comm, &ran, &transport));
      EXPECT_STREQ("own-gather", ran);
    });
  }
}

/// A small block is in the arrival line, or in a scratch of the size that it needs: a message finds
/// it there too.
TEST_F(LoadPlan, sends_small_blocks_out_of_scratch) {
  static constexpr const char* text = R"({"name": "by-scratch", "collective": "gather",
    "ranks": "p == 2", "links": "node", "varying": true, "scratch_blocks": 1, "single_chunk": true,
    "small_bytes": 4096, "lanes": [
    {"name": "copy", "when": "r == root", "of": "output", "block": "r", "steps": [
      {"arrive": true}, {"copy": "in[0]", "into": "out[r]"}]},
    {"name": "take", "when": "r == root", "of": "output", "block": "1 - r", "steps": [
      {"await_arrival": "1 - r"},
      {"recv": "out[1 - r]", "from": "1 - r", "tag": 0, "when": "small"},
      {"recv": "out[1 - r]", "from": "1 - r", "tag": 1, "when": "large"}]},
    {"name": "put", "when": "r != root", "of": "input", "block": 0, "steps": [
      {"copy": "in[0]", "into": "s[0]", "when": "small"}, {"arrive": true},
      {"send": "s[0]", "to": "root", "tag": 0, "when": "small"},
      {"send": "in[0]", "to": "root", "tag": 1, "when": "large"}]}]})";
  ranks::run_ranks(2, [](Rank& self) {
    ASSERT_HOCKET(hocketCommLoadPlan(self.comm, text, 1));
    for (const std::size_t count : {1, 8, 96, 97, 512, 513, 2049, 4096, 4097}) {
      for (int call = 0; call < 3; ++call) {
        const std::vector<char> sent(count, static_cast<char>(10 * self.rank + call + 1));
        std::vector<char> all(2 * count);
        const std::size_t counts[] = {count, count}, places[] = {0, count};
        EXPECT_HOCKET(hocketGatherV(sent.data(), count, all.data(), counts, places, hocketInt8, 0,
                                    self.comm, nullptr));
        if (self.rank != 0) continue;
        for (int rank = 0; rank < 2; ++rank) {
          const char* const block = all.data() + places[rank];
          EXPECT_EQ(count, std::count(block, block + count, 10 * rank + call + 1)) << count;
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Plans, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(LoadPlan, refuses_what_is_wrong_on_this_rank_alone) {
  ranks::run_ranks(2, [](Rank& self) {
    EXPECT_EQ(hocketInvalidArgument, hocketCommLoadPlan(self.comm, nullptr, 0));
    EXPECT_EQ(hocketInvalidArgument, hocketCommLoadPlan(self.comm, "{}", 2));
    EXPECT_EQ(hocketInvalidArgument, hocketCommLoadPlan(nullptr, "{}", 0));
    EXPECT_HOCKET(hocketGroupStart());
    EXPECT_EQ(hocketInvalidUsage, hocketCommLoadPlan(self.comm, "{}", 0));
    EXPECT_HOCKET(hocketGroupEnd());
    EXPECT_EQ(hocketInvalidArgument, hocketCommLoadPlan(self.comm, "{}", 0)) << "both ranks";
    EXPECT_NE(std::string::npos,
              std::string(hocketGetLastError(self.comm)).find("the given text: plan"));
    EXPECT_NE("cube", all_reduce(self.comm, 2));
  });
}

TEST_F(LoadPlan, forced_gives_way_to_the_algorithm_of_the_environment) {
  const Env ring({{"HOCKET_ALGORITHM", "ring"}, {"HOCKET_TRANSPORT", "tcp"}});
  ranks::run_ranks(4, [](Rank& self) {
    ASSERT_HOCKET(hocketCommLoadPlan(self.comm, example("cube").c_str(), 1));
    EXPECT_EQ("ring", all_reduce(self.comm, 4));
  });
}

TEST_F(LoadPlan, comes_in_order_with_the_calls_on_streams) {
  ranks::run_ranks(4, [](Rank& self) {
    hocketStream_t stream = nullptr;
    ASSERT_HOCKET(hocketStreamCreate(&stream));
    int x[2] = {1, 1};
    EXPECT_HOCKET(hocketAllReduce(x, x, 1, hocketInt32, hocketSum, self.comm, stream));
    EXPECT_HOCKET(hocketCommLoadPlan(self.comm, example("cube").c_str(), 1));
    EXPECT_HOCKET(hocketAllReduce(x + 1, x + 1, 1, hocketInt32, hocketSum, self.comm, stream));
    EXPECT_HOCKET(hocketStreamSynchronize(stream));
    EXPECT_EQ(4, x[0]);
    EXPECT_EQ(4, x[1]);
    EXPECT_EQ("cube", all_reduce(self.comm, 4));
    EXPECT_HOCKET(hocketStreamDestroy(stream));
  });
}

}  // namespace
