// The buffers of all ranks in a call of any collective, in place or not, with equal or unequal
// blocks, and the expected content of all of their memory afterwards.
//
// The expected content comes from the definition of each collective, not from plans or items. It
// covers guard bytes before and after each buffer, the gaps between unequal blocks, and the inputs:
// none of them may change (in place, an input changes only where the output lies).
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <ranges>
#include <string>
#include <vector>

#include "collectives/plan/extents.h"
#include "collectives/verify/interpret.h"
#include "reduce/fold.h"

namespace hocket::internal {

struct DrawnCall {
  Dtype dtype = Dtype::float32;
  Op op = Op::sum;
  std::uint64_t seed = 1;
  std::uint64_t data_seed = 0;  // calls that differ in it alone have other data, at the same places
  std::size_t count = 0;        // equal blocks: as the caller of the collective gives it
  /// Unequal blocks: elements of the block of each rank; all-to-all: counts[q * ranks + b] from
  /// rank q to rank b.
  std::vector<std::size_t> counts = {};
  std::size_t chunk_elements = 0;
  bool in_place = false;  // all-to-all never is
  /// Whatever bits a type can have; else small whole numbers, whose sums and products are exact in
  /// every type, so that the order of a fold does not matter.
  bool any_bits = false;

  /// PreMulSum: of a rank, a small whole number.
  std::uint64_t scalar(std::size_t rank) const {
    static constexpr int numbers[] = {2, -1, 3, 1, -2};
    const int number = numbers[rank % 5];
    if (is_integer(dtype)) return static_cast<std::uint64_t>(number);
    if (dtype == Dtype::float64) return std::bit_cast<std::uint64_t>(static_cast<double>(number));
    return std::bit_cast<std::uint32_t>(static_cast<float>(number));
  }
  Interpretation interpretation() const {
    constexpr std::size_t most_ranks = 64;
    Interpretation of{.dtype = dtype, .op = op, .seed = seed};
    for (std::size_t r = 0; r < most_ranks; ++r) of.scalars.push_back(scalar(r));
    return of;
  }
};

/// An operator that exists for the type: one of hocket's or PreMulSum, or of the first `number`.
inline Op draw_op(Dtype dtype, std::mt19937_64& random, unsigned number = op_count + 1) {
  for (;;) {
    const auto op = static_cast<Op>(random() % number);
    if (computes(op, dtype)) return op;
  }
}

class RankBuffers {
 public:
  RankBuffers(const std::vector<Plan>& plans, const DrawnCall& call)
      : shape_(plans[0].shape),
        call_(call),
        random_(call.seed),
        data_random_(call.seed + (call.data_seed << 32)) {
    for (const Plan& plan : plans) add_rank(plan);
    expect_outputs();
  }
  RankBuffers(const RankBuffers&) = delete;  // sizes, inputs and outputs point into it
  RankBuffers& operator=(const RankBuffers&) = delete;

