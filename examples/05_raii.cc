// The C++ header: handles free themselves, buffers are ranges that know their size, errors are
// exceptions that name the rank that caused them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <hocket/hocket.hpp>
#include <vector>

namespace {

/// Mean and maximum over all ranks' samples, while this rank could do something else.
bool statistics(hocket::Communicator& comm) {
  hocket::Memory<double> mean(3);  // mapped by local peers, freed at the end
  std::vector<double> most(3);
  for (std::size_t i = 0; i < 3; ++i) {
    mean[i] = most[i] = comm.rank() + 10.0 * static_cast<double>(i);
  }

  hocket::Stream stream = hocket::Stream::create();
  hocket::group([&] {  // both operations begin together; an exception in here discards them
    comm.all_reduce(mean, hocketAvg, stream);
    comm.all_reduce(most, hocketMax, stream);
  });
  const hocket::Event reduced = stream.record();
  reduced.wait();  // throws the error of the operations, if they failed

  std::printf("rank %d of %d: mean %g, maximum %g\n", comm.rank(), comm.ranks(), mean[0], most[0]);
  const double middle = (comm.ranks() - 1) / 2.0;
  bool right = true;
  for (std::size_t i = 0; i < 3; ++i) {
    const double tens = 10.0 * static_cast<double>(i);
    right &= mean[i] == middle + tens && most[i] == comm.ranks() - 1 + tens;
  }
  return right;
}

/// Gathers the squares of all ranks, sends them to the next rank of a ring, and finds the largest.
bool exchange(hocket::Communicator& comm) {
  const int ranks = comm.ranks(), rank = comm.rank();
  const int own[1] = {rank * rank};
  std::vector<int> squares(static_cast<std::size_t>(ranks));
  int left[1] = {};
  comm.all_gather(own, squares);
  comm.sendrecv(own, (rank + 1) % ranks, left, (rank + ranks - 1) % ranks);
  const int most = comm.all_reduce(own[0], hocketMax);
  return most == *std::max_element(squares.begin(), squares.end()) &&
         left[0] == squares[static_cast<std::size_t>((rank + ranks - 1) % ranks)];
}

/// A wrong argument is an exception, and leaves the communicator usable.
bool reports_errors(hocket::Communicator& comm) {
  std::vector<float> data(8), small(7);
  try {
    comm.all_reduce(data, small, hocketSum);
  } catch (const hocket::InvalidArgument& error) {
    if (comm.rank() == 0) std::printf("as it should be: %s\n", error.what());
    comm.barrier();
    return true;
  }
  return false;
}

}  // namespace

int main() {
  try {
    auto comm = hocket::Communicator::from_environment(
        {.name = "example", .deadline = std::chrono::minutes(1)});
    return statistics(comm) && exchange(comm) && reports_errors(comm) ? 0 : 1;
  } catch (const hocket::Error& error) {
    std::fprintf(stderr, "rank %d is to blame: %s\n", error.culprit(), error.what());
    return 1;
  }
}
