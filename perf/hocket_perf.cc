// hocket-perf: what a collective costs on these ranks, and whether its results are right.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "options.h"
#include "runner.h"
#include "table.h"

namespace hocket::perf {
namespace {

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Closer>;

struct Job {
  hocketComm_t comm = nullptr;
  int rank = 0;
  int ranks = 1;
  int nodes = 1;
  std::vector<Place> places;  // by rank

  bool ok(hocketResult_t result, const char* call, Failure* failure) const {
    if (result == hocketSuccess) return true;
    failure->sentence = fmt::format("rank {}: {}: {}: {}", rank, call, hocketGetErrorString(result),
                                    hocketGetLastError(comm));
    return false;
  }

  bool join(const Options& options, Failure* failure) {
    hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
    if (options.deadline_s > 0) config.deadline_ms = options.deadline_s * 1000;
    const hocketResult_t joined = hocketCommInitFromEnv(&comm, &config);
    if (joined != hocketSuccess) {  // there is no rank yet to be named
      failure->sentence =
          fmt::format("{}: {}", hocketGetErrorString(joined), hocketGetLastError(nullptr));
      return false;
    }
    int local_rank = 0;
    if (!ok(hocketCommUserRank(comm, &rank), "hocketCommUserRank", failure) ||
        !ok(hocketCommCount(comm, &ranks), "hocketCommCount", failure) ||
        !ok(hocketCommNodeCount(comm, &nodes), "hocketCommNodeCount", failure) ||
        !ok(hocketCommLocalRank(comm, &local_rank), "hocketCommLocalRank", failure)) {
      return false;
    }
    Place mine;
    mine.pid = static_cast<int>(::getpid());
    mine.local_rank = local_rank;
    ::gethostname(mine.host, sizeof mine.host - 1);
    places.resize(static_cast<std::size_t>(ranks));
    return ok(hocketAllGather(&mine, places.data(), sizeof mine, hocketUint8, comm, nullptr),
              "hocketAllGather", failure);
  }

  bool leave(Failure* failure) {
    return ok(hocketCommFinalize(comm), "hocketCommFinalize", failure) &&
           ok(hocketCommDestroy(comm), "hocketCommDestroy", failure);
  }
};

class Table {
 public:
  Table(const Options& options, const Job& job)
      : options_(options),
        job_(job),
        progress_(job.rank == 0),
        runner_(options, job.comm, [this](int i, int n) {
          progress_.show(fmt::format("{} {} bytes: iteration {} of {}",
                                     name_of(options_.collective), bytes_, i, n));
        }) {}

  bool run(Failure* failure) {
    if (!runner_.prepare(failure)) return false;
    print(header(options_, job_.places, job_.nodes));
    for (int cycle = 0; cycle < options_.cycles; ++cycle) {
      for (const hocketDataType_t dtype : options_.dtypes) {
        for (const hocketRedOp_t op : ops()) {
          for (const int root : roots()) {
            for (const std::size_t bytes : options_.sizes()) {
              if (!row(bytes, dtype, op, root, failure)) return false;
            }
          }
        }
      }
    }
    print(footer(options_, rows_));
    return true;
  }

  const std::vector<Measured>& rows() const { return rows_; }

 private:
  std::vector<hocketRedOp_t> ops() const {
    return options_.reduces() ? options_.ops : std::vector<hocketRedOp_t>{hocketSum};
  }

  std::vector<int> roots() const {
    if (options_.collective != Collective::broadcast || options_.root >= 0) return {options_.root};
    std::vector<int> all;
    for (int r = 0; r < job_.ranks; ++r) all.push_back(r);
    return all;
  }

  bool row(std::size_t bytes, hocketDataType_t dtype, hocketRedOp_t op, int root,
           Failure* failure) {
    bytes_ = bytes;
    // A rank cannot send and receive in one buffer at once.
    const bool has_in_place = options_.collective != Collective::sendrecv;
    Measured out, in;
    if (!runner_.measure(bytes, dtype, op, root, false, &out, failure)) return false;
    if (has_in_place && !runner_.measure(bytes, dtype, op, root, true, &in, failure)) return false;
    progress_.clear();
    print(row_line(options_, out, has_in_place ? &in : nullptr));
    rows_.push_back(out);
    if (has_in_place) rows_.push_back(in);
    for (const Measured* half : {&out, &in}) {
      if (!half->remark.empty()) print("# " + half->remark + "\n");
    }
    return true;
  }

  void print(const std::string& text) const {
    if (job_.rank != 0) return;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  const Options& options_;
  const Job& job_;
  ProgressLine progress_;
  Runner runner_;
  std::size_t bytes_ = 0;
  std::vector<Measured> rows_;
};

int complain(const Failure& failure) {
  std::fprintf(stderr, "hocket-perf: %s\n", failure.sentence.c_str());
  return 1;
}

int run(const Options& options) {
  Failure failure;
  Job job;
  if (!job.join(options, &failure)) return complain(failure);
  File json;
  if (job.rank == 0 && !options.json_path.empty()) {
    json.reset(std::fopen(options.json_path.c_str(), "w"));  // now, not after minutes of work
    if (json == nullptr) {
      return complain({fmt::format("{}: {}", options.json_path, std::strerror(errno))});
    }
  }
  std::uint64_t wrong = 0;
  {
    Table table(options, job);
    if (!table.run(&failure)) return complain(failure);
    for (const Measured& row : table.rows()) wrong += row.wrong;
    if (json != nullptr) {
      const std::string text = to_json(options, table.rows(), job.ranks, job.nodes);
      if (std::fputs(text.c_str(), json.get()) < 0 || std::fflush(json.get()) != 0) {
        return complain({fmt::format("{}: {}", options.json_path, std::strerror(errno))});
      }
    }
  }
  if (!job.leave(&failure)) return complain(failure);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hocket::perf

int main(int argc, char** argv) {
  hocket::perf::Options options;
  std::string text;
  if (const auto status = hocket::perf::parse_options(argc, argv, &options, &text)) {
    std::fputs(text.c_str(), *status == 0 ? stdout : stderr);
    return *status;
  }
  return hocket::perf::run(options);
}
