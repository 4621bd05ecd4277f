#include <algorithm>
#include <hocket/training/sharded_parameters.hpp>
#include <map>
#include <utility>

#include "training/range_math.h"

namespace hocket::training {
namespace {

constexpr const char* sharded_parameters_operation = "hocket::training::ShardedParameters";

using Arenas = std::map<hocketDataType_t, Memory<std::byte>>;

}  // namespace

struct ShardedParameters::Body {
  explicit Body(GradientReducer& its_reducer) : reducer(its_reducer) {}

  const std::vector<Bucket>& buckets() const { return reducer.layout().buckets(); }
  int rank() const { return reducer.sharded() ? reducer.communicator().rank() : 0; }
  std::byte* address(std::size_t bucket) const {
    const Bucket& its = buckets()[bucket];
    return arenas->at(its.dtype).data() + its.offset;
  }
  /// Runs something that other ranks wait for.
  template <typename Action>
  void together(Action action) const {
    try {
      action();
    } catch (...) {
      hocketCommAbort(reducer.communicator().get());
      throw;
    }
  }
  void begin_gather(std::size_t bucket) {
    const ShardLayout& shards = reducer.shards();
    const auto counts = shards.counts(bucket), begins = shards.begins(bucket);
    const auto mine = static_cast<std::size_t>(rank());
    const Bucket& its = buckets()[bucket];
    std::byte* const all = address(bucket);
    BucketTiming& timing = timings.buckets[bucket];
    timing = {static_cast<int>(bucket), its.bytes(), now_s(), 0};
    check(hocketAllGatherV(all + begins[mine] * element_bytes(its.dtype), counts[mine], all,
                           counts.data(), begins.data(), its.dtype, reducer.communicator().get(),
                           stream.get()),
          "hocketAllGatherV");
    stream.run([&timing] { timing.end_s = now_s(); });
  }
  void finish_gathers() {
    timings.wait_begin_s = now_s();
    stream.synchronize();
    timings.wait_end_s = now_s();
  }

  std::vector<Piece> whole_pieces() const;
  std::vector<Piece> own_pieces() const;

