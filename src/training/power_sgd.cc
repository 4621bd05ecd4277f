#include <algorithm>
#include <cmath>
#include <hocket/training/compression.hpp>
#include <random>
#include <vector>

namespace hocket::training {
namespace {

/// A parameter that is compressed: rows x columns, and its approximation P Q^T.
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<float> right;  // Q: rank vectors of columns elements
  std::vector<float> error;  // rows x columns
};

/// The dot product, in sixteen sums that a compiler keeps in vectors.
float dot(const float* a, const float* b, std::size_t count) {
  constexpr std::size_t width = 16;
  float sums[width] = {};
  std::size_t i = 0;
  for (; i + width <= count; i += width) {
    for (std::size_t k = 0; k < width; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (; i < count; ++i) sums[i % width] += a[i] * b[i];
  float sum = 0;
  for (const float each : sums) sum += each;
  return sum;
}

void add_scaled(float* to, float factor, const float* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

/// Makes the vectors orthonormal (modified Gram-Schmidt). A vector that depends on those before it
/// becomes almost zero instead of noise.
void orthonormalize(float* vectors, std::size_t count, std::size_t length) {
  constexpr double tiny = 1e-8;
  for (std::size_t v = 0; v < count; ++v) {
    float* const mine = vectors + v * length;
    for (std::size_t before = 0; before < v; ++before) {
      const float* const other = vectors + before * length;
      add_scaled(mine, -dot(mine, other, length), other, length);
    }
    const double norm = std::sqrt(static_cast<double>(dot(mine, mine, length))) + tiny;
    const auto factor = static_cast<float>(1 / norm);
    for (std::size_t i = 0; i < length; ++i) mine[i] *= factor;
  }
}

}  // namespace

struct PowerSgd::Body {
  explicit Body(const PowerSgdOptions& given)
      : options(given), rank(static_cast<std::size_t>(given.rank)) {}

  /// The numbers of a bucket that are reduced in place of its elements: the left factors of its
  /// matrices, then the elements of its other parameters.
  struct Reduced {
    Memory<float> first{0};   // P of each matrix: rank vectors of rows elements; and the rest
    Memory<float> second{0};  // Q of each matrix
    bool compressed = false;  // in this step
    int steps = 0;
  };
  Matrix& matrix(const Slot& slot) { return matrices[static_cast<std::size_t>(slot.parameter)]; }
  bool is_compressed(const Slot& slot) { return matrix(slot).rows > 0; }

  const PowerSgdOptions options;
  const std::size_t rank;
  AllReduce plain;
  std::vector<Matrix> matrices;  // by parameter; rows = 0: reduced as it is
  std::vector<Reduced> reduced;  // by bucket
};

PowerSgd::PowerSgd(const PowerSgdOptions& options) : body_(std::make_unique<Body>(options)) {
  if (options.rank < 1 || options.start_step < 0 || options.min_compression < 1) {
    throw InvalidArgument("hocket::training::PowerSgd",
                          "rank must be at least 1, start_step at least 0 and min_compression at "
                          "least 1");
  }
}
PowerSgd::~PowerSgd() = default;

void PowerSgd::lay_out(std::span<const Parameter> parameters, const BucketLayout& layout) {
  Body& body = *body_;
  if (body.matrices.empty()) {  // errors and factors belong to parameters, wherever these lie
    body.matrices.resize(parameters.size());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const Parameter& parameter = parameters[p];
      if (parameter.dtype != hocketFloat32 || parameter.sizes.size() < 2) continue;
      const std::size_t elements = parameter.elements();
      const auto rows = static_cast<std::size_t>(parameter.sizes[0]);
      if (elements == 0) continue;
      const std::size_t columns = elements / rows;
      if (static_cast<double>((rows + columns) * body.rank) * body.options.min_compression >
          static_cast<double>(elements)) {
        continue;
      }
      Matrix& matrix = body.matrices[p];
      matrix.rows = rows;
      matrix.columns = columns;
      matrix.error.resize(elements);
      std::mt19937_64 random(body.options.seed + p);  // the same on every rank
      matrix.right.resize(columns * body.rank);
      for (float& each : matrix.right) {
        each = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1);
      }
    }
  }
  std::vector<Body::Reduced> next(layout.buckets().size());
  for (std::size_t b = 0; b < next.size(); ++b) {
    const Bucket& bucket = layout.buckets()[b];
    if (!body.reduced.empty()) next[b].steps = body.reduced[0].steps;
    if (bucket.dtype != hocketFloat32) continue;
    std::size_t first = 0, second = 0;
    for (const Slot& slot : bucket.slots) {
      const Matrix& matrix = body.matrix(slot);
      first += matrix.rows > 0 ? matrix.rows * body.rank : slot.elements;
      second += matrix.right.size();
    }
    next[b].first = Memory<float>(first);
    next[b].second = Memory<float>(second);
  }
  body.reduced = std::move(next);
}

void PowerSgd::begin(const BucketData& bucket, Communicator& comm, StreamRef stream) {
  Body& body = *body_;
  Body::Reduced& reduced = body.reduced[static_cast<std::size_t>(bucket.index)];
  reduced.compressed = reduced.steps++ >= body.options.start_step && !reduced.second.empty();
  if (!reduced.compressed) return body.plain.begin(bucket, comm, stream);
  auto* const elements = reinterpret_cast<float*>(bucket.data);
  float* out = reduced.first.data();
  for (const Slot& slot : bucket.bucket->slots) {
    if (!body.is_compressed(slot)) continue;
    const Matrix& matrix = body.matrix(slot);
    float* const gradient = elements + slot.begin;
    add_scaled(gradient, 1.0f, matrix.error.data(), slot.elements);
    for (std::size_t row = 0; row < matrix.rows; ++row) {
      for (std::size_t k = 0; k < body.rank; ++k) {
        out[k * matrix.rows + row] = dot(gradient + row * matrix.columns,
                                         matrix.right.data() + k * matrix.columns, matrix.columns);
      }
    }
    out += matrix.rows * body.rank;
  }
  for (const Slot& slot : bucket.bucket->slots) {
    if (body.is_compressed(slot)) continue;
    out = std::copy_n(elements + slot.begin, slot.elements, out);
  }
  comm.all_reduce(reduced.first, hocketAvg, stream);
}

void PowerSgd::finish(const BucketData& bucket, Communicator& comm, StreamRef) {
  Body& body = *body_;
  Body::Reduced& reduced = body.reduced[static_cast<std::size_t>(bucket.index)];
  if (!reduced.compressed) return;
  auto* const elements = reinterpret_cast<float*>(bucket.data);
  float* left = reduced.first.data();
  float* right = reduced.second.data();
  std::fill(reduced.second.begin(), reduced.second.end(), 0.0f);
  for (const Slot& slot : bucket.bucket->slots) {
    if (!body.is_compressed(slot)) continue;
    const Matrix& matrix = body.matrix(slot);
    orthonormalize(left, body.rank, matrix.rows);
    for (std::size_t row = 0; row < matrix.rows; ++row) {
      for (std::size_t k = 0; k < body.rank; ++k) {
        add_scaled(right + k * matrix.columns, left[k * matrix.rows + row],
                   elements + slot.begin + row * matrix.columns, matrix.columns);
      }
    }
    left += matrix.rows * body.rank;
    right += matrix.columns * body.rank;
  }
  comm.all_reduce(reduced.second, hocketAvg);
  left = reduced.first.data();
  right = reduced.second.data();
  for (const Slot& slot : bucket.bucket->slots) {
    if (!body.is_compressed(slot)) continue;
    Matrix& matrix = body.matrix(slot);
    float* const gradient = elements + slot.begin;
    std::copy_n(gradient, slot.elements, matrix.error.data());
    std::fill_n(gradient, slot.elements, 0.0f);
    for (std::size_t row = 0; row < matrix.rows; ++row) {
      for (std::size_t k = 0; k < body.rank; ++k) {
        add_scaled(gradient + row * matrix.columns, left[k * matrix.rows + row],
                   right + k * matrix.columns, matrix.columns);
      }
    }
    add_scaled(matrix.error.data(), -1.0f, gradient, slot.elements);
    std::copy_n(right, matrix.right.size(), matrix.right.data());
    left += matrix.rows * body.rank;
    right += matrix.columns * body.rank;
  }
  for (const Slot& slot : bucket.bucket->slots) {
    if (body.is_compressed(slot)) continue;
    std::copy_n(left, slot.elements, elements + slot.begin);
    left += slot.elements;
  }
}

}  // namespace hocket::training
