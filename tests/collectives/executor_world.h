// Executors of all ranks in one thread, for tests: they take turns in an order that a seed repeats,
// on boards of their nodes, with transports of any kind.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/execute/executor.h"
#include "data.h"
#include "plans.h"
#include "transport/fabric.h"

namespace hocket::internal::testing {

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

/// The tiny scratches of a rank. A rank is ahead of its peers by at most one operation less.
constexpr std::size_t tiny_scratches = Board::scratches(ScratchSize::tiny);

/// An operation of all ranks.
struct Task {
  /// staged: the alternative to plans that map buffers; unmapped: the rank without mappable
  /// buffers, or -1.
  Task(const std::vector<Plan>& plans, const std::vector<Plan>& staged, int unmapped,
       const DrawnCall& call)
      : buffers(plans, call), call(call), unmapped(unmapped), uses_node(plans[0].uses_node()) {
    for (const Plan& plan : plans) lower_to(plan, programs);
    for (std::size_t r = 0; r < staged.size(); ++r) {
      lower_to(staged[r], alternatives);
      staged_sizes.push_back(call.counts.empty()
                                 ? sizes_of(staged[r], call.count, call.dtype, call.chunk_elements)
                                 : buffers.sizes[r]);
    }
  }

  RankBuffers buffers;
  const DrawnCall call;
  const int unmapped;
  const bool uses_node;
  /// The task before: this task differs from it in the data alone, and runs its programs. Null:
  /// another task.
  const Task* repeats = nullptr;
  std::deque<Program> programs, alternatives;  // of each rank
  std::vector<Sizes> staged_sizes;             // of the alternatives
  std::uint64_t sequence = 0, board_sequence = 0;

 private:
  static void lower_to(const Plan& plan, std::deque<Program>& programs) {
    const Status status = lower(plan, &programs.emplace_back());
    EXPECT_TRUE(status.ok()) << status.message();
  }
};

/// The ranks of one communicator.
class World {
 public:
  explicit World(const Layout& layout)
      : World(layout, std::make_unique<ShmFabric>(
                          FabricOptions{.ranks = static_cast<int>(layout.ranks())})) {}
  World(const Layout& layout, std::unique_ptr<Fabric> fabric)
      : fabric_(std::move(fabric)), ranks_(layout.ranks()) {
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
        rank.run_ahead.emplace(rank.board, rank.links.rank, rank.links.ranks_of_node);
        rank.links.run_ahead = &*rank.run_ahead;
        rank.links.transport_to.assign(ranks_.size(), &fabric_->at(static_cast<int>(r)));
        rank.world = this;
        rank.links.host = &rank;
      }
    }
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Board& board_of(std::size_t rank) const { return ranks_[rank].board; }
  /// How often an execution has moved.
  std::size_t moves() const { return moves_; }

  /// Runs the tasks one after another. A rank begins the next one when it has ended the one before,
  /// as far as the other ranks may be. *lead: by how many tasks one rank was ahead of another.
  Status run(const std::vector<Task*>& tasks, std::uint64_t seed, std::size_t* lead = nullptr) {
    for (Task* task : tasks) {
      task->sequence = ++sequence_;
      if (task->uses_node) ++board_sequence_;
      task->board_sequence = board_sequence_;
    }
    for (Rank& rank : ranks_) {
      rank.next = 0;
      begin_next(rank, tasks);
    }
    return take_turns(tasks, seed, lead);
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
      EXPECT_EQ(operation, binding.message_sequence);
      EXPECT_EQ(operation, theirs.message_sequence) << "the peer has left, and may free its buffer";
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
    std::optional<RunAhead> run_ahead;
    Binding binding;
    Execution execution;
    std::vector<std::byte> scratch;
    std::size_t next = 0;  // of the tasks
  };

