#include "collectives/select/selector.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "collectives/algorithms/builders.h"

namespace hocket::internal {
namespace {

// Scratch of smaller messages stays in the caches also where cores are far.
constexpr std::size_t least_far_scratch_bytes = 4 << 10;
// How far a chunk of a pipelined message is cut down, and how much private scratch messages may
// take.
constexpr std::size_t message_chunk_bytes = 512 << 10;
constexpr std::size_t message_scratch_bytes = 16 << 20;
constexpr std::size_t least_chunk_bytes = 4 << 10;

bool is(const std::string& algorithm, const char* name) { return algorithm == name; }

std::size_t slot_of(const Question& question) {
  std::uint64_t hash = question.count * 0x9e3779b97f4a7c15ULL;
  hash ^= (static_cast<std::uint64_t>(question.collective) << 40) ^
          (static_cast<std::uint64_t>(question.dtype) << 48) ^
          (static_cast<std::uint64_t>(question.op) << 56) ^
          (static_cast<std::uint64_t>(question.root + 1) << 20);
  return (hash * 0x9e3779b97f4a7c15ULL) >> 58;
}

}  // namespace

Status Selector::choose(const Question& question, const Choice** choice) {
  Entry& entry = recent_[slot_of(question)];
  if (!entry.valid || entry.question != question) [[unlikely]] {
    entry.valid = false;
    entry.choice = {};
    HOCKET_RETURN_IF_ERROR(work_out(question, &entry.choice));
    entry.question = question;
    entry.valid = true;
  }
  *choice = &entry.choice;
  return {};
}

void Selector::force(const std::string& algorithm) {
  if (algorithm == options_.algorithm) return;
  options_.algorithm = algorithm;
  for (Entry& entry : recent_) entry.valid = false;
}

/// Bytes of the whole message: of all blocks.
std::size_t Selector::message_bytes(const Question& question) const {
  const bool per_rank = question.collective == Collective::all_gather ||
                        question.collective == Collective::reduce_scatter;
  return question.count * size_of(question.dtype) *
         (per_rank ? static_cast<std::size_t>(options_.ranks) : 1);
}

const Builder* Selector::staged_for(Collective collective) const {
  return find_builder("staged", collective, true);
}

bool Selector::fits(const Builder& builder, const Question& question) const {
  if (builder.collective != question.collective) return false;
  if (builder.load_store && !options_.one_node) return false;
  if (options_.deterministic && !builder.rank_order) return false;
  const std::size_t bytes = message_bytes(question);
  const std::string algorithm = builder.algorithm;
  const bool whole_input = question.collective == Collective::reduce_scatter;
  const std::size_t carried = whole_input ? bytes : question.count * size_of(question.dtype);
  if (builder.load_store && is(algorithm, "inline")) return carried <= line_payload_bytes;
  if (builder.load_store && is(algorithm, "one-shot")) {
    const std::size_t blocks = whole_input ? static_cast<std::size_t>(options_.ranks) : 1;
    return carried + 64 * blocks <= options_.board_scratch_bytes;
  }
  if (is(algorithm, "one-shot")) {
    return carried * static_cast<std::size_t>(options_.ranks) <= message_scratch_bytes;
  }
  return true;
}

std::vector<Selector::Priced> Selector::candidates(const Question& question) const {
  std::vector<Priced> found;
  for (const Builder& builder : builders()) {
    if (!fits(builder, question)) continue;
    found.push_back({&builder, price(builder, question)});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Priced& a, const Priced& b) { return a.price_ns < b.price_ns; });
  return found;
}

