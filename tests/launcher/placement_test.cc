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

TEST(Placement, fills_the_hosts_or_takes_them_in_turn) {
  const std::vector<HostSlots> three = {{"a", 3}, {"b"}, {"c", 2}};
  const struct {
    const char* map_by;
    int ranks;  // 0: not given
    std::vector<HostSlots> hosts;
    const char* expected;
  } rows[] = {
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
  };
  for (const auto& row : rows) {
    EXPECT_TRUE(placed(row.map_by, row.ranks, row.hosts).starts_with(row.expected))
        << row.map_by << " " << row.ranks << ": " << placed(row.map_by, row.ranks, row.hosts);
  }
}

TEST(Placement, map_by_says_to_what_ranks_are_bound_unless_bind_to_does) {
  const struct {
    const char* map_by;
    const char* bind_to;
    Part to;
    Part spread;
    int cores;
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
  };
  for (const auto& row : rows) {
    MapBy map_by;
    launch::BindingRules rules;
    EXPECT_TRUE(launch::parse_map_by(row.map_by, &map_by).ok()) << row.map_by;
    EXPECT_TRUE(launch::binding_rules(row.bind_to, map_by, &rules).ok()) << row.map_by;
    EXPECT_EQ(rules.to, row.to) << row.map_by;
    EXPECT_EQ(rules.spread, row.spread) << row.map_by;
    EXPECT_EQ(rules.cores_per_rank, row.cores) << row.map_by;
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
      {"", "'' is not complete; write slot, node, ppr:N:node, core, l3cache, numa or"},
      {"numa:", "'numa:' is not complete"},
      {"nodes", "'nodes' has 'nodes', which is not known; write slot"},
      {"hwthread", "hocket-run has no 'hwthread': a rank has whole cores"},
      {"l2cache:PE=2", "hocket-run has no 'l2cache': write core"},
      {"seq", "hocket-run has no 'seq': write the hosts in the order of the ranks"},
      {"rankfile:FILE=x", "hocket-run has no 'rankfile'"},
      {"pe-list=0,1", "hocket-run has no 'pe-list=0,1': write `taskset -c LIST"},
      {"node:OVERSUBSCRIBE", "hocket-run has no 'oversubscribe': it is not needed"},
      {"numa:span", "hocket-run has no 'span': write node"},
      {"numa:PE=0", "'numa:PE=0' has no valid number of cores; write :PE=N"},
      {"numa:PE=2x", "'numa:PE=2x' has no valid number of cores"},
      {"ppr", "'ppr' has no valid number of ranks; write ppr:N:node"},
      {"ppr:x:node", "'ppr:x:node' has no valid number of ranks"},
      {"ppr:2:numa", "'ppr:2:numa' needs the number of such parts of a host"},
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
