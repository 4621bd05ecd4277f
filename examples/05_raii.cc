// The C++ header: handles free themselves, spans know their size, errors are exceptions that name
// the culprit.
#include <cstdio>
#include <hocket/hocket.hpp>
#include <span>
#include <vector>

namespace {

/// Mean and maximum over all ranks' samples.
bool statistics(const hocket::Communicator& comm) {
  const hocket::Memory<double> mean(3);  // freed at the end, mapped by local peers until then
  std::vector<double> most(3);
  for (int i = 0; i < 3; ++i) mean[i] = most[i] = comm.rank() + 10.0 * i;

  const hocket::Stream stream = hocket::Stream::create();
  {
    hocket::Group group;  // both are begun together where it ends
    comm.all_reduce(mean.span(), hocketAvg, stream);
    comm.all_reduce(std::span(most), hocketMax, stream);
    group.end();
  }
  stream.synchronize();  // throws what went wrong on the stream

  const double middle = (comm.ranks() - 1) / 2.0;
  bool right = true;
  for (int i = 0; i < 3; ++i) {
    right &= mean[i] == middle + 10.0 * i && most[i] == comm.ranks() - 1 + 10.0 * i;
  }
  std::printf("rank %d of %d: mean %g, maximum %g\n", comm.rank(), comm.ranks(), mean[0], most[0]);
  return right;
}

/// A wrong argument is an exception, and leaves the communicator usable.
bool reports_errors(const hocket::Communicator& comm) {
  std::vector<float> data(8);
  try {
    comm.broadcast(std::span(data), /*root=*/comm.ranks());
  } catch (const hocket::Error& error) {
    if (comm.rank() == 0) std::printf("as it should be: %s\n", error.what());
    comm.barrier();
    return error.code() == hocketInvalidArgument;
  }
  return false;
}

}  // namespace

int main() {
  try {
    hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
    config.deadline_ms = 60'000;
    config.commName = "example";
    const auto comm = hocket::Communicator::from_environment(&config);
    return statistics(comm) && reports_errors(comm) ? 0 : 1;
  } catch (const hocket::Error& error) {
    std::fprintf(stderr, "rank %d is to blame: %s\n", error.culprit(), error.what());
    return 1;
  }
}
