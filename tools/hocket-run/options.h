// The command line of hocket-run, checked.
#pragma once

#include <string>
#include <vector>

#include "base/settings.h"
#include "base/status.h"

namespace hocket::internal::launch {

struct HostSlots {
  std::string name;  // empty: this host, whatever it is called
  int slots = 0;
  bool remote = false;  // reached by ssh
};

struct Options {
  int ranks = 0;  // 0: the sum of the slots
  std::vector<HostSlots> hosts;
  bool tag_output = false;
  bool end_on_death = true;
  std::string ssh = "ssh";
  std::string interface;
  std::vector<std::string> environment;  // NAME=value, to be set for every rank
  std::vector<std::string> program;
};

/// "a:2,b:2,[fd77::1]:3,c" (one slot where none is said).
Status parse_hosts(const std::string& text, std::vector<HostSlots>* hosts);

/// NAME=value as it is; NAME: with its value here, an error where there is none.
Status parse_environment(const std::vector<std::string>& given, std::vector<std::string>* out);

/// Settles how many ranks run on which host: afterwards hosts has only those with ranks, slots is
/// their number of ranks, and the sum is ranks.
Status place_ranks(Options* options);

/// Words of a command as a shell would see them: blanks separate, quotes and backslashes keep.
Status split_command(const std::string& text, std::vector<std::string>* words);

}  // namespace hocket::internal::launch
