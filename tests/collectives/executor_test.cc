// Compares the executor with the plain interpreter: every built-in plan, lowered, gives the same
// bytes. All ranks run in this thread, in an order that a seed repeats. Operations follow one
// another on the same board, so that bytes of earlier operations would show as errors.
#include "collectives/execute/executor.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "collectives/plan/steps.h"
#include "data.h"
#include "plans.h"
#include "transport/fabric.h"

namespace hocket::internal {
namespace {

/// The memory in which the board of a node lies.
class NodeMemory {
 public:
  explicit NodeMemory(int local_ranks)
      : bytes_(Board::bytes(local_ranks)),
        base_(static_cast<std::byte*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~NodeMemory() { ::munmap(base_, bytes_); }
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;
  std::byte* base() const { return base_; }

 private:
  std::size_t bytes_;
  std::byte* base_;
};

/// The ranks of one communicator.
class World {
 public:
  explicit World(const Layout& layout)
      : fabric_({.ranks = static_cast<int>(layout.ranks())}), ranks_(layout.ranks()) {
    for (std::uint32_t node = 0; node < layout.nodes(); ++node) {
      const std::vector<std::uint32_t>& members = layout.ranks_of(node);
      const auto locals = static_cast<int>(members.size());
      const NodeMemory& memory = nodes_.emplace_back(locals);
      for (const std::uint32_t r : members) {
        Rank& rank = ranks_[r];
        rank.board = Board(memory.base(), locals, static_cast<int>(layout.local_rank(r)));
        rank.links.rank = static_cast<int>(r);
        rank.links.board = &rank.board;
        rank.links.ranks_of_node.assign(members.begin(), members.end());
        rank.links.transport_to.assign(ranks_.size(), &fabric_.at(static_cast<int>(r)));
        rank.world = this;
        rank.links.host = &rank;
      }
    }
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// staged: the alternative to plans that map buffers; unmapped: the rank without mappable
  /// buffers.
  Status run(const std::vector<Plan>& plans, const std::vector<Plan>& staged, int unmapped,
             const RankBuffers& buffers, const DrawnCall& call) {
    ++sequence_;
    if (plans[0].uses_node()) ++board_sequence_;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      HOCKET_RETURN_IF_ERROR(lower(plans[r], &rank.program));
      if (!staged.empty()) HOCKET_RETURN_IF_ERROR(lower(staged[r], &rank.staged));
      bind(static_cast<int>(r), static_cast<int>(r) != unmapped, call);
      rank.binding.sizes = buffers.sizes[r];
      rank.binding.input = static_cast<const std::byte*>(buffers.inputs[r]);
      rank.binding.output = static_cast<std::byte*>(buffers.outputs[r]);
      rank.execution.start(rank.program, staged.empty() ? nullptr : &rank.staged, rank.binding,
                           rank.links);
    }
    return take_turns(call.seed);
  }

 private:
  struct Rank final : ExecutorHost {
    std::byte* private_scratch(std::size_t bytes) override {
      scratch.assign(std::max<std::size_t>(bytes, 1), std::byte{0xa5});
      return scratch.data();
    }
    Status map_remote(int peer, RegionOffset offset, std::size_t, std::uint64_t operation,
                      std::byte** out) override {
      const Binding& theirs = world->ranks_[peer].binding;
      EXPECT_EQ(offset.region, static_cast<std::uint64_t>(peer));
      EXPECT_EQ(operation, world->sequence_);
      // The first time that a rank meets a peer's buffer, its descriptor is still on its way.
      if (world->met_.insert({operation, links.rank, peer, offset.offset}).second) {
        return {Code::in_progress, "not mapped yet"};
      }
      *out = offset.offset == 0 ? const_cast<std::byte*>(theirs.input) : theirs.output;
      return {};
    }

    World* world = nullptr;
    Board board;
    Links links;
    Binding binding;
    Program program, staged;
    Execution execution;
    std::vector<std::byte> scratch;
  };

  void bind(int r, bool mapped, const DrawnCall& call) {
    Binding& binding = ranks_[static_cast<std::size_t>(r)].binding;
    binding = {};
    binding.dtype = call.dtype;
    binding.op = call.op;
    binding.stores = static_cast<Stores>(call.seed % 4);
    binding.far_scratch = call.seed % 8 >= 4;
    binding.message_sequence = sequence_;
    binding.board_sequence = board_sequence_;
    Signature& signature = binding.signature;
    signature.count = call.count;
    signature.sequence = sequence_;
    signature.dtype = call.dtype;
    signature.op = call.op;
    if (call.op == Op::pre_mul_sum) signature.set_scalar(call.scalar(static_cast<std::size_t>(r)));
    binding.fingerprint = fingerprint(call_hash(signature), sequence_);
    binding.input_region = {static_cast<std::uint64_t>(r), 0};
    binding.output_region = {static_cast<std::uint64_t>(r), 1};
    binding.mapped = mapped ? 3 : 0;
  }

