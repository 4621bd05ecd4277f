#include "collectives/select/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "base/assert.h"
#include "collectives/select/simulation.h"

namespace hocket::internal {
namespace {

// A call is large if it takes longer than so many turns of a processor: one turn is then less than
// 5 % of the price, a difference that counts as equal (selector.cc).
constexpr Picoseconds turns_of_large_call = 20;
// Least time of a turn for that. The measured figure varies from communicator to communicator, and
// is sometimes almost 0: 4 ranks on 2 cores of one machine had 0.1 to 2.3 us.
constexpr Picoseconds least_turn = 1'500'000;
// Of a plan that maps buffers: with 2 ranks, calls of up to 4 KiB by `direct` took 40 to 100 ns
// longer than their prices without these two. How that is divided between them was not measured.
constexpr double find_regions_ns = 60, map_peer_ns = 20;

/// The selector takes the faster way to store what peers read.
double peer_ns_per_byte(const Figures& figures, bool rooted) {
  return non_temporal_is_faster(figures, rooted) ? figures.peer_non_temporal_ns_per_byte
                                                 : figures.peer_ns_per_byte;
}

/// In a rooted collective few ranks work at a time, so that those of one processor get on faster
/// than where all do the same: all ranks are simulated unless they are too many.
Alike alike_of(const Builder& builder, std::uint32_t ranks, const Effort& effort) {
  const bool rooted = row_of(builder.collective).rooted;
  if (!builder.symmetric || effort.every_rank) return Alike::none;
  if (rooted && ranks <= effort.most_ranks) return Alike::none;
  return rooted ? Alike::all_but_root : Alike::all;
}

/// Nodes of equal size, the last one perhaps smaller, whose ranks follow one another.
Layout even_layout(std::uint32_t ranks, std::uint32_t ranks_of_node) {
  std::vector<std::uint32_t> node_of;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) node_of.push_back(rank / ranks_of_node);
  return Layout(node_of);
}

/// The plans of the ranks that are simulated.
std::vector<Plan> plans_of(const Builder& builder, Shape shape, Alike alike) {
  shape.root = row_of(builder.collective).rooted ? 0 : -1;
  std::vector<std::uint32_t> ranks = {0};
  if (alike == Alike::all_but_root && shape.ranks > 1) ranks.push_back(shape.ranks - 1);
  if (alike == Alike::none) {
    for (std::uint32_t rank = 1; rank < shape.ranks; ++rank) ranks.push_back(rank);
  }
  std::vector<Plan> plans;
  for (const std::uint32_t rank : ranks) {
    shape.rank = rank;
    plans.push_back(builder.build(shape));
  }
  return plans;
}

std::int64_t rounded(double value) {
  return value > 0 ? static_cast<std::int64_t>(std::llround(value)) : 0;
}

/// Ranks share processors. Where all of them are simulated, they take turns there, and each one's
/// work takes the time that it takes alone: the figure of a message was measured while all ranks
/// sent. Where a few stand for all, all do the same at the same time, so work takes longer by the
/// number of ranks on a processor.
void set_costs(const Builder& builder, const Figures& figures, std::uint32_t ranks,
               Simulated* out) {
  const double ranks_per_core = std::max(1.0, figures.ranks_per_core);
  double slower = 1, work = figures.message_overhead_ns;
  out->processors = out->plans.size();
  if (out->alike == Alike::none) {
    const auto processors = std::max<std::int64_t>(1, rounded(ranks / ranks_per_core));
    out->processors = static_cast<std::size_t>(processors);
    work *= static_cast<double>(processors) / ranks;
  } else {
    slower = ranks_per_core;
  }
  // The figure of a node's flags includes the turns of ranks that wait for flags.
  const bool sleeps = builder.medium != Medium::node && ranks_per_core > 1;
  const auto femtoseconds = [&](double ns) { return rounded(slower * ns * 1e6); };
  const double touch = figures.cached_ns_per_byte;
  const double peer = peer_ns_per_byte(figures, row_of(builder.collective).rooted);
  out->costs = {.sync = rounded(figures.sync_ns * 1e3),
                .latency = rounded(figures.message_ns * 1e3),
                .work = rounded(work * 1e3),
                .turn = sleeps ? rounded(slower * figures.turn_ns * 1e3) : 0,
                .find_regions = rounded(slower * find_regions_ns * 1e3),
                .map_peer = rounded(slower * map_peer_ns * 1e3),
                .femtoseconds_per_touch = femtoseconds(touch),
                .femtoseconds_of_peer = femtoseconds(std::max(touch, peer)),
                .femtoseconds_of_memory = femtoseconds(std::max(touch, figures.memory_ns_per_byte)),
                .femtoseconds_of_memory_written =
                    femtoseconds(std::max(touch, 2 * figures.memory_ns_per_byte)),
                .femtoseconds_on_link = rounded(figures.link_ns_per_byte * 1e6),
                .femtoseconds_in_port = femtoseconds(figures.port_ns_per_byte),
                .femtoseconds_of_kernel_copy = femtoseconds(figures.kernel_copy_ns_per_byte)};
  out->core_cache_bytes = figures.core_cache_bytes;
}

/// All blocks count as long as the longest of them.
Times times_of_blocks(Simulated simulated, std::size_t elements) {
  for (Extents* extents : {&simulated.sizes.input, &simulated.sizes.output}) {
    if (extents->longest > 0) *extents = equal_blocks(elements, extents->blocks);
  }
  return simulate(simulated);
}

/// After some chunks each further one takes the same time, but not less than what is busiest needs
/// for it: the first chunks may have hidden that behind a latency.
Times time_of_chunks(const Simulated& simulated, std::size_t most) {
  HOCKET_ASSERT(most > 1, "a further chunk is the difference of two times");
  const Sizes& sizes = simulated.sizes;
  const std::size_t elements = std::max(sizes.input.longest, sizes.output.longest);
  const std::size_t chunk = sizes.chunk_elements;
  if (sizes.chunks_in(elements) <= most) return times_of_blocks(simulated, elements);
  const Times near = times_of_blocks(simulated, most / 2 * chunk);
  const Times far = times_of_blocks(simulated, most * chunk);
  const std::size_t rest = elements - most * chunk;
  const auto continued = [&](Picoseconds from, Picoseconds to) {
    const auto chunks = static_cast<Picoseconds>(std::max<std::size_t>(1, most - most / 2));
    const Picoseconds each = (to - from) / chunks;
    return to + each * static_cast<Picoseconds>(rest / chunk) +
           each * static_cast<Picoseconds>(rest % chunk) / static_cast<Picoseconds>(chunk);
  };
  const Picoseconds busiest = continued(near.busiest, far.busiest);
  const Picoseconds end = std::max(continued(near.end, far.end), busiest);
  const Picoseconds mean_end = std::min(end, continued(near.mean_end, far.mean_end));
  return {end, mean_end, busiest, continued(near.work, far.work), far.hops};
}

}  // namespace

