// What fully sharded training needs: units are gathered and reduced on two communicators at once,
// shards are uneven, and the memory of all units is that of a pool.
#include <gtest/gtest.h>

#include <hocket/training/shards.hpp>
#include <vector>

#include "training/ranks.h"

namespace hocket::training {
namespace {

using tests::run_ranks;

constexpr int units = 7;

/// Every unit is a bucket: of odd sizes, and one has fewer elements than there are ranks.
std::vector<Parameter> model_of_units() {
  std::vector<Parameter> all;
  for (const std::int64_t elements : {1000, 37, 3, 5000, 641, 17, 2222}) {
    all.push_back({"unit" + std::to_string(all.size()), hocketFloat32, {elements}, {}});
  }
  return all;
}

float unit_parameter(int unit, std::size_t element) {
  return static_cast<float>(unit * 10000) + static_cast<float>(element % 9999);
}
float unit_gradient(int rank, int unit, std::size_t element) {
  return static_cast<float>((rank + 1) * 4 + unit) + static_cast<float>(element % 64);
}

/// Two places; a unit that needs one waits for what was begun in it.
class Pool {
 public:
  explicit Pool(std::size_t elements) : places_{Memory<float>(elements), Memory<float>(elements)} {}
  float* place(int use) { return places_[use % 2].data(); }
  Event& ended(int use) { return ended_[use % 2]; }
  std::size_t bytes() const { return places_[0].size() * 2 * sizeof(float); }

 private:
  Memory<float> places_[2];
  Event ended_[2] = {Event::create(), Event::create()};
};

/// This rank's shards of parameters and gradients, and the pools that units pass through.
class Sharded {
 public:
  explicit Sharded(Communicator& comm)
      : layout_(model_of_units(), reverse_order(units), {.first_bytes = 1, .bytes = 1}),
        shards_(layout_.buckets(), comm.ranks(), ShardCut::elements),
        rank_(comm.rank()),
        gathers_(comm.duplicate()),
        reductions_(comm.duplicate()),
        parameter_shard_(shards_.arenas(rank_)[0].bytes / sizeof(float)),
        gradient_shard_(parameter_shard_.size()),
        parameters_(5008),
        gradients_(5008) {
    for (int unit = 0; unit < units; ++unit) {
      for (const ShardLayout::Piece& piece : shards_.pieces(bucket(unit), rank_)) {
        float* const to = shard(parameter_shard_, unit) + piece.at;
        for (std::size_t i = 0; i < piece.elements; ++i)
          to[i] = unit_parameter(unit, piece.begin + i);
      }
    }
  }

  /// use: counts the gathers.
  void begin_gather(int unit, int use) {
    const auto counts = shards_.counts(bucket(unit)), begins = shards_.begins(bucket(unit));
    check(hocketAllGatherV(shard(parameter_shard_, unit), counts[me()], parameters_.place(use),
                           counts.data(), begins.data(), hocketFloat32, gathers_.get(),
                           gather_stream_.get()),
          "hocketAllGatherV");
    parameters_.ended(use).record(gather_stream_);
  }
  void expect_gathered(int unit, int use) {
    parameters_.ended(use).wait();
    const std::size_t elements = model_of_units()[static_cast<std::size_t>(unit)].elements();
    for (std::size_t i = 0; i < elements; ++i) {
      ASSERT_EQ(parameters_.place(use)[i], unit_parameter(unit, i)) << unit << ' ' << i;
    }
  }
  void begin_reduction(int unit, int use) {
    gradients_.ended(use).wait();
    float* const place = gradients_.place(use);
    const std::size_t elements = model_of_units()[static_cast<std::size_t>(unit)].elements();
    for (std::size_t i = 0; i < elements; ++i) place[i] = unit_gradient(rank_, unit, i);
    check(hocketReduceScatterV(place, shard(gradient_shard_, unit),
                               shards_.counts(bucket(unit)).data(), hocketFloat32, hocketSum,
                               reductions_.get(), reduce_stream_.get()),
          "hocketReduceScatterV");
    gradients_.ended(use).record(reduce_stream_);
  }
  void expect_reduced(int ranks) {
    reduce_stream_.synchronize();
    for (int unit = 0; unit < units; ++unit) {
      for (const ShardLayout::Piece& piece : shards_.pieces(bucket(unit), rank_)) {
        const float* const from = shard(gradient_shard_, unit) + piece.at;
        for (std::size_t i = 0; i < piece.elements; ++i) {
          float sum = 0;
          for (int rank = 0; rank < ranks; ++rank)
            sum += unit_gradient(rank, unit, piece.begin + i);
          ASSERT_EQ(from[i], sum) << unit << ' ' << i;
        }
      }
    }
  }
  /// Of parameters and gradients.
  std::size_t bytes() const {
    return (parameter_shard_.size() + gradient_shard_.size()) * sizeof(float) +
           parameters_.bytes() + gradients_.bytes();
  }
  Stream& gather_stream() { return gather_stream_; }
  Stream& reduce_stream() { return reduce_stream_; }