  Status take_turns(std::uint64_t seed) {
    constexpr int most_quiet_rounds = 100;
    std::mt19937_64 random(seed);
    std::vector<std::size_t> order;
    while (order.size() < ranks_.size()) order.push_back(order.size());
    for (int quiet = 0; quiet < most_quiet_rounds; ++quiet) {
      std::ranges::shuffle(order, random);
      bool done = true;
      for (const std::size_t r : order) {
        const bool polled = fabric_.at(static_cast<int>(r)).poll();
        Execution& execution = ranks_[r].execution;
        if (execution.advance() || polled) quiet = 0;
        if (execution.failed()) return execution.status();
        done &= execution.done();
      }
      if (done) return {};
    }
    return internal_error("nothing moves any more");
  }

  testing::ShmFabric fabric_;
  std::deque<NodeMemory> nodes_;
  std::vector<Rank> ranks_;
  std::uint64_t sequence_ = 0, board_sequence_ = 0;
  std::set<std::tuple<std::uint64_t, int, int, std::uint64_t>> met_;
};

/// The counts of the blocks of a varying call.
std::vector<std::size_t> draw_counts(const Builder& builder, std::size_t ranks, std::size_t most,
                                     std::mt19937_64& random) {
  std::vector<std::size_t> counts(builder.collective == Collective::all_to_all ? ranks * ranks
                                                                               : ranks);
  for (std::size_t& count : counts) count = random() % 3 == 0 ? 0 : random() % (most + 1);
  return counts;
}

DrawnCall draw(const Builder& builder, std::size_t ranks, std::uint64_t seed, bool varying,
               std::mt19937_64& random) {
  static constexpr std::size_t sizes[] = {0, 1, 2, 7, 16, 65, 129, 500, 1033, 20'000};
  DrawnCall call;
  call.seed = seed;
  call.any_bits = true;
  call.dtype = static_cast<Dtype>(random() % dtype_count);
  call.op = draw_op(call.dtype, random);
  call.count = sizes[random() % std::size(sizes)];
  const std::size_t least_chunk = call.count > 2000 ? 600 : 1;  // else there would be very many
  call.chunk_elements = random() % 3 == 0 ? 0 : least_chunk + random() % 70;
  if (std::string(builder.algorithm) == "inline") {
    call.count = std::min(call.count, line_payload_bytes / size_of(call.dtype) / ranks);
  }
  call.in_place = builder.collective != Collective::all_to_all && random() % 2 == 0;
  if (varying) call.counts = draw_counts(builder, ranks, call.count, random);
  return call;
}

class EveryProgram : public ::testing::TestWithParam<Builder> {};

TEST_P(EveryProgram, does_what_the_plain_interpreter_does) {
  const Builder& builder = GetParam();
  std::map<std::uint32_t, std::unique_ptr<World>> worlds;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    std::mt19937_64 random(seed);
    static constexpr std::uint32_t rank_counts[] = {1, 2, 3, 4, 5, 8};
    Group group;
    group.ranks = rank_counts[random() % std::size(rank_counts)];
    group.root = static_cast<std::uint32_t>(random() % group.ranks);
    group.varying = builder.varying && random() % 2 == 0;
    const DrawnCall call = draw(builder, group.ranks, seed, group.varying, random);
    group.widened = tells_partial_results(call.dtype, call.op);
    const int unmapped = random() % 3 == 0 ? static_cast<int>(random() % group.ranks) : -1;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + std::to_string(group.ranks) + " ranks, " +
                 std::to_string(call.count) + " " + internal::name_of(call.dtype) + ", " +
                 internal::name_of(call.op) + (call.in_place ? ", in place" : "") +
                 (group.varying ? ", varying" : ""));
    const std::vector<Plan> plans = plans_of(builder, group);
    std::vector<Plan> staged;
    if (plans[0].maps_input || plans[0].maps_output) {
      staged = plans_of(*find_builder("staged", builder.collective, Medium::node), group);
    }
    RankBuffers expected(plans, call), buffers(plans, call);
    const Status plain =
        interpret(plans, expected.sizes, expected.inputs, expected.outputs, call.interpretation());
    ASSERT_TRUE(plain.ok()) << plain.message();
    std::unique_ptr<World>& world = worlds[group.ranks];
    if (world == nullptr) world = std::make_unique<World>(layout_of({group.ranks}));
    const Status status = world->run(plans, staged, unmapped, buffers, call);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(buffers.difference(expected), "");
  }
}

INSTANTIATE_TEST_SUITE_P(builders, EveryProgram, ::testing::ValuesIn(group_builders()), TestName());

class EveryLayeredProgram : public ::testing::TestWithParam<Builder> {};

TEST_P(EveryLayeredProgram, does_what_the_plain_interpreter_does) {
  const Builder& builder = GetParam();
  static const Layout layouts[] = {layout_of({2, 2}), layout_of({3, 1}), layout_of({1, 4, 2}),
                                   layout_of({4, 4}),
                                   Layout(std::vector<std::uint32_t>{0, 1, 1, 0, 1})};
  std::map<const Layout*, std::unique_ptr<World>> worlds;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    std::mt19937_64 random(seed);
    Group group;
    group.layout = &layouts[random() % std::size(layouts)];
    group.ranks = group.layout->ranks();
    group.root = static_cast<std::uint32_t>(random() % group.ranks);
    group.varying = builder.varying && random() % 2 == 0;
    const DrawnCall call = draw(builder, group.ranks, seed, group.varying, random);
    group.widened = tells_partial_results(call.dtype, call.op);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + std::to_string(group.ranks) + " ranks, " +
                 std::to_string(call.count) + " " + internal::name_of(call.dtype) + ", " +
                 internal::name_of(call.op) + (call.in_place ? ", in place" : "") +
                 (group.varying ? ", varying" : ""));
    const std::vector<Plan> plans = plans_of(builder, group);
    RankBuffers expected(plans, call), buffers(plans, call);
    const Status plain =
        interpret(plans, expected.sizes, expected.inputs, expected.outputs, call.interpretation());
    ASSERT_TRUE(plain.ok()) << plain.message();
    std::unique_ptr<World>& world = worlds[group.layout];
    if (world == nullptr) world = std::make_unique<World>(*group.layout);
    const Status status = world->run(plans, {}, -1, buffers, call);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(buffers.difference(expected), "");
  }
}

