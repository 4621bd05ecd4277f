// What this process may use of the machine: looked up once.
#pragma once

#include <cstddef>

namespace hocket {

struct Machine {
  int cores = 1;                     // that this process may run on
  std::size_t last_level_cache = 0;  // bytes, of the largest cache; 0: unknown
  std::size_t core_cache = 0;  // bytes, of the largest cache a core has to itself (L2); 0: unknown
};

const Machine& machine();

}  // namespace hocket
