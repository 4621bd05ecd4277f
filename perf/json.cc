// Writes the two JSON files.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "data.h"
#include "table.h"

namespace hocket::perf {
namespace {

using Json = nlohmann::ordered_json;

Json half_json(const Options& o, const Measured& m, int ranks, int nodes) {
  const auto each = [&m](double Summary::*figure) {
    return m.each ? Json((*m.each).*figure) : Json(nullptr);
  };
  Json object = {{"collective", o.name()},
                 {"method", name_of(o.method)},
                 {"bytes", m.bytes},
                 {"count", m.count},
                 {"dtype", o.dtype_name(m.dtype)},
                 {"redop", o.redop_name(m.op)},
                 {"root", m.root},
                 {"ranks", ranks},
                 {"nodes", nodes},
                 {"inplace", m.in_place},
                 {"memory", o.alloc_memory ? "alloc" : "plain"},
                 {"buffers", o.buffers},
                 {"blocking", static_cast<int>(o.blocking)},
                 {"iterations", o.iterations},
                 {"per_iteration", m.group},
                 {"time_us", m.time_us},
                 {"min_us", each(&Summary::min)},
                 {"p50_us", each(&Summary::p50)},
                 {"p95_us", each(&Summary::p95)},
                 {"p99_us", each(&Summary::p99)},
                 {"max_us", each(&Summary::max)},
                 {"variation_percent", each(&Summary::variation_percent)},
                 {"algbw_GBps", m.algbw_GBps},
                 {"busbw_GBps", m.busbw_GBps},
                 {"wrong", m.wrong},
                 {"algorithm", m.algorithm},
                 {"transport", m.transport}};
  if (o.checks == 0 || !o.has_data()) object["wrong"] = nullptr;
  if (o.cpu_time) object["cputime_us"] = m.shown_us;
  if (o.method == Method::aligned) {
    object["skew_us"] = m.skew_us;
    object["clock_uncertainty_us"] = m.uncertainty_us;
  }
  if (o.method == Method::overlap) {
    object["overall_us"] = m.overlap.overall_us;
    object["compute_us"] = m.overlap.compute_us;
    object["call_us"] = m.overlap.call_us;
    object["wait_us"] = m.overlap.wait_us;
    object["pure_us"] = m.overlap.pure_us;
    object["overlap_percent"] = m.overlap.percent();
  }
  return object;
}

Json nccl_half(const Options& o, const Measured& m) {
  Json object = {{o.cpu_time ? "cpu_time" : "time", m.shown_us},
                 {"alg_bw", m.algbw_GBps},
                 {"bus_bw", m.busbw_GBps},
                 {"nwrong", m.wrong}};
  if (o.checks == 0) object["nwrong"] = nullptr;
  return object;
}

/// The environment variables that affect the run; nccl-tests writes the whole environment.
Json environment() {
  Json list = Json::array();
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.rfind("HOCKET_", 0) == 0 || text.rfind("NCCL_TESTS_", 0) == 0) list.push_back(text);
  }
  return list;
}

Json nccl_config(const Options& o, const RunRecord& record) {
  Json config = {{"nthreads", 1},
                 {"ngpus", 1},
                 {"minimum_bytes", o.min_bytes},
                 {"maximum_bytes", o.max_bytes}};
  if (o.step_factor > 1) {
    config["step_factor"] = o.step_factor;
  } else {
    config["step_bytes"] = o.step_bytes;
  }
  config["warmup_iters"] = o.warmup_iterations;
  config["iterations"] = o.iterations;
  config["aggregated_iterations"] = o.aggregated;
  config["validation"] = o.checks;
  config["graph"] = 0;
  config["blocking_collectives"] = o.blocking == Blocking::stream ? "false" : "true";
  config["parallel_init"] = "false";
  config["devices"] = Json::array();
  for (std::size_t r = 0; r < record.places.size(); ++r) {
    const Place& place = record.places[r];
    config["devices"].push_back({{"rank", r},
                                 {"group", 0},
                                 {"pid", place.pid},
                                 {"hostname", place.host},
                                 {"device", place.local_rank},
                                 {"device_hex", "cpu"},
                                 {"device_info", "CPU memory"}});
  }
  return config;
}

}  // namespace

std::string to_json(const Options& o, const std::vector<Row>& rows, int ranks, int nodes) {
  Json all = Json::array();
  for (const Row& row : rows) {
    all.push_back(half_json(o, row.out_of_place, ranks, nodes));
    if (row.in_place) all.push_back(half_json(o, *row.in_place, ranks, nodes));
  }
  return all.dump(1) + "\n";
}

std::string to_nccl_json(const Options& o, const std::vector<Row>& rows, const RunRecord& record) {
  Totals totals;
  Json results = Json::array();
  for (const Row& row : rows) {
    const Measured& out = row.out_of_place;
    totals.add(out);
    if (row.in_place) totals.add(*row.in_place);
    results.push_back({{"size", out.bytes},
                       {"count", out.count},
                       {"type", o.dtype_name(out.dtype)},
                       {"redop", o.redop_name(out.op)},
                       {"root", std::to_string(out.root)},
                       {"out_of_place", nccl_half(o, out)},
                       {"in_place", row.in_place ? nccl_half(o, *row.in_place) : Json(nullptr)},
                       {"actual_iterations", o.iterations},
                       {"experiment_name", ""}});
  }
  const auto text_of = [](bool value) { return value ? "true" : "false"; };
  const Json object = {
      {"version", 1},
      {"start_time", record.start_time},
      {"args", record.arguments},
      {"env", environment()},
      {"hocket_version", HOCKET_VERSION_CODE},
      {"config", nccl_config(o, record)},
      {"results", results},
      {"out_of_bounds", {{"count", totals.wrong}, {"okay", text_of(totals.wrong == 0)}}},
      {"average_bus_bandwidth",
       {{"bandwidth", totals.average_busbw()},
        {"okay", o.min_bus_bandwidth ? text_of(totals.fast_enough(o)) : "unchecked"}}},
      {"errors", Json::array()},
      {"end_time", record.end_time}};
  return object.dump(1) + "\n";
}

}  // namespace hocket::perf
