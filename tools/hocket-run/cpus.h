// Sets of CPUs (hardware threads, by the numbers of the kernel), and the CPUs of this process.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace hocket::internal::launch {

using Cpus = std::vector<int>;  // in ascending order

/// As the kernel writes them: "0-3,8".
std::string cpus_text(const Cpus& cpus);

/// The CPUs on which this process may run.
Status allowed_cpus(Cpus* cpus);

/// Binds this process, and so the processes that it starts, for the lifetime of the object.
class Affinity {
 public:
  Affinity() = default;
  ~Affinity();
  Affinity(const Affinity&) = delete;
  Affinity& operator=(const Affinity&) = delete;
  /// No CPUs: changes nothing.
  Status set(const Cpus& cpus);

 private:
  Cpus before_;  // empty: set() has changed nothing
};

}  // namespace hocket::internal::launch
