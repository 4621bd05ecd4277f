#include "binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "round_robin.h"

namespace hocket::internal::launch {
namespace {

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

/// The indices of the cores of each part, in the order of the cores.
std::vector<std::vector<std::size_t>> divide(const std::vector<Core>& cores, Part part) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    const auto same = [&](const std::vector<std::size_t>& group) {
      return number_of(cores[group[0]], part) == number_of(cores[i], part);
    };
    auto group = std::ranges::find_if(groups, same);
    if (group == groups.end()) group = groups.insert(groups.end(), {{}});
    group->push_back(i);
  }
  return groups;
}

/// How many ranks each group takes.
std::vector<int> room_of(const std::vector<std::vector<std::size_t>>& groups,
                         const BindingRules& rules, int ranks) {
  std::vector<int> room;
  for (const auto& group : groups) {
    room.push_back(rules.to == Part::core
                       ? static_cast<int>(group.size()) / std::max(rules.cores_per_rank, 1)
                       : ranks);
  }
  return room;
}

/// The rank-th of `ranks` shares of a group.
Binding binding_of(const std::vector<Core>& cores, const std::vector<std::size_t>& group, Part to,
                   std::size_t rank, std::size_t ranks) {
  const std::size_t first = group.size() * rank / ranks;
  const std::size_t end = group.size() * (rank + 1) / ranks;
  Binding binding;
  const auto take = [&](const Core& core) {
    std::ranges::copy(core.cpus, std::back_inserter(binding.cpus));
  };
  if (to == Part::core) {
    for (std::size_t i = first; i < end; ++i) take(cores[group[i]]);
    binding.where = cores_text(end - first);
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

std::string cores_text(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " core" : " cores");
}

std::vector<Binding> bindings(const std::vector<Core>& cores, const BindingRules& rules,
                              int ranks) {
  std::vector<Binding> all(static_cast<std::size_t>(ranks));
  if (rules.to == Part::none) return all;
  const std::vector<Core> usable = cores_for(cores, rules);
  const auto groups = divide(usable, rules.spread);
  const std::vector<int> room = room_of(groups, rules, ranks);
  if (std::accumulate(room.begin(), room.end(), 0L) < ranks) return all;
  const std::vector<std::size_t> group_of = round_robin(room, ranks);
  std::vector<std::size_t> count(groups.size());
  for (const std::size_t group : group_of) ++count[group];
  std::vector<std::size_t> next(groups.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::size_t group = group_of[rank];
    all[rank] = binding_of(usable, groups[group], rules.to, next[group]++, count[group]);
  }
  return all;
}

std::string no_room_text(const std::vector<Core>& cores, const BindingRules& rules, int ranks) {
  const std::vector<Core> usable = cores_for(cores, rules);
  if (usable.empty()) return "hwloc knows no L3 cache of the cores on which they may run";
  const std::string each = rules.cores_per_rank == 1
                               ? "a core"
                               : cores_text(static_cast<std::size_t>(rules.cores_per_rank));
  const std::string within =
      rules.spread == Part::none ? "" : fmt::format(" of one {}", name_of(rules.spread));
  return fmt::format(
      "{} ranks, but they may run on {} only; --bind-to core needs {}{} for each rank", ranks,
      cores_text(usable.size()), each, within);
}

}  // namespace hocket::internal::launch
