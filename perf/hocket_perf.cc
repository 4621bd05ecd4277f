// hocket-perf: measures collectives and messages between ranks, and checks their results.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "explain.h"
#include "job.h"
#include "options.h"
#include "runner.h"
#include "table.h"

namespace hocket::perf {
namespace {

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Closer>;

class Table {
 public:
  Table(const Options& options, const Job& job)
      : options_(options),
        job_(job),
        progress_(job.rank() == 0),
        runner_(options, job.comm(), [this](int i, int n) {
          progress_.show(
              fmt::format("{} {} bytes: iteration {} of {}", options_.name(), bytes_, i, n));
        }) {}

  bool prepare(Failure* failure) { return runner_.prepare(failure); }

  bool run(Failure* failure) {
    print(header(options_, job_.places(), job_.nodes()));
    for (int cycle = 0; cycle < options_.cycles || options_.cycles == 0; ++cycle) {
      for (const hocketDataType_t dtype : options_.dtypes) {
        for (const hocketRedOp_t op : ops()) {
          if (!computes(op, dtype)) continue;
          for (const int root : roots()) {
            for (const std::size_t bytes : options_.sizes()) {
              if (!row({bytes, dtype, op, root, false}, failure)) return false;
            }
          }
        }
      }
    }
    print(footer(options_, totals_));
    return true;
  }

  const std::vector<Row>& rows() const { return rows_; }
  bool good() const { return totals_.wrong == 0 && totals_.fast_enough(options_); }

 private:
  std::vector<hocketRedOp_t> ops() const {
    return options_.reduces() ? options_.ops : std::vector<hocketRedOp_t>{hocketSum};
  }

  std::vector<int> roots() const {
    if (!has_root(options_.collective) || options_.root >= 0) return {options_.root};
    std::vector<int> all;
    for (int r = 0; r < job_.ranks(); ++r) all.push_back(r);
    return all;
  }

  bool row(RowSpec spec, Failure* failure) {
    bytes_ = spec.bytes;
    Row row;
    if (!runner_.measure(spec, &row.out_of_place, failure)) return false;
    totals_.add(row.out_of_place);
    if (options_.has_in_place()) {
      spec.in_place = true;
      row.in_place.emplace();
      if (!runner_.measure(spec, &*row.in_place, failure)) return false;
      totals_.add(*row.in_place);
    }
    progress_.clear();
    print(row_line(options_, row, options_.timestamps ? time_of_day() : ""));
    for (const Measured* half : {&row.out_of_place, row.in_place ? &*row.in_place : nullptr}) {
      if (half == nullptr) continue;
      for (const std::string& remark : half->remarks) print("# " + remark + "\n");
    }
    if (options_.cycles != 0) rows_.push_back(std::move(row));
    return true;
  }

  void print(const std::string& text) const {
    if (job_.rank() != 0) return;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  const Options& options_;
  const Job& job_;
  ProgressLine progress_;
  Runner runner_;
  std::size_t bytes_ = 0;
  Totals totals_;
  std::vector<Row> rows_;
};

bool cannot(const std::string& path, Failure* failure) {
  *failure = {fmt::format("{}: {}", path, std::strerror(errno)), false};
  return false;
}

/// An output file, opened before the measurement and written after it, so that a wrong path is
/// found at once. An empty path: no file.
bool open_file(const std::string& path, File* file, Failure* failure) {
  if (path.empty()) return true;
  file->reset(std::fopen(path.c_str(), "w"));
  return *file != nullptr || cannot(path, failure);
}

bool write_file(const std::string& path, const File& file, const std::string& text,
                Failure* failure) {
  return (std::fputs(text.c_str(), file.get()) >= 0 && std::fflush(file.get()) == 0) ||
         cannot(path, failure);
}

bool write_files(const Options& options, const Job& job, const Table& table,
                 const RunRecord& record, const File& json, const File& nccl_json,
                 Failure* failure) {
  return (json == nullptr ||
          write_file(options.json_path, json,
                     to_json(options, table.rows(), job.ranks(), job.nodes()), failure)) &&
         (nccl_json == nullptr || write_file(options.nccl_json_path, nccl_json,
                                             to_nccl_json(options, table.rows(), record), failure));
}

int explain(const Options& options, Job* job) {
  Failure failure;
  File json;
  bool written = true;
  {
    Explainer explainer(options, *job);
    const bool ready = (job->rank() != 0 || open_file(options.json_path, &json, &failure)) &&
                       explainer.prepare(&failure);
    if (!job->agree(ready, &failure) || !explainer.run(&failure)) return job->complain(failure);
    if (json != nullptr) {
      written = write_file(options.json_path, json,
                           explain_json(options, explainer.points(), job->ranks(), job->nodes()),
                           &failure);
    }
    if (!written) (void)job->complain(failure);
  }
  if (!job->leave(&failure)) return job->complain(failure);
  return written ? 0 : 1;
}

int run(const Options& options, Job* job, std::vector<std::string> arguments) {
  RunRecord record{std::move(arguments), time_of_day(), "", job->places()};
  Failure failure;
  File json, nccl_json;
  bool good = false, written = false;
  {
    Table table(options, *job);
    const bool ready =
        (job->rank() != 0 || (open_file(options.json_path, &json, &failure) &&
                              open_file(options.nccl_json_path, &nccl_json, &failure))) &&
        table.prepare(&failure);
    if (!job->agree(ready, &failure) || !table.run(&failure)) return job->complain(failure);
    good = table.good();
    record.end_time = time_of_day();
    written = write_files(options, *job, table, record, json, nccl_json, &failure);
    if (!written) (void)job->complain(failure);
  }
  if (!job->leave(&failure)) return job->complain(failure);
  return good && written ? 0 : 1;
}

}  // namespace
}  // namespace hocket::perf

int main(int argc, char** argv) {
  using namespace hocket::perf;
  Options options;
  std::string text;
  const std::optional<int> parsed = parse_options(argc, argv, &options, &text);
  Job job;
  Failure failure;
  const bool joined = job.join(options, &failure);
  if (parsed && !joined) {  // this rank has no peers to agree with
    std::fputs(text.c_str(), *parsed == 0 ? stdout : stderr);
    return *parsed;
  }
  if (!joined) return job.complain(failure);
  if (const auto status = job.status_of_all(parsed, text)) return *status;
  if (options.explain) return explain(options, &job);
  return run(options, &job, {argv, argv + argc});
}
