// Data-parallel training without a framework: arrays, a backward that is written by hand, and
// gradients that are averaged while it computes. Run: hocket-run -n 2 example_13_without_framework
#include <cmath>
#include <cstdio>
#include <hocket/training/gradients.hpp>
#include <random>
#include <vector>

namespace {

using hocket::training::GradientReducer;
using hocket::training::Parameter;

// y = v . tanh(w x + b), fitted to sin(3 x). Parameters in the order of the model: w, b, v.
constexpr int width = 32, samples = 64;  // samples: of each rank, in each step
enum { w, b, v, parameters };

struct Model {
  std::vector<float> values[parameters];

  explicit Model(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto& array : values) {
      for (int i = 0; i < width; ++i) array.push_back(normal(random));
    }
  }
  /// Adds the gradient of the mean squared error of a batch to zeroed places. Returns the error.
  double learn(const std::vector<float>& x, GradientReducer& reducer) {
    reducer.begin();
    float* gradients[parameters];  // anew in each step: places may move
    for (int p = 0; p < parameters; ++p) {
      gradients[p] = static_cast<float*>(reducer.gradient(p));
      std::fill_n(gradients[p], width, 0.0f);
    }
    std::vector<float> hidden(x.size() * width), slopes(x.size());
    double loss = 0;
    for (std::size_t s = 0; s < x.size(); ++s) {  // forward
      float y = 0;
      for (int i = 0; i < width; ++i) {
        hidden[s * width + i] = std::tanh(values[w][i] * x[s] + values[b][i]);
        y += values[v][i] * hidden[s * width + i];
      }
      const float error = y - std::sin(3 * x[s]);
      loss += error * error / static_cast<float>(x.size());
      slopes[s] = 2 * error / static_cast<float>(x.size());
    }
    for (std::size_t s = 0; s < x.size(); ++s) {  // backward: the last parameter first
      for (int i = 0; i < width; ++i) gradients[v][i] += slopes[s] * hidden[s * width + i];
    }
    reducer.ready(v);
    for (std::size_t s = 0; s < x.size(); ++s) {
      for (int i = 0; i < width; ++i) {
        const float h = hidden[s * width + i];
        const float slope = slopes[s] * values[v][i] * (1 - h * h);
        gradients[w][i] += slope * x[s];
        gradients[b][i] += slope;
      }
    }
    reducer.ready(b);
    reducer.ready(w);
    reducer.end();  // the averages of all ranks
    for (int p = 0; p < parameters; ++p) {
      for (int i = 0; i < width; ++i) values[p][i] -= 0.02f * gradients[p][i];
    }
    return loss;
  }
};

}  // namespace

int main() {
  try {
    auto comm = hocket::Communicator::from_environment({.name = "training"});
    Model model(1);  // the same on every rank
    GradientReducer reducer(
        comm, {Parameter{.name = "w", .sizes = {width}}, Parameter{.name = "b", .sizes = {width}},
               Parameter{.name = "v", .sizes = {width}}});
    std::mt19937 random(100 + static_cast<unsigned>(comm.rank()));  // other samples on each rank
    std::uniform_real_distribution<float> uniform(-1, 1);
    double first = 0, last = 0;
    for (int step = 0; step < 2000; ++step) {
      std::vector<float> x(samples);
      for (float& each : x) each = uniform(random);
      last = comm.all_reduce(model.learn(x, reducer), hocketAvg);
      if (step == 0) first = last;
    }
    if (comm.rank() == 0) std::printf("mean squared error: %g at first, %g at last\n", first, last);
    return last < 0.1 * first ? 0 : 1;
  } catch (const hocket::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
