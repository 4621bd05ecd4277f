// The command line of hocket-run, checked.
#pragma once

#include <string>
#include <vector>

#include "base/settings.h"
#include "base/status.h"
#include "hosts.h"
#include "placement.h"
#include "programs.h"

namespace hocket::internal::launch {

struct Options {
  int ranks = 0;  // 0: as many as --map-by and the slots of the hosts say
  std::vector<HostSlots> hosts;
  std::string hosts_source = "--hosts";  // the option or the file that has the hosts
  bool tag_output = false;
  bool pty = false;  // ranks write to pseudo terminals
  bool end_on_death = true;
  MapBy map_by;
  BindingRules binding;
  bool report_bindings = false;
  bool show_placement = false;   // start no rank
  double timeout_s = 0;          // 0: no limit
  std::string output_directory;  // empty: the output of the ranks goes to that of hocket-run
  std::string ssh = "ssh";
  std::string interface;
  std::string directory;                 // as it was written; empty: that of hocket-run
  std::vector<std::string> environment;  // NAME=value, to be set for every rank
  std::vector<Program> programs;
};

/// Copies NAME=value. Completes NAME with its value in this environment; an error if it has none.
Status parse_environment(const std::vector<std::string>& given, std::vector<std::string>* out);

/// With several programs, makes ranks the sum of theirs. Until then ranks is that of the first.
Status count_ranks(Options* options);

/// Decides which ranks and programs run on each host.
Status place_ranks(Options* options);

/// Splits a command into words as a shell does, with quotes and backslashes.
Status split_command(const std::string& text, std::vector<std::string>* words);

}  // namespace hocket::internal::launch