INSTANTIATE_TEST_SUITE_P(builders, EveryLayeredProgram, ::testing::ValuesIn(layout_builders()),
                         TestName());

TEST(Programs, of_send_and_recv_do_what_the_plain_interpreter_does) {
  World world(layout_of({2}));
  for (const std::size_t count : {0, 1, 27, 70'000}) {
    const std::vector<Plan> plans = message_plans();
    DrawnCall call;
    call.dtype = Dtype::int32;
    call.count = count;
    call.any_bits = true;
    RankBuffers buffers(plans, call);
    const Status status = world.run(plans, {}, -1, buffers, call);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(buffers.check(), "");
  }
}

// A program of one rank, whose lane 0 awaits the end of lane 1. Each block has three chunks.
TEST(Programs, give_turns_after_each_chunk_and_await_the_end_of_a_lane) {
  using namespace steps;
  const Ranges r(0);
  Plan plan;
  plan.shape = {.collective = Collective::all_reduce};
  plan.cut = 2;
  plan.lanes = {
      one_block("second", Buffer::input, fixed(1),
                {await_end(1, fixed(0)), copy(fixed(1), r.input(fixed(1)), {r.output(fixed(1))})}),
      one_block("first", Buffer::input, fixed(0),
                {copy(fixed(0), r.input(fixed(0)), {r.output(fixed(0))})})};
  Program program;
  ASSERT_TRUE(lower(plan, &program).ok());
  constexpr std::size_t chunk = 64, size = 6 * chunk;
  const std::vector<std::byte> input(size, std::byte{7});
  std::vector<std::byte> output(size);
  Binding binding;
  binding.input = input.data();
  binding.output = output.data();
  binding.sizes = sizes_of(plan, size, Dtype::int8, chunk);
  const Links links;
  Execution execution;
  execution.start(program, nullptr, binding, links);
  const auto copied = [&] { return std::ranges::count(output, std::byte{7}); };
  for (std::size_t chunks = 1; chunks <= 3; ++chunks) {
    EXPECT_TRUE(execution.advance());
    EXPECT_EQ(copied(), chunks * chunk) << "lane 1 goes on by a chunk, lane 0 waits";
    EXPECT_FALSE(execution.done());
  }
  for (std::size_t chunks = 4; chunks <= 6; ++chunks) {
    EXPECT_TRUE(execution.advance());
    EXPECT_EQ(copied(), chunks * chunk);
  }
  EXPECT_TRUE(execution.done());
}

}  // namespace
}  // namespace hocket::internal
