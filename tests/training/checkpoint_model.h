// Models for tests of checkpoints: tensors whose every element has a value of its own, and ranks
// that hold them in different cuts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <hocket/training/checkpoint.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "training/dense_tensor.h"
#include "training/folder.h"

namespace tests {

using hocket::training::Parameter;
using hocket::training::TensorRange;

/// The bytes of a tensor in a step. They depend on the tensor's name too.
class Expected {
 public:
  Expected(const std::string& name, int step) : seed_(static_cast<std::uint64_t>(step)) {
    for (const char c : name) seed_ = (seed_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  unsigned char operator[](std::size_t i) const {
    const std::uint64_t value = (i + seed_) * 0x9e3779b97f4a7c15u;
    return static_cast<unsigned char>(value >> 56);
  }

 private:
  std::uint64_t seed_;
};

/// Ranges with memory of their own.
class Holding {
 public:
  void add(const Parameter& tensor, std::size_t begin, std::size_t elements) {
    const std::size_t bytes = elements * hocket::training::storage::type_bytes(tensor.dtype);
    memory_.emplace_back(bytes + 1);  // no vector is empty
    ranges_.push_back({tensor, begin, elements, memory_.back().data()});
  }
  const std::vector<TensorRange>& ranges() const { return ranges_; }

  void fill(int step) {
    for_each_byte(step, [](unsigned char& byte, unsigned char expected) { byte = expected; });
  }
  void clear() {
    for (auto& each : memory_)
      std::fill(each.begin(), each.end(), static_cast<unsigned char>(0xee));
  }
  /// How many bytes are not those of the step.
  std::size_t wrong(int step) {
    std::size_t count = 0;
    for_each_byte(step,
                  [&](unsigned char& byte, unsigned char expected) { count += byte != expected; });
    return count;
  }
  bool is_clear() const {
    return std::all_of(memory_.begin(), memory_.end(), [](const auto& each) {
      return std::all_of(each.begin(), each.end(), [](unsigned char b) { return b == 0xee; });
    });
  }

 private:
  template <typename Visit>
  void for_each_byte(int step, Visit visit) {
    for (std::size_t r = 0; r < ranges_.size(); ++r) {
      const Parameter& tensor = ranges_[r].tensor;
      const std::size_t element = hocket::training::storage::type_bytes(tensor.dtype);
      const Expected expected(tensor.name, step);
      unsigned char* const bytes = memory_[r].data();
      const std::size_t first = ranges_[r].begin * element;
      for (std::size_t i = 0; i < ranges_[r].elements * element; ++i) {
        visit(bytes[i], expected[first + i]);
      }
    }
  }
  std::vector<TensorRange> ranges_;
  std::vector<std::vector<unsigned char>> memory_;
};

/// Every type, scalars, empty tensors, strides, and a tensor of several pieces.
inline std::vector<Parameter> mixed_model() {
  return {
      {"parameter/big", hocketFloat32, {300, 1000}, {}},
      {"parameter/columns", hocketFloat64, {30, 20}, {1, 30}},
      {"parameter/half", hocketFloat16, {17, 3}, {}},
      {"parameter/brain", hocketBfloat16, {5}, {}},
      {"parameter/e4m3", hocketFloat8e4m3, {9}, {}},
      {"parameter/e5m2", hocketFloat8e5m2, {9}, {}},
      {"parameter/empty", hocketFloat32, {4, 0, 3}, {}},
      {"buffer/steps", hocketInt64, {}, {}},
      {"buffer/mask", hocketUint8, {3, 3, 3}, {9, 1, 3}},
      {"buffer/i8", hocketInt8, {2}, {}},
      {"buffer/i16", hocketInt16, {2, 5}, {}},
      {"buffer/u16", hocketUint16, {3}, {}},
      {"buffer/i32", hocketInt32, {11}, {}},
      {"buffer/u32", hocketUint32, {1}, {}},
      {"buffer/u64", hocketUint64, {6}, {}},
      {"optimizer.exp_avg/big", hocketFloat32, {3, 1000}, {}},
  };
}

/// A model of a few hundred bytes.
inline std::vector<Parameter> small_tensors() {
  return {{"parameter/weight", hocketFloat32, {6, 5}, {}},
          {"parameter/bias", hocketBfloat16, {5}, {}},
          {"buffer/count", hocketInt64, {}, {}}};
}

enum class Cut {
  whole,    // every rank holds everything, as with DDP
  equal,    // each tensor in equal ranges, as with ZeRO
  random,   // each tensor in random ranges, and some elements on several ranks
  striped,  // whole tensors in turn
};

inline std::vector<Holding> hold(const std::vector<Parameter>& model, std::size_t ranks, Cut cut,
                                 std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Holding> all(ranks);
  for (std::size_t t = 0; t < model.size(); ++t) {
    const std::size_t elements = model[t].elements();
    std::vector<std::size_t> cuts = {0, elements};
    for (std::size_t r = 1; r < ranks; ++r) {
      cuts.push_back(cut == Cut::random ? random() % (elements + 1) : elements * r / ranks);
    }
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::size_t begin = cuts[r], end = cuts[r + 1];
      if (cut == Cut::whole || (cut == Cut::striped && t % ranks == r)) {
        all[r].add(model[t], 0, elements);
      }
      if (cut == Cut::equal || cut == Cut::random) all[r].add(model[t], begin, end - begin);
      if (cut == Cut::random && random() % 2 == 0) {
        const std::size_t from = random() % (elements + 1);
        all[r].add(model[t], from, random() % (elements - from + 1));
      }
    }
  }
  return all;
}

}  // namespace tests
