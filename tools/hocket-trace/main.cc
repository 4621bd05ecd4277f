// hocket-trace joins the traces of the ranks of a job (HOCKET_TRACE) to one file for a viewer of
// Chrome's trace format, and says which ranks the others waited for.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

using Json = nlohmann::json;

/// When the ranks began one collective, by rank.
using Begins = std::map<int, double>;

struct Communicator {
  std::string name;
  int ranks = 0;
  double uncertainty_us = 0;
  std::map<std::uint64_t, Begins> collectives;  // by sequence number
};

struct Trace {
  std::vector<std::string> events;  // one JSON object each
  std::map<std::string, Communicator> communicators;
};

/// Adds a rank's file. The last line of a process that was killed may be cut off: it is left out.
void add_file(const std::filesystem::path& path, Trace* trace) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(fmt::format("cannot open {}", path.string()));
  std::string line;
  int rank = -1, number = 0;
  while (std::getline(file, line)) {
    ++number;
    const bool cut_off = file.eof();
    if (line == "[" || line == "]" || line.empty()) continue;
    if (line.ends_with(',')) line.pop_back();
    const Json event = Json::parse(line, nullptr, false);
    if (event.is_discarded() && cut_off) return;
    if (event.is_discarded() || !(event.contains("args") || event.value("ph", "") == "e")) {
      throw std::runtime_error(fmt::format("{}:{} is no event of a trace", path.string(), number));
    }
    trace->events.push_back(line);
    if (event.value("name", "") == "hocket_communicator") {
      const Json& about = event["args"];
      Communicator& communicator = trace->communicators[about["communicator"]];
      rank = about["rank"];
      communicator.name = about["name"];
      communicator.ranks = about["ranks"];
      communicator.uncertainty_us =
          std::max(communicator.uncertainty_us, about["clock_uncertainty_us"].get<double>());
    } else if (event.value("cat", "") == "collective") {
      const Json& about = event["args"];
      trace->communicators[about["communicator"]].collectives[about["sequence"]][rank] =
          event["ts"];
    }
  }
}

Trace read(const std::vector<std::string>& places) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& place : places) {
    if (!std::filesystem::is_directory(place)) {
      paths.emplace_back(place);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(place)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("hocket-trace-") && name.ends_with(".json"))
        paths.push_back(entry.path());
    }
  }
  if (paths.empty()) throw std::runtime_error("there is no file hocket-trace-*.json");
  std::ranges::sort(paths);
  Trace trace;
  for (const auto& path : paths) add_file(path, &trace);
  return trace;
}

void write(const Trace& trace, std::FILE* out) {
  const char* before = "[\n";
  for (const std::string& event : trace.events) {
    fmt::print(out, "{}{}", before, event);
    before = ",\n";
  }
  fmt::print(out, "\n]\n");
  if (std::fflush(out) != 0) throw std::runtime_error("cannot write the trace");
}

/// Which rank came last to how many collectives, and how long the others had waited for it.
void summarise(const Trace& trace, std::FILE* out) {
  struct Late {
    std::size_t times = 0;
    double waited_us = 0;
  };
  for (const auto& [id, communicator] : trace.communicators) {
    std::map<int, Late> late;
    std::size_t complete = 0;
    for (const auto& [sequence, begins] : communicator.collectives) {
      if (begins.size() != static_cast<std::size_t>(communicator.ranks) || begins.size() < 2)
        continue;
      ++complete;
      const auto last =
          std::ranges::max_element(begins, {}, [](auto& begin) { return begin.second; });
      Late& rank = late[last->first];
      ++rank.times;
      for (const auto& [other, begin] : begins) rank.waited_us += last->second - begin;
    }
    fmt::print(out, "'{}' ({}): {} ranks, {} collectives of all ranks, clocks +- {:.1f} us\n",
               communicator.name, id, communicator.ranks, complete, communicator.uncertainty_us);
    for (const auto& [rank, times] : late) {
      fmt::print(out, "  rank {} came last {} times; the others waited {:.3f} ms for it in all\n",
                 rank, times.times, times.waited_us / 1000);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Joins the files that ranks wrote with HOCKET_TRACE=FOLDER to one JSON file, to be opened in "
      "ui.perfetto.dev or chrome://tracing. Standard error tells which ranks came last.");
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("hocket-trace: {}; see hocket-trace --help\n", error.what());
  });
  std::vector<std::string> places;
  std::string output;
  app.add_option("FOLDER", places, "the folder, or files of it")->required();
  app.add_option("-o,--output", output, "the file to write (default: standard output)");
  CLI11_PARSE(app, argc, argv);
  try {
    const Trace trace = read(places);
    std::FILE* const out = output.empty() ? stdout : std::fopen(output.c_str(), "w");
    if (out == nullptr) throw std::runtime_error("cannot open " + output);
    write(trace, out);
    summarise(trace, stderr);
  } catch (const std::exception& error) {
    fmt::print(stderr, "hocket-trace: {}\n", error.what());
    return 1;
  }
  return 0;
}
