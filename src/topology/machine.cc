#include "topology/machine.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <new>
#include <string>

namespace hocket::internal {
namespace {

// Reads sysfs, which has values like "32768K". sysconf uses cpuid, which is wrong in some virtual
// machines.
std::size_t cache_bytes(int index, std::string* type, std::string* shared) {
  const std::string folder =
      "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
  std::ifstream(folder + "type") >> *type;
  std::ifstream(folder + "shared_cpu_list") >> *shared;
  std::ifstream file(folder + "size");
  std::size_t size = 0;
  char unit = 0;
  if (!(file >> size)) return 0;
  file >> unit;
  return unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size;
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

/// x86 processors say so in a bit of cpuid that hypervisors set. Others: false.
bool is_guest() {
#ifdef __x86_64__
  constexpr unsigned features = 1, hypervisor = 1U << 31;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(features, &eax, &ebx, &ecx, &edx) != 0 && (ecx & hypervisor) != 0;
#else
  return false;
#endif
}

Machine look() {
  Machine found;
  found.is_guest = is_guest();
  found.id = machine_id();
  found.cores = own_cores();
  std::string type, shared;
  for (int index = 0; index < 8; ++index) {
    const std::size_t bytes = cache_bytes(index, &type, &shared);
    if (bytes == 0) break;
    if (type == "Instruction") continue;
    found.last_level_cache = std::max(found.last_level_cache, bytes);
    const bool one_core = shared.find_first_of(",-") == std::string::npos;
    if (one_core) found.core_cache = std::max(found.core_cache, bytes);
  }
  return found;
}

}  // namespace

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
