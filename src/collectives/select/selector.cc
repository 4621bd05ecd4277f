#include "collectives/select/selector.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "base/mix.h"
#include "transport/shm/board.h"

namespace hocket::internal {
namespace {

// Scratch of smaller messages stays in the caches also where cores are far.
constexpr std::size_t least_non_temporal_scratch_bytes = 4 << 10;
// The longest message whose scratch is prefetched.
constexpr std::size_t most_prefetched_bytes = 4 << 10;
// From here on the figures of large copies decide alone about data that goes one way.
constexpr std::size_t least_one_way_bytes = 16 << 10;
// How far a chunk of a pipelined message is cut down, and how much private scratch messages may
// take.
constexpr std::size_t message_chunk_bytes = 512 << 10;
constexpr std::size_t message_scratch_bytes = 16 << 20;
// The same between two ranks, for chunks that go from buffer to buffer, and for chunks that are
// folded and not sent on.
constexpr std::size_t direct_chunk_bytes = 4 << 20, folded_chunk_bytes = 256 << 10;
constexpr std::size_t least_chunk_bytes = 4 << 10;
// The chunk of a plan that copies from buffer to buffer: a whole block, or of a longer block as
// much as plain_copy() gives to memcpy at once. Between 2 ranks all-gathers and all-to-alls of 1 to
// 8 MiB took 0.80 to 0.95 of the time with whole blocks, because no chunk of a peer comes between
// those of this rank; of 32 MiB all-gathers took 1.06 to 1.12 times as long (Intel Xeon,
// 2026-11-28).
constexpr std::size_t most_whole_bytes = 4 << 20, copied_bytes = 256 << 10;
// The staged chunks of a rooted collective, whose ranks work at the same time only on different
// chunks: a quarter of a block, but not more than most_rooted_bytes; a sixteenth of a longer block.
// Blocks of a gather and of a scatter are divided only if they are longer than most_rooted_bytes.
// Gathers and scatters of 96 to 256 KiB between 2 ranks took 0.82 to 0.94 of the time of quarters,
// but broadcasts 0.99 to 1.06 and reduces of 128 and 256 KiB 1.17 and 1.14 (AMD EPYC of Zen 3,
// 2026-11-30).
constexpr std::size_t least_rooted_bytes = 32 << 10, most_rooted_bytes = 128 << 10,
                      most_long_rooted_bytes = 256 << 10;
// The staged chunks of all-gathers and all-reduces with blocks that are so long.
constexpr std::size_t long_block_bytes = 2 << 20, most_long_bytes = 128 << 10;
// Staged chunks of which all slots fit into the core's own cache are not shorter than that.
constexpr std::size_t least_fitting_bytes = 64 << 10;
// The same where chunks go to other nodes: each of them is a message of its own.
constexpr std::size_t least_sent_bytes = 128 << 10;
// How much of the cache of the node a rank is expected to have.
constexpr std::size_t most_cache_of_rank = 16 << 20;

// A call whose price is so high looks for mapped buffers each time, which takes 0.1 us, if the
// cheapest program without mapped buffers is Selection::staged. Not so a rooted collective among
// ranks that share cores: to look, a rank waits for the root, which may not run yet.
constexpr std::int64_t always_tries_ps = 100'000'000;

// Between ranks that have a core each, a call whose price is so high is large (best_of()).
constexpr std::int64_t large_ps = 20'000'000;

std::size_t slot_of(const CallKey& key) {
  std::uint64_t hash = (key.count ^ (key.total << 7)) * 0x9e3779b97f4a7c15ULL;
  hash ^= key.unit ^ (static_cast<std::uint64_t>(key.collective) << 40) ^
          (static_cast<std::uint64_t>(key.dtype) << 48) ^
          (static_cast<std::uint64_t>(key.op) << 56) ^
          (static_cast<std::uint64_t>(key.varying) << 63) ^
          (static_cast<std::uint64_t>(key.root + 1) << 20);
  return (hash * 0x9e3779b97f4a7c15ULL) >> 58;
}

/// Arrival lines keep their payload at multiples of 8 bytes. Types that need 16 have sizes that are
/// multiples of 16.
bool may_need_alignment(const CallKey& key) {
  return is_user(key.op) && key.unit * size_of(key.dtype) % 16 == 0;
}

bool maps_buffers(const Program& program) {
  return program.header().maps_input || program.header().maps_output;
}

/// The cheapest candidate (Priced::cost_ps). Costs that differ by at most 5 % count as equal: of
/// candidates with equal costs, the candidate with the fewest hops; of these, the candidate whose
/// operation needs the least time of processors and links, or, where the mean over the ranks
/// counts, the candidate with the least mean. Before that, a large call within a node prefers to
/// copy its blocks to scratch in chunks, which stay in the caches: for a broadcast, a gather and a
/// scatter of 128 KiB, 2 ranks took 0.9 of the time of whole blocks, and for 2 MiB 0.67 to 0.85.
///
/// A plan for several nodes that costs at most 20 % more counts as equal, so that a plan with fewer
/// messages is taken, but for small rooted calls between ranks that share cores. The costs do not
/// tell how many ranks can send at the same time. On two network namespaces with 2 ranks each,
/// which share two cores unknown to the ranks, an all-gather of up to 64 KiB took 0.6 to 0.95 of
/// the time by `leaders`, at 1.1 to 1.2 of the cost of `two-level` (2026-11-30).
///
/// Small rooted calls between ranks that share cores are another exception. By messages alone,
/// costs that differ by at most 20 % count as equal: in a loop the ranks are ahead of one another,
/// so that what a call waits for along its chains of messages costs less than its price says.
///
/// Three kinds of candidates are taken also if they are not the cheapest. Those by which ranks run
/// ahead: a price is the time of one call that all ranks begin together, but in a loop the ranks
/// that share a core then take turns only once in many calls. A gather of 128 KiB to 4 ranks on 2
/// cores took 11 us by `direct` and 5 us by `one-shot`, whose prices were 14.5 and 21.1 us. With 16
/// scratches or more, ranks may run ahead at up to twice the least cost, with 8 at up to one and a
/// half of it. The same holds between nodes: 4 ranks on 2 nodes and 2 cores took 7.6 us for a
/// gather of 8 B by `pairs` and 4.4 us by `leaders` (2026-11-30). Between far cores the gain is
/// smaller: at up to 4/3 and 7/6 of the least cost, and if that is of a plan that maps buffers,
/// only with 128 scratches: a reduce of 4 KiB took 1.07 us by `direct` and 0.39 us by `one-shot`, a
/// broadcast of 16 KiB 1.7 and 1.9 us. A large call gains nothing there. In collectives without a
/// root between ranks that share cores, plans that stage are taken at up to 5/4 of the cost of a
/// plan that maps buffers. In the latter a rank waits twice for its peers: before it reads their
/// buffers, and until they no longer read its own. Each wait also takes what a peer computes before
/// it makes the call. And plans by load and store are taken at up to one and a half of the cost of
/// messages within a node: a rank that makes another call is then found at once.
const Selector::Priced& best_of(const std::vector<Selector::Priced>& candidates, bool rooted,
                                bool shares_cores) {
  const bool large = !shares_cores && candidates.front().cost_ps >= large_ps;
  const auto in_turns = [&](const Selector::Priced& candidate) {
    return rooted && candidate.effects.hops > 0;
  };
  const auto order_of = [&](const Selector::Priced& candidate) {
    const ProgramHeader& header = candidate.program->header();
    const bool node = candidate.builder->medium == Medium::node;
    const bool whole = large && node && header.single_chunk;
    return std::tuple(candidate.effects.hops, whole, candidate.tie_ps);
  };
  // Of the candidates whose costs equal that of `first`, which is the cheapest of them.
  const auto best_of_equal = [&](const Selector::Priced& first, bool node_only) {
    const Selector::Priced* best = &first;
    for (const Selector::Priced& candidate : candidates) {
      const Medium medium = candidate.builder->medium;
      const bool ahead = in_turns(candidate) && medium == Medium::messages;
      const bool levels = !in_turns(candidate) && medium == Medium::both;
      const std::int64_t above = candidate.cost_ps - first.cost_ps;
      if (above < 0 || above > first.cost_ps / (ahead || levels ? 5 : 20)) continue;
      if (node_only && candidate.builder->medium != Medium::node) continue;
      if (order_of(candidate) < order_of(*best)) best = &candidate;
    }
    return best;
  };
  const Selector::Priced* const best = best_of_equal(candidates.front(), false);
  if (best->operations_ahead > 0) return *best;
  constexpr std::int64_t most_ahead = 16;
  const std::int64_t most_above = shares_cores ? best->cost_ps : best->cost_ps / 3;
  const std::int64_t least_ahead =
      !shares_cores && maps_buffers(*best->program) ? run_ahead_operations : 1;
  for (const Selector::Priced& candidate : candidates) {
    const std::int64_t above = candidate.cost_ps - best->cost_ps;
    if (large || above > most_above) break;
    if (candidate.operations_ahead < least_ahead) continue;
    const std::int64_t ahead = std::min(candidate.operations_ahead, most_ahead);
    if (above <= most_above / most_ahead * ahead) return candidate;
  }
  if (shares_cores && !rooted && maps_buffers(*best->program)) {
    for (const Selector::Priced& candidate : candidates) {
      if (candidate.cost_ps > best->cost_ps / 4 * 5) break;
      const bool stages =
          candidate.builder->medium == Medium::node && !maps_buffers(*candidate.program);
      if (stages) return *best_of_equal(candidate, true);
    }
  }
  if (best->builder->medium != Medium::messages) return *best;
  for (const Selector::Priced& candidate : candidates) {
    if (candidate.cost_ps > best->cost_ps / 2 * 3) break;
    if (candidate.builder->medium == Medium::node) return *best_of_equal(candidate, true);
  }
  return *best;
}

/// For programs that map buffers: the cheapest built-in candidate that begins in the same way and
/// maps none. Null if there is none whose scratch has room for one element of the user's datatype.
const Selector::Priced* alternative_of(const std::vector<Selector::Priced>& candidates) {
  const auto found = std::ranges::find_if(candidates, [](const Selector::Priced& candidate) {
    return candidate.builder->file == nullptr && replaces_mapping(candidate.program->header());
  });
  return found != candidates.end() ? &*found : nullptr;
}

/// Removes the candidates that map buffers.
void drop_mapping(std::vector<Selector::Priced>* candidates) {
  std::erase_if(*candidates,
                [](const Selector::Priced& candidate) { return maps_buffers(*candidate.program); });
}

}  // namespace

Status Selector::select(const CallKey& key, const Selection** selection) {
  Entry* entry = nullptr;
  HOCKET_RETURN_IF_ERROR(find(key, &entry));
  *selection = &entry->selection;
  const bool may_skip = entry->is_other && !entry->always_tries;
  if (may_skip && counts_unmapped(entry->selection.kind)) *selection = &entry->unmapped;
  return {};
}

Status Selector::look(const CallKey& key, bool mapped, const Selection** selection) {
  Entry* entry = nullptr;
  HOCKET_RETURN_IF_ERROR(find(key, &entry));
  *selection = entry->is_other && !mapped ? &entry->unmapped : &entry->selection;
  return {};
}

Status Selector::find(const CallKey& key, Entry** found) {
  Entry& entry = recent_[slot_of(key)];
  if (!entry.valid || entry.key != key) [[unlikely]] {
    entry = {};
    HOCKET_RETURN_IF_ERROR(compute(key, &entry));
    entry.key = key;
    entry.valid = true;
  }
  *found = &entry;
  return {};
}

std::uint16_t Selector::kind_of(const CallKey& key) const {
  const auto size = static_cast<std::size_t>(std::bit_width(message_bytes(key)));
  return static_cast<std::uint16_t>(static_cast<std::size_t>(key.collective) * kinds_of_size +
                                    std::min(size, kinds_of_size - 1));
}

void Selector::force(const std::string& algorithm) {
  if (algorithm == options_.algorithm) return;
  options_.algorithm = algorithm;
  forget_choices();
}

void Selector::add(std::shared_ptr<const LoadedPlan> plan, bool forced) {
  if (forced) forced_.push_back(&plan->builder);
  options_.loaded.add(std::move(plan));
  algorithms_.clear();
  forget_choices();
}

void Selector::forget_choices() {
  for (Entry& entry : recent_) entry.valid = false;
}

/// Bytes of all blocks together.
std::size_t Selector::message_bytes(const CallKey& key) const {
  const CollectiveRow& row = row_of(key.collective);
  if (key.varying) return key.total * size_of(key.dtype);
  const bool per_rank = row.input == Blocks::per_rank || row.output == Blocks::per_rank;
  return key.count * size_of(key.dtype) * (per_rank ? static_cast<std::size_t>(options_.ranks) : 1);
}

Shape Selector::shape_of(const CallKey& key) const {
  return {.collective = key.collective,
          .rank = static_cast<std::uint32_t>(options_.rank),
          .ranks = static_cast<std::uint32_t>(options_.ranks),
          .root = key.root,
          .varying = key.varying,
          .widened = tells_partial_results(key.dtype, key.op),
          .shares_cores = options_.figures.ranks_per_core > 1,
          .layout = options_.layout.get()};
}

bool Selector::serves(const Builder& builder, const CallKey& key) const {
  if (builder.collective != key.collective) return false;
  if (builder.medium == Medium::node && !options_.one_node) return false;
  if (builder.medium == Medium::both && !has_levels()) return false;
  if (keeps_order(key) && !builder.rank_order) return false;
  if (key.op == Op::pre_mul_sum && !builder.scales) return false;
  return builder.varying || !key.varying;
}

bool Selector::keeps_order(const CallKey& key) const {
  return options_.deterministic || key.op == Op::user_in_order;
}

/// Plans that use the node and messages are for several nodes, of which one has several ranks.
bool Selector::has_levels() const {
  const Layout* const layout = options_.layout.get();
  return layout != nullptr && layout->nodes() > 1 && layout->ranks_of_largest() > 1;
}

/// `eager` sends messages where a node has too many ranks for it: as `pairs`, which is a candidate,
/// too.
bool Selector::by_messages_instead(const Builder& builder, const Program& program) const {
  return builder.medium == Medium::node && options_.ranks > 1 && !program.header().uses_node;
}

/// The algorithms that serve such calls if their count fits.
Status Selector::algorithms_for(const CallKey& key, const std::vector<Algorithm>** out) {
  const AlgorithmsKey kind{
      key.collective, key.root,         tells_partial_results(key.dtype, key.op),
      key.varying,    keeps_order(key), key.op == Op::pre_mul_sum};
  const auto known = algorithms_.find(kind);
  if (known != algorithms_.end()) {
    *out = &known->second;
    return {};
  }
  std::vector<Algorithm> algorithms;
  const auto look_at = [&](const Builder& builder) -> Status {
    if (!serves(builder, key)) return {};
    const Program* program = nullptr;
    HOCKET_RETURN_IF_ERROR(program_for(builder, key, &program));
    if (!by_messages_instead(builder, *program)) algorithms.push_back({&builder, program});
    return {};
  };
  for (const Builder& builder : builders()) HOCKET_RETURN_IF_ERROR(look_at(builder));
  for (const auto& plan : options_.loaded.all()) HOCKET_RETURN_IF_ERROR(look_at(plan->builder));
  *out = &(algorithms_[kind] = std::move(algorithms));
  return {};
}

/// Where not all ranks know all blocks, each block has one chunk: chunks must be alike on both
/// sides of a message, and no count of one rank may decide.
Sizes Selector::sizes_for(const Program& program, const CallKey& key,
                          std::size_t chunk_elements) const {
  const ProgramHeader& header = program.header();
  const bool known = !key.varying || shares_blocks(row_of(key.collective));
  Sizes sizes = sizes_of(key.collective, header.input_blocks, header.output_blocks, key.count,
                         key.dtype, header.single_chunk || !known ? 0 : chunk_elements, key.unit);
  sizes.small_elements = header.small_bytes / size_of(key.dtype);
  return sizes;
}

/// True if the line and the scratch have room for what the program puts there. A program of several
/// chunks fits if one element of the user does, because the length of its chunks is chosen by the
/// room in scratch.
bool Selector::fits(const Program& program, const CallKey& key) const {
  const ProgramHeader& header = program.header();
  // Where all ranks know the count, it decides between plans; then no plan decides by itself.
  if (header.small_bytes > 0 && !key.varying) return false;
  const Sizes sizes = sizes_for(program, key, 0);
  if (header.line_blocks * line_stride(sizes) * size_of(key.dtype) > line_payload_bytes) {
    return false;
  }
  if (header.line_blocks > 0 && may_need_alignment(key)) return false;
  if (!header.single_chunk) {
    const std::size_t least = grain_of(key.dtype, key.unit) * size_of(key.dtype);
    return key.unit == 1 || !header.uses_node ||
           least * header.scratch_blocks * header.slots <= options_.board_scratch_bytes;
  }
  const std::size_t room = header.uses_node ? options_.board_scratch_bytes : message_scratch_bytes;
  const std::size_t stride = scratch_stride_bytes(sizes, key.dtype, header.wide_scratch);
  return std::size_t{header.scratch_blocks} * header.slots * stride <= room;
}

/// The number of scratches that the operation uses in turn, if there are many
/// (transport/shm/board.h), so that a rank may be several such operations ahead of others; else 0.
std::int64_t Selector::operations_ahead(const Program& program, const CallKey& key) const {
  const ProgramHeader& header = program.header();
  const bool many = uses_many_scratches(options_.figures) && row_of(key.collective).rooted;
  if (!many || !header.uses_node || header.arrives_first) return 0;
  const Sizes sizes = sizes_for(program, key, chunk_elements(program, key));
  const std::size_t stride = scratch_stride_bytes(sizes, key.dtype, header.wide_scratch);
  const std::size_t bytes = stride * header.scratch_blocks * header.slots;
  const ScratchSize size = Board::size_for(bytes, true);
  return size == ScratchSize::large ? 0 : static_cast<std::int64_t>(Board::scratches(size));
}

Status Selector::candidates(const CallKey& key, std::vector<Priced>* out) {
  out->clear();
  const std::vector<Algorithm>* algorithms = nullptr;
  HOCKET_RETURN_IF_ERROR(algorithms_for(key, &algorithms));
  for (const Algorithm& algorithm : *algorithms) {
    if (fits(*algorithm.program, key)) out->push_back(priced(algorithm, key));
  }
  std::ranges::stable_sort(*out, {}, &Priced::cost_ps);
  return {};
}

Selector::Priced Selector::priced(const Algorithm& algorithm, const CallKey& key) {
  // Where a rank does not know all blocks, or sends to one rank, there is nothing to compare.
  const bool known = !is_p2p(key.collective) && (!key.varying || key.total > 0);
  const auto ranks = static_cast<std::size_t>(options_.ranks);
  const std::size_t count = key.varying ? divide_up(key.total, ranks) : key.count;
  const bool mean_counts =
      options_.one_node && options_.figures.ranks_per_core > 1 && row_of(key.collective).rooted;
  const Price price = known ? interpolated(algorithm, key, count) : Price{};
  const std::int64_t ahead = known ? operations_ahead(*algorithm.program, key) : 0;
  const Effects& effects = price.effects;
  const std::int64_t cost = mean_counts ? (price.ps + effects.mean_ps) / 2 : price.ps;
  const std::int64_t tie = mean_counts ? effects.mean_ps : effects.work_ps;
  return {algorithm.builder, algorithm.program, price.ps, cost, tie, effects, ahead};
}

/// The built-in algorithms that options.algorithm names and that serve the call; none if one of
/// them maps buffers, because the selection then needs the algorithm that replaces it. No other
/// algorithm is built, and no other price simulated: in hocketCommDuplicate that took about half of
/// the time.
Status Selector::add_named(const CallKey& key, std::vector<Priced>* out) {
  for (const Builder& builder : builders()) {
    if (!builder.is_named(options_.algorithm) || !serves(builder, key)) continue;
    const Program* program = nullptr;
    HOCKET_RETURN_IF_ERROR(program_for(builder, key, &program));
    if (maps_buffers(*program)) {
      out->clear();
      return {};
    }
    if (by_messages_instead(builder, *program) || !fits(*program, key)) continue;
    out->push_back(priced({&builder, program}, key));
  }
  std::ranges::stable_sort(*out, {}, &Priced::cost_ps);
  return {};
}

/// Calls of many different counts are common, and a simulation takes longer than most calls. So
/// only a few counts are simulated: 1 to 8, and of the counts between two powers of two each
/// quarter. Between them prices are taken as linear.
Selector::Price Selector::interpolated(const Algorithm& algorithm, const CallKey& key,
                                       std::size_t count) {
  constexpr int most_steps = 40;  // of 2: beyond, the next count could be too large for a size
  const std::size_t chunk = chunk_elements(*algorithm.program, key);
  const int steps = std::max(0, static_cast<int>(std::bit_width(count)) - 3);
  const std::size_t below = count >> steps << steps;
  Price price = simulated(*algorithm.builder, key, below, chunk);
  if (below == count || steps > most_steps) return price;
  const Price& above = simulated(*algorithm.builder, key, below + (std::size_t{1} << steps), chunk);
  // In integers, so that all ranks compute the same.
  constexpr int parts = 1024;
  const auto part = static_cast<std::int64_t>((count - below) * parts >> steps);
  const auto between = [part](std::int64_t from, std::int64_t to) {
    return from + (to - from) / parts * part + (to - from) % parts * part / parts;
  };
  price.ps = between(price.ps, above.ps);
  price.effects.work_ps = between(price.effects.work_ps, above.effects.work_ps);
  price.effects.mean_ps = between(price.effects.mean_ps, above.effects.mean_ps);
  return price;
}

const Selector::Price& Selector::simulated(const Builder& builder, const CallKey& key,
                                           std::size_t count, std::size_t chunk_elements) {
  const Shape shape = shape_of(key);
  const auto [found, is_new] = prices_.try_emplace(
      {&builder, key.dtype, shape.widened, shape.varying, count, chunk_elements});
  Price& known = found->second;
  if (is_new) {
    known.ps = price(builder, shape, count, key.dtype, chunk_elements, options_.figures, {},
                     &known.effects);
  }
  return known;
}

std::size_t Selector::HashOfSimulated::operator()(const Simulated& key) const {
  const std::uint64_t bits =
      (static_cast<std::uint64_t>(key.dtype) << 2) | (key.widened ? 2 : 0) | (key.varying ? 1 : 0);
  return mix(reinterpret_cast<std::uintptr_t>(key.builder) ^ mix(key.count ^ mix(bits)) ^
             (key.chunk_elements << 20));
}

Status Selector::compute(const CallKey& key, Entry* entry) {
  std::vector<Priced> all;
  const bool rooted = row_of(key.collective).rooted;
  const bool shares_cores = options_.figures.ranks_per_core > 1;
  if (!options_.algorithm.empty()) HOCKET_RETURN_IF_ERROR(add_named(key, &all));
  if (all.empty()) HOCKET_RETURN_IF_ERROR(candidates(key, &all));
  Selection& selection = entry->selection;
  const Priced* const alternative = alternative_of(all);
  const Program* const staged = alternative != nullptr ? alternative->program : nullptr;
  if (staged != nullptr) selection.staged_price_ps = alternative->price_ps;
  if (staged == nullptr) drop_mapping(&all);
  if (all.empty()) {
    return internal_error(std::string("no algorithm serves ") + name_of(key.collective) +
                          " between these ranks");
  }
  const Priced* const forced = forced_of(all);
  const Priced& chosen = forced != nullptr ? *forced : best_of(all, rooted, shares_cores);
  if (maps_buffers(*chosen.program)) selection.staged = staged;
  take(key, chosen, &selection);
  if (selection.staged == nullptr || forced != nullptr) return {};
  drop_mapping(&all);
  const Priced& other = best_of(all, rooted, shares_cores);
  entry->is_other = true;
  const bool awaits_root = rooted && shares_cores;
  entry->always_tries =
      other.program == staged && other.price_ps >= always_tries_ps && !awaits_root;
  entry->unmapped.counted = true;
  take(key, other, &entry->unmapped);
  return {};
}

/// A forced algorithm that cannot carry this call (inline beyond its line, ring for a barrier)
/// leaves it to the others: HOCKET_ALGORITHM is for experiments on the calls that it fits. Null: no
/// candidate is forced.
const Selector::Priced* Selector::forced_of(const std::vector<Priced>& candidates) const {
  if (!options_.algorithm.empty()) {
    const auto named = std::ranges::find_if(candidates, [&](const Priced& candidate) {
      return candidate.builder->is_named(options_.algorithm);
    });
    return named != candidates.end() ? &*named : nullptr;
  }
  for (auto plan = forced_.rbegin(); plan != forced_.rend(); ++plan) {
    const auto found = std::ranges::find(candidates, *plan, &Priced::builder);
    if (found != candidates.end()) return &*found;
  }
  return nullptr;
}

/// Sets all of a selection but `staged`, which it reads.
void Selector::take(const CallKey& key, const Priced& chosen, Selection* selection) {
  Signature signature;
  signature.count = key.count;
  signature.root = key.root;
  signature.collective = key.collective;
  signature.dtype = key.dtype;
  signature.op = key.op;
  signature.flags = options_.signature_flags;
  signature.plan = selection->plan = is_p2p(key.collective) ? 0 : number_of(*chosen.builder);
  selection->call_hash = call_hash(signature);
  selection->price_ps = chosen.price_ps;
  selection->kind = kind_of(key);
  selection->program = chosen.program;
  std::size_t chunk = chunk_elements(*selection->program, key);
  if (selection->staged != nullptr) {
    const std::size_t staged_chunk = chunk_elements(*selection->staged, key);
    selection->staged_sizes = sizes_for(*selection->staged, key, staged_chunk);
    // A fold into several outputs reads its results again, in the caches.
    const bool folds = row_of(key.collective).reduces;
    if (folds && selection->program->header().scratch_blocks == 0) chunk = staged_chunk;
  }
  selection->sizes = sizes_for(*selection->program, key, chunk);
  const std::size_t bytes = message_bytes(key);
  selection->many_scratches = uses_many_scratches(options_.figures);
  const bool one_way = row_of(key.collective).rooted && bytes >= least_one_way_bytes;
  const bool uses_node = selection->program->header().uses_node;
  selection->stores = stores(key.collective, 2 * bytes, uses_node);
  selection->non_temporal_scratch = uses_node && bytes >= least_non_temporal_scratch_bytes &&
                                    non_temporal_is_faster(options_.figures, one_way);
  selection->prefetches_scratch = uses_node && bytes <= most_prefetched_bytes &&
                                  !selection->non_temporal_scratch &&
                                  lines_come_late(options_.figures);
}

/// Another core's line costs more than one from memory: the cores share no cache, or no near one.
bool Selector::no_shared_cache() const {
  const Figures& f = options_.figures;
  return options_.one_node && 2 * f.push_non_temporal_ns_per_byte < f.push_ns_per_byte;
}

std::size_t Selector::ranks_of_node() const {
  const bool knows = !options_.one_node && options_.layout != nullptr;
  return knows ? options_.layout->ranks_of_largest() : static_cast<std::size_t>(options_.ranks);
}

/// Where the lines of the outputs lie decides how results are stored. In memory: past the caches.
/// In the cache that the cores share: into all outputs at once. In other cores' own caches each
/// store waits until the other core gives its line up; how long that takes depends on the machine,
/// and measure_push in calibration.cc measures it.
///
/// 128 KiB on 2 cores of a Zen 5: folding and then copying took 0.7 of the time of folding into
/// both outputs at once. Of a Zen 4: 0.8, and stores past the caches 0.4 (0.6 with the reading of
/// the results). On cores that share no cache: 0.13, and 0.11 for 1 MiB, where other machines
/// take 1.7.
Stores Selector::stores(Collective collective, std::size_t held, bool uses_node) const {
  const Figures& f = options_.figures;
  // In a plan by messages alone, ranks store results and then send them to others.
  if (!options_.one_node && !uses_node) return Stores::together;
  if (held > most_cache_of_rank || held * ranks_of_node() > f.node_cache_bytes) {
    return Stores::non_temporal;
  }
  if (!options_.one_node) return Stores::together;
  if (no_shared_cache()) return Stores::first_cached;
  if (held > f.core_cache_bytes) {
    const bool one_way = row_of(collective).rooted;
    return non_temporal_is_faster(f, one_way) ? Stores::first_cached : Stores::together;
  }
  const bool half_full = held <= f.core_cache_bytes / 2;
  return half_full && f.push_non_temporal_ns_per_byte < f.push_ns_per_byte ? Stores::first_cached
                                                                           : Stores::one_by_one;
}

Status Selector::program_for(const Builder& builder, const CallKey& key, const Program** out) {
  const Shape shape = shape_of(key);
  std::unique_ptr<Program>& program =
      programs_[{&builder, shape.root, shape.widened, shape.varying}];
  if (program == nullptr) {
    auto lowered = std::make_unique<Program>();
    HOCKET_RETURN_IF_ERROR(lower(builder.build(shape), lowered.get()));
    program = std::move(lowered);
  }
  *out = program.get();
  return {};
}

/// The longest chunk of a plan by messages. The sender of a chunk that is too long for an eager
/// message waits for a CTS, which costs a round trip. So between two ranks, where only an
/// all-reduce sends on what has arrived, chunks are either long, or short enough for eager
/// messages. Over TCP between 2 hosts that made all-gathers of 2 to 64 MiB take 0.75 to 1.0 of the
/// time, and reduce-scatters and reduces 0.75 to 0.92 (2026-11-27). All-reduces with chunks of 256
/// KiB took longer than with 512 KiB, and all-gathers of 64 MiB in one chunk longer than in chunks
/// of 4 MiB.
std::size_t Selector::most_message_bytes(const ProgramHeader& header,
                                         const CollectiveRow& row) const {
  if (options_.ranks > 2) return message_chunk_bytes;
  if (header.scratch_blocks == 0) return direct_chunk_bytes;
  const bool sends_on = row.output == Blocks::whole && !row.output_at_root;
  return row.reduces && !sends_on ? folded_chunk_bytes : message_chunk_bytes;
}

std::size_t Selector::chunk_elements(const Program& program, const CallKey& key) const {
  const ProgramHeader& header = program.header();
  if (header.single_chunk) return 0;
  const std::size_t element = header.wide_scratch ? wide_size_of(key.dtype) : size_of(key.dtype);
  const std::size_t pieces =
      std::max<std::size_t>(1, std::size_t{header.scratch_blocks} * header.slots);
  std::size_t bytes = message_chunk_bytes;
  if (header.uses_node) {
    // All of the scratch. Slots that fit into the core's own cache are no better: a peer then reads
    // from that cache, which takes longer than to read from the cache that the cores share. Long
    // inputs and outputs, however, drive large slots out of the caches: between 2 ranks,
    // all-gathers and all-reduces of 4 to 64 MiB took 0.81 to 1.0 of the time with shorter chunks,
    // and reduce-scatters and all-to-alls 0.97 to 1.2 (2026-11-27). On a Zen 3, whose cores have
    // 512 KiB of cache each, slots that fit into it took 0.71 to 1.05 of the time in collectives of
    // 1 to 4 MiB without a root, and 1.02 to 1.24 in those of 256 and 512 KiB (2026-11-29).
    const bool staged = header.scratch_blocks > 0;
    const std::size_t block = line_stride(sizes_for(program, key, 0)) * element;
    const std::size_t copied = block <= most_whole_bytes ? most_whole_bytes : copied_bytes;
    bytes = (staged ? options_.board_scratch_bytes : copied) / pieces;
    // Ranks that share a core have as few turns as possible.
    if (staged && options_.figures.ranks_per_core <= 1) {
      const CollectiveRow& row = row_of(key.collective);
      if (row.rooted) {
        const std::size_t most = std::clamp(block / 16, most_rooted_bytes, most_long_rooted_bytes);
        const bool moves_blocks = row.input == Blocks::per_rank || row.output == Blocks::per_rank;
        const std::size_t chunk = moves_blocks ? block : block / 4;
        bytes = std::min(bytes, std::clamp(chunk, least_rooted_bytes, most));
      } else {
        const std::size_t cache = options_.figures.core_cache_bytes;
        if (message_bytes(key) > cache) {
          const std::size_t least = options_.one_node ? least_fitting_bytes : least_sent_bytes;
          bytes = std::min(bytes, std::max(cache / pieces, least));
        }
        if (row.input != Blocks::per_rank && block >= long_block_bytes) {
          bytes = std::min(bytes, most_long_bytes);
        }
      }
    }
  } else {
    const std::size_t most = most_message_bytes(header, row_of(key.collective));
    bytes = std::clamp(message_scratch_bytes / pieces, least_chunk_bytes, most);
  }
  const std::size_t grain = grain_of(key.dtype, key.unit);
  return std::max(bytes / element / grain * grain, grain);
}

}  // namespace hocket::internal