  GradientReducer& reducer;
  std::shared_ptr<Arenas> arenas;  // null: the program owns the parameters
  std::vector<void*> places;       // by parameter
  std::function<void()> on_update;
  std::vector<Piece> pieces;  // sharded: they stay where they are
  CommunicationTimings timings{.buckets = {}, .what = "gather"};  // the stream's worker writes ends
  Stream stream = Stream::create();
};

ShardedParameters::ShardedParameters(GradientReducer& reducer)
    : body_(std::make_unique<Body>(reducer)) {
  if (!reducer.sharded()) {
    throw InvalidUsage(sharded_parameters_operation,
                       "the reducer is not sharded: give the places of the parameters, or set "
                       "ReducerOptions::sharding");
  }
  body_->arenas = std::make_shared<Arenas>();
  for (const BucketLayout::ArenaSize& arena : reducer.layout().arenas()) {
    body_->arenas->emplace(arena.dtype, Memory<std::byte>(arena.bytes));
  }
  for (int p = 0; p < static_cast<int>(reducer.parameters().size()); ++p) {
    const BucketLayout::Place at = reducer.layout().place(p);
    const Bucket& bucket = body_->buckets()[static_cast<std::size_t>(at.bucket)];
    body_->places.push_back(body_->address(static_cast<std::size_t>(at.bucket)) +
                            bucket.slots[static_cast<std::size_t>(at.slot)].begin *
                                element_bytes(bucket.dtype));
  }
}

ShardedParameters::ShardedParameters(GradientReducer& reducer, std::vector<void*> places)
    : body_(std::make_unique<Body>(reducer)) {
  if (reducer.sharded()) {
    throw InvalidUsage(sharded_parameters_operation,
                       "the reducer is sharded: parameters lie in memory of this object, so leave "
                       "the places out");
  }
  if (places.size() != reducer.parameters().size()) {
    throw InvalidArgument(sharded_parameters_operation,
                          "there are " + std::to_string(places.size()) + " places for " +
                              std::to_string(reducer.parameters().size()) + " parameters");
  }
  body_->places = std::move(places);
}

ShardedParameters::~ShardedParameters() = default;

GradientReducer& ShardedParameters::reducer() const { return body_->reducer; }
void* ShardedParameters::place(int parameter) const {
  return body_->places.at(static_cast<std::size_t>(parameter));
}
std::shared_ptr<const void> ShardedParameters::memory() const { return body_->arenas; }
std::size_t ShardedParameters::arena_bytes() const {
  std::size_t bytes = 0;
  if (body_->arenas == nullptr) return 0;
  for (const auto& [dtype, arena] : *body_->arenas) bytes += arena.size();
  return bytes;
}

/// Whole parameters, in the order of the model: buckets, and gradients with them, may still change.
std::vector<ShardedParameters::Piece> ShardedParameters::Body::whole_pieces() const {
  std::map<hocketDataType_t, std::size_t> next;
  std::vector<Piece> pieces;
  for (int p = 0; p < static_cast<int>(places.size()); ++p) {
    const Parameter& its = reducer.parameters()[static_cast<std::size_t>(p)];
    std::size_t& state = next[its.dtype];
    if (its.elements() > 0) {
      pieces.push_back({.parameter = p,
                        .begin = 0,
                        .elements = its.elements(),
                        .values = places[static_cast<std::size_t>(p)],
                        .gradient = reducer.gradient(p),
                        .state = state});
    }
    const std::size_t unit = bucket_alignment / element_bytes(its.dtype);
    state += (its.elements() + unit - 1) / unit * unit;
  }
  return pieces;
}

std::vector<ShardedParameters::Piece> ShardedParameters::Body::own_pieces() const {
  std::map<std::pair<std::string, std::size_t>, void*> gradients;
  for (const TensorRange& range : reducer.held()) {
    gradients[{range.tensor.name, range.begin}] = range.data;
  }
  const ShardLayout& shards = reducer.shards();
  std::vector<Piece> pieces;
  for (std::size_t b = 0; b < buckets().size(); ++b) {
    const std::size_t width = element_bytes(buckets()[b].dtype);
    for (const ShardLayout::Piece& each : shards.pieces(b, rank())) {
      const auto p = static_cast<std::size_t>(each.parameter);
      pieces.push_back({.parameter = each.parameter,
                        .begin = each.begin,
                        .elements = each.elements,
                        .values = static_cast<std::byte*>(places[p]) + each.begin * width,
                        .gradient = gradients.at({reducer.parameters()[p].name, each.begin}),
                        .state = shards.offset(b, rank()) / width + each.at});
    }
  }
  return pieces;
}

std::vector<ShardedParameters::Piece> ShardedParameters::pieces() const {
  if (!body_->reducer.sharded()) return body_->whole_pieces();
  if (body_->pieces.empty()) body_->pieces = body_->own_pieces();
  return body_->pieces;
}

bool ShardedParameters::has_whole_parameters() const {
  const ShardLayout& shards = body_->reducer.shards();
  for (std::size_t b = 0; b < body_->buckets().size(); ++b) {
    for (int rank = 0; rank < shards.ranks(); ++rank) {
      for (const ShardLayout::Piece& piece : shards.pieces(b, rank)) {
        const auto p = static_cast<std::size_t>(piece.parameter);
        if (piece.elements != body_->reducer.parameters()[p].elements()) return false;
      }
    }
  }
  return true;
}

std::vector<BucketLayout::ArenaSize> ShardedParameters::sizes() const {
  return body_->reducer.shards().arenas(body_->rank());
}

std::vector<TensorRange> ShardedParameters::ranges() const {
  std::vector<TensorRange> ranges;
  for (const Piece& piece : pieces()) {
    ranges.push_back({body_->reducer.parameters()[static_cast<std::size_t>(piece.parameter)],
                      piece.begin, piece.elements, piece.values});
  }
  return ranges;
}

void ShardedParameters::update(std::span<const Piece> pieces,
                               const std::function<void(const Piece&)>& update) {
  if (body_->reducer.sharded()) body_->reducer.require_all_ranks(sharded_parameters_operation);
  body_->together([&] {
    if (!body_->reducer.sharded()) {
      for (const Piece& piece : pieces) update(piece);
      return;
    }
    body_->timings.buckets.resize(body_->buckets().size());
    std::size_t next = 0;  // bucket
    for (const Piece& piece : pieces) {
      const auto bucket =
          static_cast<std::size_t>(body_->reducer.layout().place(piece.parameter).bucket);
      for (; next < bucket; ++next) body_->begin_gather(next);
      update(piece);
    }
    for (; next < body_->buckets().size(); ++next) body_->begin_gather(next);
    body_->finish_gathers();
  });
  if (body_->on_update) body_->on_update();
}
CommunicationTimings ShardedParameters::last_timings() const { return body_->timings; }
void ShardedParameters::on_update(std::function<void()> action) {
  body_->on_update = std::move(action);
}

void ShardedParameters::gather() {
  update({}, [](const Piece&) {});
}

bool ShardedParameters::gradients_are_finite() const {
  if (body_->reducer.sharded()) body_->reducer.require_all_ranks(sharded_parameters_operation);
  std::int32_t nonfinite[1] = {0};
  for (const TensorRange& range : body_->reducer.held()) {
    if (!all_finite(range.data, range.elements, range.tensor.dtype)) nonfinite[0] = 1;
  }
  body_->together([&] {
    if (body_->reducer.sharded()) body_->reducer.communicator().all_reduce(nonfinite, hocketMax);
  });
  return nonfinite[0] == 0;
}

}  // namespace hocket::training