 private:
  std::size_t bucket(int unit) const {
    return static_cast<std::size_t>(layout_.place(unit).bucket);
  }
  std::size_t me() const { return static_cast<std::size_t>(rank_); }
  float* shard(Memory<float>& arena, int unit) {
    return arena.data() + shards_.offset(bucket(unit), rank_) / sizeof(float);
  }

  BucketLayout layout_;
  ShardLayout shards_;
  int rank_;
  Communicator gathers_, reductions_;
  Memory<float> parameter_shard_, gradient_shard_;
  Pool parameters_, gradients_;
  Stream gather_stream_ = Stream::create(), reduce_stream_ = Stream::create();
};

TEST(Units, pass_through_pools_of_two_while_the_next_one_is_gathered) {
  for (const int ranks : {1, 2, 3, 5}) {
    run_ranks(ranks, [&](Communicator& comm) {
      Sharded sharded(comm);
      for (int step = 0; step < 3; ++step) {
        int use = 0;
        sharded.begin_gather(0, 0);  // forward
        for (int unit = 0; unit < units; ++unit, ++use) {
          if (unit + 1 < units) sharded.begin_gather(unit + 1, use + 1);
          sharded.expect_gathered(unit, use);
        }
        sharded.begin_gather(units - 1, use);  // backward
        for (int unit = units - 1; unit >= 0; --unit, ++use) {
          if (unit > 0) sharded.begin_gather(unit - 1, use + 1);
          sharded.expect_gathered(unit, use);
          sharded.begin_reduction(unit, units - unit);
        }
        sharded.expect_reduced(ranks);
      }
      // A shard of each at most: 64 bytes a unit more than its part, and four times the largest.
      const std::size_t elements = 1000 + 37 + 3 + 5000 + 641 + 17 + 2222;
      const std::size_t part = elements * 4 / static_cast<std::size_t>(ranks) + units * 128;
      EXPECT_LE(sharded.bytes(), 2 * part + 4 * 5008 * 4);
    });
  }
}

TEST(Units, gathers_do_not_wait_for_reductions_that_were_begun_before_nor_the_other_way_round) {
  run_ranks(2, [](Communicator& comm) {
    Sharded sharded(comm);
    // Rank 0 begins the reduction first. It cannot end before rank 1 begins it, which rank 1 does
    // when the gather has ended.
    if (comm.rank() == 0) sharded.begin_reduction(3, 0);
    sharded.begin_gather(3, 0);
    sharded.expect_gathered(3, 0);
    comm.barrier();
    if (comm.rank() == 0) {
      EXPECT_FALSE(sharded.reduce_stream().done());
    }
    comm.barrier();
    if (comm.rank() == 1) sharded.begin_reduction(3, 0);
    sharded.reduce_stream().synchronize();

    if (comm.rank() == 0) sharded.begin_gather(6, 1);
    sharded.begin_reduction(6, 1);
    sharded.reduce_stream().synchronize();
    comm.barrier();
    if (comm.rank() == 0) {
      EXPECT_FALSE(sharded.gather_stream().done());
    }
    comm.barrier();
    if (comm.rank() == 1) sharded.begin_gather(6, 1);
    sharded.expect_gathered(6, 1);
  });
}

}  // namespace
}  // namespace hocket::training
