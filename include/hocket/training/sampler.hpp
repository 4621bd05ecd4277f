// Which samples of a dataset each rank trains on, in each epoch.
//
//   hocket::training::DistributedSampler sampler(dataset.size(), comm, {.seed = 1});
//   for (int epoch = 0; epoch < epochs; ++epoch) {
//     sampler.set_epoch(epoch);
//     for (auto batch = sampler.next_batch(32); !batch.empty(); batch = sampler.next_batch(32)) {
//       train on dataset[batch[0]], dataset[batch[1]], ...
//     }
//   }
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <hocket/hocket.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hocket::training {

/// The order of the samples in an epoch: a permutation of [0, size) that depends on size, seed and
/// epoch alone, with the same numbers on every machine.
///
/// It is computed at each position (about 70 ns), not stored. So a job resumes in the middle of an
/// epoch at once, and a dataset of 10^9 samples needs no 8 GB for its order on each rank.
///
/// Method: a Feistel network over pairs of digits. With a = ceil(sqrt(size)) and b = ceil(size / a)
/// a position is left * b + right. Each of 12 rounds adds a hash of the one digit to the other
/// digit, which can be undone, so the network permutes [0, a * b). A result outside of [0, size) is
/// put through the network again until a result is inside. (Black and Rogaway, "Ciphers with
/// arbitrary finite domains", 2002.)
class Permutation {
 public:
  /// size: at least 1, at most 2^62.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);
  /// The sample at a position less than size.
  [[nodiscard]] std::uint64_t operator()(std::uint64_t position) const noexcept;

 private:
  [[nodiscard]] std::uint64_t network(std::uint64_t position) const noexcept;
  std::uint64_t size_, left_, right_;
  std::array<std::uint64_t, 12> keys_{};  // of the rounds
};

/// What happens if the number of samples is no multiple of the number of ranks.
enum class Tail {
  /// Samples from the begin of the epoch's order are repeated, so that every rank has as many. (The
  /// default of PyTorch.)
  pad,
  /// The last samples of the order are left out. (PyTorch's drop_last.)
  drop,
  /// No sample is repeated or left out: some ranks have one sample more than others. A batch may
  /// then be missing on some ranks, so the loop needs a Join (join.hpp).
  uneven,
};

struct SamplerOptions {
  std::uint64_t seed = 0;
  bool shuffle = true;  // without: the order is 0, 1, 2, ... in every epoch
  Tail tail = Tail::pad;
};

/// Deals the samples of each epoch out to the ranks, in turn: rank r of W receives positions r,
/// r + W, r + 2 W, ... of the epoch's order. So after any number of equal batches the ranks
/// together have had a beginning of the order, and its length, `consumed`, is all that a checkpoint
/// needs:
///
///   order        | 7 2 9 | 0 4 1 | 5 8 | 3 6 ...
///                  3 ranks         2 ranks go on: state() and resume() with consumed = 6
///
/// Every rank makes the same calls. Communicates only in the constructor that takes a communicator.
class DistributedSampler {
 public:
  /// size: samples of the dataset. Throws InvalidArgument if it is 0 or more than
  /// 2^62, or rank is not in [0, ranks).
  DistributedSampler(std::uint64_t size, int rank, int ranks, const SamplerOptions& options = {});
  /// Collective. Throws Mismatch on all ranks if their sizes or options differ.
  DistributedSampler(std::uint64_t size, Communicator& comm, const SamplerOptions& options = {});

  /// Begins the epoch, unless it is the epoch that resume() has put this object into: there it goes
  /// on, once.
  void set_epoch(std::uint64_t epoch);
  /// This rank's next sample; nothing at the end of the epoch.
  [[nodiscard]] std::optional<std::uint64_t> next();
  /// This rank's next samples: fewer than `samples` at the end of the epoch, then none. Every rank
  /// asks for the same number.
  [[nodiscard]] std::vector<std::uint64_t> next_batch(std::size_t samples);
  /// How many samples this rank will still receive in this epoch.
  [[nodiscard]] std::uint64_t remaining() const noexcept;

  /// Samples of the dataset.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  /// How many samples of this epoch's order all ranks together have received, after calls that
  /// every rank has made. The same on all ranks. size at the end of the epoch.
  [[nodiscard]] std::uint64_t consumed() const noexcept;

  /// For a checkpoint: the same on all ranks. A program that reads batches ahead saves the state
  /// that it took after the last batch it has trained on.
  [[nodiscard]] std::map<std::string, std::string> state() const;
  /// Goes on where the state was taken, at any number of ranks, in the order of the state: its seed
  /// and shuffle replace those of this object. No sample comes twice in the epoch (but those that
  /// Tail::pad repeats at its end) and none is left out. The next set_epoch() with the epoch of the
  /// state keeps the place.
  /// Throws InvalidArgument, and changes nothing, if the state is of a dataset of another size or
  /// is no state of a sampler.
  void resume(const std::map<std::string, std::string>& state);

 private:
  [[nodiscard]] std::uint64_t dealt() const noexcept;

  std::uint64_t size_;
  std::uint64_t rank_, ranks_;
  SamplerOptions options_;
  std::uint64_t epoch_ = 0;
  Permutation order_;
  std::uint64_t begin_ = 0;      // the position in the order where this object began the epoch
  std::uint64_t requested_ = 0;  // samples that this rank has asked for since then
  bool resumed_ = false;         // the next set_epoch(epoch_) keeps the place
};

}  // namespace hocket::training
