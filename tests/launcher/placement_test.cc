// --map-by of hocket-run, and which ranks it places on which host.
#include "placement.h"

#include <gtest/gtest.h>

namespace hocket::internal::launch_test {
namespace {

using launch::HostSlots;
using launch::MapBy;
using launch::Part;

/// "a: 0 1, b: 2", or the error.
std::string placed(const std::string& map_by, int ranks, std::vector<HostSlots> hosts) {
  MapBy parsed;
  Status status = launch::parse_map_by(map_by, &parsed);
  if (status.ok()) status = launch::complete_hosts(parsed, ranks, &hosts);
  if (status.ok()) status = launch::place_ranks(parsed, "--hosts", &ranks, &hosts);
  if (!status.ok()) return status.message();
  std::string text;
  int sum = 0;
  for (const HostSlots& host : hosts) {
    text += (text.empty() ? "" : ", ") + host.name + ":";
    for (const int rank : host.ranks) text += " " + std::to_string(rank);
    sum += static_cast<int>(host.ranks.size());
  }
  EXPECT_EQ(sum, ranks);
  return text;
}

struct Placed {
  const char* map_by;
  int ranks;  // 0: not given
  std::vector<HostSlots> hosts;
  const char* expected;  // how what placed() returns begins
};

void expect_placed(const std::vector<Placed>& rows) {
  for (const Placed& row : rows) {
    const std::string text = placed(row.map_by, row.ranks, row.hosts);
    EXPECT_TRUE(text.starts_with(row.expected)) << row.map_by << " " << row.ranks << ": " << text;
  }
}

TEST(Placement, fills_the_hosts_or_takes_them_in_turn) {
  const std::vector<HostSlots> three = {{"a", 3}, {"b"}, {"c", 2}};
  expect_placed({
      {"slot", 0, three, "a: 0 1 2, b: 3, c: 4 5"},
      {"slot", 4, three, "a: 0 1 2, b: 3"},
      {"node", 0, three, "a: 0 3 5, b: 1, c: 2 4"},
      {"node", 2, three, "a: 0, b: 1"},
      {"node", 4, three, "a: 0 3, b: 1, c: 2"},
      {"numa", 4, three, "a: 0 1 2, b: 3"},
      {"core", 2, {}, ": 0 1"},
      {"node", 2, {}, ": 0 1"},
      {"ppr:2:node", 0, {{"a"}, {"b"}}, "a: 0 1, b: 2 3"},
      {"ppr:2:node", 3, {{"a"}, {"b", 5}}, "a: 0 1, b: 2"},
      {"ppr:2:node:pe=4", 0, {}, ": 0 1"},
      {"slot", 7, three, "-n 7 asks for more ranks than --hosts has room for (6)"},
      {"ppr:2:node", 5, {{"a"}, {"b"}}, "-n 5 asks for more ranks than --hosts has room for (4)"},
      {"ppr:2:node", 3, {}, "-n 3 asks for more ranks than --map-by has room for (2)"},
      {"ppr:4:node", 0, three, "--map-by ppr:4:node: a has room for 3 only in --hosts"},
      {"slot", 0, {}, "the number of ranks is missing"},
      {"slot", 0, {{"a", 65535}, {"b"}}, "--hosts asks for 65536 ranks, but a job has at most"},
  });
}

/// Hosts with these numbers of parts, as their agents have counted them.
std::vector<HostSlots> with_parts(std::vector<HostSlots> hosts, const std::vector<int>& parts) {
  for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i].parts = parts[i];
  return hosts;
}

TEST(Placement, gives_ranks_to_each_part_of_all_hosts) {
  const std::vector<HostSlots> two = with_parts({{"a"}, {"b"}}, {1, 3});
  const std::vector<HostSlots> here = with_parts({{""}}, {2});
  expect_placed({
      {"ppr:2:numa", 0, two, "a: 0 1, b: 2 3 4 5 6 7"},
      {"ppr:1:socket", 0, two, "a: 0, b: 1 2 3"},
      {"ppr:1:package", 0, here, ": 0 1"},
      {"ppr:3:core", 0, here, ": 0 1 2 3 4 5"},
      {"ppr:1:l3cache", 2, two, "a: 0, b: 1"},
      {"ppr:2:numa", 2, two, "a: 0 1"},
      {"ppr:2:numa", 8, two, "a: 0 1, b: 2 3 4 5 6 7"},
      {"ppr:2:numa:PE=2", 3, two, "a: 0 1, b: 2"},
      {"ppr:1:numa", 0, with_parts({{"a", 1}, {"b", 4}}, {1, 3}), "a: 0, b: 1 2 3"},
      {"ppr:65535:core", 2, two, "a: 0 1"},
      {"ppr:2:numa", 9, two,
       "-n 9 asks for more ranks than --map-by ppr:2:numa has room for (8): a has 1 NUMA node, b "
       "has 3 NUMA nodes; use fewer ranks, more hosts or a larger N in ppr:N"},
      {"ppr:1:l3cache", 3, here,
       "-n 3 asks for more ranks than --map-by ppr:1:l3cache has room for (2): this host has 2 L3 "
       "caches; use"},
      {"ppr:1:core", 99, std::vector<HostSlots>(9, {"a", 0, false, {}, 1}),
       "-n 99 asks for more ranks than --map-by ppr:1:core has room for (9): a has 1 core, a has 1 "
       "core, a has 1 core, a has 1 core, a has 1 core, a has 1 core, a has 1 core, a has 1 core, "
       "...; use"},
      {"ppr:2:numa", 0, with_parts({{"a", 2}, {"b", 5}}, {1, 3}),
       "--map-by ppr:2:numa: b has 3 NUMA nodes, so 6 ranks, but room for 5 only in --hosts; leave "
       "out that number, or raise it"},
      {"ppr:60000:socket", 0, two,
       "--map-by ppr:60000:socket: b has 3 sockets, so 180000 ranks, but a job has at most 65535"},
      {"ppr:20000:socket", 0, two,
       "--map-by ppr:20000:socket asks for 80000 ranks, but a job has at most 65535"},
  });
  MapBy map_by;
  for (const auto& [text, needs] : {std::pair("ppr:2:node", false),
                                    {"numa", false},
                                    {"ppr:2:numa", true},
                                    {"ppr:2:core", true}}) {
    EXPECT_TRUE(launch::parse_map_by(text, &map_by).ok());
    EXPECT_EQ(map_by.needs_parts(), needs) << text;
  }
}

TEST(Placement, map_by_says_to_what_ranks_are_bound_unless_bind_to_does) {
  const struct {
    const char* map_by;
    const char* bind_to;
    Part to;
    Part spread;
    int cores;
    int ranks_per_part = 0;
  } rows[] = {
      {"slot", "", Part::none, Part::none, 1},
      {"slot", "core", Part::core, Part::none, 1},
      {"slot:PE=2", "", Part::core, Part::none, 2},
      {":PE=2", "", Part::core, Part::none, 2},
      {"ppr:2:node:PE=2", "core", Part::core, Part::none, 2},
      {"node", "", Part::none, Part::none, 1},
      {"core", "", Part::core, Part::none, 1},
      {"numa", "", Part::numa, Part::numa, 1},
      {"NUMA", "none", Part::none, Part::numa, 1},
      {"numa:pe=3", "", Part::core, Part::numa, 3},
      {"socket", "numa", Part::numa, Part::socket, 1},
      {"package", "", Part::socket, Part::socket, 1},
      {"slot", "package", Part::socket, Part::none, 1},
      {"l3cache", "", Part::l3cache, Part::l3cache, 1},
      {"L3CACHE:PE=2", "", Part::core, Part::l3cache, 2},
      {"slot", "l3cache", Part::l3cache, Part::none, 1},
      {"ppr:3:numa", "", Part::numa, Part::numa, 1, 3},
      {"ppr:3:package", "", Part::socket, Part::socket, 1, 3},
      {"ppr:1:l3cache:PE=4", "", Part::core, Part::l3cache, 4, 1},
      {"ppr:2:l3cache", "numa", Part::numa, Part::l3cache, 1, 2},
      {"ppr:2:core", "", Part::core, Part::core, 1, 2},
      {"ppr:2:core", "none", Part::none, Part::core, 1, 2},
      {"ppr:2:node", "", Part::none, Part::none, 1},
  };
  for (const auto& row : rows) {
    MapBy map_by;
    launch::BindingRules rules;
    EXPECT_TRUE(launch::parse_map_by(row.map_by, &map_by).ok()) << row.map_by;
    EXPECT_TRUE(launch::binding_rules(row.bind_to, map_by, &rules).ok()) << row.map_by;
    EXPECT_EQ(rules.to, row.to) << row.map_by;
    EXPECT_EQ(rules.spread, row.spread) << row.map_by;
    EXPECT_EQ(rules.cores_per_rank, row.cores) << row.map_by;
    EXPECT_EQ(rules.ranks_per_part, row.ranks_per_part) << row.map_by;
  }
  for (const char* bind_to : {"numa", "socket", "none"}) {
    MapBy map_by;
    launch::BindingRules rules;
    EXPECT_TRUE(launch::parse_map_by("slot:PE=2", &map_by).ok());
    EXPECT_NE(launch::binding_rules(bind_to, map_by, &rules)
                  .message()
                  .find(std::string("write --bind-to core instead of --bind-to ") + bind_to),
              std::string::npos);
  }
}

TEST(Placement, what_map_by_does_not_have_is_refused_by_name_with_what_to_write) {
  const struct {
    const char* map_by;
    const char* said;
  } rows[] = {
      {"", "'' is not complete; write slot, node, core, l3cache, numa, socket, or ppr:N: before"},
      {"numa:", "'numa:' is not complete"},
      {"nodes", "'nodes' has 'nodes', which is not known; write slot"},
      {"hwthread", "hocket-run has no 'hwthread': a rank has whole cores"},
      {"l2cache:PE=2", "hocket-run has no 'l2cache': write core"},
      {"seq", "hocket-run has no 'seq': write the hosts in the order of the ranks"},
      {"rankfile:FILE=x", "hocket-run has no 'rankfile'"},
      {"pe-list=0,1", "hocket-run has no 'pe-list=0,1': write `taskset -c LIST"},
      {"node:OVERSUBSCRIBE", "hocket-run has no 'oversubscribe': it is not needed"},
      {"numa:span", "hocket-run has no 'span': write node"},
      {":DISPLAY", "hocket-run has no 'display': --report-bindings says"},
      {"slot:donotlaunch", "hocket-run has no 'donotlaunch': write --show-placement"},
      {"numa:PE=0", "'numa:PE=0' has no valid number of cores; write :PE=N"},
      {"numa:PE=2x", "'numa:PE=2x' has no valid number of cores"},
      {"ppr", "'ppr' has no valid number of ranks; write ppr:N:node, ppr:N:core, ppr:N:l3cache"},
      {"ppr:x:node", "'ppr:x:node' has no valid number of ranks"},
      {"ppr:0:numa", "'ppr:0:numa' has no valid number of ranks"},
      {"ppr:2:hwthread", "hocket-run has no 'hwthread': a rank has whole cores"},
      {"ppr:2:slot", "'ppr:2:slot' has 'slot', which is not known; write ppr:N:node, ppr:N:core"},
      {"ppr:2", "'ppr:2' is not complete; write ppr:N:node, ppr:N:core"},
      {"ppr:2:", "'ppr:2:' is not complete; write ppr:N:node, ppr:N:core"},
      {"ppr:2:core:PE=2",
       "'ppr:2:core:PE=2' says how many cores a rank needs, but a rank that goes to a core has "
       "that core; leave out PE, or write ppr:N:numa:PE=N"},
      {"ppr:2:node:x", "'ppr:2:node:x' has 'x', which is not known"},
  };
  for (const auto& row : rows) {
    MapBy map_by;
    const std::string message = launch::parse_map_by(row.map_by, &map_by).message();
    EXPECT_TRUE(message.starts_with(std::string("--map-by: ") + row.said)) << message;
  }
}

}  // namespace
}  // namespace hocket::internal::launch_test
