#include "job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace hocket::perf {

bool Job::join(const Options& options, Failure* failure) {
  hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
  if (options.deadline_s > 0) config.deadline_ms = options.deadline_s * 1000;
  const hocketResult_t joined = hocketCommInitFromEnv(&comm_, &config);
  if (joined != hocketSuccess) {  // there is no rank yet to be named
    failure->sentence =
        fmt::format("{}: {}", hocketGetErrorString(joined), hocketGetLastError(nullptr));
    return false;
  }
  int local_rank = 0;
  if (!ok(hocketCommUserRank(comm_, &rank_), "hocketCommUserRank", comm_, failure) ||
      !ok(hocketCommCount(comm_, &ranks_), "hocketCommCount", comm_, failure) ||
      !ok(hocketCommNodeCount(comm_, &nodes_), "hocketCommNodeCount", comm_, failure) ||
      !ok(hocketCommLocalRank(comm_, &local_rank), "hocketCommLocalRank", comm_, failure)) {
    return false;
  }
  Place mine;
  mine.pid = static_cast<int>(::getpid());
  mine.local_rank = local_rank;
  ::gethostname(mine.host, sizeof mine.host - 1);
  places_.resize(static_cast<std::size_t>(ranks_));
  return ok(hocketAllGather(&mine, places_.data(), sizeof mine, hocketUint8, comm_, nullptr),
            "hocketAllGather", comm_, failure);
}

bool Job::leave(Failure* failure) {
  hocketComm_t comm = comm_;
  if (!ok(hocketCommFinalize(comm), "hocketCommFinalize", comm, failure)) return false;
  comm_ = nullptr;
  return ok(hocketCommDestroy(comm), "hocketCommDestroy", nullptr, failure);
}

bool Job::lowest(int mine, std::optional<std::pair<int, int>>* found, Failure* failure) {
  std::vector<int> all(static_cast<std::size_t>(ranks_));
  if (!ok(hocketAllGather(&mine, all.data(), 1, hocketInt32, comm_, nullptr), "hocketAllGather",
          comm_, failure)) {
    return false;
  }
  for (int r = 0; r < ranks_ && !*found; ++r) {
    const int value = all[static_cast<std::size_t>(r)];
    if (value != -1) *found = std::pair(r, value);
  }
  return true;
}

std::optional<int> Job::status_of_all(std::optional<int> mine, const std::string& text) {
  Failure failure;
  std::optional<std::pair<int, int>> found;
  if (!lowest(mine.value_or(-1), &found, &failure)) return complain(failure);
  if (!found) return std::nullopt;
  if (found->first == rank_) std::fputs(text.c_str(), found->second == 0 ? stdout : stderr);
  (void)leave(&failure);
  return found->second;
}

bool Job::agree(bool ready, Failure* failure) {
  std::optional<std::pair<int, int>> found;
  hocketResult_t state = hocketSuccess;
  (void)hocketCommGetAsyncError(comm_, &state);
  if (state != hocketSuccess) return false;  // the ranks cannot agree without a communicator
  Failure call;
  if (!lowest(ready ? -1 : 1, &found, &call)) {
    if (ready) *failure = call;
    return false;
  }
  if (!found) return true;
  if (found->first != rank_) failure->sentence.clear();
  failure->from_library = false;
  (void)leave(&call);  // all ranks together, so that no rank reports that another has left
  return false;
}

int Job::complain(const Failure& failure) const {
  int culprit = -1;
  bool speaks = true;
  if (comm_ != nullptr && failure.from_library) {
    (void)hocketCommGetCulprit(comm_, &culprit);
    speaks = rank_ == (culprit == 0 && ranks_ > 1 ? 1 : 0) || rank_ == culprit;
  }
  if (speaks && !failure.sentence.empty()) {
    std::fprintf(stderr, "hocket-perf: %s\n", failure.sentence.c_str());
  }
  return 1;
}

}  // namespace hocket::perf
