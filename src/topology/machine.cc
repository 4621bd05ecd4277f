#include "topology/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <new>
#include <sstream>
#include <string>

namespace hocket::internal {
namespace {

/// The cores of a list of the kernel, "0-3,8,10-11".
CoreSet cores_of(const std::string& list) {
  CoreSet cores;
  std::istringstream parts(list);
  std::size_t first = 0;
  while (parts >> first) {
    std::size_t last = first;
    if (parts.peek() == '-') parts.ignore() >> last;
    for (std::size_t core = first; core <= last && core < cores.size(); ++core) cores.set(core);
    parts.ignore();  // the comma
  }
  return cores;
}

struct Cache {
  std::size_t bytes = 0;  // 0: there is no such cache
  std::string type;
  CoreSet cores;  // that share it
};

// Reads sysfs, which has values like "32768K". sysconf uses cpuid, which is wrong in some virtual
// machines.
Cache cache_of(const std::filesystem::path& cpus, std::size_t core, int index) {
  const std::filesystem::path folder =
      cpus / ("cpu" + std::to_string(core)) / "cache" / ("index" + std::to_string(index));
  Cache cache;
  std::string shared;
  std::ifstream(folder / "type") >> cache.type;
  std::ifstream(folder / "shared_cpu_list") >> shared;
  cache.cores = cores_of(shared);
  std::ifstream file(folder / "size");
  char unit = 0;
  if (!(file >> cache.bytes)) cache.bytes = 0;
  file >> unit;
  if (unit == 'K') cache.bytes <<= 10;
  if (unit == 'M') cache.bytes <<= 20;
  return cache;
}

CoreSet own_cores() {
  constexpr std::size_t most = 1 << 16;  // the kernel refuses a set that is too small for its cores
  CoreSet cores;
  cpu_set_t* const set = CPU_ALLOC(most);
  if (set == nullptr) throw std::bad_alloc();
  const std::size_t bytes = CPU_ALLOC_SIZE(most);
  CPU_ZERO_S(bytes, set);
  if (::sched_getaffinity(0, bytes, set) == 0) {
    for (std::size_t core = 0; core < most; ++core) {
      if (CPU_ISSET_S(core, bytes, set)) cores.set(core % cores.size());
    }
  }
  CPU_FREE(set);
  if (cores.none()) cores.set(0);
  return cores;
}

/// A number of the running kernel. Containers of a host share it, whatever their host names are.
std::uint64_t machine_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  char host[256] = {};
  if (id.empty() && ::gethostname(host, sizeof host - 1) == 0) id = host;
  return std::hash<std::string>()(id);
}

Machine look() {
  Machine found;
  found.id = machine_id();
  found.cores = own_cores();
  found.caches = caches_in("/sys/devices/system/cpu");
  return found;
}

}  // namespace

Caches caches_in(const std::filesystem::path& cpus) {
  Caches caches;
  Cache largest;
  CoreSet of_core;  // the threads of core 0
  int last_level = 0;
  for (int index = 0; index < 8; ++index) {
    const Cache cache = cache_of(cpus, 0, index);
    if (cache.bytes == 0) break;
    if (cache.type == "Instruction") continue;
    if (largest.bytes == 0) of_core = cache.cores;  // the first level
    if (cache.cores == of_core) caches.of_core = std::max(caches.of_core, cache.bytes);
    if (cache.bytes <= largest.bytes) continue;
    largest = cache;
    last_level = index;
  }
  if (largest.bytes == 0) return caches;
  std::string online;
  std::ifstream(cpus / "online") >> online;
  CoreSet rest = cores_of(online) & ~largest.cores;
  caches.of_node = largest.bytes;
  for (std::size_t core = 0; core < rest.size(); ++core) {
    if (!rest[core]) continue;
    const Cache cache = cache_of(cpus, core, last_level);
    caches.of_node += cache.bytes;
    rest &= ~cache.cores;
  }
  const std::size_t cores = std::max<std::size_t>(1, largest.cores.count());
  if (largest.bytes / cores > most_cache_of_core) caches.of_node /= 4;
  return caches;
}

const Machine& machine() {
  static const Machine found = look();
  return found;
}

double ranks_per_core(std::span<const CoreSet> ranks) {
  const auto within = [ranks](const CoreSet& cores) {
    const auto bound = std::count_if(ranks.begin(), ranks.end(), [&](const CoreSet& of_rank) {
      return (of_rank & ~cores).none();
    });
    return static_cast<double>(bound) /
           static_cast<double>(std::max<std::size_t>(1, cores.count()));
  };
  CoreSet all;
  for (const CoreSet& cores : ranks) all |= cores;
  double most = within(all);
  for (const CoreSet& cores : ranks) most = std::max(most, within(cores));
  return most;
}

}  // namespace hocket::internal
