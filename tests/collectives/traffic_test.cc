// How many bytes an all-reduce by two-level moves between nodes: at most 1.01 of what no algorithm
// can do without, with all frames.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/select/selector.h"
#include "engine/memory_transport.h"
#include "executor_world.h"
#include "sanitized.h"

namespace hocket::internal {
namespace {

/// Of each node: bytes to and from all others.
struct Traffic {
  explicit Traffic(const Layout& layout) : sent(layout.nodes()), received(layout.nodes()) {}
  void add(const Layout& layout, std::uint32_t from, std::uint32_t to, std::uint64_t bytes) {
    if (layout.node_of(from) == layout.node_of(to)) return;
    sent[layout.node_of(from)] += bytes;
    received[layout.node_of(to)] += bytes;
  }
  std::vector<std::uint64_t> sent, received;
};

void expect_near_the_bound(const Traffic& traffic, std::size_t message_bytes) {
  const auto nodes = static_cast<double>(traffic.sent.size());
  const double bound = 2 * (nodes - 1) / nodes * static_cast<double>(message_bytes);
  for (const std::vector<std::uint64_t>* const way : {&traffic.sent, &traffic.received}) {
    for (const std::uint64_t bytes : *way) {
      EXPECT_LE(static_cast<double>(bytes), 1.01 * bound) << message_bytes;
      EXPECT_GE(static_cast<double>(bytes), bound) << message_bytes << ": bytes were not counted";
    }
  }
}

/// The frames of a message: those of its data, and where it is not eager CTS, and at most one RTS.
void add_message(const Layout& layout, std::uint32_t from, std::uint32_t to, std::uint64_t bytes,
                 Traffic* traffic) {
  constexpr MatcherOptions matcher;
  const std::uint64_t frames = std::max<std::uint64_t>(1, divide_up(bytes, matcher.frame_bytes));
  traffic->add(layout, from, to, bytes + frames * sizeof(FrameHeader));
  if (bytes <= matcher.eager_bytes) return;
  traffic->add(layout, from, to, sizeof(FrameHeader));
  traffic->add(layout, to, from, sizeof(FrameHeader));
}

Traffic traffic_of(const std::vector<Plan>& plans, const Layout& layout, std::size_t count,
                   Dtype dtype, std::size_t chunk_elements) {
  Traffic traffic(layout);
  for (const Plan& plan : plans) {
    const Sizes sizes = sizes_of(plan, count, dtype, chunk_elements);
    for (const Lane& lane : plan.lanes) {
      for (const Step& step : lane.steps) {
        if (step.kind != StepKind::send) continue;
        const std::size_t size = step.srcs[0].wide ? wide_size_of(dtype) : size_of(dtype);
        const std::size_t chunks = sizes.chunks_of(lane.counts, lane.extents, 0);
        for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
          const auto block = static_cast<std::size_t>(step.block.at(0));
          const std::size_t elements = sizes.range(lane.extents, block, chunk).count;
          if (elements == 0) continue;  // no message
          add_message(layout, plan.shape.rank, static_cast<std::uint32_t>(step.peer.at(0)),
                      elements * size, &traffic);
        }
      }
    }
  }
  return traffic;
}

/// The chunks in which a communicator of these nodes cuts the message.
std::size_t chunk_elements_of(const Layout& layout, std::size_t count, Dtype dtype) {
  SelectorOptions options;
  options.ranks = static_cast<int>(layout.ranks());
  options.one_node = false;
  options.layout = std::make_shared<const Layout>(layout);
  options.algorithm = "two-level";
  options.board_scratch_bytes =
      Board::scratch_bytes_of(static_cast<int>(layout.ranks_of_largest()));
  Selector selector(options);
  const Selection* selection = nullptr;
  const Status chosen = selector.select(
      {.collective = Collective::all_reduce, .dtype = dtype, .op = Op::sum, .count = count},
      &selection);
  EXPECT_TRUE(chosen.ok()) << chosen.message();
  EXPECT_EQ(std::string("two-level"), selection->program->algorithm());
  return selection->sizes.chunk_elements;
}

/// Transports whose frames are counted.
class CountingFabric final : public testing::Fabric {
 public:
  explicit CountingFabric(testing::MemoryNetwork& network) : Fabric(network.ranks()) {
    for (int rank = 0; rank < network.ranks(); ++rank) {
      transports_.push_back(
          std::make_unique<testing::MemoryTransport>(network, rank, MatcherOptions{}));
    }
  }
  Transport& at(int rank) override { return *transports_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<testing::MemoryTransport>> transports_;
};

/// What executors of all ranks send.
Traffic counted(const std::vector<Plan>& plans, const Layout& layout, const DrawnCall& call) {
  testing::MemoryNetwork network(static_cast<int>(layout.ranks()));
  testing::World world(layout, std::make_unique<CountingFabric>(network));
  testing::Task task(plans, {}, -1, call);
  const Status status = world.run({&task}, call.seed);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ("", task.buffers.check());
  Traffic traffic(layout);
  for (std::uint32_t from = 0; from < layout.ranks(); ++from) {
    for (std::uint32_t to = 0; to < layout.ranks(); ++to) {
      traffic.add(layout, from, to, network.bytes(static_cast<int>(from), static_cast<int>(to)));
    }
  }
  return traffic;
}

TEST(TwoLevel, moves_hardly_more_bytes_between_nodes_than_an_all_reduce_must) {
  constexpr std::size_t mib = 1 << 20;
  const std::size_t most_counted = (tests::sanitized ? 1 : 4) * mib;
  const Builder& builder = *find_builder("two-level", Collective::all_reduce, Medium::both);
  for (const std::vector<std::uint32_t>& sizes :
       {std::vector<std::uint32_t>{2, 2}, {3, 1}, {4, 4}}) {
    const Layout layout = layout_of(sizes);
    const std::vector<Plan> plans = plans_of(builder, {.ranks = layout.ranks(), .layout = &layout});
    for (const std::size_t bytes : {mib, 4 * mib, 16 * mib, 64 * mib}) {
      SCOPED_TRACE(std::to_string(sizes[0]) + "+" + std::to_string(sizes[1]) + " ranks, " +
                   std::to_string(bytes / mib) + " MiB");
      DrawnCall call{.dtype = Dtype::float32, .count = bytes / sizeof(float)};
      call.chunk_elements = chunk_elements_of(layout, call.count, call.dtype);
      const Traffic planned =
          traffic_of(plans, layout, call.count, call.dtype, call.chunk_elements);
      expect_near_the_bound(planned, bytes);
      if (bytes > most_counted) continue;
      const Traffic real = counted(plans, layout, call);
      expect_near_the_bound(real, bytes);
      for (std::uint32_t node = 0; node < layout.nodes(); ++node) {
        EXPECT_LE(real.sent[node], planned.sent[node]) << "node " << node;
      }
    }
  }
}

}  // namespace
}  // namespace hocket::internal
