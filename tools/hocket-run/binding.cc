#include "binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "round_robin.h"

namespace hocket::internal::launch {
namespace {

using Groups = std::vector<std::vector<std::size_t>>;  // indices of cores

int number_of(const Core& core, Part part) {
  switch (part) {
    case Part::numa:
      return core.numa;
    case Part::socket:
      return core.socket;
    case Part::l3cache:
      return core.l3cache;
    default:
      return 0;
  }
}

bool is_in(const Core& core, Part part) {
  return part != Part::l3cache || core.l3cache != no_cache;
}

/// The cores that are in such parts as the rules name.
std::vector<Core> cores_for(const std::vector<Core>& cores, const BindingRules& rules) {
  std::vector<Core> list;
  std::ranges::copy_if(cores, std::back_inserter(list), [&](const Core& core) {
    return is_in(core, rules.to) && is_in(core, rules.spread);
  });
  return list;
}

/// The cores of each part, in the order of the cores.
Groups divide(const std::vector<Core>& cores, Part part) {
  Groups groups;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    const auto same = [&](const std::vector<std::size_t>& group) {
      return part != Part::core && number_of(cores[group[0]], part) == number_of(cores[i], part);
    };
    auto group = std::ranges::find_if(groups, same);
    if (group == groups.end()) group = groups.insert(groups.end(), {{}});
    group->push_back(i);
  }
  return groups;
}

/// How many ranks each group takes.
std::vector<int> room_of(const Groups& groups, const BindingRules& rules, int ranks) {
  const bool has_shares = rules.to == Part::core && rules.spread != Part::core;
  std::vector<int> room;
  for (const auto& group : groups) {
    room.push_back(has_shares ? static_cast<int>(group.size()) / std::max(rules.cores_per_rank, 1)
                              : ranks);
  }
  return room;
}

/// For each rank, the index of its group of cores. Empty: the groups have no room for all ranks.
std::vector<std::size_t> groups_of_ranks(const Groups& groups, const BindingRules& rules,
                                         int ranks) {
  const std::vector<int> room = room_of(groups, rules, ranks);
  if (rules.ranks_per_part == 0) {
    const bool suffices = std::accumulate(room.begin(), room.end(), 0L) >= ranks;
    return suffices ? round_robin(room, ranks) : std::vector<std::size_t>();
  }
  std::vector<std::size_t> group_of;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto group = static_cast<std::size_t>(rank / rules.ranks_per_part);
    if (group >= groups.size() || rank % rules.ranks_per_part >= room[group]) return {};
    group_of.push_back(group);
  }
  return group_of;
}

/// The rank-th of `ranks` shares of a group.
Binding binding_of(const std::vector<Core>& cores, const std::vector<std::size_t>& group, Part to,
                   std::size_t rank, std::size_t ranks) {
  const std::size_t first = group.size() * rank / ranks;
  // Ranks of one core share it.
  const std::size_t end = std::max(group.size() * (rank + 1) / ranks, first + 1);
  Binding binding;
  const auto take = [&](const Core& core) {
    std::ranges::copy(core.cpus, std::back_inserter(binding.cpus));
  };
  if (to == Part::core) {
    for (std::size_t i = first; i < end; ++i) take(cores[group[i]]);
    binding.where = parts_text(end - first, Part::core);
  } else {
    const int number = number_of(cores[group[first]], to);
    for (const Core& core : cores) {
      if (number_of(core, to) == number) take(core);
    }
    binding.where = fmt::format("{} {}", name_of(to), number);
  }
  std::ranges::sort(binding.cpus);
  return binding;
}

std::string cores_of_rank_text(const BindingRules& rules) {
  const auto count = static_cast<std::size_t>(rules.cores_per_rank);
  return count == 1 ? "a core" : parts_text(count, Part::core);
}

/// Names the first part of the host that has no room for its ranks, for an error. For
/// --map-by ppr:N:PART.
std::string full_part_text(const std::vector<Core>& cores, const BindingRules& rules, int ranks) {
  const Groups groups = divide(cores, rules.spread);
  const std::vector<int> room = room_of(groups, rules, ranks);
  int left = ranks;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const int here = std::min(left, rules.ranks_per_part);
    if (here > room[group]) {
      return fmt::format("{} {} has {} for {} {}; --bind-to core needs {} for each rank",
                         name_of(rules.spread), number_of(cores[groups[group][0]], rules.spread),
                         parts_text(groups[group].size(), Part::core), here,
                         here == 1 ? "rank" : "ranks", cores_of_rank_text(rules));
    }
    left -= here;
  }
  return fmt::format("{} ranks, {} for each {}, but they may run on {} only", ranks,
                     rules.ranks_per_part, name_of(rules.spread),
                     parts_text(groups.size(), rules.spread));
}

}  // namespace

const char* name_of(Part part) {
  switch (part) {
    case Part::numa:
      return "NUMA node";
    case Part::socket:
      return "socket";
    case Part::l3cache:
      return "L3 cache";
    default:
      return "core";
  }
}

std::string parts_text(std::size_t count, Part part) {
  return fmt::format("{} {}{}", count, name_of(part), count == 1 ? "" : "s");
}

std::size_t count_parts(const std::vector<Core>& cores, Part part) {
  return divide(cores_for(cores, {part, part}), part).size();
}

std::vector<Binding> bindings(const std::vector<Core>& cores, const BindingRules& rules,
                              int ranks) {
  std::vector<Binding> all(static_cast<std::size_t>(ranks));
  if (rules.to == Part::none) return all;
  const std::vector<Core> usable = cores_for(cores, rules);
  const Groups groups = divide(usable, rules.spread);
  const std::vector<std::size_t> group_of = groups_of_ranks(groups, rules, ranks);
  std::vector<std::size_t> count(groups.size());
  for (const std::size_t group : group_of) ++count[group];
  std::vector<std::size_t> next(groups.size());
  for (std::size_t rank = 0; rank < group_of.size(); ++rank) {
    const std::size_t group = group_of[rank];
    all[rank] = binding_of(usable, groups[group], rules.to, next[group]++, count[group]);
  }
  return all;
}

std::string no_room_text(const std::vector<Core>& cores, const BindingRules& rules, int ranks) {
  const std::vector<Core> usable = cores_for(cores, rules);
  if (usable.empty()) return "hwloc knows no L3 cache of the cores on which they may run";
  if (rules.ranks_per_part != 0) return full_part_text(usable, rules, ranks);
  const std::string within =
      rules.spread == Part::none ? "" : fmt::format(" of one {}", name_of(rules.spread));
  return fmt::format(
      "{} ranks, but they may run on {} only; --bind-to core needs {}{} for each rank", ranks,
      parts_text(usable.size(), Part::core), cores_of_rank_text(rules), within);
}

}  // namespace hocket::internal::launch
