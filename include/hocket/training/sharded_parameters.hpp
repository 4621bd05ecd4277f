// The parameters of a model whose optimizer is sharded: each rank updates its shard, then all ranks
// gather the others'.
#pragma once

#include <cstddef>
#include <functional>
#include <hocket/hocket.hpp>
#include <hocket/training/gradients.hpp>
#include <hocket/training/tensor_range.hpp>
#include <hocket/training/timing.hpp>
#include <memory>
#include <span>
#include <vector>

namespace hocket::training {

/// Where the parameters lie, and which of their elements this rank updates. Used by one thread at a
/// time.
class ShardedParameters {
 public:
  /// Allocates memory for all parameters, in the layout of the reducer's buckets; it is zero. The
  /// reducer is sharded, and outlives this object; the memory lives as long as anyone shares it
  /// (see memory()).
  explicit ShardedParameters(GradientReducer& reducer);
  /// Without sharding: the parameters lie in memory of the program, places[p], and every rank
  /// updates all of them. Throws InvalidUsage if the reducer is sharded.
  ShardedParameters(GradientReducer& reducer, std::vector<void*> places);
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;
  ~ShardedParameters();

  /// elements() elements of the parameter's type.
  [[nodiscard]] void* place(int parameter) const;
  /// Keeps the memory alive; null where the program owns it.
  [[nodiscard]] std::shared_ptr<const void> memory() const;
  [[nodiscard]] std::size_t arena_bytes() const;

  /// Elements of one parameter that this rank updates.
  struct Piece {
    int parameter = 0;
    std::size_t begin = 0;  // elements from the begin of the parameter
    std::size_t elements = 0;
    void* values = nullptr;
    void* gradient = nullptr;  // the average, after end() of the reducer
    std::size_t state = 0;     // where its state may begin among that of its type, in elements
  };
  /// Sharded: in the order of the buckets. Otherwise: in the order of the model, and gradients move
  /// when GradientReducer::gradient() does, but nothing else changes.
  [[nodiscard]] std::vector<Piece> pieces() const;
  /// How many elements this rank has of each type, with the gaps between pieces.
  [[nodiscard]] std::vector<BucketLayout::ArenaSize> sizes() const;
  /// The values of this rank's pieces by name, as a checkpoint has them. After values were written
  /// to them, gather() gives them to the other ranks.
  [[nodiscard]] std::vector<TensorRange> ranges() const;

  /// Collective. Calls update(piece) for every piece of pieces(), and gathers each bucket while the
  /// next one is updated. When it returns, all ranks have the same parameters. If update throws,
  /// the reducer's communicator is aborted, so that the other ranks receive an error.
  void update(std::span<const Piece> pieces, const std::function<void(const Piece&)>& update);
  /// Collective. Gathers what the ranks have written to their pieces.
  void gather();
  /// When the buckets of the last update() or gather() were gathered, and how long it waited for
  /// them after the last piece. Without sharding nothing is gathered.
  [[nodiscard]] CommunicationTimings last_timings() const;
  /// Called at the end of update() and gather(), when parameters have been written.
  void on_update(std::function<void()> action);
  /// Collective. Whether no held gradient of any rank is infinite or NaN.
  [[nodiscard]] bool gradients_are_finite() const;

  /// Every bucket is cut between parameters.
  [[nodiscard]] bool has_whole_parameters() const;
  [[nodiscard]] GradientReducer& reducer() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace hocket::training
