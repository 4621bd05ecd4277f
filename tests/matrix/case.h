// A case: one collective of all ranks, with the blocks of every rank's buffers, by the definitions
// of the collectives in collectives.h. It shares nothing with the library.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "matrix/reference.h"

namespace matrix {

using reference::Data;

enum class What {
  all_reduce,
  reduce,
  reduce_scatter,
  reduce_scatter_v,
  broadcast,
  all_gather,
  all_gather_v,
  gather,
  gather_v,
  scatter,
  scatter_v,
  all_to_all,
  all_to_all_v,
  barrier
};

enum class Parts { whole, own, per_rank };

struct Row {
  What what;
  const char* name;
  bool reduces, varying;
  Parts input, output;
  bool input_at_root, output_at_root;
};

inline constexpr Row rows[] = {
    {What::all_reduce, "all_reduce", true, false, Parts::whole, Parts::whole, false, false},
    {What::reduce, "reduce", true, false, Parts::whole, Parts::whole, false, true},
    {What::reduce_scatter, "reduce_scatter", true, false, Parts::per_rank, Parts::own, false,
     false},
    {What::reduce_scatter_v, "reduce_scatter_v", true, true, Parts::per_rank, Parts::own, false,
     false},
    {What::broadcast, "broadcast", false, false, Parts::whole, Parts::whole, true, false},
    {What::all_gather, "all_gather", false, false, Parts::own, Parts::per_rank, false, false},
    {What::all_gather_v, "all_gather_v", false, true, Parts::own, Parts::per_rank, false, false},
    {What::gather, "gather", false, false, Parts::own, Parts::per_rank, false, true},
    {What::gather_v, "gather_v", false, true, Parts::own, Parts::per_rank, false, true},
    {What::scatter, "scatter", false, false, Parts::per_rank, Parts::own, true, false},
    {What::scatter_v, "scatter_v", false, true, Parts::per_rank, Parts::own, true, false},
    {What::all_to_all, "all_to_all", false, false, Parts::per_rank, Parts::per_rank, false, false},
    {What::all_to_all_v, "all_to_all_v", false, true, Parts::per_rank, Parts::per_rank, false,
     false},
};
inline const Row& row_of(What what) { return rows[static_cast<int>(what)]; }

struct Case {
  What what = What::all_reduce;
  hocketDataType_t type = hocketInt8;
  hocketRedOp_t op = hocketSum;
  int root = 0;
  std::size_t count = 0;  // varying: the longest block has at most so many
  bool in_place = false, alloc = false;
  std::size_t offset = 0;  // of the buffers from a page's begin, in bytes
  Data data = Data::exact;
  std::uint64_t seed = 0;

  std::size_t size() const { return reference::size_of(type); }
};

inline std::string describe(const Case& c) {
  return std::string(row_of(c.what).name) + " of " + std::to_string(c.count) + " " +
         reference::name_of(c.type) + " " + reference::name_of(c.op) + ", root " +
         std::to_string(c.root) + (c.in_place ? ", in place" : "") + (c.alloc ? ", alloc" : "") +
         ", offset " + std::to_string(c.offset) + ", data " +
         std::to_string(static_cast<int>(c.data)) + ", seed " + std::to_string(c.seed);
}

/// Elements of block `block` of the vector of a varying case: some are empty, some the longest.
inline std::size_t varying_count(const Case& c, std::size_t block) {
  std::mt19937_64 random(c.seed * 0x9e3779b97f4a7c15ULL + block);
  const std::uint64_t kind = random() % 4;
  return kind == 0 ? 0 : kind == 1 ? c.count : random() % (c.count + 1);
}

/// The blocks of one buffer of one rank, in elements.
struct Layout {
  bool exists = false;
  std::vector<std::size_t> counts, offsets;
  std::size_t elements = 0;                      // with the gaps between the blocks
  bool has_gaps = false;                         // the blocks lie anywhere
  std::size_t packed(std::size_t block) const {  // elements before it, without gaps
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(block),
                           std::size_t{0});
  }
  std::size_t packed() const { return packed(counts.size()); }
};

inline Layout layout_of(const Case& c, std::size_t ranks, std::size_t rank, bool of_input) {
  const Row& row = row_of(c.what);
  const Parts parts = of_input ? row.input : row.output;
  Layout layout;
  layout.exists = !(of_input ? row.input_at_root : row.output_at_root) ||
                  rank == static_cast<std::size_t>(c.root);
  if (!layout.exists) return layout;
  const std::size_t blocks = parts == Parts::per_rank ? ranks : 1;
  for (std::size_t b = 0; b < blocks; ++b) {
    const bool all_to_all = row.input == row.output && parts == Parts::per_rank;
    const std::size_t other = parts == Parts::per_rank ? b : rank;
    const std::size_t pair = of_input ? rank * ranks + b : b * ranks + rank;
    layout.counts.push_back(row.varying ? varying_count(c, all_to_all ? pair : other) : c.count);
  }
  std::mt19937_64 random(c.seed * 128 + rank * 2 + of_input);
  layout.has_gaps = row.varying && parts == Parts::per_rank && !row.reduces && c.seed % 3 != 0;
  std::vector<std::size_t> order(blocks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (layout.has_gaps && c.seed % 3 == 1) std::shuffle(order.begin(), order.end(), random);
  layout.offsets.resize(blocks);
  for (const std::size_t b : order) {
    layout.offsets[b] = layout.elements;
    layout.elements += layout.counts[b] + (layout.has_gaps ? random() % 4 : 0);
  }
  return layout;
}

/// Every buffer of a case fits so many bytes.
inline std::size_t most_bytes(const Case& c, std::size_t ranks) {
  return (c.count + 3) * c.size() * ranks;
}

}  // namespace matrix