Status Selector::work_out(const Question& question, Choice* choice) {
  Signature signature;
  signature.count = question.count;
  signature.root = question.root;
  signature.collective = question.collective;
  signature.dtype = question.dtype;
  signature.op = question.op;
  signature.flags = options_.signature_flags;
  choice->call_hash = call_hash(signature);
  std::vector<Priced> found = candidates(question);
  if (!options_.algorithm.empty() && !is_p2p(question.collective)) {
    std::vector<Priced> forced;
    for (const Priced& candidate : found) {
      if (options_.algorithm == candidate.builder->algorithm) forced.push_back(candidate);
    }
    // A forced algorithm that cannot carry this call (inline beyond its line, ring for a barrier)
    // leaves it to the others: HOCKET_ALGORITHM is for experiments on the calls that it fits.
    if (!forced.empty()) found = forced;
  }
  if (found.empty()) {
    return internal_error(std::string("no algorithm serves ") + name_of(question.collective) +
                          " between these ranks");
  }
  const Builder& builder = *found.front().builder;
  HOCKET_RETURN_IF_ERROR(program_for(builder, question, &choice->program));
  const Program& program = *choice->program;
  if (program.maps_input || program.maps_output) {
    const Builder* staged = staged_for(question.collective);
    if (staged == nullptr) return internal_error("no staged plan stands behind a direct one");
    HOCKET_RETURN_IF_ERROR(program_for(*staged, question, &choice->staged));
  }
  const Program& sized = choice->staged != nullptr ? *choice->staged : program;
  const std::size_t blocks = std::max(program.input_blocks, program.output_blocks);
  choice->part = partition(question.collective, blocks, question.count, question.dtype,
                           chunk_elements(sized, question));
  choice->stores = stores(question);
  choice->far_scratch =
      program.load_store && far_cores() && message_bytes(question) >= least_far_scratch_bytes;
  return {};
}

/// Another core's line costs more than one from memory: the cores share no cache, or no near one.
bool Selector::far_cores() const {
  const Figures& f = options_.figures;
  return options_.one_node && 2 * f.push_past_ns_per_byte < f.push_ns_per_byte;
}

/// By where the lines of the outputs lie: in memory; in the cache that the cores share; or in other
/// cores' own caches, where each store waits until its line is given up. There it depends on the
/// machine (measure_push in calibration.cc). 128 KiB on 2 cores: of a Zen 5, folding and then
/// copying took 0.7 of the time of folding into both at once; of a Zen 4, 0.8, and stores past the
/// caches 0.4, or 0.6 with the reading of the results. Where the cores share no cache they took
/// 0.13, and for 1 MiB 0.11, where else they take 1.7.
Stores Selector::stores(const Question& question) const {
  const Figures& f = options_.figures;
  const std::size_t held = 2 * message_bytes(question);
  if (!options_.one_node) return Stores::together;
  if (held * options_.ranks > f.node_cache_bytes) return Stores::past_caches;
  if (far_cores()) return Stores::near_and_far;
  if (held > f.core_cache_bytes) return Stores::together;
  const bool half_full = held <= f.core_cache_bytes / 2;
  return half_full && f.push_past_ns_per_byte < f.push_ns_per_byte ? Stores::near_and_far
                                                                   : Stores::one_by_one;
}

Status Selector::program_for(const Builder& builder, const Question& question,
                             const Program** out) {
  const bool widened = is_widened(question.dtype);
  std::unique_ptr<Program>& program = programs_[{&builder, question.root, widened}];
  if (program == nullptr) {
    Shape shape;
    shape.collective = question.collective;
    shape.rank = options_.rank;
    shape.ranks = options_.ranks;
    shape.root = question.root;
    shape.widened = widened;
    auto lowered = std::make_unique<Program>();
    HOCKET_RETURN_IF_ERROR(lower(builder.build(shape), lowered.get()));
    program = std::move(lowered);
  }
  *out = program.get();
  return {};
}

std::size_t Selector::chunk_elements(const Program& program, const Question& question) const {
  if (program.single_chunk) return 0;
  const std::size_t element =
      program.wide_scratch ? wide_size_of(question.dtype) : size_of(question.dtype);
  const std::size_t pieces =
      std::max<std::size_t>(1, std::size_t{program.scratch_blocks} * program.slots);
  std::size_t bytes = message_chunk_bytes;
  if (program.load_store) {
    // All there is. Slots that fit into the core's own cache are no better: what a peer reads there
    // comes from that cache, which takes longer than from the one that the cores share.
    bytes = options_.board_scratch_bytes / pieces;
  } else {
    bytes = std::clamp(message_scratch_bytes / pieces, least_chunk_bytes, message_chunk_bytes);
  }
  bytes &= ~std::size_t{63};
  return std::max<std::size_t>(bytes / element, 64 / size_of(question.dtype));
}

