// StepTrace: the spans of all ranks in one file.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <hocket/training/report.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace hocket::training {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* trace_operation = "hocket::training::StepTrace";
constexpr int round_trips = 100;

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string metadata(const char* name, int process, int thread, Json arguments) {
  return dumped({{"name", name},
                 {"ph", "M"},
                 {"pid", process},
                 {"tid", thread},
                 {"args", std::move(arguments)}}) +
         ",\n";
}

/// The texts of all ranks, in the order of ranks; empty on other ranks than 0.
std::string gathered(Communicator& comm, const std::string& mine) {
  const std::uint64_t length[1] = {mine.size()};
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(comm.ranks()));
  comm.all_gather(length, lengths);
  std::size_t sum = 0;
  for (const std::uint64_t each : lengths) sum += each;
  std::string all(comm.rank() == 0 ? sum : 0, ' ');
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  check(hocketGatherV(mine.data(), mine.size(), all.data(), counts.data(), nullptr, hocketUint8, 0,
                      comm.get(), nullptr),
        "hocketGatherV");
  return all;
}

/// Writes the text to the file. Returns an errno.
int write_file(const std::string& path, const std::string& text) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "w"), [](std::FILE* f) { return f ? std::fclose(f) : 0; });
  if (file == nullptr) return errno;
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                       std::fflush(file.get()) == 0;
  return written ? 0 : errno;
}

}  // namespace

StepTrace::StepTrace(Communicator& comm) : comm_(comm), first_(compare_clocks()) {}

/// Rank 0 exchanges messages with the first rank of every other host, which share a clock. The
/// shortest round trip counts: the other rank answered between its begin and its end.
StepTrace::Offset StepTrace::compare_clocks() {
  const std::vector<hocketMember_t> members = comm_.members();
  std::vector<int> leaders;  // by node
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const auto node = static_cast<std::size_t>(members[rank].node);
    if (node == leaders.size()) leaders.push_back(static_cast<int>(rank));
  }
  std::vector<double> of_nodes(2 * leaders.size());  // offset and uncertainty of each
  for (std::size_t node = 0; node < leaders.size(); ++node) {
    const int leader = leaders[node];
    if (leader <= 0) continue;
    double shortest = 1e300;
    for (int i = 0; i < round_trips; ++i) {
      double theirs[1] = {0};
      if (comm_.rank() == 0) {
        const double sent = now_s();
        comm_.send(theirs, leader);
        comm_.recv(theirs, leader);
        const double received = now_s();
        if (received - sent >= shortest) continue;
        shortest = received - sent;
        of_nodes[2 * node] = (sent + received) / 2 - theirs[0];
        of_nodes[2 * node + 1] = shortest / 2;
      } else if (comm_.rank() == leader) {
        comm_.recv(theirs, 0);
        theirs[0] = now_s();
        comm_.send(theirs, 0);
      }
    }
  }
  comm_.broadcast(of_nodes, 0);
  const auto mine = static_cast<std::size_t>(members[static_cast<std::size_t>(comm_.rank())].node);
  return {now_s(), of_nodes[2 * mine], of_nodes[2 * mine + 1]};
}

void StepTrace::add(const std::string& name, const std::string& row, double begin_s, double end_s,
                    const std::map<std::string, double>& values) {
  if (spans_.size() >= most_spans) {
    ++left_out_;
    return;
  }
  spans_.push_back({name, row, dumped(Json(values)), begin_s, end_s});
}

/// The clocks drift apart evenly between the two comparisons.
double StepTrace::common_us(double here_s, const Offset& last) const {
  const double span = last.at_s - first_.at_s;
  const double part = span > 0 ? (here_s - first_.at_s) / span : 0;
  return 1e6 * (here_s + first_.offset_s + part * (last.offset_s - first_.offset_s));
}

std::string StepTrace::text(const Offset& last) {
  const int rank = comm_.rank();
  std::string text =
      metadata("process_name", rank, 0,
               {{"name", "rank " + std::to_string(rank) + " (training)"}}) +
      metadata("process_sort_index", rank, 0, {{"sort_index", rank}}) +
      metadata("hocket_training", rank, 0,
               {{"clock_uncertainty_us", 1e6 * std::max(first_.uncertainty_s, last.uncertainty_s)},
                {"spans_left_out", left_out_}});
  std::unordered_map<std::string, int> rows;
  for (const Span& span : spans_) {
    const auto [row, is_new] = rows.emplace(span.row, static_cast<int>(rows.size()) + 1);
    if (is_new) text += metadata("thread_name", rank, row->second, {{"name", span.row}});
    const double begin_us = common_us(span.begin_s, last);
    Json event = {{"name", span.name}, {"cat", "training"},
                  {"ph", "X"},         {"dur", common_us(span.end_s, last) - begin_us},
                  {"pid", rank},       {"tid", row->second},
                  {"ts", begin_us},    {"args", Json::parse(span.values)}};
    text += dumped(event) + ",\n";
  }
  return text;
}

void StepTrace::write(const std::string& path) {
  const std::string all = gathered(comm_, text(compare_clocks()));
  std::int32_t problem[1] = {0};
  if (comm_.rank() == 0) {
    problem[0] = write_file(path, "[\n" + all.substr(0, all.size() - 2) + "\n]\n");
  }
  comm_.broadcast(problem, 0);
  if (problem[0] == 0) return;
  throw SystemError(trace_operation,
                    "rank 0 cannot write the trace to " + path + ": " + std::strerror(problem[0]) +
                        ". Name a file in a folder that "
                        "exists and has space",
                    0);
}

}  // namespace hocket::training
