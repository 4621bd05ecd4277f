// Data-parallel training: fits a line to samples that are distributed over all ranks. Ranks have
// different numbers of samples, so each rank multiplies its gradient by its share of the samples
// before the sum. Run: hocket-run -n 3 example_10_training
#include <cmath>
#include <cstdio>
#include <hocket/hocket.hpp>
#include <vector>

namespace {

struct Sample {
  float x, y;
};

/// The weights of y = slope * x + offset, or their gradient, in memory that local ranks access
/// directly, without a copy.
using Weights = std::vector<float, hocket::allocator<float>>;
constexpr float slope = 3, offset = -1;

/// The samples of a rank: 100 x (rank + 1) points of the line, with a little noise.
std::vector<Sample> samples_of(int rank) {
  std::vector<Sample> samples;
  unsigned state = 7u + static_cast<unsigned>(rank);
  for (int i = 0; i < 100 * (rank + 1); ++i) {
    state = state * 1664525u + 1013904223u;
    const float x = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1;
    samples.push_back({x, slope * x + offset + 0.01f * std::sin(static_cast<float>(i))});
  }
  return samples;
}

/// The gradient of the mean squared error of these samples.
void gradient_of(const std::vector<Sample>& samples, const Weights& weights, Weights& gradient) {
  gradient.assign(2, 0);
  for (const Sample& s : samples) {
    const float error = weights[0] * s.x + weights[1] - s.y;
    gradient[0] += 2 * error * s.x / static_cast<float>(samples.size());
    gradient[1] += 2 * error / static_cast<float>(samples.size());
  }
}

/// Broadcasts the weights of rank 0; then every rank makes the same steps.
Weights train(hocket::Communicator& comm, const std::vector<Sample>& samples) {
  const float mine = static_cast<float>(samples.size());
  const float all = comm.all_reduce(mine, hocketSum);
  const hocket::PreMulSum mean(comm, mine / all);  // each rank has its own share
  Weights weights(2), gradient(2);
  if (comm.rank() == 0) weights = {0.5f, 0.5f};
  comm.broadcast(weights, 0);
  constexpr int steps = 500;
  constexpr float rate = 0.2f;
  for (int step = 0; step < steps; ++step) {
    gradient_of(samples, weights, gradient);
    comm.all_reduce(gradient, mean);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * gradient[i];
  }
  return weights;
}

/// Whether all ranks have the same bits, and the weights are near those of the line.
bool is_right(hocket::Communicator& comm, const Weights& weights) {
  Weights least = weights, most = weights;
  comm.all_reduce(least, hocketMin);
  comm.all_reduce(most, hocketMax);
  return least == most && std::fabs(weights[0] - slope) < 0.01f &&
         std::fabs(weights[1] - offset) < 0.01f;
}

}  // namespace

int main() {
  try {
    auto comm = hocket::Communicator::from_environment({.name = "training"});
    const std::vector<Sample> samples = samples_of(comm.rank());
    const Weights weights = train(comm, samples);
    const bool right = is_right(comm, weights);
    std::printf("rank %d of %d, with %zu samples: y = %g x + %g\n", comm.rank(), comm.ranks(),
                samples.size(), static_cast<double>(weights[0]), static_cast<double>(weights[1]));
    return right ? 0 : 1;
  } catch (const hocket::Error& error) {
    std::fprintf(stderr, "rank %d is to blame: %s\n", error.culprit(), error.what());
    return 1;
  }
}
