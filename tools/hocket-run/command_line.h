// The command line of hocket-run: the options that hocket-run has, and their text for --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/settings.h"
#include "base/status.h"
#include "options.h"

namespace hocket::internal::launch {

/// The options as they were written.
struct CommandLine {
  Options options;
  std::string hosts;
  std::string host_file;
  std::string on_death = "end";
  std::string map_by = "slot";
  std::string bind_to;  // empty: not given
  std::vector<std::string> environment;
  bool shared_heap = false;
  bool show_settings = false;
};

/// Declares the options. The parser stores their values in line.
void describe(CLI::App* app, CommandLine* line);

/// Checks the words before the program: replaces other spellings of an option (-np, -hostfile) by
/// that of hocket-run, and refuses options that only other launchers have, before the parser can
/// read -hostfile as -h.
Status take_own_options(const CLI::App& app, std::vector<std::string>* words);

/// Completes line->options: hosts, environment, and what the settings decide.
Status complete(CommandLine* line, const Settings& settings, bool ssh_given);

}  // namespace hocket::internal::launch
