// hocket-topo plan draws the plans of an algorithm: as text, as a picture of the messages of all
// ranks, and as a file that a user can change and load.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithms/builders.h"
#include "collectives/plan/json.h"
#include "svg.h"
#include "walk.h"

namespace {

using namespace hocket::internal;

struct Options {
  std::string collective, algorithm, svg, json;
  std::uint32_t ranks = 4;
  std::vector<std::uint32_t> nodes;  // their sizes; empty: none are given
  int rank = -1;                     // -1: all
  std::int32_t root = 0;
  bool node = false, varying = false, widened = false;

  Medium medium() const {
    if (!nodes.empty()) return Medium::both;
    return node ? Medium::node : Medium::messages;
  }
};

/// Nodes of those sizes, whose ranks follow one another.
std::optional<Layout> layout_of(const Options& options) {
  if (options.nodes.empty()) return {};
  std::vector<std::uint32_t> node_of;
  for (std::uint32_t node = 0; node < options.nodes.size(); ++node) {
    node_of.insert(node_of.end(), options.nodes[node], node);
  }
  return Layout(node_of);
}

const Builder& find(const Options& options) {
  std::string algorithms;
  for (const Builder& builder : builders()) {
    if (name_of(builder.collective) != options.collective || builder.medium != options.medium()) {
      continue;
    }
    if (builder.is_named(options.algorithm)) return builder;
    algorithms += fmt::format("{}{}", algorithms.empty() ? "" : ", ", builder.algorithm);
  }
  const char* const links = !options.nodes.empty() ? "between nodes"
                            : options.node         ? "within a node"
                                                   : "over messages";
  throw std::runtime_error(
      algorithms.empty() ? fmt::format("there is no '{}' {}", options.collective, links)
                         : fmt::format("'{}' is none of the algorithms for {} {}: {}",
                                       options.algorithm, options.collective, links, algorithms));
}

std::vector<Plan> plans_of(const Builder& builder, const Options& options, const Layout* layout) {
  const bool rooted = row_of(builder.collective).rooted;
  if (is_p2p(builder.collective)) throw std::runtime_error("a send or a recv is one message");
  if (rooted && (options.root < 0 || options.root >= static_cast<std::int64_t>(options.ranks))) {
    throw std::runtime_error(fmt::format("there is no rank {}", options.root));
  }
  if (options.varying && !builder.varying) {
    throw std::runtime_error("that algorithm needs blocks of equal counts");
  }
  std::vector<Plan> plans;
  for (std::uint32_t rank = 0; rank < options.ranks; ++rank) {
    plans.push_back(builder.build({.collective = builder.collective,
                                   .rank = rank,
                                   .ranks = options.ranks,
                                   .root = rooted ? options.root : -1,
                                   .varying = options.varying,
                                   .widened = options.widened,
                                   .layout = layout}));
  }
  return plans;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void write_picture(const Options& options, const std::vector<Plan>& plans) {
  hocket::topo::Walk walk;
  const Status status = hocket::topo::walk(plans, &walk);
  if (!status.ok()) throw std::runtime_error(status.message());
  const std::string title =
      fmt::format("{} by {}, {} ranks", options.collective, options.algorithm, options.ranks);
  write_file(options.svg, hocket::topo::svg_of(title, options.ranks, walk));
}

/// Writes the plans of all roots. A user's plan needs a name of its own.
void write_plans(Options options, const Layout* layout) {
  const Builder& builder = find(options);
  const CollectiveRow& row = row_of(builder.collective);
  if (options.ranks < 2 || options.ranks > most_ranks_of_file) {
    throw std::runtime_error(
        fmt::format("a plan of a user is for 2 to {} ranks", most_ranks_of_file));
  }
  options.widened = row.reduces;
  options.varying = false;
  std::vector<Plan> plans;
  const auto roots = static_cast<std::int32_t>(row.rooted ? options.ranks : 1);
  for (options.root = 0; options.root < roots; ++options.root) {
    for (Plan& plan : plans_of(builder, options, layout)) {
      plan.algorithm = "my-" + options.algorithm;
      plans.push_back(std::move(plan));
    }
  }
  const std::string text = write_json(plans, builder.varying);
  // The limits of files are those of plans that users write.
  PlanFile file;
  Status status = read_plan(text, options.json, &file);
  for (const Plan& plan : plans) {
    Plan again;
    if (status.ok()) status = file.build(plan.shape, &again);
  }
  if (!status.ok()) throw std::runtime_error(status.message());
  write_file(options.json, text);
}

void draw(Options options) {
  const std::optional<Layout> layout = layout_of(options);
  if (layout) options.ranks = layout->ranks();
  const std::vector<Plan> plans = plans_of(find(options), options, layout ? &*layout : nullptr);
  if (options.rank >= static_cast<std::int64_t>(options.ranks)) {
    throw std::runtime_error(fmt::format("there is no rank {}", options.rank));
  }
  for (const Plan& plan : plans) {
    const bool asked = options.rank < 0 || plan.shape.rank == static_cast<unsigned>(options.rank);
    if (asked) fmt::print("{}\n", print(plan));
  }
  if (!options.svg.empty()) write_picture(options, plans);
  if (!options.json.empty()) write_plans(options, layout ? &*layout : nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Draws how hocket's algorithms work.");
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("hocket-topo: {}; see hocket-topo plan --help\n", error.what());
  });
  app.require_subcommand(1);
  Options options;
  CLI::App* const plan = app.add_subcommand(
      "plan", "prints the plans of an algorithm, and draws the messages of all ranks");
  plan->add_option("COLLECTIVE", options.collective, "all-reduce, broadcast, ... (or all_reduce)")
      ->required();
  plan->add_option("--algorithm", options.algorithm, "a value of HOCKET_ALGORITHM")->required();
  plan->add_option("--ranks", options.ranks, "how many ranks")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  plan->add_option("--rank", options.rank, "print the plan of this rank alone");
  plan->add_option("--root", options.root, "of a rooted collective")->capture_default_str();
  plan->add_option("--svg", options.svg, "write a picture to this file");
  plan->add_option("--json", options.json,
                   "write the plans of all ranks and roots to this file, which hocket loads as "
                   "'my-ALGORITHM'");
  plan->add_option("--nodes", options.nodes, "the ranks of each node, as in 2,2 or 1,4,2")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  plan->add_flag("--node", options.node, "the ranks share a node and its memory");
  plan->add_flag("--varying", options.varying, "blocks have different counts");
  plan->add_flag("--widened", options.widened, "partial results are wider: fp16, bf16, fp8");
  CLI11_PARSE(app, argc, argv);
  std::ranges::replace(options.collective, '_', '-');
  try {
    draw(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "hocket-topo: {}\n", error.what());
    return 1;
  }
  return 0;
}