  /// Empty if all memory has the bytes that it must have; else a description of the error.
  std::string check() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const Rank& rank = ranks_[r];
      const std::size_t at = first_difference(rank.memory, rank.expected);
      if (at != rank.memory.size()) {
        return "rank " + std::to_string(r) + ": " + place_of(rank, at) + " is wrong";
      }
    }
    return {};
  }

  /// Empty if all memory has the same bytes as that of `other`; else the first difference.
  std::string difference(const RankBuffers& other) const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const Rank& rank = ranks_[r];
      const std::size_t at = first_difference(rank.memory, other.ranks_[r].memory);
      if (at != rank.memory.size()) {
        return "rank " + std::to_string(r) + ": " + place_of(rank, at) + " differs";
      }
    }
    return {};
  }

  /// All memory of a rank: its buffers, and the bytes around them.
  std::vector<std::byte>& memory_of(std::size_t rank) { return ranks_[rank].memory; }

  std::vector<Sizes> sizes;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;

 private:
  static constexpr std::size_t guard_bytes = 64;

  /// Where the blocks of a buffer lie, in elements. A whole message is one block here.
  struct Layout {
    std::vector<std::size_t> counts, offsets;
    std::size_t elements = 0;  // with gaps
    std::size_t at = 0;        // the first byte of the buffer in the memory of its rank
    bool exists = false;
  };
  struct Rank {
    Layout input, output;
    std::vector<std::byte> memory, original, expected;
  };

  std::size_t size() const { return size_of(call_.dtype); }
  std::size_t ranks() const { return shape_.ranks; }
  bool all_to_all() const { return shape_.collective == Collective::all_to_all; }

  void add_rank(const Plan& plan) {
    const std::uint32_t r = plan.shape.rank;
    const CollectiveRow& row = row_of(plan.shape.collective);
    const bool at_root = plan.shape.is_root();
    Rank& rank = ranks_.emplace_back();
    rank.input = layout(row.input, row.input_at_root && !at_root, r, true);
    rank.output = layout(row.output, row.output_at_root && !at_root, r, false);
    place(rank, row, r);
    fill(rank);
    const auto buffer = [&](const Layout& layout) {
      return layout.exists ? rank.memory.data() + layout.at : nullptr;
    };
    inputs.push_back(buffer(rank.input));
    outputs.push_back(buffer(rank.output));
    sizes.push_back(call_.counts.empty()
                        ? sizes_of(plan, call_.count, call_.dtype, call_.chunk_elements)
                        : unequal_sizes(plan, row, rank));
  }

  Layout layout(Blocks blocks, bool absent, std::uint32_t r, bool of_input) {
    Layout layout;
    layout.exists = blocks != Blocks::none && !absent;
    if (!layout.exists) return layout;
    const std::size_t number = blocks == Blocks::per_rank ? ranks() : 1;
    for (std::size_t b = 0; b < number; ++b) {
      const std::size_t from = of_input ? r : b, to = of_input ? b : r;
      layout.counts.push_back(call_.counts.empty()         ? call_.count
                              : all_to_all()               ? call_.counts[from * ranks() + to]
                              : blocks == Blocks::per_rank ? call_.counts[b]
                                                           : call_.counts[r]);
    }
    layout.offsets.resize(number);
    std::vector<std::size_t> order(number);
    std::iota(order.begin(), order.end(), std::size_t{0});
    // The blocks of a reduce-scatter have no displacements: they lie one after another.
    const bool anywhere = !call_.counts.empty() && shape_.collective != Collective::reduce_scatter;
    if (anywhere) std::ranges::shuffle(order, random_);
    for (const std::size_t b : order) {
      layout.offsets[b] = layout.elements;
      layout.elements += layout.counts[b] + (anywhere ? random_() % 4 : 0);
    }
    return layout;
  }

  /// Places the buffers in the memory of the rank, apart or in place.
  void place(Rank& rank, const CollectiveRow& row, std::uint32_t r) {
    Layout& input = rank.input;
    Layout& output = rank.output;
    const std::size_t in_bytes = input.elements * size(), out_bytes = output.elements * size();
    input.at = output.at = guard_bytes;
    std::size_t end = guard_bytes + std::max(in_bytes, out_bytes);
    if (!call_.in_place || !input.exists || !output.exists || all_to_all()) {
      output.at = input.at + in_bytes + guard_bytes;
      end = output.at + out_bytes;
    } else if (row.output == Blocks::per_rank) {
      input.at += output.offsets[r] * size();
    } else if (row.input == Blocks::per_rank) {
      output.at += input.offsets[r] * size();
    }
    rank.memory.assign(end + guard_bytes, std::byte{0x5a});
  }

  void fill(Rank& rank) {
    for (std::size_t b = 0; b < rank.input.counts.size(); ++b) {
      std::byte* data = rank.memory.data() + rank.input.at + rank.input.offsets[b] * size();
      if (call_.any_bits) {
        for (std::size_t i = 0; i < rank.input.counts[b] * size(); ++i) {
          data[i] = static_cast<std::byte>(data_random_());
        }
      } else {
        for (std::size_t i = 0; i < rank.input.counts[b]; ++i)
          put(small_number(), data + i * size());
      }
    }
    rank.original = rank.expected = rank.memory;
  }

  int small_number() {
    static constexpr int factors[] = {1, -1, 2};
    return call_.op == Op::prod ? factors[data_random_() % 3]
                                : static_cast<int>(data_random_() % 5) - 2;
  }

  void put(int number, std::byte* to) const {
    const auto store = [&](auto value) { std::memcpy(to, &value, sizeof value); };
    switch (call_.dtype) {
      case Dtype::int8:
      case Dtype::uint8:
        return store(static_cast<std::int8_t>(number));
      case Dtype::int16:
      case Dtype::uint16:
        return store(static_cast<std::int16_t>(number));
      case Dtype::int32:
      case Dtype::uint32:
        return store(static_cast<std::int32_t>(number));
      case Dtype::int64:
      case Dtype::uint64:
        return store(static_cast<std::int64_t>(number));
      case Dtype::float32:
        return store(static_cast<float>(number));
      case Dtype::float64:
        return store(static_cast<double>(number));
      default:
        break;
    }
    // The narrow floating-point types: rounded from fp32 (exactly) by a fold of one.
    const float wide = static_cast<float>(number);
    const FoldSource source{&wide, true};
    void* dst = to;
    fold_reference({.srcs = &source, .dsts = &dst, .count = 1, .dtype = call_.dtype});
  }

  /// The extents of a buffer with unequal blocks; a rank without the buffer knows none.
  Sizes unequal_sizes(const Plan& plan, const CollectiveRow& row, const Rank& rank) const {
    const auto extents = [](Blocks blocks, const Layout& layout) {
      if (!layout.exists) return equal_blocks(0, 0);
      return blocks == Blocks::per_rank ? table_of_blocks(layout.counts, layout.offsets)
                                        : equal_blocks(layout.counts[0], 1);
    };
    Sizes sizes;
    sizes.input = extents(row.input, rank.input);
    sizes.output = extents(row.output, rank.output);
    if (!plan.single_chunk) {
      sizes.chunk_elements = round_up(call_.chunk_elements, 64 / size());
    }
    sizes.small_elements = plan.small_bytes / size();
    return sizes;
  }

  /// Block `block` of the input of a rank, as it was before the call.
  const std::byte* original(std::size_t rank, std::size_t block) const {
    const Rank& of = ranks_[rank];
    return of.original.data() + of.input.at + of.input.offsets[block] * size();
  }

  void expect_outputs() {
    for (std::size_t r = 0; r < ranks(); ++r) {
      Rank& rank = ranks_[r];
      for (std::size_t b = 0; b < rank.output.counts.size(); ++b) {
        std::byte* to = rank.expected.data() + rank.output.at + rank.output.offsets[b] * size();
        expect_block(r, b, to, rank.output.counts[b]);
      }
    }
  }

  /// Writes what block b of the output of rank r must be.
  void expect_block(std::size_t r, std::size_t b, std::byte* to, std::size_t count) const {
    if (count == 0) return;
    const std::size_t root = shape_.root < 0 ? 0 : static_cast<std::size_t>(shape_.root);
    const auto copy = [&](const std::byte* from) { std::memcpy(to, from, count * size()); };
    switch (shape_.collective) {
      case Collective::all_reduce:
      case Collective::reduce:
        return expect_fold(0, to, count);
      case Collective::reduce_scatter:
        return expect_fold(r, to, count);
      case Collective::broadcast:
        return copy(original(root, 0));
      case Collective::scatter:
        return copy(original(root, r));
      case Collective::all_gather:
      case Collective::gather:
        return copy(original(b, 0));
      case Collective::all_to_all:
        return copy(original(b, r));
      case Collective::send:  // of two ranks
      case Collective::recv:
        return copy(original(1 - r, 0));
      case Collective::barrier:
        return;
    }
  }

  /// Folds block `block` of all inputs in the order of ranks.
  void expect_fold(std::size_t block, std::byte* to, std::size_t count) const {
    std::vector<FoldSource> sources;
    for (std::size_t r = 0; r < ranks(); ++r) sources.push_back({original(r, block), false});
    void* dst = to;
    Fold fold;
    fold.srcs = sources.data();
    fold.src_count = static_cast<int>(sources.size());
    fold.dsts = &dst;
    fold.count = count;
    fold.dtype = call_.dtype;
    fold.op = call_.op;
    fold.divisor = shape_.ranks;
    std::vector<std::uint64_t> scalars;
    if (call_.op == Op::pre_mul_sum) {
      fold.op = Op::sum;
      for (std::size_t r = 0; r < ranks(); ++r) scalars.push_back(call_.scalar(r));
      fold.scalars = scalars.data();
    }
    fold_reference(fold);
  }

  static std::size_t first_difference(const std::vector<std::byte>& a,
                                      const std::vector<std::byte>& b) {
    return std::ranges::mismatch(a, b).in1 - a.begin();
  }

  /// What lies at byte `at` of a rank's memory.
  std::string place_of(const Rank& rank, std::size_t at) const {
    const auto block_at = [&](const Layout& layout, const char* name) -> std::string {
      for (std::size_t b = 0; b < layout.counts.size(); ++b) {
        const std::size_t begin = layout.at + layout.offsets[b] * size();
        if (at < begin || at >= begin + layout.counts[b] * size()) continue;
        return "byte " + std::to_string(at - begin) + " of block " + std::to_string(b) +
               " of the " + name;
      }
      return {};
    };
    std::string place = block_at(rank.output, "output");
    if (place.empty()) place = block_at(rank.input, "input");
    return place.empty() ? "a guard or a gap at byte " + std::to_string(at) : place;
  }

  const Shape shape_;  // of rank 0
  const DrawnCall call_;
  std::mt19937_64 random_, data_random_;
  std::deque<Rank> ranks_;  // a deque, so that layouts do not move
};

}  // namespace hocket::internal