  void begin_next(Rank& rank, const std::vector<Task*>& tasks) {
    Task& task = *tasks[rank.next++];
    const auto r = static_cast<std::size_t>(rank.links.rank);
    bind(rank, task);
    rank.binding.sizes = task.buffers.sizes[r];
    if (!task.staged_sizes.empty()) rank.binding.staged_sizes = task.staged_sizes[r];
    rank.binding.input = static_cast<const std::byte*>(task.buffers.inputs[r]);
    rank.binding.output = static_cast<std::byte*>(task.buffers.outputs[r]);
    const Task& first = task.repeats != nullptr ? *task.repeats : task;
    rank.execution.start(first.programs[r],
                         first.alternatives.empty() ? nullptr : &first.alternatives[r],
                         rank.binding, rank.links);
  }

  static void bind(Rank& rank, const Task& task) {
    const DrawnCall& call = task.call;
    const auto r = static_cast<std::uint64_t>(rank.links.rank);
    Binding& binding = rank.binding;
    binding = {};
    binding.dtype = call.dtype;
    binding.op = call.op;
    binding.stores = static_cast<Stores>(call.seed % stores_count);
    binding.non_temporal_scratch = call.seed % 8 >= 4;
    binding.prefetches_scratch = call.seed % 16 >= 8;
    binding.repeated = task.repeats != nullptr;
    binding.message_sequence = task.sequence;
    binding.board_sequence = task.board_sequence;
    Signature& signature = binding.signature;
    signature.count = call.count;
    signature.sequence = task.sequence;
    signature.dtype = call.dtype;
    signature.op = call.op;
    signature.collective = task.programs[0].header().collective;
    signature.flags = call.counts.empty() ? 0 : signature_flag::varying;
    if (call.op == Op::pre_mul_sum) signature.set_scalar(call.scalar(static_cast<std::size_t>(r)));
    binding.fingerprint = fingerprint(call_hash(signature), task.sequence);
    binding.input_region = {r, 0};
    binding.output_region = {r, 1};
    binding.mapped = task.unmapped == rank.links.rank ? 0 : 3;
  }

  Status take_turns(const std::vector<Task*>& tasks, std::uint64_t seed, std::size_t* lead) {
    constexpr int most_quiet_rounds = 100;  // in which all ranks had a turn
    std::mt19937_64 random(seed);
    std::vector<std::size_t> order;
    while (order.size() < ranks_.size()) order.push_back(order.size());
    std::size_t slow = 0;  // a rank that is slow for a while, so that the others run ahead of it
    for (int quiet = 0; quiet < most_quiet_rounds;) {
      std::ranges::shuffle(order, random);
      if (random() % 40 == 0) slow = random() % ranks_.size();
      bool done = true, all_had_a_turn = true;
      for (const std::size_t r : order) {
        const bool polled = fabric_->at(static_cast<int>(r)).poll();
        Rank& rank = ranks_[r];
        if (tasks.size() > 1 && r == slow && random() % 10 != 0) {
          done = all_had_a_turn = false;
          continue;
        }
        const bool moved = rank.execution.advance();
        moves_ += moved ? 1 : 0;
        if (moved || polled) quiet = 0;
        if (rank.execution.failed()) return rank.execution.status();
        if (rank.execution.done() && rank.next < tasks.size()) begin_next(rank, tasks);
        done &= rank.execution.done();
      }
      if (lead != nullptr) {
        const auto [least, most] = std::ranges::minmax_element(ranks_, {}, &Rank::next);
        *lead = std::max(*lead, most->next - least->next);
      }
      if (done) return {};
      if (all_had_a_turn) ++quiet;
    }
    return internal_error("nothing moves any more");
  }

  const std::unique_ptr<Fabric> fabric_;
  std::deque<NodeMemory> nodes_;
  std::deque<Rank> ranks_;
  std::uint64_t sequence_ = 0, board_sequence_ = 0;
  std::size_t moves_ = 0;
  std::set<std::tuple<std::uint64_t, int, int, std::uint64_t>> met_;
};

}  // namespace hocket::internal::testing
