// hocket-perf's command-line flags, for options.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "options.h"

namespace hocket::perf {

/// Values of flags whose meaning depends on other flags.
struct Pending {
  std::optional<int> blocking;  // -z
  bool null_stream = false;     // -y 1
  bool barrier = false;
  bool aligned = false;
  bool overlap = false;
  bool average = false;  // -a was given
  bool root = false;     // -r was given
};

void add_flags(CLI::App* app, Options* options, Pending* pending);

}  // namespace hocket::perf