double Selector::price(const Builder& builder, const Question& question) const {
  if (is_p2p(question.collective)) return 0;
  return builder.load_store ? price_on_board(builder.algorithm, question)
                            : price_of_messages(builder.algorithm, question);
}

/// syncs x sync + bytes touched x touch; a rank's share of the cores makes the touching slower.
double Selector::price_on_board(const std::string& algorithm, const Question& question) const {
  const Figures& f = options_.figures;
  const double p = options_.ranks;
  const double bytes = static_cast<double>(message_bytes(question));
  const double crowd = std::max(1.0, f.crowd);
  double syncs = 1, touched = 0;  // touched: by the busiest rank, in whole messages
  const auto by_collective = [&](double all_reduce, double all_gather, double reduce_scatter,
                                 double broadcast) {
    switch (question.collective) {
      case Collective::all_reduce:
        return all_reduce;
      case Collective::all_gather:
        return all_gather;
      case Collective::reduce_scatter:
        return reduce_scatter;
      default:
        return broadcast;
    }
  };
  if (is(algorithm, "inline")) {
    touched = p;
  } else if (is(algorithm, "one-shot")) {
    touched = by_collective(3 + p, 2 + 2 / p, 3 + 1 / p, 4);
  } else if (is(algorithm, "staged")) {
    const double chunk = static_cast<double>(options_.board_scratch_bytes);
    syncs = by_collective(3, 2, 2, 2) + std::floor(bytes / chunk) * 0.5;
    touched = by_collective((5 * p - 2) / p, 2 + 2 / p, 3 - 1 / p, 2.5);
  } else {  // direct: may fall back to staged, so it is not chosen where that would be much dearer
    syncs = 2;
    touched = by_collective(2.5, 2, 1 + 1 / p, 2);
  }
  return syncs * f.sync_ns + touched * bytes * f.touch_ns_per_byte * crowd;
}

/// rounds x message + bytes on the link x link + bytes folded x touch + own messages x work.
double Selector::price_of_messages(const std::string& algorithm, const Question& question) const {
  const Figures& f = options_.figures;
  const double p = options_.ranks;
  const double bytes = static_cast<double>(message_bytes(question));
  const bool folds = question.collective == Collective::all_reduce ||
                     question.collective == Collective::reduce_scatter;
  const double widening = static_cast<double>(wide_size_of(question.dtype)) /
                          static_cast<double>(size_of(question.dtype));
  const double both = question.collective == Collective::all_reduce ? 2 : 1;
  const double depth = std::ceil(std::log2(p));
  double rounds = 1, sent = 1, folded = 0, messages = 1;
  if (is(algorithm, "one-shot")) {
    const bool gathers = question.collective == Collective::all_gather;
    messages = p - 1;
    sent = gathers ? (p - 1) / p : p - 1;
    folded = folds ? p + 1 : 1;
  } else if (is(algorithm, "owner-fold")) {
    rounds = both;
    messages = both * (p - 1);
    sent = both * (p - 1) / p;
    folded = (p + 1) / p;
  } else if (is(algorithm, "tree")) {
    rounds = both * depth;
    // A barrier's ranks send in every round. In a tree they send one message, or two, on average.
    messages = question.collective == Collective::barrier ? depth : both * (p - 1) / p;
    sent = both * depth;
    folded = folds ? 3 * depth * widening : 0;
  } else {  // ring
    rounds = both * (p - 1);
    messages = both * (p - 1);
    sent = (both - 1 + (folds ? widening : 1)) * (p - 1) / p;
    folded = folds ? 3 * widening * (p - 1) / p : 0;
  }
  return rounds * f.message_ns + messages * f.message_work_ns + sent * bytes * f.link_ns_per_byte +
         folded * bytes * f.touch_ns_per_byte;
}

}  // namespace hocket::internal
