#include <fmt/format.h>

#include <algorithm>
#include <hocket/training/agreement.hpp>
#include <hocket/training/sampler.hpp>

#include "training/state.h"

namespace hocket::training {
namespace {

constexpr const char* sampler_operation = "hocket::training::DistributedSampler";
constexpr std::uint64_t largest_size = std::uint64_t{1} << 62;  // so that no position overflows

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every input bit affects every output
/// bit.
constexpr std::uint64_t hashed(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// value * range / 2^64, in integers: takes a hash to [0, range), range <= 2^32.
constexpr std::uint64_t scaled(std::uint64_t value, std::uint64_t range) noexcept {
  const std::uint64_t high = value >> 32;
  const std::uint64_t low = value & 0xffffffff;
  // The product's bits above bit 63, without a 128-bit type.
  return (high * range + ((low * range) >> 32)) >> 32;
}

/// The least root with root * root >= value.
std::uint64_t root_above(std::uint64_t value) noexcept {
  std::uint64_t least = 0, most = std::uint64_t{1} << 32;  // most^2 would overflow: never tried
  while (least + 1 < most) {
    const std::uint64_t middle = least + (most - least) / 2;
    (middle * middle >= value ? most : least) = middle;
  }
  return most;
}

void require_valid(std::uint64_t size, int rank, int ranks) {
  if (size == 0 || size > largest_size) {
    throw InvalidArgument(
        sampler_operation,
        fmt::format("the dataset has {} samples: give it 1 to 2^62 samples", size));
  }
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    throw InvalidArgument(sampler_operation,
                          fmt::format("rank {} of {} ranks: a rank is at least 0 and less than the "
                                      "number of ranks",
                                      rank, ranks));
  }
}

/// Throws on all ranks, or on none.
void require_same(std::uint64_t size, Communicator& comm, const SamplerOptions& options) {
  const std::uint64_t mine[] = {size, options.seed, options.shuffle ? 1u : 0u,
                                static_cast<std::uint64_t>(options.tail)};
  constexpr std::size_t fields = std::size(mine);
  constexpr const char* names[fields] = {"size of the dataset", "seed", "shuffle", "tail"};
  std::vector<std::uint64_t> all(fields * static_cast<std::size_t>(comm.ranks()));
  comm.all_gather(mine, all);
  for (std::size_t field = 0; field < fields; ++field) {
    for (std::size_t at = field; at < all.size(); at += fields) {
      if (all[at] == all[field]) continue;
      const int other = static_cast<int>(at / fields);
      throw Mismatch(sampler_operation,
                     fmt::format("rank 0 has {} = {}, rank {} has {}: give the sampler the same "
                                 "dataset and options on all ranks",
                                 names[field], all[field], other, all[at]),
                     other);
    }
  }
}

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(size), left_(root_above(size)), right_((size + left_ - 1) / left_) {
  std::uint64_t key = hashed(hashed(seed) ^ epoch);
  for (std::uint64_t& each : keys_) each = key = hashed(key);
}

std::uint64_t Permutation::network(std::uint64_t position) const noexcept {
  std::uint64_t left = position / right_;
  std::uint64_t right = position % right_;
  for (std::size_t round = 0; round < keys_.size(); round += 2) {
    left += scaled(hashed(keys_[round] ^ right), left_);
    if (left >= left_) left -= left_;
    right += scaled(hashed(keys_[round + 1] ^ left), right_);
    if (right >= right_) right -= right_;
  }
  return left * right_ + right;
}

std::uint64_t Permutation::operator()(std::uint64_t position) const noexcept {
  do {
    position = network(position);
  } while (position >= size_);
  return position;
}

DistributedSampler::DistributedSampler(std::uint64_t size, int rank, int ranks,
                                       const SamplerOptions& options)
    : size_(size),
      rank_(static_cast<std::uint64_t>(rank)),
      ranks_(static_cast<std::uint64_t>(ranks)),
      options_(options),
      order_((require_valid(size, rank, ranks), size), options.seed, 0) {}

DistributedSampler::DistributedSampler(std::uint64_t size, Communicator& comm,
                                       const SamplerOptions& options)
    : DistributedSampler((require_same(size, comm, options), size), comm.rank(), comm.ranks(),
                         options) {}

void DistributedSampler::set_epoch(std::uint64_t epoch) {
  const bool goes_on = resumed_ && epoch == epoch_;
  resumed_ = false;
  if (goes_on) return;
  epoch_ = epoch;
  order_ = Permutation(size_, options_.seed, epoch);
  begin_ = 0;
  requested_ = 0;
}

/// The positions from begin_ on that are dealt out to all ranks, repeated samples included.
std::uint64_t DistributedSampler::dealt() const noexcept {
  const std::uint64_t left = size_ - begin_;
  const std::uint64_t rest = left % ranks_;
  if (rest == 0 || options_.tail == Tail::uneven) return left;
  return options_.tail == Tail::drop ? left - rest : left + ranks_ - rest;
}

std::uint64_t DistributedSampler::remaining() const noexcept {
  const std::uint64_t all = dealt();
  const std::uint64_t mine = all / ranks_ + (rank_ < all % ranks_ ? 1 : 0);
  return mine - std::min(mine, requested_);
}

std::optional<std::uint64_t> DistributedSampler::next() {
  const bool any = remaining() > 0;
  const std::uint64_t position = (begin_ + requested_ * ranks_ + rank_) % size_;
  // A rank that gets no sample counts its call too: consumed() is the same on all ranks.
  if (requested_ * ranks_ < dealt()) ++requested_;
  if (!any) return std::nullopt;
  return options_.shuffle ? order_(position) : position;
}

std::vector<std::uint64_t> DistributedSampler::next_batch(std::size_t samples) {
  std::vector<std::uint64_t> batch;
  batch.reserve(std::min<std::uint64_t>(samples, remaining()));
  for (std::size_t i = 0; i < samples; ++i) {
    if (const auto sample = next()) batch.push_back(*sample);
  }
  return batch;
}

std::uint64_t DistributedSampler::consumed() const noexcept {
  const std::uint64_t since_begin = requested_ * ranks_;
  return since_begin >= dealt() ? size_ : std::min(size_, begin_ + since_begin);
}

std::map<std::string, std::string> DistributedSampler::state() const {
  return {{"size", std::to_string(size_)},
          {"seed", std::to_string(options_.seed)},
          {"shuffle", options_.shuffle ? "1" : "0"},
          {"epoch", std::to_string(epoch_)},
          {"consumed", std::to_string(consumed())}};
}

void DistributedSampler::resume(const std::map<std::string, std::string>& state) {
  const StateReader read(sampler_operation, state);
  const std::uint64_t size = read.integer("size"), consumed = read.integer("consumed");
  const std::uint64_t seed = read.integer("seed"), epoch = read.integer("epoch");
  const bool shuffle = read.integer("shuffle") != 0;
  if (size != size_ || consumed > size) {
    throw InvalidArgument(
        sampler_operation,
        fmt::format("the state has consumed {} of {} samples, but the dataset has {}: "
                    "resume with the dataset of the checkpoint",
                    consumed, size, size_));
  }
  options_.seed = seed;
  options_.shuffle = shuffle;
  epoch_ = epoch;
  order_ = Permutation(size_, seed, epoch);
  begin_ = consumed;
  requested_ = 0;
  resumed_ = true;
}

}  // namespace hocket::training