std::int64_t price(const Builder& builder, const Shape& shape, std::size_t count, Dtype dtype,
                   std::size_t chunk_elements, const Figures& figures, const Effort& effort,
                   Effects* effects) {
  if (is_p2p(builder.collective)) return 0;
  Shape priced = shape;
  Simulated simulated;
  simulated.alike = alike_of(builder, shape.ranks, effort);
  const bool has_nodes = shape.layout != nullptr && shape.layout->nodes() > 1;
  const std::uint32_t of_node =
      has_nodes ? static_cast<std::uint32_t>(divide_up(shape.ranks, shape.layout->nodes())) : 1;
  const bool whole_nodes = builder.medium == Medium::both;
  // A plan of a user is made for these ranks and nodes alone, which are few.
  const bool of_file = builder.file != nullptr;
  // All ranks of plans whose ranks differ are too many to be simulated.
  const std::uint32_t unit = whole_nodes ? of_node : 1;
  const auto units = static_cast<std::uint32_t>(divide_up(shape.ranks, unit));
  const std::uint32_t most_units = std::max(2U, effort.most_ranks / unit);
  const std::uint32_t priced_units =
      simulated.alike == Alike::none && !of_file ? std::min(units, most_units) : units;
  priced.ranks = priced_units * unit;
  std::optional<Layout> layout;
  if (of_file) {
    priced.ranks = shape.ranks;
    simulated.layout = shape.layout;
  } else if (has_nodes) {
    layout.emplace(even_layout(priced.ranks, of_node));
    priced.layout = simulated.layout = &*layout;
  }
  const std::vector<Plan> plans = plans_of(builder, priced, simulated.alike);
  simulated.plans = plans;
  simulated.dtype = dtype;
  simulated.sizes = sizes_of(plans[0], count, dtype, chunk_elements);
  set_costs(builder, figures, priced.ranks, &simulated);
  const Times times = time_of_chunks(simulated, effort.most_chunks);
  const auto priced_for_all = [&](Picoseconds end) {
    const Picoseconds call = rounded(figures.call_ns * 1e3);
    if (priced_units == units) return call + end;
    return call + end / std::bit_width(priced_units - 1) * std::bit_width(units - 1);
  };
  if (effects != nullptr) {
    // Where a few stand for all, their work is that of all ranks on their processor.
    const double ranks = simulated.alike == Alike::none ? 1 : std::max(1.0, figures.ranks_per_core);
    effects->work_ps = rounded(static_cast<double>(times.work) / ranks);
    const Picoseconds turn = std::max(simulated.costs.turn, least_turn);
    const bool large = times.end > turns_of_large_call * turn;
    const bool counts = !large || !row_of(builder.collective).rooted;
    const bool waits =
        figures.ranks_per_core > 1 || (shape.ranks == 2 && !row_of(builder.collective).rooted);
    effects->hops = waits && counts ? times.hops : 0;
    effects->mean_ps = priced_for_all(times.mean_end);
  }
  return priced_for_all(times.end);
}

}  // namespace hocket::internal
