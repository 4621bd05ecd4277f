// Selects the program of an operation: computes the price of every candidate with figures measured
// on this machine (cost.h), and takes the cheapest. The selection depends only on what all ranks
// share (the call, the shape, the figures), so all ranks select the same. Selections for the latest
// calls are kept, and all prices that were simulated. Plans are simulated for a few counts, between
// which a price is taken as linear in the count: so a call of a new count or root mostly needs no
// simulation.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "collectives/algorithms/builders.h"
#include "collectives/plan/extents.h"
#include "collectives/plan/program.h"
#include "collectives/select/cost.h"
#include "collectives/select/figures.h"
#include "collectives/select/loaded_plan.h"
#include "reduce/fold.h"

namespace hocket::internal {

/// All of a call on which its selection depends.
struct CallKey {
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::int8;
  Op op = Op::sum;
  int root = -1;
  /// The caller's count. varying: the count of the longest block, if all ranks know all blocks;
  /// else 0.
  std::size_t count = 0;
  bool varying = false;  // blocks have different counts
  /// varying: the elements of all blocks, if all ranks know them; else 0.
  std::size_t total = 0;
  /// With a user operator: the number of elements that blocks and chunks never split.
  std::uint32_t unit = 1;
  bool operator==(const CallKey&) const = default;
};

struct Selection {
  const Program* program = nullptr;
  /// If program maps buffers: the program that runs if some buffers are not mapped.
  const Program* staged = nullptr;
  Sizes sizes;         // of program; varying: only chunk_elements
  Sizes staged_sizes;  // of staged, likewise
  Stores stores = Stores::together;
  bool non_temporal_scratch = false;
  bool prefetches_scratch = false;
  bool many_scratches = false;
  std::int64_t price_ps = 0;  // picoseconds
  std::int64_t staged_price_ps = 0;
  std::uint64_t call_hash = 0;  // of the signatures of such calls; varying: without the blocks
  std::uint16_t plan = 0;       // of the signatures of such calls; for a message 0
  std::uint16_t kind = 0;       // for fell_back()
  /// True: before the selection is used for a further call with this key, counts_unmapped(kind)
  /// must return true. False: the selection is valid for each of these calls until fell_back().
  bool counted = false;
};

struct SelectorOptions {
  int rank = 0;
  int ranks = 1;
  bool one_node = true;
  std::shared_ptr<const Layout> layout;  // null: nothing is known about nodes
  bool deterministic = false;
  std::uint8_t signature_flags = 0;
  std::string algorithm;  // HOCKET_ALGORITHM; empty: the cheapest
  LoadedPlans loaded;     // candidates beside the built-in ones; equal on all ranks
  std::size_t board_scratch_bytes = 0;
  Figures figures;
};

class Selector {
 public:
  explicit Selector(const SelectorOptions& options) : options_(options) {}

  /// Selects for an operation that runs; all ranks give the same key. An error if no algorithm can
  /// run it.
  Status select(const CallKey& key, const Selection** selection);
  /// Selects for an estimate; no operation runs. mapped: its buffers would be mapped.
  Status look(const CallKey& key, bool mapped, const Selection** selection);
  /// To be called if the operation ran Selection::staged, on all ranks. The next operations of the
  /// same collective and about the same size get the cheapest program that maps no buffers, unless
  /// they are large.
  void fell_back(std::uint16_t kind) { unmapped_[kind] = unmapped_operations; }
  /// Counts an operation of that kind that chooses among the programs that map no buffers. False:
  /// this operation tries the others again.
  bool counts_unmapped(std::uint16_t kind) {
    if (unmapped_[kind] == 0) return false;
    --unmapped_[kind];
    return true;
  }

  /// From now on chooses this algorithm for collectives that have it; empty: the cheapest.
  void force(const std::string& algorithm);

  /// Makes a verified plan of a user a candidate. forced: it is chosen for every call that it can
  /// serve and no forced plan added later can, if options.algorithm is empty.
  void add(std::shared_ptr<const LoadedPlan> plan, bool forced);
  const LoadedPlans& loaded() const { return options_.loaded; }

