// Which program an operation runs: every candidate is priced with figures measured on this machine,
// the least wins. The answer depends only on what all ranks share (the call, the shape, the
// figures), so all ranks choose alike; it is worked out once per kind of call and then found again.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/plan/partition.h"
#include "collectives/plan/program.h"
#include "collectives/select/figures.h"
#include "reduce/fold.h"

namespace hocket::internal {

struct Question {
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::int8;
  Op op = Op::sum;
  int root = -1;
  std::size_t count = 0;
  bool operator==(const Question&) const = default;
};

struct Choice {
  const Program* program = nullptr;
  const Program* staged =
      nullptr;  // where program maps buffers: what runs when some are not mapped
  Partition part;
  Stores stores = Stores::together;
  bool far_scratch = false;
  std::uint64_t call_hash = 0;  // of signatures of such calls
};

struct SelectorOptions {
  int rank = 0;
  int ranks = 1;
  bool one_node = true;
  bool deterministic = false;
  std::uint8_t signature_flags = 0;
  std::string algorithm;  // HOCKET_ALGORITHM; empty: the cheapest
  std::size_t board_scratch_bytes = 0;
  Figures figures;
};

class Selector {
 public:
  explicit Selector(const SelectorOptions& options) : options_(options) {}

  /// An error where no algorithm can serve (a forced one that does not exist for this collective).
  Status choose(const Question& question, const Choice** choice);

  /// From now on this algorithm, for collectives that have it; empty: the cheapest.
  void force(const std::string& algorithm);

  /// The algorithms that a collective has here, cheapest first, each with its price in nanoseconds.
  struct Priced {
    const struct Builder* builder;
    double price_ns;
  };
  std::vector<Priced> candidates(const Question& question) const;

 private:
  Status work_out(const Question& question, Choice* choice);
  Status program_for(const struct Builder& builder, const Question& question, const Program** out);
  const struct Builder* staged_for(Collective collective) const;
  bool fits(const struct Builder& builder, const Question& question) const;
  double price(const struct Builder& builder, const Question& question) const;
  double price_on_board(const std::string& algorithm, const Question& question) const;
  double price_of_messages(const std::string& algorithm, const Question& question) const;
  std::size_t chunk_elements(const Program& program, const Question& question) const;
  std::size_t message_bytes(const Question& question) const;
  bool far_cores() const;
  Stores stores(const Question& question) const;

  struct Entry {
    Question question;
    Choice choice;
    bool valid = false;
  };
  SelectorOptions options_;
  std::array<Entry, 64> recent_;  // by hash; an evicted entry costs a pricing, no lowering
  using ProgramKey = std::tuple<const struct Builder*, int, bool>;  // builder, root, widened
  std::map<ProgramKey, std::unique_ptr<Program>> programs_;
};

}  // namespace hocket::internal
