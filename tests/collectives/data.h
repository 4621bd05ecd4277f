// Buffers of all ranks for a collective, in place or not, and their expected content afterwards.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "collectives/verify/interpret.h"
#include "reduce/fold.h"

namespace hocket::internal {

class RankBuffers {
 public:
  /// any_bits: whatever bits a type can have; else small whole numbers, whose sums and products are
  /// exact in every type, so that the order of a fold does not matter.
  RankBuffers(const Shape& shape, const Interpretation& of, bool in_place, bool any_bits)
      : shape_(shape), of_(of), random_(of.seed), in_place_(in_place) {
    const std::size_t size = size_of(of.dtype), ranks = shape.ranks;
    const bool gathers = shape.collective == Collective::all_gather;
    const bool scatters = shape.collective == Collective::reduce_scatter;
    in_bytes_ = of.count * (scatters ? ranks : 1) * size;
    out_bytes_ = of.count * (gathers ? ranks : 1) * size;
    for (std::size_t r = 0; r < ranks; ++r) {
      originals_.push_back(any_bits ? random_bits(in_bytes_) : whole_numbers(in_bytes_ / size));
      memory_.emplace_back(in_place ? std::max(in_bytes_, out_bytes_) : in_bytes_ + out_bytes_,
                           std::byte{0x5a});
      std::byte* base = memory_.back().data();
      std::byte* input = base + (in_place && gathers ? r * in_bytes_ : 0);
      std::byte* output = in_place ? base + (scatters ? r * out_bytes_ : 0) : base + in_bytes_;
      if (in_bytes_ > 0) std::memcpy(input, originals_[r].data(), in_bytes_);
      inputs.push_back(input);
      outputs.push_back(output);
    }
  }

  /// Empty if every rank has the right bytes; else a description of the error.
  std::string check() const {
    for (int r = 0; r < shape_.ranks; ++r) {
      const std::vector<std::byte> expected = expected_of(r);
      if (out_bytes_ > 0 && std::memcmp(outputs[r], expected.data(), out_bytes_) != 0) {
        std::size_t i = 0;
        while (static_cast<const std::byte*>(outputs[r])[i] == expected[i]) ++i;
        return "rank " + std::to_string(r) + "'s output is wrong from byte " + std::to_string(i) +
               " of " + std::to_string(out_bytes_);
      }
      if (!in_place_ && in_bytes_ > 0 &&
          std::memcmp(inputs[r], originals_[r].data(), in_bytes_) != 0) {
        return "rank " + std::to_string(r) + "'s input has changed";
      }
    }
    return {};
  }

  /// Empty if all memory has the same bytes as that of `other`; else the first difference.
  std::string difference(const RankBuffers& other) const {
    for (std::size_t r = 0; r < memory_.size(); ++r) {
      const auto at = std::mismatch(memory_[r].begin(), memory_[r].end(), other.memory_[r].begin());
      if (at.first == memory_[r].end()) continue;
      return "rank " + std::to_string(r) + "'s memory differs from byte " +
             std::to_string(at.first - memory_[r].begin()) + " of " +
             std::to_string(memory_[r].size());
    }
    return {};
  }

  std::vector<const void*> inputs;
  std::vector<void*> outputs;

 private:
  std::vector<std::byte> random_bits(std::size_t bytes) {
    std::vector<std::byte> data(bytes);
    for (std::byte& b : data) b = static_cast<std::byte>(random_());
    return data;
  }

  std::vector<std::byte> whole_numbers(std::size_t count) {
    std::vector<std::byte> data(count * size_of(of_.dtype));
    for (std::size_t i = 0; i < count; ++i) {
      static constexpr int factors[] = {1, -1, 2};
      const int number =
          of_.op == Op::prod ? factors[random_() % 3] : static_cast<int>(random_() % 5) - 2;
      put(number, data.data() + i * size_of(of_.dtype));
    }
    return data;
  }

  void put(int number, std::byte* to) const {
    const auto store = [&](auto value) { std::memcpy(to, &value, sizeof value); };
    switch (of_.dtype) {
      case Dtype::int8:
      case Dtype::uint8:
        return store(static_cast<std::int8_t>(number));
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
    fold_reference({.srcs = &source, .dsts = &dst, .count = 1, .dtype = of_.dtype});
  }

  std::vector<std::byte> expected_of(int rank) const {
    if (shape_.collective == Collective::broadcast) return originals_[shape_.root];
    if (shape_.collective == Collective::all_gather) {
      std::vector<std::byte> all;
      for (const auto& part : originals_) all.insert(all.end(), part.begin(), part.end());
      return all;
    }
    const bool scatters = shape_.collective == Collective::reduce_scatter;
    std::vector<std::byte> result(out_bytes_);
    std::vector<FoldSource> sources;
    for (const auto& part : originals_) {
      sources.push_back({part.data() + (scatters ? rank * out_bytes_ : 0), false});
    }
    void* dst = result.data();
    Fold fold;
    fold.srcs = sources.data();
    fold.src_count = shape_.ranks;
    fold.dsts = &dst;
    fold.count = out_bytes_ / size_of(of_.dtype);
    fold.dtype = of_.dtype;
    fold.op = of_.op;
    fold.divisor = static_cast<std::uint32_t>(shape_.ranks);
    if (fold.count > 0) fold_reference(fold);
    return result;
  }

  const Shape shape_;
  const Interpretation of_;
  std::mt19937_64 random_;
  const bool in_place_;
  std::size_t in_bytes_ = 0, out_bytes_ = 0;
  std::vector<std::vector<std::byte>> originals_, memory_;
};

}  // namespace hocket::internal