  /// The algorithms that can serve the key, cheapest first, each with its price in
  /// picoseconds.
  struct Priced {
    const Builder* builder = nullptr;
    const Program* program = nullptr;
    std::int64_t price_ps = 0;
    /// What the selection compares. It is the price, except in collectives with a root among ranks
    /// that share cores: there the mean of the price and of Effects::mean_ps, because a rank that
    /// has ended leaves its core to the others.
    std::int64_t cost_ps = 0;
    /// What decides between equal costs: Effects::work_ps, or Effects::mean_ps where that counts.
    std::int64_t tie_ps = 0;
    Effects effects;
    /// Ranks that share cores may be so many such operations, less one, ahead of one another. 0:
    /// they do not share cores, or wait for one another in each operation.
    std::int64_t operations_ahead = 0;
  };
  Status candidates(const CallKey& key, std::vector<Priced>* out);
  /// How many prices were simulated since the selector was made.
  std::size_t simulated_prices() const { return prices_.size(); }
  /// The elements of each chunk of a block; 0: each block is one chunk.
  std::size_t chunk_elements(const Program& program, const CallKey& key) const;
  /// How results are stored into outputs. held: the bytes of all buffers of a rank. uses_node: the
  /// plan loads and stores within the node.
  Stores stores(Collective collective, std::size_t held, bool uses_node) const;

 private:
  std::size_t most_message_bytes(const ProgramHeader& header, const CollectiveRow& row) const;

  struct Entry {
    CallKey key;
    Selection selection;
    Selection unmapped;  // with is_other: the selection if buffers are not mapped
    bool is_other = false;
    bool always_tries = false;  // with is_other: each operation looks whether buffers are mapped
    bool valid = false;
  };
  // After this number of operations a program that maps buffers is tried again.
  static constexpr std::uint8_t unmapped_operations = 31;
  static constexpr std::size_t kinds_of_size = 64;

  Status find(const CallKey& key, Entry** found);
  void forget_choices();
  struct Algorithm {
    const Builder* builder;
    const Program* program;
  };
  struct Price {
    std::int64_t ps = 0;
    Effects effects;
  };
  Status algorithms_for(const CallKey& key, const std::vector<Algorithm>** out);
  bool by_messages_instead(const Builder& builder, const Program& program) const;
  Priced priced(const Algorithm& algorithm, const CallKey& key);
  Status add_named(const CallKey& key, std::vector<Priced>* out);
  Price interpolated(const Algorithm& algorithm, const CallKey& key, std::size_t count);
  const Price& simulated(const Builder& builder, const CallKey& key, std::size_t count,
                         std::size_t chunk_elements);
  Status compute(const CallKey& key, Entry* entry);
  const Priced* forced_of(const std::vector<Priced>& candidates) const;
  void take(const CallKey& key, const Priced& chosen, Selection* selection);
  std::uint16_t kind_of(const CallKey& key) const;
  Status program_for(const Builder& builder, const CallKey& key, const Program** out);
  Shape shape_of(const CallKey& key) const;
  bool keeps_order(const CallKey& key) const;
  bool serves(const Builder& builder, const CallKey& key) const;
  bool fits(const Program& program, const CallKey& key) const;
  std::int64_t operations_ahead(const Program& program, const CallKey& key) const;
  Sizes sizes_for(const Program& program, const CallKey& key, std::size_t chunk_elements) const;
  std::size_t message_bytes(const CallKey& key) const;
  bool has_levels() const;
  bool no_shared_cache() const;
  /// Ranks of this node; of several nodes, of the largest.
  std::size_t ranks_of_node() const;

  SelectorOptions options_;
  std::vector<const Builder*> forced_;  // of options_.loaded, in the order of add()
  std::array<Entry, 64> recent_;        // by hash
  // By kind: for how many further operations to choose programs that map no buffers. It changes on
  // all ranks in the same way.
  std::array<std::uint8_t, (static_cast<std::size_t>(Collective::all_to_all) + 1) * kinds_of_size>
      unmapped_{};
  /// What was simulated. The operator matters only if it widens; the root does not matter.
  struct Simulated {
    const Builder* builder;
    Dtype dtype;
    bool widened, varying;
    std::size_t count, chunk_elements;
    bool operator==(const Simulated&) const = default;
  };
  struct HashOfSimulated {
    std::size_t operator()(const Simulated& key) const;
  };
  std::unordered_map<Simulated, Price, HashOfSimulated> prices_;
  // By collective, root, widened, varying, in the order of ranks, PreMulSum.
  using AlgorithmsKey = std::tuple<Collective, int, bool, bool, bool, bool>;
  std::map<AlgorithmsKey, std::vector<Algorithm>> algorithms_;
  // By builder, root, widened, varying.
  using ProgramKey = std::tuple<const Builder*, int, bool, bool>;
  std::map<ProgramKey, std::unique_ptr<Program>> programs_;
};

}  // namespace hocket::internal
