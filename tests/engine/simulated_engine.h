// Engines whose surroundings are all in one thread of the test: messages in memory, a board for
// each node, and a host that the test derives. Nothing here reads a clock or waits.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"
#include "engine/engine.h"
#include "memory_transport.h"

namespace hocket::internal::testing {

/// What the ranks of one communicator share: the frames under way, and the boards.
class SimulatedNodes {
 public:
  /// node_of: by rank.
  explicit SimulatedNodes(const std::vector<std::uint32_t>& node_of)
      : layout_(std::make_shared<const Layout>(node_of)),
        network_(static_cast<int>(node_of.size())) {
    for (std::uint32_t node = 0; node < layout_->nodes(); ++node) {
      segments_.emplace_back(Board::bytes(local_ranks(node)) + alignof(ControlPage));
    }
  }
  int ranks() const { return network_.ranks(); }
  const std::shared_ptr<const Layout>& layout() const { return layout_; }
  MemoryNetwork& network() { return network_; }

  std::vector<int> ranks_of_node_of(int rank) const {
    const std::vector<std::uint32_t>& all = layout_->ranks_of(node_of(rank));
    return {all.begin(), all.end()};
  }
  Board board_of(int rank) {
    std::vector<std::byte>& segment = segments_[node_of(rank)];
    void* base = segment.data();
    std::size_t bytes = segment.size();
    std::align(alignof(ControlPage), bytes - alignof(ControlPage), base, bytes);
    return {static_cast<std::byte*>(base), local_ranks(node_of(rank)),
            static_cast<int>(layout_->local_rank(static_cast<std::uint32_t>(rank)))};
  }

 private:
  std::uint32_t node_of(int rank) const {
    return layout_->node_of(static_cast<std::uint32_t>(rank));
  }
  int local_ranks(std::uint32_t node) const {
    return static_cast<int>(layout_->ranks_of(node).size());
  }

  std::shared_ptr<const Layout> layout_;
  MemoryNetwork network_;
  std::vector<std::vector<std::byte>> segments_;  // by node: all bytes are zero at first
};

inline SelectorOptions selector_options(const SimulatedNodes& nodes, int rank,
                                        const std::string& algorithm = {}) {
  SelectorOptions options;
  options.rank = rank;
  options.ranks = nodes.ranks();
  options.one_node = nodes.layout()->nodes() == 1;
  options.layout = nodes.layout();
  options.board_scratch_bytes =
      Board::scratch_bytes_of(static_cast<int>(nodes.layout()->ranks_of_largest()));
  options.algorithm = algorithm;
  return options;
}

/// The engine of one rank. A derived class gives the part of the host that concerns other ranks:
/// their names, and what is told about failures.
class SimulatedEngine : private EngineHost {
 public:
  /// The nodes outlive it. algorithm: empty: the cheapest.
  SimulatedEngine(SimulatedNodes& nodes, int rank, Nanos deadline, const std::string& algorithm)
      : rank_(rank), board_(nodes.board_of(rank)) {
    // Small messages are eager here, larger ones a rendezvous, and the largest several frames.
    const MatcherOptions matcher{.eager_bytes = 1 << 10, .frame_bytes = 4 << 10};
    transport_ = std::make_unique<MemoryTransport>(nodes.network(), rank, matcher);
    EngineOptions options;
    options.rank = rank;
    options.ranks = nodes.ranks();
    options.deadline = deadline;
    Links links;
    links.rank = rank;
    links.board = &board_;
    links.ranks_of_node = nodes.ranks_of_node_of(rank);
    links.regions = &regions_;
    links.transport_to.assign(static_cast<std::size_t>(nodes.ranks()), transport_.get());
    EngineHost& host = *this;
    engine_ = std::make_unique<Engine>(
        host, options, std::move(links), std::vector<Transport*>{transport_.get()},
        std::make_unique<Selector>(selector_options(nodes, rank, algorithm)));
  }
  SimulatedEngine(const SimulatedEngine&) = delete;
  SimulatedEngine& operator=(const SimulatedEngine&) = delete;
  virtual ~SimulatedEngine() = default;

  int rank() const { return rank_; }
  Engine& engine() { return *engine_; }
  const Engine& engine() const { return *engine_; }

 private:
  // Every engine is driven all the time: none of them sleeps.
  void ring(int) override {}
  bool export_region(std::uint64_t) override { return false; }
  std::byte* private_scratch(std::size_t bytes) override {
    scratch_.resize(std::max(scratch_.size(), bytes + 1));
    return scratch_.data();
  }
  Status map_remote(int, RegionOffset, std::size_t, std::uint64_t, std::byte**) override {
    return internal_error("no buffer is mapped here");
  }

  const int rank_;
  const Board board_;
  Regions regions_;
  std::unique_ptr<MemoryTransport> transport_;
  std::vector<std::byte> scratch_;
  std::unique_ptr<Engine> engine_;
};

// ---- Calls on 8-byte integers

using Values = std::vector<std::int64_t>;
/// Other values on every rank.
inline Values values_of(int rank, std::size_t count) {
  Values values(count);
  std::iota(values.begin(), values.end(), (rank + 1) * 1'000'000);
  return values;
}

inline Call call_of(Collective collective, const Values& input, Values& output, int root = -1) {
  return {collective, input.data(), output.data(), input.size(), Dtype::int64, Op::sum, root};
}

}  // namespace hocket::internal::testing
