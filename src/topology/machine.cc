#include "topology/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace hocket {
namespace {

// sysfs gives "32768K". cpuid, which sysconf reads, knows nothing of what a virtual machine was
// given.
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

Machine look() {
  Machine found;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    found.cores = std::max(1, CPU_COUNT(&set));
  } else {
    // More than 1024 CPUs: the set is too small, and the exact number no longer matters.
    found.cores = static_cast<int>(std::max<long>(1, ::sysconf(_SC_NPROCESSORS_ONLN)));
  }
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

}  // namespace hocket
