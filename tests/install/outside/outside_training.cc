// Averages a gradient with the training layer's core, without a tensor framework.
#include <cstdio>
#include <hocket/training/gradients.hpp>

int main() {
  hocket::Communicator comm = hocket::Communicator::from_environment();
  hocket::training::GradientReducer reducer(comm, {{"weights", hocketFloat32, {100}, {}}});
  reducer.begin();
  auto* const gradient = static_cast<float*>(reducer.gradient(0));
  for (int i = 0; i < 100; ++i) gradient[i] = static_cast<float>(comm.rank());
  reducer.ready(0);
  reducer.end();
  const float expected = static_cast<float>(comm.ranks() - 1) / 2;
  std::printf("rank %d: %g\n", comm.rank(), static_cast<double>(gradient[99]));
  return gradient[99] == expected ? 0 : 1;
}
