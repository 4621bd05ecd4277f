#include "cpus.h"

#include <sched.h>

#include <memory>
#include <new>

namespace hocket::internal::launch {
namespace {

constexpr std::size_t most_cpus = 1 << 16;  // the kernel refuses a set that is too small

struct Free {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using Set = std::unique_ptr<cpu_set_t, Free>;

constexpr std::size_t set_bytes = CPU_ALLOC_SIZE(most_cpus);

Set empty_set() {
  Set set(CPU_ALLOC(most_cpus));
  if (!set) throw std::bad_alloc();
  CPU_ZERO_S(set_bytes, set.get());
  return set;
}

Status set_affinity(const Cpus& cpus) {
  const Set set = empty_set();
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), set_bytes, set.get());
  if (::sched_setaffinity(0, set_bytes, set.get()) == 0) return {};
  return system_error("cannot bind a rank to CPUs " + cpus_text(cpus) +
                      " (write --bind-to none to start without that)");
}

}  // namespace

std::string cpus_text(const Cpus& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (end - i > 1) text += "-" + std::to_string(cpus[end - 1]);
    i = end;
  }
  return text;
}

Status allowed_cpus(Cpus* cpus) {
  const Set set = empty_set();
  if (::sched_getaffinity(0, set_bytes, set.get()) != 0)
    return system_error("cannot read the CPUs on which ranks may run");
  cpus->clear();
  for (std::size_t cpu = 0; cpu < most_cpus; ++cpu) {
    if (CPU_ISSET_S(cpu, set_bytes, set.get())) cpus->push_back(static_cast<int>(cpu));
  }
  return {};
}

Status Affinity::set(const Cpus& cpus) {
  if (cpus.empty()) return {};
  HOCKET_RETURN_IF_ERROR(allowed_cpus(&before_));
  return set_affinity(cpus);
}

Affinity::~Affinity() {
  if (!before_.empty()) static_cast<void>(set_affinity(before_).ok());
}

}  // namespace hocket::internal::launch
