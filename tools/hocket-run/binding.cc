#include "binding.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

namespace hocket::internal::launch {
namespace {

Cpus read_list(const std::string& path) {
  std::string text;
  std::ifstream(path) >> text;
  return parse_cpus(text);
}

/// The NUMA node of each CPU.
std::map<int, int> read_nodes(const std::string& system) {
  std::map<int, int> nodes;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(system + "/node", error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const Cpus number = name.starts_with("node") ? parse_cpus(name.substr(4)) : Cpus();
    if (number.size() != 1) continue;
    for (const int cpu : read_list(entry->path().string() + "/cpulist")) nodes[cpu] = number[0];
  }
  return nodes;
}

/// The number of cores before the share of a rank: shares of all ranks together are all cores.
std::size_t first_core(std::size_t cores, int rank, int ranks) {
  return cores * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks);
}

}  // namespace

std::string cores_text(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " core" : " cores");
}

std::vector<Core> read_cores(const Cpus& allowed, const std::string& system) {
  const std::map<int, int> nodes = read_nodes(system);
  std::vector<Core> cores;
  std::map<int, std::size_t> core_of;  // by the first hardware thread of the core
  for (const int cpu : allowed) {
    const std::string folder = system + "/cpu/cpu" + std::to_string(cpu) + "/topology/";
    Cpus threads = read_list(folder + "core_cpus_list");
    if (threads.empty()) threads = read_list(folder + "thread_siblings_list");  // Linux < 5.3
    const int first = threads.empty() ? cpu : threads[0];
    const auto [known, is_new] = core_of.try_emplace(first, cores.size());
    const auto node = nodes.find(cpu);
    if (is_new) cores.push_back({{}, node == nodes.end() ? 0 : node->second});
    cores[known->second].cpus.push_back(cpu);
  }
  std::ranges::stable_sort(cores, {}, &Core::node);
  return cores;
}

std::vector<Binding> bindings(const std::vector<Core>& cores, BindTo to, int ranks) {
  std::vector<Binding> all(static_cast<std::size_t>(ranks));
  if (to == BindTo::none || cores.empty()) return all;
  if (to == BindTo::core && cores.size() < all.size()) return all;
  for (int rank = 0; rank < ranks; ++rank) {
    Binding& binding = all[static_cast<std::size_t>(rank)];
    const std::size_t first = first_core(cores.size(), rank, ranks);
    const std::size_t end = first_core(cores.size(), rank + 1, ranks);
    const auto belongs = [&](std::size_t core) {
      if (to == BindTo::core) return core >= first && core < end;
      return cores[core].node == cores[first].node;
    };
    for (std::size_t core = 0; core < cores.size(); ++core) {
      if (belongs(core)) std::ranges::copy(cores[core].cpus, std::back_inserter(binding.cpus));
    }
    std::ranges::sort(binding.cpus);
    binding.where = to == BindTo::core ? cores_text(end - first)
                                       : "NUMA node " + std::to_string(cores[first].node);
  }
  return all;
}

}  // namespace hocket::internal::launch
