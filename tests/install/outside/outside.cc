// A C++ program outside of the repository: a group on a stream, a value, an error.
#include <cstdio>
#include <hocket/hocket.hpp>
#include <numeric>
#include <vector>

namespace {

bool is_right(hocket::Communicator& comm) {
  std::vector<double> data(1000), all(2000);
  std::iota(data.begin(), data.end(), comm.rank());
  hocket::Stream stream = hocket::Stream::create();
  hocket::group([&] {
    comm.all_gather(data, all, stream);
    comm.all_reduce(data, hocketSum, stream);
  });
  stream.record().wait();
  bool right = comm.ranks() == 2 && comm.all_reduce(1, hocketSum) == 2;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const double x = static_cast<double>(i);
    right &= data[i] == 2 * x + 1 && all[i] == x && all[1000 + i] == x + 1;
  }
  return right;
}

bool is_told_what_is_wrong(hocket::Communicator& comm) {
  const std::vector<float> three(3);
  std::vector<float> four(4);
  try {
    comm.all_reduce(three, four, hocketSum);
  } catch (const hocket::InvalidArgument& error) {
    return error.code() == hocketInvalidArgument;
  }
  return false;
}

}  // namespace

int main() {
  try {
    auto comm = hocket::Communicator::from_environment({.deadline = std::chrono::seconds(60)});
    if (is_right(comm) && is_told_what_is_wrong(comm)) return 0;
    std::fprintf(stderr, "rank %d: a wrong result\n", comm.rank());
  } catch (const hocket::Error& error) {
    std::fprintf(stderr, "rank %d is to blame: %s\n", error.culprit(), error.what());
  }
  return 1;
}
