// Blocks of different counts: one for each rank, in a buffer of a collective.
#pragma once

#include <concepts>
#include <cstddef>
#include <hocket/cpp/error.hpp>
#include <span>
#include <string>
#include <type_traits>

namespace hocket {

/// The counts of the blocks of a buffer, in elements, and where each block begins; without
/// displacements the blocks follow one another. A Blocks refers to the caller's arrays; a call
/// copies them.
class Blocks {
 public:
  /// No blocks, for a buffer that this rank does not have.
  Blocks() = default;
  Blocks(std::span<const std::size_t> counts, std::span<const std::size_t> displacements)
      : counts_(counts), displacements_(displacements), anywhere_(true) {}
  /// Converts any contiguous range of std::size_t implicitly: counts without displacements.
  template <typename Range>
  requires std::convertible_to<const Range&, std::span<const std::size_t>> Blocks(
      const Range& counts)  // NOLINT(google-explicit-constructor)
      : counts_(counts) {}

  [[nodiscard]] const std::size_t* counts() const { return counts_.data(); }
  [[nodiscard]] const std::size_t* displacements() const {
    return anywhere_ ? displacements_.data() : nullptr;
  }

  /// The element at which the block of a rank begins.
  [[nodiscard]] std::size_t begin_of(int rank) const {
    const auto block = static_cast<std::size_t>(rank);
    if (anywhere_) return displacements_[block];
    std::size_t begin = 0;
    for (std::size_t b = 0; b < block; ++b) begin += counts_[b];
    return begin;
  }

  /// Throws InvalidArgument unless there is a block for each rank, and the buffer has them all.
  void require(const char* operation, const char* buffer, std::size_t size, int ranks) const {
    const auto blocks = static_cast<std::size_t>(ranks);
    if (counts_.size() != blocks || (anywhere_ && displacements_.size() != blocks)) {
      throw InvalidArgument(
          operation,
          "there are " + std::to_string(counts_.size()) + " counts of blocks of the " + buffer +
              (anywhere_ ? " and " + std::to_string(displacements_.size()) + " displacements"
                         : std::string()) +
              ": it has " + std::to_string(ranks) + " blocks, one for each rank");
    }
    std::size_t next = 0;
    for (std::size_t b = 0; b < blocks; ++b) {
      if (counts_[b] == 0) continue;
      const std::size_t begin = anywhere_ ? displacements_[b] : next;
      if (begin > size || counts_[b] > size - begin) {
        throw InvalidArgument(operation, "the " + std::string(buffer) + " has " +
                                             std::to_string(size) + " elements: its block " +
                                             std::to_string(b) + ", of " +
                                             std::to_string(counts_[b]) + " elements from " +
                                             std::to_string(begin) + " on, does not fit");
      }
      next = begin + counts_[b];
    }
  }
  /// Throws InvalidArgument if there are displacements.
  void require_consecutive(const char* operation) const {
    if (!anywhere_) return;
    throw InvalidArgument(operation,
                          "the blocks have displacements, but the blocks of this collective follow "
                          "one another");
  }

 private:
  std::span<const std::size_t> counts_, displacements_;
  bool anywhere_ = false;
};

namespace detail {

/// True for an argument that is no Blocks: selects the collectives with equal blocks.
template <typename Out>
concept no_blocks = !std::same_as<std::remove_cvref_t<Out>, Blocks>;

}  // namespace detail
}  // namespace hocket
