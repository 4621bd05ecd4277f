#include "training/checkpoint_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "training/dense_tensor.h"
#include "training/storage_failure.h"

namespace hocket::training::storage {
namespace {

using Ranks = std::vector<int>;

struct Held {
  std::uint64_t begin = 0, end = 0;
  int rank = 0;
};

struct Known {
  Parameter tensor;
  int rank = 0;  // the first that described the tensor
  std::vector<Held> held;
};

/// Elements of a tensor that the same ranks hold, each in one range.
struct Segment {
  std::size_t tensor = 0;
  std::uint64_t begin = 0, elements = 0;
};

std::map<std::string, Known> by_name(const std::vector<std::vector<TensorRange>>& ranges) {
  std::map<std::string, Known> all;
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    const int rank = static_cast<int>(r);
    for (const TensorRange& range : ranges[r]) {
      Known& known =
          all.try_emplace(range.tensor.name, Known{range.tensor, rank, {}}).first->second;
      if (known.tensor != range.tensor) {
        mismatch(fmt::format("tensor '{}' is {} on rank {}, and {} on rank {}. All ranks describe "
                             "a tensor alike, each with its own range of elements",
                             range.tensor.name, describe_type(known.tensor), known.rank,
                             describe_type(range.tensor), rank),
                 rank);
      }
      known.held.push_back({range.begin, range.begin + range.elements, rank});
    }
  }
  return all;
}

/// Cuts the tensor wherever a range of a rank begins or ends.
void add_segments(const Known& known, std::size_t tensor,
                  std::map<Ranks, std::vector<Segment>>* segments) {
  std::vector<std::uint64_t> cuts = {0, known.tensor.elements()};
  for (const Held& held : known.held) cuts.insert(cuts.end(), {held.begin, held.end});
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Held> held = known.held;
  std::sort(held.begin(), held.end(),
            [](const Held& a, const Held& b) { return a.begin < b.begin; });
  std::vector<Held> open;  // ranges that have the segment
  auto next = held.begin();
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    for (; next != held.end() && next->begin <= cuts[i]; ++next) open.push_back(*next);
    std::erase_if(open, [&](const Held& each) { return each.end <= cuts[i]; });
    if (open.empty()) {
      refuse(fmt::format("no rank holds elements [{}, {}) of tensor {}", cuts[i], cuts[i + 1],
                         describe_stored(known.tensor)));
    }
    Ranks ranks;
    for (const Held& each : open) ranks.push_back(each.rank);
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    (*segments)[ranks].push_back({tensor, cuts[i], cuts[i + 1] - cuts[i]});
  }
}

/// How many of so many bytes each of the ranks writes, to bring the loads of all to one level as
/// far as possible.
std::vector<std::uint64_t> fair_shares(std::uint64_t bytes, const Ranks& ranks,
                                       const std::vector<std::uint64_t>& loads) {
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  const auto load = [&](std::size_t i) { return loads[static_cast<std::size_t>(ranks[i])]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return load(a) < load(b); });
  std::uint64_t sum = bytes, level = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    sum += load(order[k]);
    level = (sum + k) / (k + 1);  // rounded up
    if (k + 1 < order.size() && level <= load(order[k + 1])) break;
  }
  std::vector<std::uint64_t> shares(ranks.size(), 0);
  for (const std::size_t i : order) {
    if (load(i) >= level) continue;
    shares[i] = std::min(bytes, level - load(i));
    bytes -= shares[i];
  }
  return shares;
}

class Planner {
 public:
  explicit Planner(std::size_t ranks) : loads_(ranks, 0) {
    plan_.file_bytes.assign(ranks, file_header_bytes);
    plan_.of_rank.resize(ranks);
  }

  void add(const Parameter& tensor) { plan_.tensors.push_back({tensor, {}}); }

  /// Gives each rank the next elements of the segments until it has its share.
  void divide(const Ranks& ranks, const std::vector<Segment>& segments) {
    std::uint64_t bytes = 0;
    for (const Segment& segment : segments) bytes += segment.elements * element(segment.tensor);
    const std::vector<std::uint64_t> shares = fair_shares(bytes, ranks, loads_);
    std::size_t writer = 0;
    std::uint64_t left = shares[0];
    for (const Segment& segment : segments) {
      const std::size_t size = element(segment.tensor);
      std::uint64_t begin = segment.begin;
      const std::uint64_t end = begin + segment.elements;
      while (begin < end) {
        while (left == 0 && writer + 1 < ranks.size()) left = shares[++writer];
        const bool is_last = writer + 1 == ranks.size();
        const std::uint64_t elements =
            is_last ? end - begin : std::min(end - begin, (left + size - 1) / size);
        give(ranks[writer], segment.tensor, begin, elements);
        begin += elements;
        left -= std::min(left, elements * size);
      }
    }
  }

  SavePlan finish() {
    for (StoredTensor& stored : plan_.tensors) {
      std::sort(stored.pieces.begin(), stored.pieces.end(),
                [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    }
    for (std::size_t t = 0; t < plan_.tensors.size(); ++t) {
      std::vector<Piece>& pieces = plan_.tensors[t].pieces;
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        const std::size_t rank = pieces[p].file;
        std::uint64_t& end = plan_.file_bytes[rank];
        pieces[p].offset = (end + piece_alignment - 1) / piece_alignment * piece_alignment;
        end = pieces[p].offset + pieces[p].elements * element(t);
        plan_.of_rank[rank].push_back({t, p});
      }
    }
    return std::move(plan_);
  }

 private:
  std::size_t element(std::size_t tensor) const {
    return type_bytes(plan_.tensors[tensor].tensor.dtype);
  }

  void give(int rank, std::size_t tensor, std::uint64_t begin, std::uint64_t elements) {
    const std::uint64_t most = largest_piece / element(tensor);
    loads_[static_cast<std::size_t>(rank)] += elements * element(tensor);
    while (elements > 0) {
      const std::uint64_t count = std::min(elements, most);
      plan_.tensors[tensor].pieces.push_back(
          {begin, count, static_cast<std::uint32_t>(rank), 0, 0});
      begin += count;
      elements -= count;
    }
  }

  SavePlan plan_;
  std::vector<std::uint64_t> loads_;  // bytes that each rank writes
};

}  // namespace

SavePlan plan_save(const std::vector<std::vector<TensorRange>>& ranges) {
  Planner planner(ranges.size());
  std::map<Ranks, std::vector<Segment>> segments;
  std::size_t tensor = 0;
  for (const auto& [name, known] : by_name(ranges)) {
    planner.add(known.tensor);
    add_segments(known, tensor++, &segments);
  }
  // What few ranks hold goes first; the others even out the loads.
  std::vector<const Ranks*> order;
  for (const auto& [ranks, of_ranks] : segments) order.push_back(&ranks);
  std::stable_sort(order.begin(), order.end(),
                   [](const Ranks* a, const Ranks* b) { return a->size() < b->size(); });
  for (const Ranks* ranks : order) planner.divide(*ranks, segments.at(*ranks));
  return planner.finish();
}

}  // namespace hocket::training::storage
